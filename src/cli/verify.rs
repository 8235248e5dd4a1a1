//! `nodegate verify`: who signed a record, and what it says.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use crate::record::{PublicKey, Verified, dsse, keyfile, verify};
use crate::report::record::decision_line;

/// Verifies a record (DSSE envelope or Sigstore bundle) and says what it says.
///
/// Exit 0: the signature verifies, whatever the decision. 1: it does not. 64: not a record, or no key.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate verify RUN.json --key host.pub\n  nodegate verify RUN.json --keys ./fleet-keys"
)]
pub struct VerifyArgs {
    /// The record: RUN.json or RUN.sigstore.json
    pub record: PathBuf,
    /// A public key, SPKI PEM or OpenSSH line; may be given several times
    #[arg(long = "key", value_name = "PUB", required_unless_present = "keys")]
    pub key: Vec<PathBuf>,
    /// A folder of public keys (*.pub, *.pem)
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

/// Prints the verdict on `out`. 0 if the signature verifies, 1 if it does not; an error if the
/// record or a key cannot be read.
pub fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<u8, Box<dyn Error>> {
    let keys = keys(args)?;
    let bytes = read_record(&args.record)?;
    match verify(&bytes, &keys) {
        Ok(verified) => {
            describe(&verified, out)?;
            Ok(0)
        }
        Err(error) if error.is_about_the_signature() => {
            writeln!(out, "NOT VERIFIED  {}: {error}", args.record.display())?;
            Ok(1)
        }
        Err(error) => Err(Box::new(error)),
    }
}

/// Reads a record file, one byte past the limit at most, so that the limit still shows.
pub fn read_record(path: &Path) -> Result<Vec<u8>, RecordFileError> {
    let unread = |source| RecordFileError { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unread)?;
    file.take(dsse::MAXIMUM_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unread)?;
    Ok(bytes)
}

#[derive(Debug, thiserror::Error)]
#[error("record {path} cannot be read")]
pub struct RecordFileError {
    path: PathBuf,
    source: io::Error,
}

fn keys(args: &VerifyArgs) -> Result<Vec<PublicKey>, keyfile::KeyFileError> {
    let mut keys = args.key.iter().map(|path| keyfile::read_public(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &args.keys {
        keys.extend(keyfile::read_public_folder(folder)?);
    }
    Ok(keys)
}

fn describe(verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    let details = &verified.details;
    writeln!(out, "VERIFIED  {}", decision_line(details))?;
    writeln!(out, "signed    {}  seq {}", verified.keyid, details.seq)?;
    writeln!(out, "record    {}", verified.payload)?;
    writeln!(out, "run       {}  finished {}", details.run_id, crate::ident::printable(&details.finished_at, 40))?;
    let hostname = crate::ident::printable(&details.host.hostname, 64);
    writeln!(out, "host      {hostname}  host.json {}", verified.host)?;
    writeln!(out, "node      {} GPUs  node.json {}", details.inventory.gpus.len(), verified.node)?;
    writeln!(out, "class     {}  {}", details.plan.class.id, details.plan.class.digest)?;
    if details.simulated {
        writeln!(
            out,
            "note      the host was a recording and the key was thrown away: this proves nothing of a machine"
        )?;
    }
    if details.overridden {
        writeln!(out, "note      the run was told where to read (--nvml, --cuda or --root)")?;
    }
    if details.partial {
        writeln!(out, "note      steps were left out (--only or --skip)")?;
    }
    Ok(())
}
