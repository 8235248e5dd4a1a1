//! The x509 tier: certificates of the fleet's authority, and those that only look like it.

use jiff::{SignedDuration, Timestamp};
use nodegate::collector::model::{Key, KeyState, Refusal};
use nodegate::isolate::Bytes;
use nodegate::record::dsse::pre_authentication_encoding;
use nodegate::record::enrolment::certificate::{CertificateKey, FleetAuthority, certificates_only};
use nodegate::record::enrolment::{PAYLOAD_TYPE, Proof};
use nodegate::record::standing::Tier;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
};

use super::desk::{Applicant, Desk, HOSTNAME, payload, refused};

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM.
struct Issued {
    certificate: String,
    key: String,
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
}

impl Authority {
    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        self.issue_with(names, KeyPair::generate().unwrap(), change)
    }

    fn issue_with(&self, names: &[&str], key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn desk(&self) -> Desk {
        let mut desk = Desk::new();
        desk.settings.fleet_authority = FleetAuthority::parse(&self.0.pem()).unwrap();
        desk
    }
}

fn come(desk: &Desk, applicant: &Applicant, issued: &Issued) -> Result<(Key, bool), Refusal> {
    desk.come(applicant, |envelope| signed(issued, &payload(envelope)))
}

fn signed(issued: &Issued, payload: &[u8]) -> Proof {
    let key = CertificateKey::parse(&issued.key).unwrap();
    let signature = Bytes(key.sign(&pre_authentication_encoding(PAYLOAD_TYPE, payload)).unwrap());
    Proof::X509 { certificates: issued.certificate.clone(), signature }
}

#[test]
fn a_certificate_of_the_fleets_authority_for_the_hosts_name_approves_its_key() {
    let authority = authority();
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let desk = authority.desk();
        let key = KeyPair::generate_for(algorithm).unwrap();
        let issued = authority.issue_with(&["other.example", "GPU-R12-U07"], key, |_| {});
        let (key, _) = come(&desk, &Applicant::new(), &issued).unwrap();
        assert_eq!((key.tier, key.state), (Tier::X509, KeyState::Approved));
    }
    let server = authority.issue(&[HOSTNAME], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert!(come(&authority.desk(), &Applicant::new(), &server).is_ok());
}

#[test]
fn an_rsa_key_signs_too() {
    let authority = authority();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rsa.pem");
    let mut command = std::process::Command::new("openssl");
    command.args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out"]).arg(&path);
    assert!(command.output().unwrap().status.success());
    let key = KeyPair::from_pem(&std::fs::read_to_string(path).unwrap()).unwrap();
    let issued = authority.issue_with(&[HOSTNAME], key, |_| {});
    assert!(come(&authority.desk(), &Applicant::new(), &issued).is_ok());
}

#[test]
fn a_certificate_of_another_host_a_pattern_or_without_a_name_is_no_proof() {
    let authority = authority();
    let desk = authority.desk();
    let names: [&[&str]; 5] = [&["gpu-r12-u08"], &["*.example"], &["gpu-r12-u07.example"], &[], &["10.0.0.1"]];
    for names in names {
        let (status, text) = refused(come(&desk, &Applicant::new(), &authority.issue(names, |_| {})));
        assert!(status == 403 && text.contains("not for `gpu-r12-u07`"), "{names:?}: {text}");
    }
    let wild = Applicant { hostname: "gpu.example".to_owned(), ..Applicant::new() };
    assert_eq!(refused(come(&desk, &wild, &authority.issue(&["*.example"], |_| {}))).0, 403);
}

#[test]
fn a_certificate_of_another_authority_or_out_of_its_time_or_purpose_is_no_proof() {
    let (ours, theirs) = (authority(), authority());
    let desk = ours.desk();
    let now = Timestamp::now();
    let time = |timestamp: Timestamp| {
        let civil = jiff::tz::TimeZone::UTC.to_datetime(timestamp).date();
        rcgen::date_time_ymd(civil.year().into(), civil.month().unsigned_abs(), civil.day().unsigned_abs())
    };
    let past = time(now - SignedDuration::from_hours(48));
    let future = time(now + SignedDuration::from_hours(48));
    let wrong = [
        theirs.issue(&[HOSTNAME], |_| {}),
        ours.issue(&[HOSTNAME], |params| params.not_after = past),
        ours.issue(&[HOSTNAME], |params| params.not_before = future),
        ours.issue(&[HOSTNAME], |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]),
    ];
    for issued in wrong {
        let (status, text) = refused(come(&desk, &Applicant::new(), &issued));
        assert!(status == 403 && text.contains("does not lead to the fleet's authority now"), "{text}");
    }
    let (status, text) = refused(come(&Desk::new(), &Applicant::new(), &ours.issue(&[HOSTNAME], |_| {})));
    assert!(status == 403 && text.contains("knows no fleet authority"), "{text}");
}

#[test]
fn a_certificate_whose_key_signed_something_else_or_not_at_all_is_no_proof() {
    let authority = authority();
    let desk = authority.desk();
    let (issued, stolen) = (authority.issue(&[HOSTNAME], |_| {}), authority.issue(&[HOSTNAME], |_| {}));
    let over_another = desk.come(&Applicant::new(), |_| signed(&issued, b"{}"));
    let by_another = Issued { certificate: stolen.certificate, key: issued.key };
    for result in [over_another, come(&desk, &Applicant::new(), &by_another)] {
        let (status, text) = refused(result);
        assert!(status == 403 && text.contains("signature"), "{text}");
    }
}

#[test]
fn only_the_certificates_of_a_file_are_sent() {
    let issued = authority().issue(&[HOSTNAME], |_| {});
    let sent = certificates_only(&format!("# host\n{}{}", issued.key, issued.certificate)).unwrap();
    assert!(!sent.contains("PRIVATE") && sent.contains("BEGIN CERTIFICATE"));
    assert!(certificates_only(&issued.key).is_err());
}
