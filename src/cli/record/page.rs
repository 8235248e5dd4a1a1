//! `nodegate record show --html`: the record as one file that loads nothing, the signed record in it.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use super::Found;
use crate::cli::verify::read_record;
use crate::ident::Digest;
use crate::record::{Algorithm, store, verify};
use crate::report::html::{self, File, Signed, Where};

/// Whole or not at all; `-` is standard output.
pub fn write(found: &Found, path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let page = html::document(&found.verified.details, &signed(found)?);
    if path == Path::new("-") {
        out.write_all(page.as_bytes())?;
    } else {
        store::write_whole(path, page.as_bytes())?;
    }
    Ok(())
}

fn signed(found: &Found) -> Result<Signed, Box<dyn Error>> {
    let verified = &found.verified;
    let raw = read_record(&found.path)?;
    let bundle = has_member(&raw, "dsseEnvelope");
    Ok(Signed {
        keyid: verified.keyid.clone(),
        p256: found.key.algorithm() == Algorithm::P256,
        public_key: Some(found.key.to_pem()),
        payload: verified.payload,
        host: verified.host,
        node: verified.node,
        bundle,
        files: files(found, raw, bundle),
    })
}

/// The record, and of what lies beside it whatever belongs to it by its digest or signature.
fn files(found: &Found, raw: Vec<u8>, bundle: bool) -> Vec<File> {
    let verified = &found.verified;
    let stem = html::stem(&verified.details.run_id);
    let file = |end: &str, what, bytes| File {
        name: format!("{stem}{end}"),
        what,
        place: Where::Here { media_type: "application/octet-stream", bytes },
    };
    let record_end = if bundle { ".sigstore.json" } else { ".json" };
    let mut files = vec![file(record_end, "the signed record", raw)];
    let beside = |end: &str| -> io::Result<Vec<u8>> {
        let name = found.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let run = name.strip_suffix(".sigstore.json").or_else(|| name.strip_suffix(".json")).unwrap_or(name);
        read_record(&found.path.with_file_name(format!("{run}{end}"))).map_err(io::Error::other)
    };
    let is_the_record = |bytes: &Vec<u8>| {
        verify(bytes, std::slice::from_ref(&found.key)).is_ok_and(|other| other.payload == verified.payload)
    };
    let other =
        if bundle { (".json", "the same as an envelope") } else { (".sigstore.json", "the same as a Sigstore bundle") };
    files.extend(beside(other.0).ok().filter(is_the_record).map(|bytes| file(other.0, other.1, bytes)));
    for (end, what, digest) in [
        (".node.json", "the host with its GPUs, as the record names it", verified.node),
        (".host.json", "the host, as the record names it", verified.host),
    ] {
        files.extend(beside(end).ok().filter(|bytes| Digest::of(bytes) == digest).map(|bytes| file(end, what, bytes)));
    }
    let key = if verified.details.simulated { format!("{stem}.pub") } else { "node.pub".to_owned() };
    let place = Where::Here { media_type: "application/octet-stream", bytes: found.key.to_pem().into_bytes() };
    files.push(File { name: key, what: "the public key that it verified with", place });
    files
}

fn has_member(json: &[u8], name: &str) -> bool {
    serde_json::from_slice::<serde_json::Value>(json).is_ok_and(|value| value.get(name).is_some())
}
