//! Whether and where a run's record is sent, settled before anything is run.

use std::io::Write;
use std::path::PathBuf;

use super::{Failure, terminal};
use crate::decision::Decision;
use crate::deliver::{self, Target, Undelivered, read_credential};
use crate::plan::site::Collector;
use crate::record::{Receipt, Stored, keyfile};
use crate::wire::Address;

/// The options that say where the record goes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Delivery")]
pub struct Delivery {
    /// Send the record to this collector [default: the site's]
    // Parsed by us: clap would show what it refuses, a password in it too.
    #[arg(long, value_name = "URL")]
    pub collector: Option<String>,
    /// The collector's public key, by which its receipt is verified [default: the site's]
    #[arg(long, value_name = "PUB")]
    pub receipt_key: Option<PathBuf>,
    /// Without a receipt end with 3 instead of 0
    #[arg(long)]
    pub require_delivery: bool,
}

impl Delivery {
    /// The collector of this run, if any, with everything that is needed of it read and in order.
    pub fn target(&self, site: &Collector) -> Result<Option<Target>, Failure> {
        let named = self.collector.as_deref().map(str::parse::<Address>).transpose();
        let named = named.map_err(|error| Failure::misused(format!("--collector: {error}")))?;
        let Some(address) = named.or_else(|| site.url.clone()) else {
            return match self.require_delivery {
                true => Err(Failure::misused("--require-delivery, and no collector: name one with --collector")),
                false => Ok(None),
            };
        };
        let key = self.receipt_key.as_ref().or(site.receipt_key.as_ref());
        if key.is_none() && self.require_delivery {
            let text =
                "--require-delivery, and no key to verify a receipt with: name the collector's with --receipt-key";
            return Err(Failure::misused(text));
        }
        // The site's secret is for the site's collector alone, whatever the command line names.
        let theirs = site.url.as_ref().is_some_and(|url| url.has_origin_of(&address));
        let credential = site.credential.as_ref().filter(|_| theirs);
        Ok(Some(Target {
            address,
            receipt_key: key.map(|path| keyfile::read_public(path)).transpose().map_err(Failure::misused)?,
            token: credential.map(|path| read_credential(path)).transpose().map_err(Failure::misused)?,
        }))
    }
}

/// Sends the record and says on the screen what came of it. An acceptance that needs a receipt and
/// has none is said as such.
pub fn send(
    stored: &Stored,
    target: &Target,
    required: bool,
    screen: Option<&mut dyn Write>,
) -> Result<Result<Receipt, Undelivered>, Failure> {
    let delivered = deliver::deliver(stored, target);
    let (word, line) = match &delivered {
        Ok(receipt) => ("sent    ", format!("{}, receipt {:.0}", target.address.authority(), receipt.received_at)),
        Err(undelivered) if required && stored.details.decision == Decision::Accepted => {
            ("not sent: ", format!("ACCEPTED, not delivered: {}", not_sent(undelivered)))
        }
        Err(undelivered) => ("not sent: ", not_sent(undelivered)),
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

fn not_sent(undelivered: &Undelivered) -> String {
    let outlook = match undelivered.again {
        true => "the record is kept; run again with --collector to send a new one",
        false => "sending it again will not help; the record is kept",
    };
    format!("{undelivered}; {outlook}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Algorithm, HostKey};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_sites_secret_goes_to_the_sites_collector_alone() {
        let folder = tempfile::tempdir().unwrap();
        let credential = folder.path().join("token");
        fs::write(&credential, "hunter2").unwrap();
        fs::set_permissions(&credential, Permissions::from_mode(0o600)).unwrap();
        let url = Some("https://c.example".parse().unwrap());
        let site = Collector { url, receipt_key: None, credential: Some(credential) };
        let token = |collector: &str| {
            let delivery = Delivery { collector: Some(collector.to_owned()), ..Delivery::default() };
            delivery.target(&site).unwrap().unwrap().token
        };
        assert!(token("https://c.example/gate").is_some());
        assert!(token("https://d.example").is_none());
        assert!(token("http://localhost").is_none());
    }

    #[test]
    fn a_delivery_that_can_never_be_proven_is_not_begun() {
        let required = |collector: Option<&str>| Delivery {
            collector: collector.map(str::to_owned),
            require_delivery: true,
            ..Delivery::default()
        };
        let nowhere = required(None).target(&Collector::default());
        assert!(matches!(nowhere, Err(Failure::Misused(error)) if error.to_string().contains("--collector")));
        let unpinned = required(Some("https://c.example")).target(&Collector::default());
        assert!(matches!(unpinned, Err(Failure::Misused(error)) if error.to_string().contains("--receipt-key")));
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("collector.pub");
        fs::write(&key, HostKey::generate(Algorithm::Ed25519).public_key().to_pem()).unwrap();
        let pinned = Delivery { receipt_key: Some(key), ..required(Some("https://c.example")) };
        assert!(pinned.target(&Collector::default()).unwrap().is_some());
    }
}
