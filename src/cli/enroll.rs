//! `nodegate enroll` and `nodegate key rotate`: make this host's key known to a collector.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::delivery::CollectorArgs;
use super::key::{self, Kind};
use super::{Failure, input, lock, place};
use crate::check::KINDS;
use crate::deliver::Target;
use crate::deliver::enrol::{self, Evidence, NotEnrolled};
use crate::exit::Ending;
use crate::host::clock;
use crate::ident::printable;
use crate::plan::Problems;
use crate::plan::site::{self, Collector, SITE_PATH};
use crate::plan::suite;
use crate::record::enrolment::certificate::{CertificateKey, certificates_only};
use crate::record::enrolment::{Enrolled, JoinToken};
use crate::record::identity::host_document;
use crate::record::store::rotation::About;
use crate::record::{HostDocument, HostKey, NewKey, PublicKey, Store, keyfile, tpm};

const SSH_HOST_KEY: &str = "/etc/ssh/ssh_host_ed25519_key";

/// Makes this host's key known to a collector.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    pub way: Way,
    /// A join token that the collector's operator made for this host's serial number
    #[arg(long, value_name = "FILE", group = "proof")]
    pub token_file: Option<PathBuf>,
    /// Sign with this host's SSH key, which the collector knows [default file: /etc/ssh/ssh_host_ed25519_key]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = SSH_HOST_KEY, group = "proof")]
    pub ssh_host_key: Option<PathBuf>,
    /// This host's certificate of the fleet's authority, with those between, PEM
    #[arg(long, value_name = "FILE", group = "proof", requires = "certificate_key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key, PKCS#8 PEM, mode 0600
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub certificate_key: Option<PathBuf>,
    /// Prove that the key is in this host's TPM; makes it there where the host has none yet
    #[arg(long, group = "proof")]
    pub tpm: bool,
    /// Trust the collector's receipt key now and write it here
    #[arg(long, value_name = "FILE")]
    pub pin_receipt_key: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  nodegate enroll --collector https://gate.example:8443
  nodegate enroll --token-file ./join-token
  nodegate enroll --ssh-host-key
  nodegate enroll --certificate host.pem --certificate-key host.key
  nodegate enroll --tpm --pin-receipt-key /etc/nodegate/collector.pub

Exit status: 0 enrolled (approved, or waiting for approval), 1 refused, 2 no answer that decides it,
64 usage, 70 our own failure.";

/// Which collector, and whose key.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Way {
    /// The collector [default: the site's]
    #[arg(long, value_name = "URL", help_heading = "Delivery")]
    pub collector: Option<String>,
    /// The site file [default: /etc/nodegate/site.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// Makes a new key, signed for by the old one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate key rotate\n  nodegate key rotate --type tpm\n\nThe chain of the new key begins at 1: `nodegate status` wants a new run afterwards.\n\nExit status: 0 replaced, 1 refused, 2 no answer that decides it (the old key goes on; run it again), 64 usage, 70 our own failure."
)]
pub struct RotateArgs {
    #[command(flatten)]
    pub way: Way,
    #[command(flatten)]
    pub kind: Kind,
}

/// Who this host is, as it is enrolled.
struct Host {
    document: HostDocument,
    hostname: String,
}

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<Ending, Failure> {
    let target = arguments.way.target()?;
    let pinned = arguments.pin_receipt_key.as_deref().map(Pin::prepare).transpose()?;
    let host = Host::this();
    let new = if arguments.tpm { NewKey::Tpm { tcti: tpm::DEFAULT_TCTI.to_owned() } } else { NewKey::default() };
    let shown = arguments.shown().map_err(Failure::misused)?;
    let store = arguments.way.open(&host, new, out)?;
    let evidence = match shown {
        Some(evidence) => evidence,
        None if arguments.tpm => in_tpm(store.host_key()).ok_or_else(|| Failure::misused(NOT_IN_TPM))?,
        None => Evidence::FirstUse,
    };
    let keyid = store.public_key().keyid();
    let enrolled = enrol::enrol(&target, &keyid, |challenge| store.enrolment(&host.about(challenge)), &evidence);
    match enrolled {
        Ok(enrolled) => {
            tell(&enrolled, out).map_err(Failure::broken)?;
            tell_receipt_key(&enrolled, pinned, out)?;
            Ok(Ending::Accepted)
        }
        Err(why) => not_enrolled(why),
    }
}

