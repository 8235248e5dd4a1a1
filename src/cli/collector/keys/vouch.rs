//! What vouches for a key before it enrols: join tokens, SSH host keys, endorsement keys.

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use super::super::at::At;
use super::{TOKEN_AGE, Who, end_of, named, open};
use crate::cli::Failure;
use crate::collector::store::{EndorsementKey, JoinToken, SshHostKey};
use crate::host::clock;
use crate::ident::printable;
use crate::record::enrolment::{self, endorsement};
use crate::record::{PublicKey, keyfile, plain};
use crate::report::columns::align;
use crate::units::Seconds;

/// Bytes of a known_hosts file; a fleet of 100,000 has some 15 MiB.
const MAXIMUM_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token. It is shown once and kept as a hash
    New(NewToken),
    /// List tokens: for whom, until when, and used by whom
    List(At),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewToken {
    /// The serial number of the host's product, board or chassis
    #[arg(long, value_name = "SERIAL")]
    serial: String,
    /// How long it is good
    #[arg(long, value_name = "DURATION", default_value = TOKEN_AGE)]
    expires: Seconds,
    /// Write it here (mode 0600) and not on the screen
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum SshCommand {
    /// Add keys from a known_hosts file, ssh-keyscan, or a public key file
    Add(AddSsh),
    /// List hosts and fingerprints
    List(At),
}

#[derive(Debug, clap::Args)]
pub(super) struct AddSsh {
    /// The file, or - for standard input
    file: PathBuf,
    /// The host that a public key file is of (its name or serial number)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum EkCommand {
    /// Add one from a certificate, PEM, tpm2-tools' file or its digest
    Add(AddEk),
    /// List hosts and digests
    List(At),
}

#[derive(Debug, clap::Args)]
pub(super) struct AddEk {
    file: PathBuf,
    /// The host that it belongs to, by serial number or name [default: any]
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    who: Who,
}

pub(super) fn token(command: &TokenCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        TokenCommand::New(new) => new_token(new, out),
        TokenCommand::List(at) => {
            let tokens = open(at)?.join_tokens().map_err(Failure::broken)?;
            let row = |token: &JoinToken| {
                let used = token.used_by.clone().unwrap_or_else(|| {
                    if token.expires_at < clock::now() { "expired".to_owned() } else { "-".to_owned() }
                });
                let short = token.digest.hex()[..12].to_owned();
                vec![
                    printable(&token.serial, 40),
                    format!("{:.0}", token.expires_at),
                    printable(&token.created_by, 30),
                    used,
                    short,
                ]
            };
            table(["SERIAL", "UNTIL", "MADE BY", "USED BY", "HASH"], tokens.iter().map(row).collect(), out)
        }
    }
}

fn new_token(new: &NewToken, out: &mut dyn Write) -> Result<(), Failure> {
    let serial = new.serial.trim();
    if serial.is_empty() || printable(serial, 200) != serial {
        return Err(Failure::misused("--serial: write the serial number as `nodegate inventory` shows it"));
    }
    let expires_at = end_of(new.expires)?;
    let store = open(&new.at)?;
    let token = enrolment::JoinToken::generate().map_err(|_| Failure::broken("the system has no random numbers"))?;
    let kept = JoinToken {
        digest: token.digest(),
        serial: serial.to_owned(),
        created_by: new.who.who.clone(),
        created_at: clock::now(),
        expires_at,
        used_at: None,
        used_by: None,
    };
    if let Some(path) = &new.out {
        keyfile::write_secret(path, &token.reveal()).map_err(Failure::misused)?;
    }
    store.put_join_token(kept).map_err(Failure::broken)?;
    match &new.out {
        Some(path) => writeln!(out, "token for {serial} until {expires_at:.0} in {}", named(path)),
        None => writeln!(out, "{}", token.reveal()),
    }
    .map_err(Failure::broken)
}

pub(super) fn ssh(command: &SshCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        SshCommand::Add(add) => add_ssh(add, out),
        SshCommand::List(at) => {
            let keys = open(at)?.ssh_host_keys().map_err(Failure::broken)?;
            let row = |key: &SshHostKey| {
                let keyid = PublicKey::parse(&key.line).map_or_else(|_| "damaged".to_owned(), |key| key.keyid());
                vec![printable(&key.name, 60), keyid, printable(&key.added_by, 30)]
            };
            table(["HOST", "KEY", "ADDED BY"], keys.iter().map(row).collect(), out)
        }
    }
}

