//! The root folder of a machine, live or recorded: the only reader of `/proc`, `/sys`, `/etc` and `/dev`.
//!
//! Paths are resolved by our own walk, as chroot would: an absolute symbolic link starts again
//! at the root folder and `..` stops there, so that a recording can name nothing outside itself.
//! A root that records remembers every file, folder and link that was read through it; that is
//! what `capture` writes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::reading::{Code, Reading};

/// Largest file that is read, in bytes.
pub const LARGEST: u64 = 1 << 20;
/// Links on one path, as the kernel's own limit (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;
/// Entries of one folder; a folder with more is not one that we know how to read.
const MOST_ENTRIES: usize = 65_536;

/// One thing that was read from a root folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trace {
    /// The text as it was read; what was not UTF-8 is U+FFFD.
    File(String),
    /// The target as the link gives it.
    Link(String),
    /// A folder that was listed.
    Folder,
    /// Something that was found to be there and was not opened, such as a device node.
    Presence,
}

/// What was read, by path below the root folder (without leading slash).
pub type Recording = BTreeMap<String, Trace>;

/// A root folder to read from.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// Resolved folders, so that a sweep of sysfs does not walk each path anew.
    folders: Mutex<BTreeMap<String, String>>,
    recording: Option<Mutex<Recording>>,
}

