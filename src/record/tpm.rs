//! A P-256 key that cannot leave its TPM, reached through tpm2-tools.
//!
//! The key lies under the storage primary of the owner hierarchy, which the TPM makes again from its
//! own seed each time; what is kept is the key's public area and its private area as the TPM wrapped
//! it, worth nothing to another TPM. Over a TCTI without a resource manager what a tool leaves in the
//! TPM is flushed after each step; over one with a manager there is nothing to flush.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::enrolment::tpm_public::{KeyArea, TpmPublicError};
use super::public_key::PublicKey;
use crate::isolate::{Bytes, Done, ProgramError, Step, Work, run_programs};

/// The TCTI where none is named: the kernel's device with a resource manager.
pub const DEFAULT_TCTI: &str = "device:/dev/tpmrm0";
/// A TPM that makes an RSA key from its seed takes seconds, a software one milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Signing has no RSA key in it.
const SIGN_PATIENCE: Duration = Duration::from_secs(20);
const ATTRIBUTES: &str = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign";

/// A key in a TPM, as the state folder keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpmKey {
    /// How tpm2-tools reach the TPM.
    tcti: String,
    /// TPM2B_PUBLIC.
    public: Bytes,
    /// TPM2B_PRIVATE, wrapped by the TPM.
    private: Bytes,
}

/// Why a TPM gave no key.
#[derive(Debug, thiserror::Error)]
pub enum TpmKeyError {
    #[error("the TPM at {tcti} made no key; is it there, and are tpm2-tools installed?")]
    NotMade { tcti: String, source: ProgramError },
    #[error("the TPM at {tcti} made a key that is not what was asked for")]
    Unexpected { tcti: String, source: TpmPublicError },
}

impl TpmKey {
    pub fn tcti(&self) -> &str {
        &self.tcti
    }

    /// TPM2B_PUBLIC of the key.
    pub fn public_area(&self) -> &[u8] {
        &self.public.0
    }

    pub(super) fn public_key(&self) -> Option<PublicKey> {
        KeyArea::parse(&self.public.0).ok().map(|area| area.public_key)
    }
}

/// Makes a key in the TPM.
pub fn make(tcti: &str) -> Result<TpmKey, TpmKeyError> {
    let tool = Tools(tcti);
    let create = [
        "-C",
        "primary.ctx",
        "-G",
        "ecc256:ecdsa-sha256",
        "-g",
        "sha256",
        "-a",
        ATTRIBUTES,
        "-u",
        "key.pub",
        "-r",
        "key.priv",
        "-Q",
    ];
    let steps = vec![tool.primary(), tool.flush(), tool.step("tpm2_create", &create), tool.flush()];
    let not_made = |source| TpmKeyError::NotMade { tcti: tcti.to_owned(), source };
    let [public, private] = results(tool.run(Vec::new(), steps, ["key.pub", "key.priv"], PATIENCE).map_err(not_made)?);
    let unexpected = |source| TpmKeyError::Unexpected { tcti: tcti.to_owned(), source };
    KeyArea::parse(&public.0).map_err(unexpected)?;
    Ok(TpmKey { tcti: tcti.to_owned(), public, private })
}

/// The signature in ASN.1 DER over these bytes.
pub(super) fn sign(key: &TpmKey, message: &[u8]) -> Result<Vec<u8>, ProgramError> {
    let tool = Tools(&key.tcti);
    let mut files = key.files();
    files.push(("message".to_owned(), Bytes(message.to_vec())));
    let mut steps = tool.loaded();
    let sign = ["-c", "key.ctx", "-g", "sha256", "-s", "ecdsa", "-f", "plain", "-o", "signature", "message"];
    steps.extend([tool.step("tpm2_sign", &sign), tool.flush()]);
    let [signature] = results(tool.run(files, steps, ["signature"], SIGN_PATIENCE)?);
    Ok(signature.0)
}

/// TPM2B_PUBLIC of the TPM's endorsement key, RSA 2048 by the default template.
pub fn endorsement_key(tcti: &str) -> Result<Vec<u8>, ProgramError> {
    let tool = Tools(tcti);
    let steps = vec![tool.endorsement(), tool.flush()];
    let [public] = results(tool.run(Vec::new(), steps, ["ek.pub"], PATIENCE)?);
    Ok(public.0)
}

/// The secret in a credential that was made for this key in this TPM.
pub fn activate(key: &TpmKey, blob: &[u8], encrypted_secret: &[u8]) -> Result<Vec<u8>, ProgramError> {
    let tool = Tools(&key.tcti);
    let mut files = key.files();
    // The file form of tpm2-tools: magic number, version, TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET.
    let credential = [&[0xba, 0xdc, 0xc0, 0xde, 0, 0, 0, 1], blob, encrypted_secret].concat();
    files.push(("credential".to_owned(), Bytes(credential)));
    let mut steps = tool.loaded();
    let activate =
        ["-c", "key.ctx", "-C", "ek.ctx", "-i", "credential", "-o", "secret", "-P", "session:session.ctx", "-Q"];
    steps.extend([
        tool.endorsement(),
        tool.flush(),
        tool.step("tpm2_startauthsession", &["--policy-session", "-S", "session.ctx"]),
        tool.step("tpm2_policysecret", &["-S", "session.ctx", "-c", "e", "-Q"]),
        tool.step("tpm2_activatecredential", &activate),
        tool.step("tpm2_flushcontext", &["session.ctx"]).that_may_fail(),
        tool.flush(),
    ]);
    let [secret] = results(tool.run(files, steps, ["secret"], PATIENCE)?);
    Ok(secret.0)
}

/// tpm2-tools on one TPM.
struct Tools<'a>(&'a str);

impl Tools<'_> {
    fn step(&self, program: &str, arguments: &[&str]) -> Step {
        Step::new(program, &[&["-T", self.0], arguments].concat())
    }

    fn primary(&self) -> Step {
        self.step("tpm2_createprimary", &["-C", "o", "-G", "ecc256", "-g", "sha256", "-c", "primary.ctx", "-Q"])
    }

    fn endorsement(&self) -> Step {
        self.step("tpm2_createek", &["-c", "ek.ctx", "-G", "rsa", "-u", "ek.pub", "-Q"])
    }

    /// Makes the key of the work's files usable as `key.ctx`.
    fn loaded(&self) -> Vec<Step> {
        let load = ["-C", "primary.ctx", "-u", "key.pub", "-r", "key.priv", "-c", "key.ctx", "-Q"];
        vec![self.primary(), self.flush(), self.step("tpm2_load", &load), self.flush()]
    }

    fn flush(&self) -> Step {
        self.step("tpm2_flushcontext", &["-t"]).that_may_fail()
    }

    fn run<const N: usize>(
        &self,
        files: Vec<(String, Bytes)>,
        steps: Vec<Step>,
        names: [&str; N],
        patience: Duration,
    ) -> Result<Done, ProgramError> {
        run_programs(Work { files, steps, results: names.map(str::to_owned).to_vec(), patience })
    }
}

impl TpmKey {
    fn files(&self) -> Vec<(String, Bytes)> {
        vec![("key.pub".to_owned(), self.public.clone()), ("key.priv".to_owned(), self.private.clone())]
    }
}

/// The files of the work, of which there are as many as were asked for.
fn results<const N: usize>(done: Done) -> [Bytes; N] {
    let mut results = done.results.into_iter();
    std::array::from_fn(|_| results.next().unwrap_or_default())
}
