//! HTTP by hand, so that a request can be wrong in every way.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

pub const RECORD: &str = "application/vnd.in-toto.test-result+dsse";

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Request {
        Request { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn get(path: &str) -> Request {
        Request::new("GET", path)
    }

    pub fn post(path: &str, content_type: &str, body: &[u8]) -> Request {
        let mut request = Request::new("POST", path).with("Content-Type", content_type);
        request.body = body.to_vec();
        request
    }

    pub fn record(record: &[u8]) -> Request {
        Request::post("/v1/records", RECORD, record)
    }

    pub fn json(path: &str, body: &Value) -> Request {
        Request::post(path, "application/json", body.to_string().as_bytes())
    }

    pub fn with(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method == "POST" || !self.body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }

    pub fn send(&self, address: &str) -> Answer {
        self.try_send(address).unwrap_or_else(|| panic!("no answer to {} {}", self.method, self.path))
    }

    pub fn try_send(&self, address: &str) -> Option<Answer> {
        let mut stream = connect(address)?;
        // The answer may come before we are through.
        let _refused = stream.write_all(&self.bytes());
        Answer::read(&mut stream)
    }
}

pub fn connect(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    Some(stream)
}

/// Sends these very bytes, and reads what comes until the other side has had enough.
pub fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address).unwrap();
    let _refused = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    answer
}

impl Answer {
    /// Everything until the end of the stream, as one answer.
    pub fn read(stream: &mut impl Read) -> Option<Answer> {
        let mut bytes = Vec::new();
        let _reset = stream.read_to_end(&mut bytes);
        Answer::parse(&bytes)
    }

    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunk(&answer.body)?;
        } else if let Some(length) = answer.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            answer.body.truncate(length);
        }
        Some(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A problem of this status and code, as RFC 9457 has it.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) -> &Answer {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!((problem["code"].as_str(), problem["status"].as_u64()), (Some(code), Some(u64::from(status))));
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        self
    }
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        bytes = bytes.get(end + 2..)?;
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(bytes.get(..length)?);
        bytes = bytes.get(length + 2..)?;
    }
}
