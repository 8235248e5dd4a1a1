//! Whatever bytes a host, a file or a collector gives: the readers answer, and never panic.

use nodegate::check::KINDS;
use nodegate::ident::printable;
use nodegate::parse::driver_log::{DriverLog, is_of_interest};
use nodegate::parse::{kmsg, pci};
use nodegate::plan::{Document, class, site, suite};
use nodegate::record::verify::verify;
use nodegate::record::{HostKey, PublicKey};
use proptest::prelude::*;

/// Bytes, and the pieces that the readers look for between them.
fn hostile(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => proptest::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

const LOG: &[&str] = &[
    "6,",
    "18446744073709551615,",
    "-1,",
    ",-;",
    ";",
    "\n",
    " ",
    "\\x0a",
    "\\x",
    "\\",
    "NVRM: ",
    "Xid ",
    "(PCI:0000:1b:00): ",
    "(PCI:",
    "79, ",
    "pid='<unknown>', ",
    "kernel: ",
    "RmInitAdapter failed!",
    "nvidia 0000:1b:00.0: ",
    "AER: ",
    "é",
    "\u{202e}",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"payload\":",
    "\"payloadType\":\"application/vnd.in-toto+json\",",
    "\"signatures\":[",
    "\"sig\":",
    "\"AAAA\"",
    "\"keyid\":\"\"",
    ",",
    ":",
    "1e400",
    "NaN",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "null",
    "\"dsseEnvelope\":",
    "\"mediaType\":",
];
const TOML: &[&str] = &[
    "format = 1\n",
    "format = -1\n",
    "id = \"a\"\n",
    "revision = 1\n",
    "[[step]]\n",
    "check = \"ecc\"\n",
    "[match]\n",
    "gpus = [\"10de:2330\"]\n",
    "[limits.ecc]\n",
    "[absent]\n",
    "[[waiver]]\n",
    "[[override]]\n",
    "until = 2030-01-01\n",
    "timeout = \"1e400 s\"\n",
    "timeout = \"-1 s\"\n",
    "[expect]\n",
    "count = 99999999999999999999\n",
    "a.b.c = ",
    "= ",
    "\"\"\"",
    "[",
    "]",
    "é",
    "\u{feff}",
];

proptest! {
    #[test]
    fn kernel_log(bytes in hostile(LOG)) {
        let text = String::from_utf8_lossy(&bytes);
        let mut log = DriverLog::default();
        is_of_interest(&text);
        kmsg::is_dictionary(&text);
        if let Some(record) = kmsg::record(&text) {
            log.read(&record);
        }
        // And with a head that is right, so that the message itself is reached.
        if let Some(record) = kmsg::record(&format!("4,1,1,-;NVRM: {text}")) {
            log.read(&record);
        }
        for entry in &log.entries {
            prop_assert!(!entry.text.chars().any(char::is_control), "{:?}", entry.text);
        }
    }

    #[test]
    fn envelopes(bytes in hostile(JSON)) {
        prop_assert!(verify(&bytes, &[]).is_err());
    }

    #[test]
    fn keys(text in any::<String>(), inner in "[A-Za-z0-9+/=\n]{0,120}") {
        for text in [text, format!("-----BEGIN PUBLIC KEY-----\n{inner}\n-----END PUBLIC KEY-----\n"),
            format!("-----BEGIN PRIVATE KEY-----\n{inner}\n-----END PRIVATE KEY-----\n"), format!("ssh-ed25519 {inner} x")] {
            let _refused = (PublicKey::parse(&text), HostKey::parse(&text));
        }
    }

    #[test]
    fn documents(bytes in hostile(TOML)) {
        let Ok(suite) = suite::load(&Document::new("suite.toml", include_bytes!("../checks/suite.toml")).unwrap(), KINDS)
        else { return Err(TestCaseError::fail("the suite of the product does not load")) };
        let Ok(document) = Document::new("a.toml", &bytes) else { return Ok(()) };
        for problems in [
            suite::load(&document, KINDS).err(), class::load(&document, &suite, KINDS).err(), site::load(&document, &suite, KINDS).err(),
        ].into_iter().flatten() {
            let text = problems.to_string();
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }

    #[test]
    fn attributes(text in any::<String>()) {
        pci::hexadecimal(&text);
        pci::modalias(&text);
        pci::modalias(&format!("pci:v{text}"));
        pci::link_speed(&text);
        pci::link_width(&text);
        pci::aer_total(&text);
        prop_assert!(!printable(&text, 1000).chars().any(char::is_control));
    }
}
