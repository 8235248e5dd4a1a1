//! `nodegate collector token`: tokens for those who read and those who write.

use std::io::Write;

use super::super::Failure;
use super::at::At;
use super::blame_store;
use crate::collector::access::{Role, Token};
use crate::collector::store::{AccessToken, Settings, Store};
use crate::host::clock;
use crate::ident::printable;
use crate::units::Seconds;

/// Characters of a name.
const LONGEST: usize = 60;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate collector token new --role writer --name agents\n  nodegate collector token list"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a token and print it, this once; only its SHA-256 is kept
    New(New),
    /// List the tokens that were made
    List(List),
    /// Let a token open nothing any more
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct New {
    /// What it is for
    #[arg(long, value_enum)]
    role: Role,
    /// Whose it is, for people
    #[arg(long)]
    name: String,
    /// How long it counts, e.g. '720 h' [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    expires: Option<Seconds>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// Its name
    name: String,
    #[command(flatten)]
    at: At,
}

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.command {
        Command::New(new) => make(new, out),
        Command::List(list) => show(&open(&list.at)?, out),
        Command::Revoke(revoke) => remove(revoke, out),
    }
}

fn make(new: &New, out: &mut dyn Write) -> Result<(), Failure> {
    let name = new.name.trim();
    if name.is_empty() || printable(name, LONGEST) != name {
        return Err(Failure::misused(format!("--name: up to {LONGEST} visible characters")));
    }
    let store = open(&new.at)?;
    if find(&store, name)?.is_some() {
        return Err(Failure::misused(format!("there is a token `{name}` already: revoke it, or take another name")));
    }
    let (token, created_at) = (Token::random(), clock::now());
    let expires_at = new.expires.map(|time| created_at.saturating_add(time.duration()));
    let expires_at = expires_at.transpose().map_err(Failure::misused)?;
    let (digest, role) = (token.digest(), new.role.as_str().to_owned());
    let kept = AccessToken { digest, name: name.to_owned(), role, created_at, expires_at };
    store.put_access_token(kept).map_err(blame_store)?;
    writeln!(out, "{}", token.reveal()).map_err(Failure::broken)?;
    let until = expires_at.map_or_else(|| "until it is revoked".to_owned(), |end| format!("until {end:.0}"));
    let note = format!("a {}'s token for {name}, {until}; it is not shown again", new.role);
    let _closed = writeln!(std::io::stderr(), "nodegate: {note}");
    Ok(())
}

fn show(store: &Store, out: &mut dyn Write) -> Result<(), Failure> {
    let mut tokens = store.access_tokens().map_err(blame_store)?;
    tokens.sort_by(|one, other| one.name.cmp(&other.name));
    let now = clock::now();
    for token in tokens {
        let until = match token.expires_at {
            Some(end) if end <= now => format!("expired {end:.0}"),
            Some(end) => format!("until {end:.0}"),
            None => "until revoked".to_owned(),
        };
        let AccessToken { name, role, created_at, .. } = token;
        writeln!(out, "{role:6}  {created_at:.0}  {until:26}  {}", printable(&name, LONGEST))
            .map_err(Failure::broken)?;
    }
    Ok(())
}

fn remove(revoke: &Revoke, out: &mut dyn Write) -> Result<(), Failure> {
    let store = open(&revoke.at)?;
    let name = printable(&revoke.name, LONGEST);
    let Some(token) = find(&store, &revoke.name)? else {
        return Err(Failure::misused(format!("there is no token `{name}`: see `nodegate collector token list`")));
    };
    store.remove_access_token(&token.digest).map_err(blame_store)?;
    writeln!(out, "revoked {name}; a collector that runs knows within seconds").map_err(Failure::broken)
}

fn find(store: &Store, name: &str) -> Result<Option<AccessToken>, Failure> {
    let tokens = store.access_tokens().map_err(blame_store)?;
    Ok(tokens.into_iter().find(|token| token.name == name))
}

fn open(at: &At) -> Result<Store, Failure> {
    // The first token is made before the first start.
    at.make_folder()?;
    Store::attend(&at.url()?, Settings::default()).map_err(blame_store)
}
