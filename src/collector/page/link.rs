//! Addresses of pages, with what they ask for.

use crate::collector::model::{FleetQuery, Sort, Standing};
use crate::ident::Digest;

/// The 64 hex digits stand in the address; `sha256:` before them is understood too.
pub fn node_address(host: &Digest) -> String {
    format!("/nodes/{}", host.hex())
}

pub fn record_address(payload: &Digest) -> String {
    format!("/records/{}", payload.hex())
}

pub fn diff_address(before: &Digest, after: &Digest) -> String {
    format!("/diff?a={}&b={}", before.hex(), after.hex())
}

/// The fleet with this question; what is not asked is left out.
pub fn fleet_address(query: &FleetQuery) -> String {
    with_query("/", query)
}

/// The same question to another page.
pub fn with_query(path: &str, query: &FleetQuery) -> String {
    let mut pairs = vec![("q", query.text.trim().to_owned())];
    pairs.push(("standing", query.standing.map(Standing::as_str).unwrap_or_default().to_owned()));
    pairs.push(("class", query.class.clone().unwrap_or_default()));
    pairs.push(("tier", query.tier.map(|tier| tier.to_string()).unwrap_or_default()));
    pairs.push(("finding", query.finding.clone().unwrap_or_default()));
    pairs.push(("sort", if query.sort == Sort::default() { "" } else { sort_word(query.sort) }.to_owned()));
    pairs.push(("page", if query.page > 1 { query.page.to_string() } else { String::new() }));
    let asked: Vec<String> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    if asked.is_empty() { path.to_owned() } else { format!("{path}?{}", asked.join("&")) }
}

pub fn sort_word(sort: Sort) -> &'static str {
    match sort {
        Sort::Worst => "worst",
        Sort::Name => "name",
        Sort::Newest => "newest",
        Sort::Oldest => "oldest",
    }
}

/// Everything but the unreserved characters of RFC 3986 as per cent and hex.
fn encoded(text: &str) -> String {
    let mut safe = String::new();
    for byte in text.bytes().take(600) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => safe.push(char::from(byte)),
            byte => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::standing::Tier;

    #[test]
    fn a_question_survives_its_address() {
        let query = FleetQuery {
            text: "r12 <u07>&q=x é".to_owned(),
            standing: Some(Standing::Rejected),
            class: Some("hgx-h100-8".to_owned()),
            tier: Some(Tier::SshHostKey),
            finding: Some("link-narrow".to_owned()),
            sort: Sort::Oldest,
            page: 3,
        };
        let address = fleet_address(&query);
        assert!(address.starts_with("/?q=r12%20%3Cu07%3E%26q%3Dx%20%C3%A9&standing=rejected"), "{address}");
        let uri: axum::http::Uri = address.parse().unwrap();
        let axum::extract::Query(read) = axum::extract::Query::<FleetQuery>::try_from_uri(&uri).unwrap();
        assert_eq!(read, query);
    }

    #[test]
    fn what_is_not_asked_is_left_out() {
        assert_eq!(fleet_address(&FleetQuery { page: 1, ..FleetQuery::default() }), "/");
    }
}
