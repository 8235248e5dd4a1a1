//! `nodegate collector keys`: the keys of the fleet, and what vouches for them.

mod show;
mod vouch;

use std::io::Write;
use std::path::Path;

use super::at::At;
use crate::cli::Failure;
use crate::collector::model::{Key, KeyState};
use crate::collector::store::{KeyFilter, Settings, Store};
use crate::ident::printable;
use crate::units::Seconds;

/// Looks after the keys that may sign for hosts. Works beside a collector that serves.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  nodegate collector keys list --only pending
  nodegate collector keys approve SHA256:4nSP --who kim --reason 'serial checked at the rack'
  nodegate collector keys revoke SHA256:4nSP --who kim --reason 'disk sold'
  nodegate collector keys token new --serial S452393X4309021 --out ./join-token --who kim
  ssh-keyscan -t ed25519 gpu-r12-u07 | nodegate collector keys ssh add - --who kim
  nodegate collector keys ek add gpu-r12-u07.ek.pem --name S452393X4309021 --who kim";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List keys with tier, state, host, serial number and age
    List(ListArgs),
    /// Show one key
    Show(ShowArgs),
    /// Let a pending key count, with the records that it signed already
    ///
    /// Another approved key of the same host is retired by it.
    Approve(DecideArgs),
    /// Refuse a key for ever; what it signed does not count any more
    Revoke(DecideArgs),
    /// One-time join tokens, each for one serial number
    #[command(subcommand)]
    Token(vouch::TokenCommand),
    /// SSH host keys that are known beforehand
    #[command(subcommand)]
    Ssh(vouch::SshCommand),
    /// Endorsement keys of the fleet's TPMs
    #[command(subcommand)]
    Ek(vouch::EkCommand),
}

/// Who it is that changes something.
#[derive(Clone, Debug, clap::Args)]
struct Who {
    /// Who does this, for the record
    #[arg(long, value_name = "NAME")]
    who: String,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    at: At,
    /// Only keys in this state
    #[arg(long, value_enum, value_name = "STATE")]
    only: Option<StateArg>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The key id, or its beginning where only one begins so
    key: String,
    #[command(flatten)]
    at: At,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct DecideArgs {
    /// The key id, or its beginning where only one begins so
    key: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    who: Who,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StateArg {
    Pending,
    Approved,
    Retired,
    Revoked,
}

/// How long a join token is good where nothing is said.
const TOKEN_AGE: &str = "24 h";

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(list) => {
            let store = open(&list.at)?;
            let keys = all(&store, list.only.map(StateArg::state))?;
            show::list(&keys, list.format == Format::Json, out).map_err(Failure::broken)?;
        }
        Command::Show(show) => {
            let key = find(&open(&show.at)?, &show.key)?;
            show::one(&key, show.format == Format::Json, out).map_err(Failure::broken)?;
        }
        Command::Approve(decide) => approve(decide, out)?,
        Command::Revoke(decide) => revoke(decide, out)?,
        Command::Token(token) => vouch::token(token, out)?,
        Command::Ssh(ssh) => vouch::ssh(ssh, out)?,
        Command::Ek(ek) => vouch::ek(ek, out)?,
    }
    Ok(())
}

fn open(at: &At) -> Result<Store, Failure> {
    Store::attend(&at.url()?, Settings::default()).map_err(super::blame_store)
}

impl StateArg {
    fn state(self) -> KeyState {
        match self {
            StateArg::Pending => KeyState::Pending,
            StateArg::Approved => KeyState::Approved,
            StateArg::Retired => KeyState::Retired,
            StateArg::Revoked => KeyState::Revoked,
        }
    }
}

fn approve(decide: &DecideArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let store = open(&decide.at)?;
    let key = find(&store, &decide.key)?;
    match key.state {
        KeyState::Pending => {}
        KeyState::Approved => return say(&key, "is approved already", out),
        KeyState::Retired | KeyState::Revoked => {
            return Err(Failure::misused(format!(
                "key {} is {}: only a pending one can be approved",
                key.keyid,
                key.state.as_str()
            )));
        }
    }
    let after = store.approve(&key.keyid, &decide.who.who, &decide.reason).map_err(Failure::broken)?;
    decided(after, KeyState::Approved, &key, out)
}

fn revoke(decide: &DecideArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let store = open(&decide.at)?;
    let key = find(&store, &decide.key)?;
    if key.state == KeyState::Revoked {
        return say(&key, "is revoked already", out);
    }
    let after = store.revoke(&key.keyid, &decide.who.who, &decide.reason).map_err(Failure::broken)?;
    decided(after, KeyState::Revoked, &key, out)
}

/// Someone else may have decided meanwhile: what is told is what the store has.
fn decided(after: Option<Key>, wanted: KeyState, key: &Key, out: &mut dyn Write) -> Result<(), Failure> {
    let state = after.map_or("gone", |key| key.state.as_str());
    if state == wanted.as_str() {
        say(key, &format!("is {state}"), out)
    } else {
        Err(Failure::misused(format!("key {} is {state} by now", key.keyid)))
    }
}

fn say(key: &Key, what: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let host = printable(&key.hostname, 64);
    writeln!(out, "key {} of {host} {what}", key.keyid).map_err(Failure::broken)
}

/// Every key, page by page.
fn all(store: &Store, state: Option<KeyState>) -> Result<Vec<Key>, Failure> {
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.keyid.clone());
        let page = store.keys(&KeyFilter { state, after, ..KeyFilter::default() }).map_err(Failure::broken)?;
        if page.is_empty() {
            return Ok(keys);
        }
        keys.extend(page);
    }
}

/// The one key that begins so.
fn find(store: &Store, text: &str) -> Result<Key, Failure> {
    let wanted = if text.starts_with("SHA256:") { text.to_owned() } else { format!("SHA256:{text}") };
    if let Some(key) = store.key(&wanted).map_err(Failure::broken)? {
        return Ok(key);
    }
    let mut found: Vec<Key> = all(store, None)?.into_iter().filter(|key| key.keyid.starts_with(&wanted)).collect();
    match (found.pop(), found.len()) {
        (Some(key), 0) => Ok(key),
        (None, _) => Err(Failure::misused(format!("no key {}", printable(text, 80)))),
        (Some(_), more) => Err(Failure::misused(format!("{} keys begin with {}", more + 1, printable(text, 80)))),
    }
}

/// When something that is good for so long ends.
fn end_of(age: Seconds) -> Result<jiff::Timestamp, Failure> {
    let span = jiff::SignedDuration::try_from(age.duration()).ok();
    let end = span.and_then(|span| crate::host::clock::now().checked_add(span).ok());
    end.ok_or_else(|| Failure::misused("that is longer than any clock goes"))
}

/// A file's name in an error.
fn named(path: &Path) -> String {
    printable(&path.display().to_string(), 300)
}
