//! A new key in the place of the old one.
//!
//! ```text
//! next.pem             the new key, until it has taken the old one's place
//! retired/NAME.pub     the public halves of keys that signed here before
//! ```
//!
//! The new key lies in the folder before anybody hears of it. It takes over at the moment in which
//! `state.json` names it, with a chain that begins again; what is left to do then is a matter of names,
//! and whoever opens the folder next does it. Killed before that moment, the folder has its old key,
//! and the next rotation goes on with the same new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::state::{self, State};
use super::{KEY, PUBLIC_KEY, Store, StoreError, folder};
use crate::record::dsse::Envelope;
use crate::record::enrolment::{self, Enrolment};
use crate::record::identity::HostDocument;
use crate::record::keys::{HostKey, Signing};
use crate::record::{NewKey, PublicKey, durable, keyfile};

pub(super) const NEXT: &str = "next.pem";
pub(super) const RETIRED: &str = "retired";

/// What an enrolment says beside the key.
#[derive(Clone, Debug)]
pub struct About<'a> {
    pub host: &'a HostDocument,
    pub hostname: &'a str,
    pub at: Timestamp,
    pub challenge: &'a str,
}

/// The key that is to take the place of the folder's.
#[derive(Debug)]
pub struct Successor(HostKey);

impl Successor {
    pub fn key(&self) -> &HostKey {
        &self.0
    }
}

impl About<'_> {
    /// The statement; who signs it fills in the key.
    fn statement(&self, replaces: Option<String>) -> Enrolment {
        Enrolment {
            format: enrolment::FORMAT,
            public_key: String::new(),
            host: self.host.clone(),
            hostname: self.hostname.to_owned(),
            at: self.at,
            challenge: self.challenge.to_owned(),
            simulated: false,
            replaces,
        }
    }
}

impl Store {
    /// The enrolment of this store's key, signed by it.
    pub fn enrolment(&self, about: &About) -> Result<Envelope, StoreError> {
        match &self.signing {
            Signing::Host(key) => own_enrolment(key, about),
            Signing::Throwaway(key) => Ok(key.enrol(about.statement(None))),
        }
    }

    /// The host's key; none of a recording.
    pub fn host_key(&self) -> Option<&HostKey> {
        match &self.signing {
            Signing::Host(key) => Some(key),
            Signing::Throwaway(_) => None,
        }
    }

    /// The key to come: the one that an earlier rotation has left, or a new one.
    pub fn successor(&self, new: &NewKey) -> Result<Successor, StoreError> {
        let _lock = folder::lock(&self.folder)?;
        let path = self.folder.join(NEXT);
        if path.symlink_metadata().is_ok() {
            return Ok(Successor(keyfile::read_private(&path)?));
        }
        let key = new.make()?;
        keyfile::write_private(&path, &key)?;
        Ok(Successor(key))
    }

    /// The enrolment of the key to come, signed by it and by the present one.
    pub fn succession(&self, next: &Successor, about: &About) -> Result<Envelope, StoreError> {
        let replaces = Some(self.public_key().keyid());
        let envelope = next.0.enrol(about.statement(replaces))?;
        match &self.signing {
            Signing::Host(key) => Ok(key.endorse(envelope)?),
            Signing::Throwaway(_) => Err(StoreError::WrongKind { details: "a key to come", opened: "a recording" }),
        }
    }

    /// Forgets a key to come that the collector refused for good, and therefore does not know.
    pub fn forget(&self, _next: Successor) -> Result<(), StoreError> {
        let _lock = folder::lock(&self.folder)?;
        let path = self.folder.join(NEXT);
        fs::remove_file(&path).map_err(|source| StoreError::Write { path, source })
    }

    /// Puts the key to come in the place of the present one. Its chain begins at 1.
    pub fn succeed(self, next: &Successor) -> Result<(), StoreError> {
        let _lock = folder::lock(&self.folder)?;
        let state = self.current_state()?;
        retire(&self.folder, self.public_key())?;
        state::write(&self.folder, &State::new(state.host, next.0.public_key()))?;
        finish(&self.folder)
    }
}

/// The enrolment of the key in a state folder, for who delivers from there.
pub fn own_enrolment(key: &HostKey, about: &About) -> Result<Envelope, StoreError> {
    Ok(key.enrol(about.statement(None))?)
}

/// Gives the new key its name, where it has taken over and was not given it yet. The caller holds the
/// folder's lock.
pub fn finish(folder: &Path) -> Result<(), StoreError> {
    let next = folder.join(NEXT);
    if next.symlink_metadata().is_err() {
        return Ok(());
    }
    let key = keyfile::read_private(&next)?;
    let keyid = key.public_key().keyid();
    if !matches!(state::read(folder), Ok(Some(state)) if state.keyid == keyid) {
        return Ok(());
    }
    let path = folder.join(KEY);
    fs::rename(&next, &path).map_err(|source| StoreError::Write { path, source })?;
    let path = folder.join(PUBLIC_KEY);
    durable::replace(&path, key.public_key().to_pem().as_bytes()).map_err(|source| StoreError::Write { path, source })
}

