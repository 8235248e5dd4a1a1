//! A copy of an SQLite store while it serves: whole, as of one moment, or not there at all.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tempfile::Builder;

use super::{EngineError, Place, Store, StoreError};

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("this store is a PostgreSQL database: back it up with pg_dump")]
    Server,
    #[error("{path} exists already")]
    Exists { path: PathBuf },
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("the copy is damaged: {0}")]
    Damaged(String),
    #[error("the store cannot be copied")]
    Copy(#[from] StoreError),
}

impl Store {
    /// Copies the store to a file that does not exist yet. Who writes meanwhile does not wait.
    pub fn backup(&self, to: &Path) -> Result<(), BackupError> {
        let Place::File(from) = &self.0.place else { return Err(BackupError::Server) };
        let unwritten = |source| BackupError::Write { path: to.to_owned(), source };
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let copy = Builder::new().prefix(".nodegate-").suffix(".tmp").tempfile_in(folder).map_err(unwritten)?;
        copy_pages(from, copy.path()).map_err(|error| StoreError::from(EngineError::from(error)))?;
        let said = check(copy.path()).map_err(|error| StoreError::from(EngineError::from(error)))?;
        if said != "ok" {
            return Err(BackupError::Damaged(crate::ident::printable(&said, 200)));
        }
        copy.as_file().sync_all().map_err(unwritten)?;
        copy.persist_noclobber(to).map_err(|error| match error.error.kind() {
            std::io::ErrorKind::AlreadyExists => BackupError::Exists { path: to.to_owned() },
            _ => unwritten(error.error),
        })?;
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(unwritten)
    }
}

/// All pages in one step, which reads one moment of the store: a copy in several steps begins
/// anew whenever another connection writes.
fn copy_pages(from: &Path, to: &Path) -> Result<(), rusqlite::Error> {
    let source = Connection::open(from)?;
    source.busy_timeout(super::sqlite::PATIENCE)?;
    let mut copy = Connection::open(to)?;
    {
        let backup = Backup::new(&source, &mut copy)?;
        let patience = std::time::Instant::now() + super::sqlite::PATIENCE;
        while backup.step(-1)? != StepResult::Done {
            if std::time::Instant::now() > patience {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    // One file, without a log beside it that could be left behind.
    copy.pragma_update(None, "journal_mode", "delete")?;
    copy.close().map_err(|(_, error)| error)
}

fn check(copy: &Path) -> Result<String, rusqlite::Error> {
    Connection::open(copy)?.query_row("PRAGMA quick_check", [], |row| row.get(0))
}
