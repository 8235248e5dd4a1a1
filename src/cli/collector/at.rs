//! Where a collector's store and its own files are.

use std::path::PathBuf;

use super::super::Failure;
use crate::collector::secret;
use crate::record::{durable, store};

/// The options that say which store it is.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct At {
    /// sqlite:PATH, or postgres://USER@HOST/DATABASE (its password stands in ~/.pgpass)
    /// [default: sqlite: and collector.db in the state folder]
    // Parsed by us: clap would show what it refuses, a password in it too.
    #[arg(long, value_name = "URL", conflicts_with = "store_file")]
    store: Option<String>,
    /// A file, readable by its owner alone, with the store's URL and the password in it
    #[arg(long, value_name = "FILE")]
    store_file: Option<PathBuf>,
    /// The collector's own folder, with its receipt key [default: /var/lib/nodegate-collector for root]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl At {
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.state {
            return Ok(folder.clone());
        }
        // Beside the folder of a host's own records, under its name.
        let hosts = store::default_folder().map_err(Failure::misused)?;
        Ok(hosts.with_file_name("nodegate-collector"))
    }

    /// The store's URL. It may hold a password, and is not for showing.
    pub fn url(&self) -> Result<String, Failure> {
        if let Some(file) = &self.store_file {
            let text = secret::read(file).map_err(Failure::misused)?;
            return Ok(text.trim().to_owned());
        }
        match &self.store {
            Some(url) if has_password(url) => Err(Failure::misused(
                "--store: a password does not belong on a command line, where everybody sees it; \
                 put the URL into a file that only you can read and name it with --store-file, or use ~/.pgpass",
            )),
            Some(url) => Ok(url.clone()),
            None => Ok(format!("sqlite:{}", self.folder()?.join("collector.db").display())),
        }
    }

    /// The folder is made where it is missing, for us alone: the usual store lies in it.
    pub fn make_folder(&self) -> Result<(), Failure> {
        let folder = self.folder()?;
        durable::make_folder(&folder).map_err(|error| Failure::misused(format!("{}: {error}", folder.display())))
    }

    /// What people are told of it.
    pub fn shown(&self) -> Result<String, Failure> {
        match &self.store_file {
            Some(file) => Ok(format!("as {} says", file.display())),
            None => self.url(),
        }
    }
}

/// In the authority (`user:password@`) or as a parameter.
fn has_password(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return url.contains("password=") };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let before_host = authority.rsplit_once('@').map_or("", |(user, _)| user);
    scheme != "sqlite" && (before_host.contains(':') || rest.contains("password="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn at(store: Option<&str>, store_file: Option<PathBuf>) -> At {
        At { store: store.map(str::to_owned), store_file, state: Some("/var/lib/c".into()) }
    }

    #[test]
    fn a_password_on_the_command_line_is_refused_and_not_shown() {
        for url in ["postgres://me:hunter2@db/x", "postgres://me@db/x?password=hunter2", "host=db password=hunter2"] {
            let Err(Failure::Misused(error)) = at(Some(url), None).url() else { panic!("{url}") };
            assert!(error.to_string().contains("--store-file") && !error.to_string().contains("hunter2"));
        }
        for url in ["postgres://me@db/x", "postgres://me@[::1]:5432/x", "sqlite:/var/lib/a:b@c.db"] {
            assert_eq!(at(Some(url), None).url().unwrap(), url);
        }
        assert_eq!(at(None, None).url().unwrap(), "sqlite:/var/lib/c/collector.db");
    }

    #[test]
    fn a_file_gives_the_url_if_it_is_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::write(&path, "postgres://me:hunter2@db/x\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(at(None, Some(path.clone())).url().is_err());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let at = at(None, Some(path));
        assert_eq!(at.url().unwrap(), "postgres://me:hunter2@db/x");
        assert!(!at.shown().unwrap().contains("hunter2"));
    }
}
