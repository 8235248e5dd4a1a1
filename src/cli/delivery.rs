//! Whether and where a run's record is sent, settled before anything is run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Failure, interrupt, terminal};
use crate::decision::Decision;
use crate::deliver::{self, Limits, Target};
use crate::deliver::{read_certificates, read_credential, read_private_key};
use crate::plan::site::Collector;
use crate::record::{HostDocument, Receipt, Store, Stored, keyfile};
use crate::wire::{Address, Identity, Proxy, Transport};

/// For everything that a run sends at its end: whoever waits for its decision waits for this too.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options that say where the record goes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Delivery")]
pub struct Delivery {
    #[command(flatten)]
    pub collector: CollectorArgs,
    /// Without a receipt end with 3 instead of 0
    #[arg(long)]
    pub require_delivery: bool,
}

/// The options that name a collector.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Delivery")]
pub struct CollectorArgs {
    /// Send records to this collector [default: the site's]
    // Parsed by us: clap would show what it refuses, a password in it too.
    #[arg(long, value_name = "URL")]
    pub collector: Option<String>,
    /// The collector's public key, by which its receipts are verified [default: the site's]
    #[arg(long, value_name = "PUB")]
    pub receipt_key: Option<PathBuf>,
}

/// What became of the record of a run.
pub enum Delivered {
    Receipt(Receipt),
    /// In one line, with what happens next.
    Not(String),
}

impl Delivery {
    /// The collector of this run, if any, with everything that is needed of it read and in order.
    pub fn target(&self, site: &Collector) -> Result<Option<Target>, Failure> {
        let target = self.collector.target(site)?;
        match &target {
            _ if !self.require_delivery => Ok(target),
            None => Err(Failure::misused("--require-delivery, and no collector: name one with --collector")),
            Some(Target { receipt_key: None, .. }) => Err(Failure::misused(
                "--require-delivery, and no key to verify a receipt with: name the collector's with --receipt-key",
            )),
            Some(_) => Ok(target),
        }
    }
}

impl CollectorArgs {
    /// The collector that is named, or the site's.
    pub fn target(&self, site: &Collector) -> Result<Option<Target>, Failure> {
        let named = self.collector.as_deref().map(str::parse::<Address>).transpose();
        let named = named.map_err(|error| Failure::misused(format!("--collector: {error}")))?;
        let Some(address) = named.or_else(|| site.url.clone()) else { return Ok(None) };
        let key = self.receipt_key.as_ref().or(site.receipt_key.as_ref());
        let receipt_key = key.map(|path| keyfile::read_public(path)).transpose().map_err(Failure::misused)?;
        // The site's secrets are for the site's collector alone, whatever the command line names.
        let theirs = site.url.as_ref().is_some_and(|url| url.has_origin_of(&address));
        let credential = site.credential.as_ref().filter(|_| theirs);
        let token = credential.map(|path| read_credential(path)).transpose().map_err(Failure::misused)?;
        let transport = transport(site, &address, theirs)?;
        Ok(Some(Target { receipt_key, token, transport, first_use: site.first_use && theirs, ..Target::at(address) }))
    }
}

fn transport(site: &Collector, address: &Address, theirs: bool) -> Result<Transport, Failure> {
    if address.is_plain() {
        return Ok(Transport::default());
    }
    let authority = site.ca.as_ref().map(|path| read_certificates("ca", path)).transpose();
    let identity = match (&site.client_certificate, &site.client_key) {
        (Some(certificate), Some(key)) if theirs => Some(Identity {
            certificate: read_certificates("client certificate", certificate).map_err(Failure::misused)?,
            key: read_private_key(key).map_err(Failure::misused)?,
        }),
        _ => None,
    };
    let transport =
        Transport { authority: authority.map_err(Failure::misused)?, identity, proxy: proxy(site, address)? };
    let wrong = |why: &str| {
        let paths = [&site.ca, &site.client_certificate, &site.client_key];
        let named: Vec<String> = paths.into_iter().flatten().map(|path| path.display().to_string()).collect();
        Failure::misused(format!("{}: {why}", named.join(", ")))
    };
    transport.check().map_err(wrong)?;
    Ok(transport)
}

