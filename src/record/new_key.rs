//! How a host's key comes to be: in a file, in a TPM, or with a signer that holds one already.

use super::keys::{Algorithm, HostKey};
use super::outside::SignError;
use super::public_key::PublicKey;
use super::tpm::{self, TpmKeyError};

/// The key that is to be made where a state folder has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewKey {
    File(Algorithm),
    Tpm { tcti: String },
    Signer { command: Vec<String>, public: PublicKey },
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum NewKeyError {
    #[error(transparent)]
    Tpm(#[from] TpmKeyError),
    #[error("the TPM's key is of another kind than was asked for")]
    Kind,
    #[error("the key cannot be used: it signed nothing")]
    Trial(#[from] SignError),
}

impl NewKey {
    /// Makes it. A key outside is tried before it is taken.
    pub fn make(&self) -> Result<HostKey, NewKeyError> {
        let key = match self {
            NewKey::File(algorithm) => return Ok(HostKey::generate(*algorithm)),
            NewKey::Tpm { tcti } => HostKey::of_tpm(tpm::make(tcti)?).ok_or(NewKeyError::Kind)?,
            NewKey::Signer { command, public } => HostKey::of_signer(command.clone(), public.clone()),
        };
        key.try_out()?;
        Ok(key)
    }
}

impl Default for NewKey {
    fn default() -> Self {
        NewKey::File(Algorithm::default())
    }
}

impl From<Algorithm> for NewKey {
    fn from(algorithm: Algorithm) -> Self {
        NewKey::File(algorithm)
    }
}