const NOT_IN_TPM: &str = "this host's key is not in a TPM: `nodegate key rotate --type tpm` makes one that is";

/// Makes the key to come, has it taken, and only then signs with it.
pub fn rotate(arguments: &RotateArgs, out: &mut dyn Write) -> Result<Ending, Failure> {
    let target = arguments.way.target()?;
    let new = arguments.kind.new_key().map_err(super::blamed)?;
    let host = Host::this();
    let store = arguments.way.open(&host, NewKey::default(), out)?;
    let _lock = lock::take(store.folder())?;
    let next = store.successor(&new).map_err(Failure::broken)?;
    let keyid = next.key().public_key().keyid();
    let evidence = in_tpm(Some(next.key())).unwrap_or(Evidence::FirstUse);
    let sign = |challenge: &str| store.succession(&next, &host.about(challenge));
    match enrol::enrol(&target, &keyid, sign, &evidence) {
        Ok(enrolled) if enrolled.state == "approved" && enrolled.keyid == keyid => {
            store.succeed(&next).map_err(Failure::broken)?;
            tell(&enrolled, out).map_err(Failure::broken)?;
            writeln!(out, "next      its chain begins at 1: `nodegate status` wants a new run")
                .map_err(Failure::broken)?;
            Ok(Ending::Accepted)
        }
        Ok(enrolled) => {
            tell(&enrolled, out).map_err(Failure::broken)?;
            writeln!(out, "next      the old key goes on until the new one is approved; run this again then")
                .map_err(Failure::broken)?;
            Ok(Ending::Undecided)
        }
        Err(why) => {
            if why.is_final() {
                store.forget(next).map_err(Failure::broken)?;
            }
            not_enrolled(why)
        }
    }
}

impl Way {
    fn target(&self) -> Result<Target, Failure> {
        let collector = CollectorArgs { collector: self.collector.clone(), receipt_key: None };
        let target = collector.target(&self.site_collector().map_err(Failure::misused)?)?;
        target.ok_or_else(|| {
            Failure::misused("no collector: name one with --collector, or in the site file's [collector]")
        })
    }

    /// The site's collector, with the secrets that are for it alone.
    fn site_collector(&self) -> Result<Collector, Problems> {
        let document = match &self.site {
            Some(path) => Some(input::required(path)?),
            None => input::optional(SITE_PATH.as_ref())?,
        };
        let Some(document) = document else { return Ok(Collector::default()) };
        let suite = suite::builtin(KINDS)?;
        Ok(site::load(&document, &suite, KINDS)?.collector)
    }

    fn open(&self, host: &Host, new: NewKey, out: &mut dyn Write) -> Result<Store, Failure> {
        let folder = key::folder(self.state.as_deref()).map_err(|error| super::blamed(error.into()))?;
        let store = Store::for_host_with(&folder, &host.document, new).map_err(Failure::broken)?;
        let notices = store.notices().iter();
        notices
            .map(|notice| printable(notice, 300))
            .try_for_each(|notice| writeln!(out, "notice    {notice}"))
            .map_err(Failure::broken)?;
        Ok(store)
    }
}

impl Args {
    /// What is shown beside the key, but for the TPM's proof, which the key itself is needed for.
    fn shown(&self) -> Result<Option<Evidence>, Box<dyn Error>> {
        if let Some(path) = &self.token_file {
            let token = JoinToken::parse(&keyfile::read_secret(path)?);
            return Ok(Some(Evidence::Token(token.map_err(|error| format!("{}: {error}", path.display()))?)));
        }
        if let Some(path) = &self.ssh_host_key {
            return Ok(Some(Evidence::SshHostKey(std::path::absolute(path)?)));
        }
        let (Some(certificate), Some(key)) = (&self.certificate, &self.certificate_key) else { return Ok(None) };
        let wrong = |path: &Path, error: &dyn Error| format!("{}: {error}", path.display());
        let certificates = certificates_only(&keyfile::read_plain(certificate)?);
        let certificates = certificates.map_err(|error| wrong(certificate, &error))?;
        let key = CertificateKey::parse(&keyfile::read_secret(key)?).map_err(|error| wrong(key, &error))?;
        Ok(Some(Evidence::Certificate { certificates, key }))
    }
}

