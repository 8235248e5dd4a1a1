//! `nodegate site`: the file of what belongs to this place, begun, checked and shown.

use std::error::Error;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::check::Kind;
use crate::plan::site::{self, SITE_PATH, Site};
use crate::plan::{Problems, suite};

use super::input;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate site init\n  nodegate site check ./site.toml\n  nodegate site show")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Writes a commented example; never over a file that is there
    #[command(after_help = "Examples:\n  nodegate site init --path ./site.toml")]
    Init {
        #[arg(long, value_name = "FILE", default_value = SITE_PATH)]
        path: PathBuf,
    },
    /// Says everything that is wrong with a site file
    #[command(after_help = "Examples:\n  nodegate site check ./site.toml")]
    Check {
        #[arg(default_value = SITE_PATH)]
        file: PathBuf,
    },
    /// What the site file says
    #[command(after_help = "Examples:\n  nodegate site show")]
    Show {
        #[arg(default_value = SITE_PATH)]
        file: PathBuf,
    },
}

/// Begins, checks or shows a site file.
///
/// # Errors
///
/// [`Problems`] with the file, or the output's own error.
pub fn run(args: &Args, kinds: &[Kind], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match &args.command {
        Command::Init { path } => {
            init(path)?;
            writeln!(out, "{} written; edit it, then: nodegate site check {0}", path.display())?;
        }
        Command::Check { file } => {
            read(file, kinds)?;
            writeln!(out, "{} is right", file.display())?;
        }
        Command::Show { file } => show(&read(file, kinds)?, out)?,
    }
    Ok(())
}

fn read(file: &Path, kinds: &[Kind]) -> Result<Site, Problems> {
    let suite = suite::builtin(kinds)?;
    let site = site::load(&input::required(file)?, &suite, kinds)?;
    input::exposed_secrets(&site).or(site)
}

/// Writes the example whole or not at all.
fn init(path: &Path) -> Result<(), Problems> {
    let problem = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "is there already and is left as it is".to_owned(),
            _ => format!("cannot be written: {error}"),
        };
        Problems::one(&path.display().to_string(), why)
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(problem)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(problem)?;
    file.write_all(site::EXAMPLE.as_bytes()).map_err(problem)?;
    // Nothing in it is secret, and an unprivileged `plan` must be able to read it.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(problem)?;
    file.persist_noclobber(path).map_err(|error| problem(error.error))?;
    Ok(())
}

fn show(site: &Site, out: &mut dyn Write) -> std::io::Result<()> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let path = |path: &Option<PathBuf>| or_dash(path.as_ref().map(|path| path.display().to_string()));
    writeln!(out, "site         {} ({})", site.name, site.digest)?;
    writeln!(out, "class        {}", or_dash(site.class.clone()))?;
    writeln!(out, "stage        {}", or_dash(site.stage.map(|stage| stage.to_string())))?;
    writeln!(out, "gpu-count    {}", or_dash(site.expect.gpu_count.as_ref().map(|count| count.value.to_string())))?;
    writeln!(out, "hostname     {}", or_dash(site.expect.hostname.as_ref().map(|name| name.value.clone())))?;
    writeln!(out, "collector    {}", or_dash(site.collector.url.as_ref().map(ToString::to_string)))?;
    writeln!(out, "receipt-key  {}", path(&site.collector.receipt_key))?;
    writeln!(out, "credential   {}", path(&site.collector.credential))?;
    writeln!(out, "ca           {}", path(&site.collector.ca))?;
    writeln!(out, "client       {}", path(&site.collector.client_certificate))?;
    writeln!(out, "proxy        {}", or_dash(site.collector.proxy.as_ref().map(ToString::to_string)))?;
    writeln!(out, "enroll       {}", if site.collector.first_use { "first-use" } else { "never" })?;
    writeln!(out, "state        {}", path(&site.paths.state))?;
    writeln!(out, "key          {}", path(&site.paths.key))?;
    for approved in &site.paths.approved {
        writeln!(out, "approved     {}", approved.display())?;
    }
    for change in site.overrides.iter().map(|at| &at.value) {
        let (step, parameter, who) = (&change.step, &change.parameter, &change.who);
        writeln!(out, "override     {step} {parameter} = {} by {who}: {}", change.value, change.reason)?;
    }
    for waiver in site.waivers.iter().map(|at| &at.value.waiver) {
        let (step, finding, subject) = (&waiver.step, &waiver.finding, &waiver.subject);
        let (until, who) = (&waiver.until, &waiver.who);
        writeln!(out, "waiver       {step} {finding} on {subject} until {until} by {who}: {}", waiver.reason)?;
    }
    for (bus_id, name) in &site.slots {
        writeln!(out, "slot         {bus_id} {name}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_writes_a_whole_example_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("etc/site.toml");
        init(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), site::EXAMPLE);
        std::fs::write(&path, "mine").unwrap();
        assert!(init(&path).unwrap_err().to_string().contains("is there already"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(folder.path().join("etc")).unwrap().count(), 1, "nothing half-written stays");
    }
}