/// The site's proxy, or the caller's. Our children start without an environment, so that it is read
/// here and handed on; that what is in it cannot be used is an error, for silence would go around it.
#[expect(clippy::disallowed_methods, reason = "the edge reads the environment")]
fn proxy(site: &Collector, address: &Address) -> Result<Option<Proxy>, Failure> {
    let set = |names: [&str; 2]| {
        names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    };
    match (&site.proxy, set(["HTTPS_PROXY", "https_proxy"])) {
        _ if address.is_here() => Ok(None),
        (Some(proxy), _) => Ok(Some(proxy.clone())),
        (None, None) => Ok(None),
        (None, Some(text)) => {
            let proxy: Proxy = text.parse().map_err(|error| Failure::misused(format!("HTTPS_PROXY: {error}")))?;
            Ok(Some(proxy.except(&set(["NO_PROXY", "no_proxy"]).unwrap_or_default())))
        }
    }
}

/// Sends what waits, this run's record last, and says on the screen what came of it. An acceptance
/// that needs a receipt and has none is said as such.
pub fn send(
    (stored, store, host): (&Stored, &Store, &HostDocument),
    target: &Target,
    required: bool,
    screen: Option<&mut dyn Write>,
) -> Result<Delivered, Failure> {
    let delivered = match stored.details.simulated {
        true => send_once((stored, store, host), target),
        false => send_waiting(stored, store.folder(), target),
    };
    let (word, line) = match &delivered {
        Delivered::Receipt(receipt) => (
            "sent    ",
            format!("{}, receipt {:.0}{}", target.address.authority(), receipt.received_at, flags(receipt)),
        ),
        Delivered::Not(why) if required && stored.details.decision == Decision::Accepted => {
            ("not sent: ", format!("ACCEPTED, not delivered: {why}"))
        }
        Delivered::Not(why) => ("not sent: ", why.clone()),
    };
    match screen {
        Some(out) => {
            let lines = terminal::typeface().wrap(&line, word, "        ");
            writeln!(out, "{}", lines.join("\n")).map_err(Failure::broken)?;
        }
        // Standard output is the JSON's; standard error may be closed.
        None => drop(writeln!(std::io::stderr(), "nodegate: {word}{line}")),
    }
    Ok(delivered)
}

/// Why a record that was taken does not count there.
pub fn flags(receipt: &Receipt) -> String {
    let words: Vec<&str> = receipt.flags.iter().map(|flag| flag.meaning()).collect();
    if words.is_empty() { String::new() } else { format!(", does not count there: {}", words.join("; ")) }
}

/// A recording has no spool: its key is gone with the run.
fn send_once((stored, store, host): (&Stored, &Store, &HostDocument), target: &Target) -> Delivered {
    if interrupt::interrupted() {
        return Delivered::Not("interrupted; the record is kept".to_owned());
    }
    let mut delivered = deliver::deliver_once(stored, target);
    // A throw-away key is new to every collector; one that takes recordings takes its word.
    if delivered.as_ref().is_err_and(|undelivered| undelivered.unknown_key) {
        let hostname = &stored.details.host.hostname;
        match deliver::enrol::introduce(store, host, hostname, target) {
            Ok(_) => delivered = deliver::deliver_once(stored, target),
            Err(why) => tracing::debug!(%why, "the throw-away key was not introduced"),
        }
    }
    match delivered {
        Ok(receipt) => Delivered::Receipt(receipt),
        Err(undelivered) if undelivered.again => {
            Delivered::Not(format!("{undelivered}; the record is kept; run again with --collector to send a new one"))
        }
        Err(undelivered) => {
            Delivered::Not(format!("{undelivered}; sending it again will not help; the record is kept"))
        }
    }
}