fn add_ssh(add: &AddSsh, out: &mut dyn Write) -> Result<(), Failure> {
    let text = read(&add.file)?;
    let found = known_hosts(&text, add.host.as_deref());
    if found.keys.is_empty() {
        let why = if found.hashed > 0 {
            "hashed names say nothing: write them with ssh-keyscan"
        } else {
            "no Ed25519 or ECDSA P-256 key with a host's name (--host)"
        };
        return Err(Failure::misused(format!("{}: {why}", named(&add.file))));
    }
    let store = open(&add.at)?;
    for (name, key) in &found.keys {
        let (line, added_by) = (key.to_openssh(""), add.who.who.clone());
        store
            .put_ssh_host_key(SshHostKey { name: name.clone(), line, added_at: clock::now(), added_by })
            .map_err(Failure::broken)?;
    }
    writeln!(out, "{} keys known{}", found.keys.len(), found.left_out()).map_err(Failure::broken)
}

/// What a known_hosts file gives.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<(String, PublicKey)>,
    /// Lines that name no host, or a kind of key that we do not verify.
    hashed: usize,
    other: usize,
}

impl Found {
    fn left_out(&self) -> String {
        match (self.hashed, self.other) {
            (0, 0) => String::new(),
            (hashed, other) => format!("; left out: {hashed} with hashed names or patterns, {other} of other kinds"),
        }
    }
}

/// Lines of known_hosts (sshd(8)): names, kind, key; `[name]:port` is the name. With a host given also
/// lines of a public key alone. Certificate authorities and revoked keys are left out.
fn known_hosts(text: &str, host: Option<&str>) -> Found {
    let mut found = Found::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let (Some(host), Ok(key)) = (host, PublicKey::parse(line)) {
            found.keys.push((host.to_ascii_lowercase(), key));
            continue;
        }
        let Some((names, key)) = line.split_once(char::is_whitespace) else {
            found.other += 1;
            continue;
        };
        let Ok(key) = PublicKey::parse(key.trim()) else {
            found.other += 1;
            continue;
        };
        for name in names.split(',') {
            let name = name.strip_prefix('[').and_then(|name| name.split_once(']')).map_or(name, |(name, _)| name);
            let plain = !name.is_empty() && !name.contains(['*', '?', '!', '|', '@']) && printable(name, 253) == name;
            if plain { found.keys.push((name.to_ascii_lowercase(), key.clone())) } else { found.hashed += 1 }
        }
    }
    found
}

pub(super) fn ek(command: &EkCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        EkCommand::Add(add) => {
            let bytes = plain::read(&add.file, MAXIMUM_BYTES).map_err(|error| unread(&add.file, error))?;
            let none =
                || Failure::misused(format!("{}: no endorsement key, certificate or sha256:… in it", named(&add.file)));
            let digest = endorsement::digest_of(&bytes).ok_or_else(none)?;
            let (name, added_by) = (add.name.clone(), add.who.who.clone());
            let key = EndorsementKey { digest, name, added_at: clock::now(), added_by };
            open(&add.at)?.put_endorsement_key(key).map_err(Failure::broken)?;
            writeln!(out, "endorsement key {digest} known").map_err(Failure::broken)
        }
        EkCommand::List(at) => {
            let keys = open(at)?.endorsement_keys().map_err(Failure::broken)?;
            let row = |key: &EndorsementKey| {
                let name = if key.name.is_empty() { "any".to_owned() } else { printable(&key.name, 60) };
                vec![name, key.digest.to_string(), printable(&key.added_by, 30)]
            };
            table(["HOST", "KEY", "ADDED BY"], keys.iter().map(row).collect(), out)
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(MAXIMUM_BYTES).read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        plain::read(path, MAXIMUM_BYTES)
    };
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| unread(path, error))
}

fn unread(path: &Path, error: std::io::Error) -> Failure {
    Failure::misused(format!("{} cannot be read: {error}", named(path)))
}

fn table<const N: usize>(head: [&str; N], rows: Vec<Vec<String>>, out: &mut dyn Write) -> Result<(), Failure> {
    if rows.is_empty() {
        return writeln!(out, "none").map_err(Failure::broken);
    }
    let mut all = vec![head.map(str::to_owned).to_vec()];
    all.extend(rows);
    align(&all).into_iter().try_for_each(|line| writeln!(out, "{line}")).map_err(Failure::broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Algorithm, HostKey};

    #[test]
    fn known_hosts_lines_give_names_and_keys_and_what_is_left_out_is_counted() {
        let key = HostKey::generate(Algorithm::Ed25519).public_key().clone();
        let line = key.to_openssh("");
        let text = format!(
            "# comment\ngpu-a,10.0.0.1 {line}\n[GPU-B]:2222 {line} note\n|1|abc=|def= {line}\n*.example {line}\n@cert-authority * {line}\ngpu-c ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB\n"
        );
        let found = known_hosts(&text, None);
        let names: Vec<&str> = found.keys.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["gpu-a", "10.0.0.1", "gpu-b"]);
        assert_eq!((found.hashed, found.other), (2, 2));
        assert!(found.keys.iter().all(|(_, found)| *found == key));
        assert_eq!(known_hosts(&line, Some("gpu-d")).keys, [("gpu-d".to_owned(), key)]);
        assert!(known_hosts(&line, None).keys.is_empty());
    }
}
