//! Where the driver's libraries lie, and whether one may be opened.
//!
//! The order is the loader's cache first, as every other program would find them, then the
//! known folders. What cannot be the driver (CUDA's link-time stub, another machine class, a
//! folder of that name) is passed over; what could be, but that others than root may change,
//! is refused, since everything that a run says rests on it.

mod cache;

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Origin;
use crate::facts::snapshot::Library;
use crate::ident::{Digest, printable};

pub const NVML: &str = "libnvidia-ml.so.1";
pub const CUDA: &str = "libcuda.so.1";

/// Distributions' folders, WSL, GKE, the container toolkit's and old installers' folder, and
/// the root in which the GPU Operator's driver container installs.
const FOLDERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
    "usr/lib/wsl/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "usr/local/nvidia/lib64",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
];
const LOADER_CACHE: &str = "etc/ld.so.cache";
/// The cache of a full distribution is below one MiB.
const LARGEST_CACHE: u64 = 64 << 20;
/// Permission bits of group and others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    Library(Library),
    /// There is one, and it must not be opened.
    Refused {
        path: String,
        reason: String,
    },
    /// None in any of these places.
    Nowhere {
        searched: Vec<String>,
    },
}

/// Looks for `name` under `root`, or judges the one that a person named.
pub fn find(name: &str, named: Option<&Path>, root: &Path, origin: Origin) -> Found {
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => candidates(name, root),
    };
    let mut passed_over = None;
    for path in &candidates {
        match judge(path, root, origin) {
            Ok(Some(library)) => return Found::Library(library),
            Ok(None) => {}
            Err(Objection::Untrusted(reason)) => return refused(path, reason),
            Err(Objection::NotTheDriver(reason)) => {
                passed_over.get_or_insert_with(|| refused(path, reason));
            }
        }
    }
    let searched = candidates.iter().map(|path| shown(path)).collect();
    passed_over.unwrap_or(Found::Nowhere { searched })
}

/// Why a file is not opened.
#[derive(Debug, PartialEq)]
enum Objection {
    /// It is something else; another place may have the right one.
    NotTheDriver(String),
    /// It may be the driver or what somebody made of it.
    Untrusted(String),
}