fn send_waiting(stored: &Stored, state: &Path, target: &Target) -> Delivered {
    let run_id = &stored.details.run_id;
    // Without a key nothing is ever done with: sending the older ones again and again helps nobody.
    let only = target.receipt_key.is_none().then_some(run_id.as_str());
    let report = match deliver::pass(state, target, Limits { until: Some(Instant::now() + PATIENCE), only }) {
        Ok(report) => report,
        Err(error) => return Delivered::Not(format!("{error}; {IN_THE_SPOOL}")),
    };
    if let Some(sent) = report.sent.iter().find(|sent| sent.run_id == *run_id) {
        return Delivered::Receipt(sent.receipt.clone());
    }
    if let Some(buried) = report.buried.iter().find(|buried| buried.run_id == *run_id) {
        return Delivered::Not(format!("{}; {SET_ASIDE}", buried.cause));
    }
    if let Some(waiting) = report.waiting.iter().find(|waiting| waiting.run_id == *run_id) {
        return Delivered::Not(format!("{}; {IN_THE_SPOOL}", waiting.cause));
    }
    // Another delivery was quicker, and its receipt is kept.
    match deliver::kept_receipt(state, target, &stored.envelope) {
        Some(receipt) => Delivered::Receipt(receipt),
        None => Delivered::Not(format!("its receipt cannot be found; {IN_THE_SPOOL}")),
    }
}

const IN_THE_SPOOL: &str = "it is in the spool; nodegate deliver sends it";
const SET_ASIDE: &str = "it is set aside; nodegate deliver --list shows it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Algorithm, HostKey};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn delivery(collector: Option<&str>, receipt_key: Option<PathBuf>) -> Delivery {
        let collector = CollectorArgs { collector: collector.map(str::to_owned), receipt_key };
        Delivery { collector, require_delivery: true }
    }

    #[test]
    fn the_sites_secret_goes_to_the_sites_collector_alone() {
        let folder = tempfile::tempdir().unwrap();
        let credential = folder.path().join("token");
        fs::write(&credential, "hunter2").unwrap();
        fs::set_permissions(&credential, Permissions::from_mode(0o600)).unwrap();
        let url = Some("https://c.example".parse().unwrap());
        let site = Collector { url, credential: Some(credential), first_use: true, ..Collector::default() };
        let target = |collector: &str| delivery(Some(collector), None).collector.target(&site).unwrap().unwrap();
        assert!(target("https://c.example/gate").token.is_some() && target("https://c.example/gate").first_use);
        for other in ["https://d.example", "http://localhost"] {
            assert!(target(other).token.is_none() && !target(other).first_use, "{other}");
        }
    }

    #[test]
    fn a_delivery_that_can_never_be_proven_is_not_begun() {
        let nowhere = delivery(None, None).target(&Collector::default());
        assert!(matches!(nowhere, Err(Failure::Misused(error)) if error.to_string().contains("--collector")));
        let unpinned = delivery(Some("https://c.example"), None).target(&Collector::default());
        assert!(matches!(unpinned, Err(Failure::Misused(error)) if error.to_string().contains("--receipt-key")));
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("collector.pub");
        fs::write(&key, HostKey::generate(Algorithm::Ed25519).public_key().to_pem()).unwrap();
        assert!(delivery(Some("https://c.example"), Some(key)).target(&Collector::default()).unwrap().is_some());
    }

    #[test]
    fn certificates_that_cannot_be_used_are_named_before_anything_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("fleet-ca.pem");
        fs::write(&ca, "not a certificate").unwrap();
        let site = Collector { url: Some("https://c.example".parse().unwrap()), ca: Some(ca), ..Collector::default() };
        let Err(Failure::Misused(error)) = CollectorArgs::default().target(&site) else { panic!("taken") };
        assert!(
            error.to_string().contains("fleet-ca.pem") && error.to_string().contains("BEGIN CERTIFICATE"),
            "{error}"
        );
    }
}