impl Host {
    fn this() -> Host {
        let facts = place::this_host();
        let hostname = facts.hostname.value().map_or_else(|| "unknown".to_owned(), |name| printable(name, 64));
        Host { document: host_document(&facts), hostname }
    }

    fn about<'a>(&'a self, challenge: &'a str) -> About<'a> {
        About { host: &self.document, hostname: &self.hostname, at: clock::now(), challenge }
    }
}

fn in_tpm(key: Option<&HostKey>) -> Option<Evidence> {
    key.and_then(HostKey::outside).and_then(|outside| outside.tpm()).map(|key| Evidence::Tpm(key.clone()))
}

/// What came of it, and what happens next.
fn tell(enrolled: &Enrolled, out: &mut dyn Write) -> std::io::Result<()> {
    let (keyid, state) = (printable(&enrolled.keyid, 80), printable(&enrolled.state, 20));
    writeln!(out, "enrolled  {keyid}  tier {}  {state}", enrolled.tier)?;
    match enrolled.state.as_str() {
        "pending" => writeln!(
            out,
            "next      an operator approves it (nodegate collector keys approve); until then records are kept and do not count"
        ),
        "retired" => {
            writeln!(out, "next      another key has taken its place; `nodegate key show --format text` names this one")
        }
        _ => Ok(()),
    }
}

fn tell_receipt_key(enrolled: &Enrolled, pin: Option<Pin>, out: &mut dyn Write) -> Result<(), Failure> {
    let newest = enrolled.receipt_keys.last().and_then(|key| PublicKey::parse(&key.public_key).ok());
    let line = match (newest, pin) {
        (None, _) => "receipts  the collector named no key of its own".to_owned(),
        (Some(key), Some(pin)) => {
            let path = pin.keep(&key)?;
            format!("receipts  {}, pinned in {}", key.keyid(), path.display())
        }
        (Some(key), None) => format!(
            "receipts  {}, not pinned: ask its operator whether that is it, and name its file with --receipt-key",
            key.keyid()
        ),
    };
    writeln!(out, "{line}").map_err(Failure::broken)
}

/// Where the collector's key is to be written.
struct Pin {
    path: PathBuf,
    before: Option<PublicKey>,
}

impl Pin {
    /// What is there is a public key or nothing: known before the collector is asked.
    fn prepare(path: &Path) -> Result<Pin, Failure> {
        let before = if path.symlink_metadata().is_ok() {
            Some(keyfile::read_public(path).map_err(Failure::misused)?)
        } else {
            None
        };
        Ok(Pin { path: path.to_owned(), before })
    }

    fn keep(self, key: &PublicKey) -> Result<PathBuf, Failure> {
        match self.before {
            Some(before) if before == *key => {}
            Some(before) => {
                let text = format!(
                    "{} has another key, {}: the collector shows {}; a pinned key is never overwritten",
                    self.path.display(),
                    before.keyid(),
                    key.keyid()
                );
                return Err(Failure::misused(text));
            }
            None => keyfile::write_public(&self.path, key).map_err(Failure::broken)?,
        }
        Ok(self.path)
    }
}

/// The collector's no is one; that it could not be asked decides nothing. What broke here is ours.
fn not_enrolled(why: NotEnrolled) -> Result<Ending, Failure> {
    let ending = match &why {
        why if why.is_final() => Ending::Rejected,
        NotEnrolled::NoAnswer { .. } | NotEnrolled::Refused { .. } | NotEnrolled::Garbled { .. } => Ending::Undecided,
        NotEnrolled::Proof { .. } | NotEnrolled::NoRecord => return Err(Failure::misused(why)),
        NotEnrolled::Sign(_) | NotEnrolled::CertificateKey => return Err(Failure::broken(why)),
    };
    // Standard error may be closed; the exit status still says it.
    let _closed = writeln!(std::io::stderr(), "nodegate: not enrolled: {}", printable(&why.to_string(), 500));
    Ok(ending)
}
