//! `nodegate plan`: what would run, with limits, time and missing site entries. It runs nothing.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use jiff::civil::Date;

use crate::check::Kind;
use crate::decision::{Level, Stage};
use crate::ident::PciModel;
use crate::plan::class::{self, Wish};
use crate::plan::site;
use crate::plan::{Inputs, Plan, Problems, suite};
use crate::report::plan::{self as report, Footprint};

use super::input;

/// About how many bytes a run writes: the record, its Sigstore bundle and the two documents.
/// Measured on the recorded host with eight GPUs, 68 456 bytes in the state folder, rounded up.
const WRITES: u64 = 100_000;

/// What is to run; `run` and `plan` take the same.
#[derive(Clone, Debug, clap::Args)]
pub struct Selection {
    /// The kind of host: a class by name or file, or by the GPUs on the PCI bus
    #[arg(long, value_name = "auto|ID|FILE", default_value = "auto")]
    pub class: String,
    /// A suite of your own
    #[arg(long, value_name = "FILE")]
    pub suite: Option<PathBuf>,
    /// How far the host has come [default: rack without a site file, with one as far as the suite goes]
    #[arg(long, value_enum)]
    pub stage: Option<Stage>,
    /// How deep to look
    #[arg(long, value_enum, default_value_t = Level::Quick)]
    pub level: Level,
    /// Run only these steps and those that they need: a partial run
    #[arg(long, value_name = "STEP,..", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Leave these steps out: a partial run
    #[arg(long, value_name = "STEP,..", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// The site file [default: /etc/nodegate/site.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub selection: Selection,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What the choice of class and limits depends on beside options and files.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// NVIDIA GPUs on the PCI bus as sysfs shows them.
    pub models: Vec<PciModel>,
    pub hostname: Option<String>,
    pub today: Date,
    /// The site file where `--site` names none; it may be missing.
    pub site: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// What cannot be read as this user, one line each.
    pub lacking: Vec<String>,
}

/// A plan with what it was made of and a run still needs.
#[derive(Debug)]
pub struct Resolved {
    pub plan: Plan,
    /// The class's title.
    pub title: String,
    /// The site's collector.
    pub collector: site::Collector,
}

impl Selection {
    /// Reads the files, chooses the class and resolves the plan.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the files and options.
    pub fn resolve(&self, around: &Surroundings, kinds: &[Kind]) -> Result<Resolved, Problems> {
        let suite = match &self.suite {
            Some(path) => suite::load(&input::required(path)?, kinds)?,
            None => suite::builtin(kinds)?,
        };
        let document = match &self.site {
            Some(path) => Some(input::required(path)?),
            None => input::optional(&around.site)?,
        };
        let site = document.map(|document| site::load(&document, &suite, kinds)).transpose()?;
        if let Some(site) = &site {
            input::exposed_secrets(site).or(())?;
        }
        let named = site.as_ref().and_then(|site| site.class.as_deref());
        let choice = class::choose(&around.models, named, &self.wish()?, &suite, kinds)?;
        let inputs = Inputs {
            suite: &suite,
            choice: &choice,
            site: site.as_ref(),
            stage: self.stage,
            level: self.level,
            only: &self.only,
            skip: &self.skip,
            hostname: around.hostname.as_deref(),
            today: around.today,
        };
        let plan = Plan::resolve(&inputs, kinds)?;
        let collector = site.map(|site| site.collector).unwrap_or_default();
        Ok(Resolved { plan, title: choice.class.title, collector })
    }

    /// `--class`: what looks like a path is one.
    fn wish(&self) -> Result<Wish, Problems> {
        if self.class == "auto" {
            Ok(Wish::Auto)
        } else if self.class.contains('/') || self.class.ends_with(".toml") {
            Ok(Wish::File(input::required(self.class.as_ref())?))
        } else {
            Ok(Wish::Id(self.class.clone()))
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
        })
    }
}

/// Prints the plan.
///
/// # Errors
///
/// [`Problems`] with files or options, or the output's own error.
pub fn run(args: &Args, around: &Surroundings, kinds: &[Kind], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let Resolved { plan, title, .. } = args.selection.resolve(around, kinds)?;
    let footprint =
        Footprint { lacking: around.lacking.clone(), state: around.state.display().to_string(), bytes: WRITES };
    match args.format {
        Format::Text => out.write_all(report::text(&plan, &title, kinds, &footprint).as_bytes())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &report::as_json(&plan, kinds, &footprint))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{self, KINDS};

    fn around(folder: &std::path::Path) -> Surroundings {
        Surroundings {
            models: Vec::new(),
            hostname: None,
            today: "2030-06-01".parse().unwrap(),
            site: folder.join("site.toml"),
            state: "/var/lib/nodegate".into(),
            lacking: Vec::new(),
        }
    }

    fn args(folder: &std::path::Path, class: &str) -> Args {
        std::fs::write(folder.join("suite.toml"), testing::SUITE).unwrap();
        std::fs::write(folder.join("small.toml"), testing::CLASS).unwrap();
        Args {
            selection: Selection {
                class: folder.join(class).display().to_string(),
                suite: Some(folder.join("suite.toml")),
                stage: None,
                level: Level::Quick,
                only: Vec::new(),
                skip: Vec::new(),
                site: None,
            },
            format: Format::Text,
        }
    }

    #[test]
    fn files_of_ones_own_are_planned_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        run(&args(folder.path(), "small.toml"), &around(folder.path()), KINDS, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("class small (named)"));

        let args = args(folder.path(), "smal.toml");
        let error = run(&args, &around(folder.path()), KINDS, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("smal.toml: there is no such file"), "{error}");
    }

    #[test]
    fn a_secret_that_others_can_read_stops_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("token");
        std::fs::write(&secret, "x").unwrap();
        let site =
            format!("format = 1\n[collector]\nurl = \"https://c.example\"\ncredential = \"{}\"\n", secret.display());
        std::fs::write(folder.path().join("site.toml"), site).unwrap();
        let (args, around) = (args(folder.path(), "small.toml"), around(folder.path()));
        let error = run(&args, &around, KINDS, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(run(&args, &around, KINDS, &mut Vec::new()).is_ok());
    }
}
