//! `nodegate key`: make the host's key, or one for elsewhere, and show the public half.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::enroll::RotateArgs;
use crate::ident::printable;
use crate::record::enrolment::endorsement;
use crate::record::enrolment::tpm_public::EndorsementArea;
use crate::record::store::rotation;
use crate::record::{Algorithm, HostDocument, HostKey, NewKey, PublicKey, Store, keyfile, store, tpm};

/// The key that signs this host's records.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate key new --type tpm\n  nodegate key show --format fingerprint")]
pub struct KeyArgs {
    #[command(subcommand)]
    pub command: AnyCommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum AnyCommand {
    #[command(flatten)]
    Here(KeyCommand),
    /// Replace the key: the collector takes the new one first
    Rotate(Box<RotateArgs>),
}

#[derive(Debug, clap::Subcommand)]
pub enum KeyCommand {
    /// Make this host's key in the state folder, or a key in a file
    New(NewArgs),
    /// Show the public half of this host's key
    Show(ShowArgs),
    /// Show the TPM's endorsement key, for the collector's list
    Endorsement(EndorsementArgs),
}

#[derive(Debug, Default, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate key new\n  nodegate key new --type tpm\n  nodegate key new --type external --signer /usr/local/bin/hsm-sign --public hsm.pub -- --slot 3\n  nodegate key new --out ./station.pem"
)]
pub struct NewArgs {
    #[command(flatten)]
    pub kind: Kind,
    /// Write the private key here, and the public one beside it (.pub), instead of the state folder
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// What the key signs with, and who holds it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Kind {
    /// What the key signs with and where it is held; a TPM has P-256
    #[arg(long = "type", value_enum, default_value_t)]
    pub key_type: KeyType,
    /// How tpm2-tools reach the TPM
    #[arg(long, value_name = "TCTI", default_value = tpm::DEFAULT_TCTI)]
    pub tcti: String,
    /// The program that signs: bytes on its standard input, the signature on its standard output
    #[arg(long, value_name = "PROGRAM", required_if_eq("key_type", "external"), requires = "public")]
    pub signer: Option<PathBuf>,
    /// The signer's public key
    #[arg(long, value_name = "PUB", required_if_eq("key_type", "external"))]
    pub public: Option<PathBuf>,
    /// Arguments of the signer
    #[arg(last = true, value_name = "ARGUMENT")]
    pub signer_arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    #[default]
    Ed25519,
    P256,
    /// P-256, made in the TPM, which it cannot leave
    Tpm,
    /// Held by a signer of yours
    External,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate key show > host.pub\n  nodegate key show --format text")]
pub struct ShowArgs {
    #[arg(long, value_enum, default_value_t)]
    pub format: KeyFormat,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nodegate key endorsement > gpu-r12-u07.ek.pem")]
pub struct EndorsementArgs {
    /// How tpm2-tools reach the TPM
    #[arg(long, value_name = "TCTI", default_value = tpm::DEFAULT_TCTI)]
    pub tcti: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyFormat {
    /// SPKI PEM, for openssl, cosign and collectors
    #[default]
    Pem,
    /// One line, as in authorized_keys
    Openssh,
    /// SHA256:…, the key id in records
    Fingerprint,
    /// Key id, kind, and who holds it, for people
    Text,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this host has a key already, {keyid}, in {path}: a new one would begin a new history; `nodegate key rotate` replaces it, and --out writes one elsewhere"
)]
pub struct HasKey {
    keyid: String,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("no key yet in {folder}: `nodegate run` or `nodegate key new` makes one")]
pub struct NoKey {
    folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum WrongKind {
    #[error("a key outside has no file of its own: leave out --out")]
    NoFile,
    #[error("name the --signer and its --public key")]
    NoSigner,
    #[error("the TPM's endorsement key is none that can be approved")]
    Endorsement(#[from] crate::record::enrolment::tpm_public::TpmPublicError),
}

impl Kind {
    /// The key to be made.
    pub fn new_key(&self) -> Result<NewKey, Box<dyn Error>> {
        match self.key_type {
            KeyType::Ed25519 => Ok(NewKey::File(Algorithm::Ed25519)),
            KeyType::P256 => Ok(NewKey::File(Algorithm::P256)),
            KeyType::Tpm => Ok(NewKey::Tpm { tcti: self.tcti.clone() }),
            KeyType::External => {
                let (Some(signer), Some(public)) = (&self.signer, &self.public) else {
                    return Err(Box::new(WrongKind::NoSigner));
                };
                // The signer is started from another folder than ours.
                let path = std::path::absolute(signer)?;
                let mut command = vec![path.to_string_lossy().into_owned()];
                command.extend(self.signer_arguments.iter().cloned());
                Ok(NewKey::Signer { command, public: keyfile::read_public(public)? })
            }
        }
    }
}

/// Runs the command. `host` is asked only where a key is bound to this machine.
pub fn run(
    command: &KeyCommand,
    host: impl FnOnce() -> HostDocument,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    match command {
        KeyCommand::New(NewArgs { kind, out: Some(path), .. }) => match kind.new_key()? {
            NewKey::File(algorithm) => write_pair(path, algorithm, out),
            _ => Err(Box::new(WrongKind::NoFile)),
        },
        KeyCommand::New(new) => {
            let folder = folder(new.state.as_deref())?;
            let before = store::own_key(&folder).ok();
            let store = Store::for_host_with(&folder, &host(), new.kind.new_key()?)?;
            if before.as_ref() == Some(store.public_key()) {
                return Err(Box::new(HasKey { keyid: store.public_key().keyid(), path: folder }));
            }
            store.notices().iter().try_for_each(|notice| writeln!(out, "{notice}"))?;
            Ok(writeln!(out, "public key {}", folder.join("key.pub").display())?)
        }
        KeyCommand::Show(show) => {
            let folder = folder(show.state.as_deref())?;
            let path = folder.join(store::KEY);
            if !path.exists() {
                return Err(Box::new(NoKey { folder }));
            }
            match show.format {
                KeyFormat::Text => describe(&keyfile::read_private(&path)?, &folder, out),
                format => Ok(print(&store::own_key(&folder)?, format, out)?),
            }
        }
        KeyCommand::Endorsement(EndorsementArgs { tcti }) => {
            let area = EndorsementArea::parse(&tpm::endorsement_key(tcti)?).map_err(WrongKind::Endorsement)?;
            Ok(write!(out, "{}", endorsement::pem(&area))?)
        }
    }
}

/// The folder that `--state` names, or the usual one.
pub fn folder(state: Option<&Path>) -> Result<PathBuf, store::StoreError> {
    state.map_or_else(store::default_folder, |path| Ok(path.to_owned()))
}

fn write_pair(path: &Path, algorithm: Algorithm, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let key = HostKey::generate(algorithm);
    let public = path.with_extension("pub");
    if public.exists() || public == path {
        return Err(Box::new(keyfile::KeyFileError::Exists { path: public }));
    }
    keyfile::write_private(path, &key)?;
    keyfile::write_public(&public, key.public_key())?;
    writeln!(out, "private key {}", path.display())?;
    writeln!(out, "public key  {}", public.display())?;
    Ok(writeln!(out, "fingerprint {}", key.public_key().keyid())?)
}

fn describe(key: &HostKey, folder: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let held = key.outside().map_or_else(|| "the key file".to_owned(), ToString::to_string);
    writeln!(out, "key      {}", key.public_key().keyid())?;
    writeln!(out, "kind     {}", key.public_key().algorithm())?;
    writeln!(out, "held by  {}", printable(&held, 200))?;
    let before: Vec<String> = rotation::retired_keys(folder)?.iter().map(PublicKey::keyid).collect();
    Ok(before.iter().try_for_each(|keyid| writeln!(out, "retired  {keyid}"))?)
}

/// The public half in one of its forms.
pub fn print(key: &PublicKey, format: KeyFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        KeyFormat::Pem => write!(out, "{}", key.to_pem()),
        KeyFormat::Openssh => writeln!(out, "{}", key.to_openssh("nodegate")),
        KeyFormat::Fingerprint | KeyFormat::Text => writeln!(out, "{}", key.keyid()),
    }
}
