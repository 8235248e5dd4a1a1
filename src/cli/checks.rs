//! `nodegate checks`: what kinds of checks there are and what each proves.

use std::error::Error;
use std::io::Write;

use clap::{Args, Subcommand};

use crate::check;
use crate::ident::printable;
use crate::report;

/// What checks there are and what each proves.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nodegate checks\n  nodegate checks explain pcie-link")]
pub struct ChecksArgs {
    #[command(subcommand)]
    command: Option<ChecksCommand>,
}

#[derive(Debug, Subcommand)]
enum ChecksCommand {
    /// Lists all checks in the order of a run (the default).
    #[command(after_help = "Examples:\n  nodegate checks list")]
    List,
    /// Explains one check: what a pass proves, how it is measured, when it misleads.
    #[command(after_help = "Examples:\n  nodegate checks explain pcie-link")]
    Explain {
        /// The check, e.g. `pcie-link`.
        id: String,
    },
    /// Prints `docs/checks.md`.
    #[command(hide = true)]
    Document,
}

/// There is no check of this name: a usage error.
#[derive(Debug, thiserror::Error)]
#[error("there is no check `{id}`{hint}")]
pub struct UnknownCheck {
    id: String,
    hint: String,
}

impl UnknownCheck {
    fn new(id: &str) -> Self {
        let hint = match check::nearest(id) {
            Some(nearest) => format!("; did you mean `{nearest}`?"),
            None => "; nodegate checks list names them all".to_owned(),
        };
        UnknownCheck { id: printable(id, 60), hint }
    }
}

/// Prints what was asked for.
///
/// # Errors
///
/// [`UnknownCheck`], or if `out` cannot be written to.
pub fn run(args: &ChecksArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match &args.command {
        None | Some(ChecksCommand::List) => report::checks::list(out)?,
        Some(ChecksCommand::Explain { id }) => {
            let kind = check::kind(id).ok_or_else(|| UnknownCheck::new(id))?;
            report::checks::explain(kind, out)?;
        }
        Some(ChecksCommand::Document) => out.write_all(check::documentation().as_bytes())?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(id: &str) -> Result<String, String> {
        let args = ChecksArgs { command: Some(ChecksCommand::Explain { id: id.to_owned() }) };
        let mut out = Vec::new();
        run(&args, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn an_unknown_check_is_answered_with_the_nearest_or_the_way_to_the_list() {
        assert_eq!(explain("pcie-lnk").unwrap_err(), "there is no check `pcie-lnk`; did you mean `pcie-link`?");
        assert!(
            explain("x\x1b[31m").unwrap_err().starts_with("there is no check `x\\u{1b}[31m`; nodegate checks list")
        );
        assert!(explain("ecc").unwrap().starts_with("ecc: "));
    }
}
