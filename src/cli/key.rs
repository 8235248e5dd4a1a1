//! `nodegate key`: make the host's key, or one for elsewhere, and show the public half.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::record::{Algorithm, HostDocument, HostKey, PublicKey, Store, keyfile, store};

/// The key that signs this host's records.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate key new --type p256\n  nodegate key show --format fingerprint")]
pub struct KeyArgs {
    #[command(subcommand)]
    pub command: KeyCommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum KeyCommand {
    /// Make this host's key in the state folder, or a key in a file
    New(NewArgs),
    /// Show the public half of this host's key
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate key new\n  nodegate key new --out ./station.pem")]
pub struct NewArgs {
    /// What the key signs with; a TPM has no Ed25519
    #[arg(long = "type", value_enum, default_value_t)]
    pub algorithm: Algorithm,
    /// Write the private key here, and the public one beside it (.pub), instead of the state folder
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate key show > host.pub\n  nodegate key show --format openssh")]
pub struct ShowArgs {
    #[arg(long, value_enum, default_value_t)]
    pub format: KeyFormat,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
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
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this host has a key already, {keyid}, in {path}: a new one would begin a new history; move the folder away first, or write elsewhere with --out"
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

/// Runs the command. `host` is asked only where a key is bound to this machine.
pub fn run(args: &KeyArgs, host: impl FnOnce() -> HostDocument, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match &args.command {
        KeyCommand::New(NewArgs { algorithm, out: Some(path), .. }) => write_pair(path, *algorithm, out),
        KeyCommand::New(new) => {
            let folder = folder(new.state.as_deref())?;
            let before = store::own_key(&folder).ok();
            let store = Store::for_host_with(&folder, &host(), new.algorithm)?;
            if before.as_ref() == Some(store.public_key()) {
                return Err(Box::new(HasKey { keyid: store.public_key().keyid(), path: folder }));
            }
            store.notices().iter().try_for_each(|notice| writeln!(out, "{notice}"))?;
            Ok(writeln!(out, "public key {}", folder.join("key.pub").display())?)
        }
        KeyCommand::Show(show) => {
            let folder = folder(show.state.as_deref())?;
            if !folder.join("key.pem").exists() {
                return Err(Box::new(NoKey { folder }));
            }
            let key = store::own_key(&folder)?;
            Ok(print(&key, show.format, out)?)
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

/// The public half in one of its forms.
pub fn print(key: &PublicKey, format: KeyFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        KeyFormat::Pem => write!(out, "{}", key.to_pem()),
        KeyFormat::Openssh => writeln!(out, "{}", key.to_openssh("nodegate")),
        KeyFormat::Fingerprint => writeln!(out, "{}", key.keyid()),
    }
}