/// Paths to look at, without repeats.
fn candidates(name: &str, root: &Path) -> Vec<PathBuf> {
    let in_cache = cache::paths_of(&loader_cache(root), name);
    let from_cache = in_cache.iter().map(|path| root.join(path.trim_start_matches('/')));
    let from_folders = FOLDERS.iter().map(|folder| root.join(folder).join(name));
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in from_cache.chain(from_folders) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

fn loader_cache(root: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(root.join(LOADER_CACHE)) {
        // A cache that cannot be read leaves the known folders, and says so by finding nothing.
        file.take(LARGEST_CACHE).read_to_end(&mut bytes).ok();
    }
    bytes
}

/// The library at this path, nothing where there is none, or what speaks against it.
fn judge(path: &Path, root: &Path, origin: Origin) -> Result<Option<Library>, Objection> {
    let not_the_driver = |reason: String| Objection::NotTheDriver(reason);
    if !path.is_absolute() {
        return Err(not_the_driver("not an absolute path".to_owned()));
    }
    let resolved = match fs::canonicalize(path) {
        Ok(resolved) => resolved,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(Objection::Untrusted(error.to_string())),
    };
    if is_stub(path) || is_stub(&resolved) {
        return Err(not_the_driver("CUDA's link-time stub, not a driver".to_owned()));
    }
    // A recording's library is a link to the simulated driver, which lies outside of it.
    if origin == Origin::Overridden && path.starts_with(root) && !is_below(&resolved, root) {
        return Err(not_the_driver(format!("leads out of {}", shown(root))));
    }
    let unreadable = |error: io::Error| Objection::Untrusted(format!("cannot be read: {error}"));
    if !fs::metadata(&resolved).map_err(unreadable)?.is_file() {
        return Err(not_the_driver("not a regular file".to_owned()));
    }
    let file = File::open(&resolved).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    right_class(&file)?;
    if origin == Origin::Live {
        trusted(&metadata, &resolved)?;
    }
    let digest = digest_of(&file).map_err(unreadable)?;
    Ok(Some(Library {
        path: shown(path),
        resolved: shown(&resolved),
        digest,
        size: metadata.len(),
        owner: metadata.uid(),
        simulated: false,
        stub: false,
    }))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_stub(path: &Path) -> bool {
    path.components().any(|part| part == Component::Normal("stubs".as_ref()))
}

fn is_below(path: &Path, root: &Path) -> bool {
    fs::canonicalize(root).is_ok_and(|root| path.starts_with(root))
}

/// Root's own, and nobody else may write it or put another in its place.
fn trusted(metadata: &Metadata, resolved: &Path) -> Result<(), Objection> {
    let folder = resolved.parent().and_then(|folder| fs::metadata(folder).ok());
    for (what, metadata) in [("the file", Some(metadata)), ("its folder", folder.as_ref())] {
        let reason = match metadata {
            None => format!("{what} cannot be looked at"),
            Some(metadata) if metadata.uid() != 0 => format!("{what} belongs to user {}", metadata.uid()),
            Some(metadata) if metadata.mode() & WRITABLE_BY_OTHERS != 0 => {
                format!("{what} is writable by others than its owner (mode {:o})", metadata.mode() & 0o7777)
            }
            Some(_) => continue,
        };
        return Err(Objection::Untrusted(reason));
    }
    Ok(())
}

/// A 64-bit little-endian ELF object for the machine that we were built for.
fn right_class(file: &File) -> Result<(), Objection> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut head = [0; 20];
    let is_elf = file.read_exact_at(&mut head, 0).is_ok() && head.starts_with(b"\x7fELF");
    if !is_elf {
        return Err(Objection::NotTheDriver("not an ELF object".to_owned()));
    }
    let right = head[4] == 2 && head[5] == 1 && head[18..20] == machine.to_le_bytes();
    if right { Ok(()) } else { Err(Objection::NotTheDriver("built for another kind of machine".to_owned())) }
}

/// The SHA-256, read in pieces: `libcuda` has a hundred megabytes.
fn digest_of(file: &File) -> io::Result<Digest> {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let count = file.read_at(&mut piece, at)?;
        if count == 0 {
            break;
        }
        context.update(&piece[..count]);
        at += count as u64;
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Ok(Digest(digest))
}

fn refused(path: &Path, reason: String) -> Found {
    Found::Refused { path: shown(path), reason }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy(), 400)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const FOLDER: &str = "usr/lib/x86_64-linux-gnu";

    /// A root folder with this file as its NVML; our own executable is an ELF object.
    fn root_with(folder: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(NVML), elf_head()).unwrap();
        root
    }

    fn elf_head() -> Vec<u8> {
        let mut head = vec![0; 64];
        File::open("/proc/self/exe").unwrap().read_exact(&mut head).unwrap();
        head
    }

    fn reason(found: Found) -> String {
        match found {
            Found::Refused { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_library_in_a_known_folder_is_found_and_hashed() {
        let root = root_with(FOLDER);
        match find(NVML, None, root.path(), Origin::Overridden) {
            Found::Library(library) => {
                assert_eq!(library.digest, Digest::of(&elf_head()));
                assert_eq!(library.path, root.path().join(FOLDER).join(NVML).to_string_lossy());
                assert_eq!((library.size, library.simulated), (64, false));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nowhere_says_where_was_looked() {
        let root = tempfile::tempdir().unwrap();
        match find(NVML, None, root.path(), Origin::Live) {
            Found::Nowhere { searched } => {
                assert_eq!(searched.len(), FOLDERS.len());
                assert!(searched.iter().all(|path| path.ends_with(NVML)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_library_that_others_may_write_is_refused_on_a_live_host() {
        let root = root_with(FOLDER);
        let path = root.path().join(FOLDER).join(NVML);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let reason = reason(find(NVML, None, root.path(), Origin::Live));
        assert!(reason.contains("writable by others") || reason.contains("belongs to user"), "{reason}");
        assert!(matches!(find(NVML, None, root.path(), Origin::Overridden), Found::Library(_)));
    }

    #[test]
    fn a_stub_is_never_the_driver() {
        let root = root_with("opt/cuda/lib64/stubs");
        let stub = root.path().join("opt/cuda/lib64/stubs").join(NVML);
        fs::create_dir_all(root.path().join(FOLDER)).unwrap();
        symlink(&stub, root.path().join(FOLDER).join(NVML)).unwrap();
        for named in [None, Some(stub.as_path())] {
            assert!(reason(find(NVML, named, root.path(), Origin::Live)).contains("stub"));
        }
    }

    #[test]
    fn what_is_not_a_library_for_this_machine_is_passed_over() {
        let root = root_with("usr/lib64");
        let first = root.path().join(FOLDER);
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join(NVML), "no library").unwrap();
        assert!(matches!(find(NVML, None, root.path(), Origin::Overridden), Found::Library(_)));
        let mut other_class = elf_head();
        other_class[4] = 1;
        fs::write(first.join(NVML), &other_class).unwrap();
        fs::remove_dir_all(root.path().join("usr/lib64")).unwrap();
        assert!(reason(find(NVML, None, root.path(), Origin::Overridden)).contains("another kind of machine"));
        fs::remove_file(first.join(NVML)).unwrap();
        fs::create_dir(first.join(NVML)).unwrap();
        assert!(reason(find(NVML, None, root.path(), Origin::Overridden)).contains("not a regular file"));
    }

    #[test]
    fn a_link_out_of_a_named_root_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(FOLDER)).unwrap();
        symlink("/proc/self/exe", root.path().join(FOLDER).join(NVML)).unwrap();
        assert!(reason(find(NVML, None, root.path(), Origin::Overridden)).contains("leads out of"));
        assert!(matches!(find(NVML, None, root.path(), Origin::Simulated), Found::Library(_)));
    }

    #[test]
    fn a_relative_path_is_refused() {
        let named = Path::new("libnvidia-ml.so.1");
        assert!(reason(find(NVML, Some(named), Path::new("/"), Origin::Overridden)).contains("absolute"));
    }
}