/// Keeps the public half, by which the records that it signed verify.
fn retire(folder: &Path, key: &PublicKey) -> Result<(), StoreError> {
    let retired = folder.join(RETIRED);
    durable::make_folder(&retired).map_err(|source| StoreError::Folder { path: retired.clone(), source })?;
    let path = retired.join(file_name(key));
    match keyfile::write_public(&path, key) {
        Err(keyfile::KeyFileError::Exists { .. }) => Ok(()),
        other => Ok(other?),
    }
}

/// The fingerprint without what a file name cannot hold.
fn file_name(key: &PublicKey) -> PathBuf {
    let keyid = key.keyid();
    let name = keyid.trim_start_matches("SHA256:").replace('/', "_").replace('+', "-");
    PathBuf::from(format!("{name}.pub"))
}

/// Public halves of keys that signed in this folder before, for verifying what they signed.
pub fn retired_keys(folder: &Path) -> Result<Vec<PublicKey>, StoreError> {
    let path = folder.join(RETIRED);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Ok(keyfile::read_public_folder(&path)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::HostFacts;
    use crate::reading::Reading;
    use crate::record::Algorithm;
    use crate::record::enrolment::{Proof, Request, read};
    use crate::record::identity::host_document;
    use crate::record::store::own_key;

    fn host() -> HostDocument {
        let mut facts = HostFacts::default();
        facts.dmi.board_serial = Reading::Value("S452393X4309021".to_owned());
        host_document(&facts)
    }

    fn about(host: &HostDocument) -> About<'_> {
        About { host, hostname: "gpu-r12-u07", at: "2026-11-30T20:41:07Z".parse().unwrap(), challenge: "none" }
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("pem")).collect()
    }

    #[test]
    fn the_new_key_takes_over_with_a_chain_of_its_own_and_the_old_one_is_kept_for_verifying() {
        let folder = tempfile::tempdir().unwrap();
        let state_folder = folder.path().join("state");
        let store = Store::for_host(&state_folder, &host()).unwrap();
        let old = store.public_key().clone();
        let next = store.successor(&Algorithm::P256.into()).unwrap();
        let envelope = store.succession(&next, &about(&host())).unwrap();
        let request = Request { enrolment: envelope, proof: Proof::FirstUse {} };
        let claim = read(&serde_json::to_vec(&request).unwrap()).unwrap();
        assert!(claim.is_signed_by(&old) && claim.key == *next.key().public_key());
        store.succeed(&next).unwrap();
        let store = Store::for_host(&state_folder, &host()).unwrap();
        assert_eq!(store.public_key(), next.key().public_key());
        assert_eq!(state::read(&state_folder).unwrap().unwrap().seq, 0);
        assert_eq!(retired_keys(&state_folder).unwrap(), [old]);
        assert_eq!(names(&state_folder), ["key.pem"]);
    }

    #[test]
    fn a_rotation_that_was_killed_before_it_took_over_leaves_the_old_key_and_goes_on_with_the_same_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let state_folder = folder.path().join("state");
        let store = Store::for_host(&state_folder, &host()).unwrap();
        let (old, next) = (store.public_key().clone(), store.successor(&NewKey::default()).unwrap());
        drop(store);
        let store = Store::for_host(&state_folder, &host()).unwrap();
        assert_eq!(*store.public_key(), old);
        let again = store.successor(&NewKey::default()).unwrap();
        assert_eq!(again.key().public_key(), next.key().public_key());
    }

    #[test]
    fn a_key_to_come_of_another_machine_is_set_aside_with_its_history() {
        let folder = tempfile::tempdir().unwrap();
        let state_folder = folder.path().join("state");
        let store = Store::for_host(&state_folder, &host()).unwrap();
        let theirs = store.successor(&NewKey::default()).unwrap();
        let mut facts = HostFacts::default();
        facts.dmi.board_serial = Reading::Value("S452393X4309022".to_owned());
        let clone = Store::for_host(&state_folder, &host_document(&facts)).unwrap();
        let ours = clone.successor(&NewKey::default()).unwrap();
        assert_ne!(ours.key().public_key(), theirs.key().public_key());
    }

    #[test]
    fn a_rotation_that_was_killed_after_it_took_over_is_finished_by_whoever_opens_next() {
        let folder = tempfile::tempdir().unwrap();
        let state_folder = folder.path().join("state");
        let store = Store::for_host(&state_folder, &host()).unwrap();
        let next = store.successor(&NewKey::default()).unwrap();
        let new = next.key().public_key().clone();
        // All but the last two steps of `succeed`.
        state::write(&state_folder, &State::new(host().digest(), &new)).unwrap();
        drop(store);
        assert_ne!(own_key(&state_folder).unwrap(), new);
        let store = Store::for_host(&state_folder, &host()).unwrap();
        assert_eq!((store.public_key(), own_key(&state_folder).unwrap()), (&new, new.clone()));
        assert_eq!(keyfile::read_public(&state_folder.join(PUBLIC_KEY)).unwrap(), new);
        assert_eq!(names(&state_folder), ["key.pem"]);
    }
}
