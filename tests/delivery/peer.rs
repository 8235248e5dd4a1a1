//! A collector as a script: what it hears, and one way to answer.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate::ident::Digest;
use nodegate::record::dsse::{Envelope, Signature, pre_authentication_encoding};
use nodegate::record::{Algorithm, HostKey, receipt};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn is_a_record(&self) -> bool {
        self.line.starts_with("POST /v1/records ")
    }

    pub fn run_id(&self) -> String {
        self.header("idempotency-key").unwrap().to_owned()
    }

    /// SHA-256 of the record's payload.
    pub fn payload(&self) -> Digest {
        let envelope: Envelope = serde_json::from_slice(&self.body).unwrap();
        Digest::of(&STANDARD.decode(envelope.payload).unwrap())
    }
}

/// Answers every request in the same way.
pub struct Peer {
    pub url: String,
    heard: Arc<Mutex<Vec<Request>>>,
}

impl Peer {
    /// Answers records so. Whatever else is asked for is not there, so that a run finds no nonce.
    pub fn new(answer: impl Fn(&Request, &mut TcpStream) + Send + 'static) -> Peer {
        Peer::answering_all(move |request, stream| match request.is_a_record() {
            true => answer(request, stream),
            false => respond(stream, "404 Not Found", "", b""),
        })
    }

    /// Answers whatever is asked for.
    pub fn answering_all(answer: impl Fn(&Request, &mut TcpStream) + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&mut stream) else { continue };
                hears.lock().unwrap().push(request.clone());
                answer(&request, &mut stream);
            }
        });
        Peer { url, heard }
    }

    /// Answers with this status and body.
    pub fn saying(status: &'static str, body: impl Fn(&Request) -> Vec<u8> + Send + 'static) -> Peer {
        Peer::new(move |request, stream| respond(stream, status, "", &body(request)))
    }

    /// The records that came.
    pub fn heard(&self) -> Vec<Request> {
        self.heard_at_all().into_iter().filter(Request::is_a_record).collect()
    }

    pub fn heard_at_all(&self) -> Vec<Request> {
        self.heard.lock().unwrap().clone()
    }
}

/// A whole response. The other side may have gone by now.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _gone = stream.write_all(&[head.as_bytes(), body].concat());
}

/// One byte now and then, until the other side has had enough.
pub fn trickle(stream: &mut TcpStream, bytes: &[u8]) {
    let end = Instant::now() + Duration::from_secs(60);
    for byte in bytes.iter().cycle() {
        if Instant::now() > end || stream.write_all(&[*byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// A request as it comes over any stream; none where the other side is gone.
pub fn read(stream: impl Read) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let mut request = Request { line: line.trim_end().to_owned(), headers, body: Vec::new() };
    let length = request.header("content-length").map_or(Some(0), |length| length.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if request.header("content-encoding") == Some("gzip") {
        let mut whole = Vec::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut whole).ok()?;
        body = whole;
    }
    request.body = body;
    Some(request)
}

/// The key that a collector signs receipts with.
#[derive(Clone)]
pub struct ReceiptKey {
    pair: Arc<Ed25519KeyPair>,
    pub public: String,
}

impl ReceiptKey {
    pub fn new() -> ReceiptKey {
        let key = HostKey::generate(Algorithm::Ed25519);
        let pem = key.to_pem();
        let der: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let pair = Ed25519KeyPair::from_pkcs8(&STANDARD.decode(der).unwrap()).unwrap();
        ReceiptKey { pair: Arc::new(pair), public: key.public_key().to_pem() }
    }

    /// A receipt for this record.
    pub fn receipt(&self, request: &Request) -> Vec<u8> {
        self.receipt_for(request.payload(), request.header("idempotency-key").unwrap())
    }

    pub fn receipt_for(&self, payload: Digest, run_id: &str) -> Vec<u8> {
        let said = serde_json::json!({
            "payload": payload.to_string(), "receivedAt": "2026-11-30T20:41:07Z", "runId": run_id
        });
        let said = said.to_string().into_bytes();
        let message = pre_authentication_encoding(receipt::PAYLOAD_TYPE, &said);
        let signature = Signature { keyid: String::new(), sig: STANDARD.encode(self.pair.sign(&message)) };
        let payload = STANDARD.encode(said);
        Envelope { payload, payload_type: receipt::PAYLOAD_TYPE.to_owned(), signatures: vec![signature] }.to_json()
    }
}
