//! A request's body: received within its limits, and unpacked within them.
//!
//! What is too much is told as soon as it shows, by its declared length or at the byte that is one
//! too many, and nothing past it is kept. Memory is taken as bytes come in, not as they are promised.

use std::io::Read as _;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::App;
use super::problem::Problem;
use crate::collector::limits::{BodyMemory, Portion};
use crate::collector::model::Refusal;
use crate::ident::printable;

/// A body as it was sent, and the memory that it is counted for.
#[derive(Debug)]
pub struct Received {
    bytes: Bytes,
    packed: bool,
    limit: usize,
    portion: Portion,
}

/// What a small question may have, unpacked: it is read where others wait.
const SMALL: usize = 64 * 1024;

/// Receives a body of one of these media types (parameters aside).
pub async fn receive(app: &App, headers: &HeaderMap, mut body: Body, types: &[&str]) -> Result<Received, Problem> {
    check_type(headers, types)?;
    let packed = is_packed(headers)?;
    let limit = app.limits.body;
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > limit as u64) {
        return Err(too_large(limit));
    }
    let began = Instant::now();
    let mut portion = Portion::default();
    let mut pieces = Pieces::default();
    loop {
        let Ok(frame) = timeout(app.limits.body_pause, body.frame()).await else {
            return Err(too_slow("nothing came for a while"));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "broken-body",
                "the body broke off, or its chunks are not by the book",
            )
            .closing()
        })?;
        let Ok(piece) = frame.into_data() else { continue };
        if pieces.bytes + piece.len() > limit {
            return Err(too_large(limit));
        }
        if !app.bodies.cover(&mut portion, pieces.bytes + piece.len()) {
            return Err(Problem::from(Refusal::Busy(1)).closing());
        }
        pieces.add(piece);
        check_pace(app, began, pieces.bytes)?;
    }
    Ok(Received { bytes: pieces.join(), packed, limit, portion })
}

impl Received {
    /// The bytes as they were meant, and the memory that they are counted for. It costs time; not for
    /// a thread that others wait for.
    pub fn unpack(mut self, memory: &BodyMemory) -> Result<(Vec<u8>, Portion), Refusal> {
        if !self.packed {
            return Ok((self.bytes.into(), self.portion));
        }
        let bytes = unpack(&self.bytes, self.limit)?;
        if !memory.cover(&mut self.portion, self.bytes.len() + bytes.len()) {
            return Err(Refusal::Busy(1));
        }
        Ok((bytes, self.portion))
    }

    /// The same of a few kilobytes at most.
    pub fn unpack_small(self) -> Result<Vec<u8>, Refusal> {
        if self.bytes.len() > SMALL {
            return Err(Refusal::TooLarge(format!("the body has more than {SMALL} bytes")));
        }
        if self.packed { unpack(&self.bytes, SMALL) } else { Ok(self.bytes.into()) }
    }
}

/// At most `limit` bytes; the byte after them ends it.
pub fn unpack(packed: &[u8], limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let read = MultiGzDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut bytes);
    if bytes.len() > limit {
        return Err(Refusal::TooLarge(format!("the body unpacks to more than {limit} bytes")));
    }
    read.map_err(|error| Refusal::Malformed(format!("the body is not gzip: {error}")))?;
    Ok(bytes)
}

/// The pieces of a body; a single one is not copied.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    rest: Vec<u8>,
    bytes: usize,
}

impl Pieces {
    fn add(&mut self, piece: Bytes) {
        if self.bytes == 0 {
            self.first = piece.clone();
        } else {
            if self.rest.is_empty() {
                self.rest.extend_from_slice(&self.first);
            }
            self.rest.extend_from_slice(&piece);
        }
        self.bytes += piece.len();
    }

    fn join(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.into() }
    }
}

fn check_type(headers: &HeaderMap, types: &[&str]) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if types.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let detail = format!("content type `{}`: send {}", printable(given, 80), types.join(" or "));
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-type", detail).closing())
}

fn is_packed(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?").trim());
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(false),
        (Some(one), None) if one.eq_ignore_ascii_case("identity") => Ok(false),
        (Some(one), None) if one.eq_ignore_ascii_case("gzip") => Ok(true),
        (Some(_), _) => {
            let detail = "content encoding: gzip once, or none";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", detail).closing())
        }
    }
}

/// A body that takes its time must still come on.
fn check_pace(app: &App, began: Instant, bytes: usize) -> Result<(), Problem> {
    let (limits, took) = (&app.limits, began.elapsed());
    if took > limits.body_time {
        return Err(too_slow("it took too long"));
    }
    let due = took.saturating_sub(limits.body_pause).as_secs_f64() * limits.body_rate as f64;
    if (bytes as f64) < due { Err(too_slow("too few bytes a second")) } else { Ok(()) }
}

fn too_large(limit: usize) -> Problem {
    Problem::from(Refusal::TooLarge(format!("the body has more than {limit} bytes"))).closing()
}

fn too_slow(why: &str) -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", format!("the body came too slowly: {why}")).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_bomb_is_cut_off_at_the_limit() {
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 17);
        assert!(matches!(unpack(&bomb, 1 << 20), Err(Refusal::TooLarge(_))));
        assert_eq!(unpack(&packed(&vec![7; 1 << 20]), 1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_is_not_gzip_to_its_end_is_refused() {
        let whole = packed(b"a record");
        assert_eq!(unpack(&whole, 100).unwrap(), b"a record");
        let mut damaged = whole.clone();
        damaged[12] ^= 0xff;
        for bytes in
            [&whole[..whole.len() - 1], &whole[..5], b"", b"{}", &damaged, &[whole.as_slice(), b"more"].concat()]
        {
            assert!(matches!(unpack(bytes, 100), Err(Refusal::Malformed(_))), "{bytes:?}");
        }
    }

    #[test]
    fn pieces_join_in_their_order() {
        let mut pieces = Pieces::default();
        for piece in ["", "ab", "", "c", "def"] {
            pieces.add(Bytes::from_static(piece.as_bytes()));
        }
        assert_eq!(pieces.join(), "abcdef");
    }
}
