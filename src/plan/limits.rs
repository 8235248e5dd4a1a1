//! From parameters to a check, and from a check's refusal back to the parameter.

use crate::check::{Check, Kind};
use crate::ident::printable;

use super::Limit;

/// Why a check does not take its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The parameter that it does not take; none where one is missing or the error does not say.
    pub parameter: Option<String>,
    pub text: String,
}

/// The check of this kind with these parameters.
///
/// # Errors
///
/// Every parameter that the check refuses: a wrong one is taken out and the rest tried again,
/// so that several are reported at once.
pub fn build(kind: &Kind, limits: &[Limit]) -> Result<Box<dyn Check>, Vec<Refusal>> {
    let mut rest: Vec<&Limit> = limits.iter().collect();
    let mut refusals: Vec<Refusal> = Vec::new();
    loop {
        let table = rest.iter().map(|limit| (limit.name.clone(), limit.value.clone())).collect();
        let error = match (kind.build)(table) {
            Ok(check) if refusals.is_empty() => return Ok(check),
            Ok(_) => return Err(refusals),
            Err(error) => error.to_string(),
        };
        let culprit = rest.iter().position(|limit| is_about(&error, &limit.name));
        // What is missing only because it was taken out is no new problem.
        let echo = |refusal: &Refusal| refusal.parameter.as_ref().is_some_and(|name| is_about(&error, name));
        if culprit.is_none() && refusals.iter().any(echo) {
            return Err(refusals);
        }
        let parameter = culprit.map(|index| rest.remove(index).name.clone());
        let last = parameter.is_none();
        refusals.push(Refusal { parameter, text: one_line(&error) });
        if last {
            return Err(refusals);
        }
    }
}

/// Whether the error names the parameter: toml ends it with ``in `NAME` ``, serde says ``field `NAME` ``.
fn is_about(error: &str, name: &str) -> bool {
    [
        format!("in `{name}`"),
        format!("in `{name}."),
        format!("in `{name}["),
        format!("field `{name}`"),
        format!("`{name}`:"),
    ]
    .iter()
    .any(|form| error.contains(form))
}

fn one_line(error: &str) -> String {
    let lines: Vec<&str> = error.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    printable(&lines.join(" "), 300)
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn limit(name: &str, value: toml::Value) -> Limit {
        Limit { name: name.to_owned(), value, source: String::new() }
    }

    #[test]
    fn each_wrong_parameter_is_reported_by_name_and_a_missing_one_too() {
        let kind = testing::kind("power");
        let right = [limit("limit", "700 W".into()), limit("samples", 3.into())];
        assert!(build(kind, &right).is_ok());

        let refusals = build(kind, &[limit("limit", "700 F".into()), limit("samples", "x".into())]).unwrap_err();
        let parameters: Vec<_> = refusals.iter().filter_map(|refusal| refusal.parameter.as_deref()).collect();
        assert_eq!(parameters.len(), 2, "{refusals:?}");
        assert!(parameters.contains(&"limit") && parameters.contains(&"samples"), "{refusals:?}");
        assert!(refusals.iter().any(|refusal| refusal.text.contains("`700 F` is not a power")), "{refusals:?}");

        let refusals = build(kind, &[limit("limit", "700 W".into())]).unwrap_err();
        assert!(refusals[0].parameter.is_none() && refusals[0].text.contains("samples"), "{refusals:?}");
    }
}
