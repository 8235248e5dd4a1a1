//! The files that a person names: suite, class and site, read from disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::ident::printable;
use crate::plan::document::MAXIMUM;
use crate::plan::site::Site;
use crate::plan::{Document, Problem, Problems};

/// Reads a file that must be there.
///
/// # Errors
///
/// If it is missing, no plain file, unreadable, too large or not UTF-8.
pub fn required(path: &Path) -> Result<Document, Problems> {
    optional(path)?.ok_or_else(|| Problems::one(&name(path), "there is no such file"))
}

/// Reads a file that may be missing. One that is there and cannot be read is an error: it is
/// never taken for a missing one.
///
/// # Errors
///
/// As for [`required`].
pub fn optional(path: &Path) -> Result<Option<Document>, Problems> {
    let problem = |error: std::io::Error| Problems::one(&name(path), format!("cannot be read: {error}"));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(problem(error)),
    };
    if !metadata.is_file() {
        // A pipe or device could block or never end.
        return Err(Problems::one(&name(path), "not a plain file"));
    }
    let mut bytes = Vec::new();
    let limit = MAXIMUM as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(problem)?;
    Document::new(&name(path), &bytes).map(Some)
}

/// Files that hold a secret and that others than their owner may read.
pub fn exposed_secrets(site: &Site) -> Problems {
    let secrets = [
        ("credential", &site.collector.credential),
        ("client-key", &site.collector.client_key),
        ("key", &site.paths.key),
    ];
    let mut problems = Problems::default();
    for (key, path) in secrets {
        let Some(path) = path else { continue };
        let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
        if let Ok(mode) = mode
            && mode & 0o077 != 0
        {
            let text = format!("`{key}` {} has mode {mode:04o}; chmod 600 it", name(path));
            problems.0.push(Problem { place: site.name.clone(), line: None, text });
        }
    }
    problems
}

fn name(path: &Path) -> String {
    printable(&path.to_string_lossy(), 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_none_and_an_unreadable_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(optional(&folder.path().join("site.toml")).unwrap().is_none());
        assert!(required(&folder.path().join("site.toml")).unwrap_err().to_string().contains("no such file"));
        assert!(optional(folder.path()).unwrap_err().to_string().contains("not a plain file"));
    }

    #[test]
    fn a_huge_file_is_refused_without_being_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(100 << 20).unwrap();
        assert!(optional(file.path()).unwrap_err().to_string().contains("larger than"));
    }
}
