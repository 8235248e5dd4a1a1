//! Whether the proof beside an enrolment holds, tier by tier.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jiff::Timestamp;

use super::{Known, Settings};
use crate::collector::model::Refusal;
use crate::isolate::Bytes;
use crate::record::enrolment::tpm_public::{EndorsementArea, KeyArea};
use crate::record::enrolment::{Claim, Credential, Proof, credential, sshsig};

/// What a proof comes to.
pub(super) enum Evidence {
    /// The TPM must first open this.
    Challenge(Credential),
    /// It holds, and is about this.
    Proven(Binding),
}

/// What a proof is bound to beside the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Nothing,
    /// A serial number of the host.
    Serial,
    /// Its name.
    Hostname,
}

/// A proof that does not hold is a refusal that says why.
pub(super) fn weigh(claim: &Claim, known: &Known, settings: &Settings, now: Timestamp) -> Result<Evidence, Refusal> {
    match &claim.proof {
        Proof::FirstUse {} | Proof::Simulated {} => Ok(Evidence::Proven(Binding::Nothing)),
        Proof::Token { .. } => token(claim, known, now).map(|()| Evidence::Proven(Binding::Serial)),
        Proof::SshHostKey { signature } => ssh(claim, known, signature).map(Evidence::Proven),
        Proof::X509 { certificates, signature } => {
            if settings.fleet_authority.is_empty() {
                return refused("certificates are not taken here: the collector knows no fleet authority".to_owned());
            }
            let hostname = &claim.enrolment.hostname;
            let verified =
                settings.fleet_authority.verify(certificates, hostname, &claim.signed_bytes(), &signature.0, now);
            verified.map_err(|error| Refusal::Forbidden(error.to_string()))?;
            Ok(Evidence::Proven(Binding::Hostname))
        }
        Proof::Tpm { public, endorsement_key, secret } => tpm(claim, known, (public, endorsement_key), secret.as_ref()),
    }
}

/// One text for all ways in which a token is not good: who tries tokens learns nothing by it.
fn token(claim: &Claim, known: &Known, now: Timestamp) -> Result<(), Refusal> {
    let fits = known.token.as_ref().is_some_and(|token| {
        let ours = token.used_by.as_ref().is_none_or(|keyid| *keyid == claim.keyid);
        ours && now < token.expires_at && claim.enrolment.serials().any(|serial| serial == token.serial)
    });
    match fits {
        true => Ok(()),
        false => refused("the join token is unknown, used, expired or for another serial number".to_owned()),
    }
}

fn ssh(claim: &Claim, known: &Known, signature: &str) -> Result<Binding, Refusal> {
    let signer = sshsig::signer(signature, &claim.payload).map_err(|error| Refusal::Forbidden(error.to_string()))?;
    match known.ssh_keys.contains(&signer) {
        true => Ok(Binding::Hostname),
        false => refused(format!("SSH key {} is not known for this host", signer.keyid())),
    }
}

fn tpm(
    claim: &Claim,
    known: &Known,
    (public, endorsement_key): (&Bytes, &Bytes),
    secret: Option<&Bytes>,
) -> Result<Evidence, Refusal> {
    let forbidden = |error: &dyn std::error::Error| Refusal::Forbidden(error.to_string());
    let area = KeyArea::parse(&public.0).map_err(|error| forbidden(&error))?;
    if area.public_key != claim.key {
        return refused("the TPM's key is another than the enrolled one".to_owned());
    }
    let endorsement = EndorsementArea::parse(&endorsement_key.0).map_err(|error| forbidden(&error))?;
    let Some(name) = &known.endorsement else {
        let digest = endorsement.digest();
        return refused(format!("endorsement key {digest} is not approved (nodegate collector keys ek add)"));
    };
    let serial = claim.enrolment.serials().any(|serial| serial == name);
    if !name.is_empty() && !serial && !name.eq_ignore_ascii_case(&claim.enrolment.hostname) {
        return refused("the endorsement key is approved for another host".to_owned());
    }
    let Some(secret) = secret else {
        let made = credential::make(&endorsement, &area.name, &known.secret);
        return made
            .map(Evidence::Challenge)
            .map_err(|_| Refusal::Forbidden("the endorsement key cannot encrypt".to_owned()));
    };
    // The TPM gave the secret out, so the key of this Name is in the TPM of this endorsement key.
    if verify_slices_are_equal(&secret.0, &known.secret).is_err() {
        return refused("the TPM did not open the credential that was made for this enrolment".to_owned());
    }
    Ok(Evidence::Proven(match (serial, name.is_empty()) {
        (true, _) => Binding::Serial,
        (false, true) => Binding::Nothing,
        (false, false) => Binding::Hostname,
    }))
}

fn refused<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::Forbidden(why))
}