impl Root {
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root { path: path.into(), folders: Mutex::default(), recording: None }
    }

    /// A root that remembers everything that is read through it.
    pub fn recording(path: impl Into<PathBuf>) -> Root {
        Root { recording: Some(Mutex::default()), ..Root::new(path) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the machine that we run on, not a recording of one.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// What was read so far; empty for a root that does not record.
    pub fn recorded(&self) -> Recording {
        self.recording.as_ref().map(|recording| lock(recording).clone()).unwrap_or_default()
    }

    /// The whole file, at most [`LARGEST`] bytes.
    pub fn read_bytes(&self, path: &str) -> Reading<Vec<u8>> {
        self.read_up_to(path, LARGEST)
    }

    /// The whole file if it has at most `limit` bytes; a larger one is `UNREADABLE`.
    pub fn read_up_to(&self, path: &str, limit: u64) -> Reading<Vec<u8>> {
        let read = self.open(path).and_then(|(resolved, file)| {
            if !file.metadata()?.is_file() {
                return Err(io::Error::from(ErrorKind::InvalidInput));
            }
            let mut bytes = Vec::new();
            file.take(limit + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > limit {
                return Err(io::Error::from(ErrorKind::FileTooLarge));
            }
            self.remember(&resolved, || Trace::File(String::from_utf8_lossy(&bytes).into_owned()));
            Ok(bytes)
        });
        reading(read)
    }

    /// The whole file as text; what is not UTF-8 becomes U+FFFD. The text is as hostile as the host.
    pub fn read_text(&self, path: &str) -> Reading<String> {
        self.read_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Names in a folder, sorted; names that are not UTF-8 are left out.
    pub fn list(&self, path: &str) -> Reading<Vec<String>> {
        let listed = self.resolve(path, true).and_then(|resolved| {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.path.join(&resolved))? {
                names.extend(entry?.file_name().into_string());
                if names.len() > MOST_ENTRIES {
                    return Err(io::Error::from(ErrorKind::FileTooLarge));
                }
            }
            names.sort();
            self.remember(&resolved, || Trace::Folder);
            Ok(names)
        });
        reading(listed)
    }

    /// The target of a link as it is written, not followed.
    pub fn link(&self, path: &str) -> Reading<String> {
        let target = self.resolve(path, false).and_then(|resolved| {
            let target = link_target(&self.path.join(&resolved))?;
            self.remember(&resolved, || Trace::Link(target.clone()));
            Ok(target)
        });
        reading(target)
    }

    /// The path below the root folder with all links followed, with a leading slash.
    pub fn real_path(&self, path: &str) -> Reading<String> {
        reading(self.resolve(path, true).and_then(|resolved| {
            if fs::symlink_metadata(self.path.join(&resolved))?.is_dir() {
                self.remember(&resolved, || Trace::Folder);
            }
            Ok(format!("/{resolved}"))
        }))
    }

    /// Whether something stands at this path; it is not opened.
    pub fn exists(&self, path: &str) -> Reading<bool> {
        let found = self.resolve(path, true).and_then(|resolved| {
            fs::symlink_metadata(self.path.join(&resolved))?;
            self.remember(&resolved, || Trace::Presence);
            Ok(true)
        });
        match reading(found) {
            Reading::Unsupported => Reading::Value(false),
            other => other,
        }
    }

    /// Opens a file or character device for reading, never blocking, and says where it is.
    pub(super) fn open(&self, path: &str) -> io::Result<(String, File)> {
        let resolved = self.resolve(path, true)?;
        let absolute = self.path.join(&resolved);
        let kind = fs::symlink_metadata(&absolute)?.file_type();
        if !(kind.is_file() || kind.is_char_device()) {
            return Err(io::Error::from(ErrorKind::InvalidInput));
        }
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(absolute)?;
        Ok((resolved, file))
    }

    /// Remembers what was read, unless a file is already known there.
    pub(super) fn remember(&self, resolved: &str, trace: impl FnOnce() -> Trace) {
        let Some(recording) = &self.recording else { return };
        let mut recording = lock(recording);
        match (recording.get(resolved), trace()) {
            (Some(Trace::File(_) | Trace::Link(_) | Trace::Folder), Trace::Presence | Trace::Folder) => {}
            (_, trace) => {
                recording.insert(resolved.to_owned(), trace);
            }
        }
    }

    /// The path below the root folder, without leading slash, with every link on the way followed;
    /// the last component only where `follow` says so.
    fn resolve(&self, path: &str, follow: bool) -> io::Result<String> {
        let path = path.trim_matches('/');
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let known = lock(&self.folders).get(folder).cloned();
        let start = match known {
            Some(start) => start,
            None => {
                let start = self.walk(String::new(), folder, true)?;
                lock(&self.folders).insert(folder.to_owned(), start.clone());
                start
            }
        };
        self.walk(start, name, follow)
    }

    fn walk(&self, start: String, path: &str, follow: bool) -> io::Result<String> {
        let mut resolved = start;
        let mut rest: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
        let mut links = 0;
        while let Some(component) = rest.pop() {
            match component.as_str() {
                "" | "." => continue,
                ".." => {
                    resolved.truncate(resolved.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = if resolved.is_empty() { component } else { format!("{resolved}/{component}") };
            let absolute = self.path.join(&next);
            let is_link = fs::symlink_metadata(&absolute)?.file_type().is_symlink();
            if !is_link || (rest.is_empty() && !follow) {
                resolved = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = link_target(&absolute)?;
            if target.starts_with('/') {
                resolved.clear();
            }
            rest.extend(target.rsplit('/').map(str::to_owned));
            self.remember(&next, || Trace::Link(target));
        }
        Ok(resolved)
    }
}

fn link_target(path: &Path) -> io::Result<String> {
    fs::read_link(path)?.into_os_string().into_string().map_err(|_| io::Error::from(ErrorKind::InvalidData))
}

/// Absence is what the kernel says by not offering a file; permission and the rest are our not knowing.
pub(super) fn reading<T>(result: io::Result<T>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Reading::Unsupported,
            ErrorKind::PermissionDenied => Reading::Failed(Code::NO_PERMISSION),
            _ => Reading::Failed(Code::UNREADABLE),
        },
    }
}

/// A poisoned lock holds data that is whole: each insertion is one step.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join("root").join(path);
        fs::create_dir_all(at("sys/devices/pci0000:15/0000:15:01.0")).unwrap();
        fs::create_dir_all(at("sys/bus/pci/devices")).unwrap();
        fs::create_dir_all(at("etc")).unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        fs::write(at("etc/real"), "inside").unwrap();
        fs::write(at("sys/devices/pci0000:15/0000:15:01.0/vendor"), "0x10de\n").unwrap();
        symlink("../../../devices/pci0000:15/0000:15:01.0", at("sys/bus/pci/devices/0000:15:01.0")).unwrap();
        symlink("/etc/real", at("etc/absolute")).unwrap();
        symlink("../../../../secret", at("etc/escape")).unwrap();
        symlink("loop", at("etc/loop")).unwrap();
        folder
    }

    fn root(folder: &tempfile::TempDir) -> Root {
        Root::recording(folder.path().join("root"))
    }

    #[test]
    fn an_absolute_link_stays_inside_the_root() {
        let folder = folder();
        assert_eq!(root(&folder).read_text("/etc/absolute"), Reading::Value("inside".into()));
        assert_eq!(root(&folder).real_path("/etc/absolute"), Reading::Value("/etc/real".into()));
    }

    #[test]
    fn nothing_outside_the_root_can_be_named() {
        let folder = folder();
        assert_eq!(root(&folder).read_text("/etc/escape"), Reading::Unsupported);
        assert_eq!(root(&folder).read_text("/../secret"), Reading::Unsupported);
        assert_eq!(root(&folder).read_text("/etc/../../secret"), Reading::Unsupported);
        assert_eq!(root(&folder).list("/etc/../.."), root(&folder).list("/"));
    }

    #[test]
    fn absence_permission_and_the_rest_are_three_readings() {
        let folder = folder();
        assert_eq!(root(&folder).read_text("/etc/none"), Reading::Unsupported);
        assert_eq!(root(&folder).read_text("/etc/real/below"), Reading::Unsupported);
        assert_eq!(root(&folder).read_text("/etc"), Reading::Failed(Code::UNREADABLE));
        assert_eq!(root(&folder).read_text("/etc/loop"), Reading::Failed(Code::UNREADABLE));
        assert_eq!(root(&folder).read_up_to("/etc/real", 3), Reading::Failed(Code::UNREADABLE));
        let denied: io::Result<()> = Err(io::Error::from(ErrorKind::PermissionDenied));
        assert_eq!(reading(denied), Reading::Failed(Code::NO_PERMISSION));
    }

    #[test]
    fn a_pipe_in_a_recording_cannot_hold_us_up() {
        let folder = folder();
        let path = folder.path().join("root/etc/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert_eq!(root(&folder).read_text("/etc/pipe"), Reading::Failed(Code::UNREADABLE));
        assert_eq!(root(&folder).exists("/etc/pipe"), Reading::Value(true));
    }

    #[test]
    fn a_recording_root_remembers_files_where_they_are_and_the_links_that_led_there() {
        let folder = folder();
        let root = root(&folder);
        root.read_text("/sys/bus/pci/devices/0000:15:01.0/vendor");
        root.list("/sys/bus/pci/devices");
        root.exists("/etc/real");
        root.exists("/etc/none");
        let recorded = root.recorded();
        let expected: Recording = [
            ("etc/real".to_owned(), Trace::Presence),
            ("sys/bus/pci/devices".to_owned(), Trace::Folder),
            (
                "sys/bus/pci/devices/0000:15:01.0".to_owned(),
                Trace::Link("../../../devices/pci0000:15/0000:15:01.0".into()),
            ),
            ("sys/devices/pci0000:15/0000:15:01.0/vendor".to_owned(), Trace::File("0x10de\n".into())),
        ]
        .into();
        assert_eq!(recorded, expected);
        assert_eq!(Root::new("/").recorded(), Recording::new());
    }
}
