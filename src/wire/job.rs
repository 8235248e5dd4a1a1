//! The child's side: one request over HTTP/1.1 with a deadline over all of it.

use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response};
use tokio::runtime::Builder;

use super::answer::{Problem, retry_after};
use super::{Address, Answer, Exchange, MAXIMUM_ANSWER, Method, Transport};
use crate::ident::printable;

/// What is read of a refusal, bytes: a code and a sentence.
const MAXIMUM_PROBLEM: usize = 16 * 1024;
/// A body is worth compressing from this size on, bytes; below it one packet carries it either way.
const WORTH_COMPRESSING: usize = 1024;

/// The job `exchange`.
pub fn serve_exchange_job(exchange: Exchange) -> Result<Answer, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| one_line(&error))?;
    let answer = runtime.block_on(async {
        match tokio::time::timeout(exchange.patience, send(&exchange)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {:.0} s", exchange.patience.as_secs_f64())),
        }
    });
    // A resolver that hangs sits in a thread of its own, which nobody waits for.
    runtime.shutdown_background();
    let proxy = exchange.transport.proxy.as_ref();
    answer.map_err(|why| proxy.map_or(why.clone(), |proxy| proxy.redact(&why)))
}

/// Whether certificates and key can be used at all.
pub(super) fn check(transport: &Transport) -> Result<(), &'static str> {
    if let Some(authority) = &transport.authority {
        let found = Certificate::from_pem_bundle(authority.as_bytes());
        if !found.is_ok_and(|certificates| !certificates.is_empty()) {
            return Err("no certificate of an authority in it (PEM, BEGIN CERTIFICATE)");
        }
        if Client::builder().tls_certs_only(certificates(authority)).no_proxy().build().is_err() {
            return Err("its certificate cannot be used as an authority's");
        }
    }
    match identity(transport) {
        Some(Err(_)) => Err("no client certificate (PEM, BEGIN CERTIFICATE) with its private key"),
        Some(Ok(identity)) => {
            let client = Client::builder().tls_certs_only([]).no_proxy().identity(identity).build();
            client.map(drop).map_err(|_| "the client certificate and its private key do not fit each other")
        }
        None => Ok(()),
    }
}

async fn send(exchange: &Exchange) -> Result<Answer, String> {
    let client = client(&exchange.address, &exchange.transport).map_err(|error| one_line(&error))?;
    let url = exchange.address.join(&exchange.path);
    let mut request = match exchange.method {
        Method::Get => client.get(url),
        Method::Post => client.post(url),
    };
    request = request.headers(headers(exchange)?);
    if let Some(body) = &exchange.body {
        request = match compressed(body) {
            Some(smaller) => request.header(CONTENT_ENCODING, "gzip").body(smaller),
            None => request.body(body.clone()),
        };
    }
    let mut response = request.send().await.map_err(|error| one_line(&error.without_url()))?;
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let wait = header(RETRY_AFTER).and_then(|value| retry_after(value, jiff::Timestamp::now()));
    let mut answer = Answer { status: status.as_u16(), body: String::new(), retry_after: wait, problem: None };
    if status.is_success() {
        answer.body = body(&mut response).await?;
    } else if status.is_client_error() || status.is_server_error() {
        // The status is the answer; that its words do not come through changes nothing about it.
        let bytes = bytes(&mut response, MAXIMUM_PROBLEM).await.unwrap_or_default();
        answer.problem = Problem::read(&bytes, exchange.token.as_ref());
    }
    Ok(answer)
}

fn client(address: &Address, transport: &Transport) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .user_agent(concat!("nodegate/", env!("CARGO_PKG_VERSION")))
        // The name means this machine, whatever a hosts file says: plain HTTP may go to it.
        .resolve_to_addrs("localhost", &[(Ipv4Addr::LOCALHOST, 0).into(), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))]);
    if address.is_plain() {
        // Nothing is verified in plain HTTP, and a bare image has no certificates to load.
        return builder.tls_certs_only([]).build();
    }
    if let Some(authority) = &transport.authority {
        builder = builder.tls_certs_only(certificates(authority));
    }
    if let Some(identity) = identity(transport) {
        builder = builder.identity(identity?);
    }
    if let Some(proxy) = transport.proxy.as_ref().filter(|_| !address.is_here()) {
        builder = builder.proxy(proxy.for_client()?);
    }
    builder.https_only(true).build()
}

fn certificates(pem: &str) -> Vec<Certificate> {
    Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default()
}

fn identity(transport: &Transport) -> Option<Result<reqwest::Identity, reqwest::Error>> {
    let identity = transport.identity.as_ref()?;
    let pem = format!("{}\n{}", identity.certificate, identity.key.reveal());
    Some(reqwest::Identity::from_pem(pem.as_bytes()))
}

fn headers(exchange: &Exchange) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &exchange.headers {
        let wrong = |_| format!("header {} cannot be sent", printable(name, 60));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(()))?;
        headers.insert(header, HeaderValue::from_str(value).map_err(|_| wrong(()))?);
    }
    if let Some(token) = &exchange.token {
        // The error would show what it is about.
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| "the credential cannot be sent in a header".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The body in gzip, where that is smaller.
fn compressed(body: &str) -> Option<Vec<u8>> {
    if body.len() < WORTH_COMPRESSING {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).ok()?;
    encoder.finish().ok().filter(|smaller| smaller.len() < body.len())
}

async fn body(response: &mut Response) -> Result<String, String> {
    let bytes = bytes(response, MAXIMUM_ANSWER).await?;
    String::from_utf8(bytes).map_err(|_| "an answer that is not text".to_owned())
}

async fn bytes(response: &mut Response, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| one_line(&error.without_url()))? {
        if bytes.len() + chunk.len() > limit {
            return Err(format!("an answer of more than {} KiB", limit / 1024));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The last cause of an error says what happened: `Connection refused`, `UnknownIssuer`.
fn one_line(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    printable(&last.to_string(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_compressed_where_it_pays_and_is_the_same_behind() {
        assert_eq!(compressed("{}"), None);
        let body = "{\"payload\":\"abc\"}".repeat(200);
        let smaller = compressed(&body).unwrap();
        assert!(smaller.len() * 4 < body.len());
        let mut again = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&smaller[..]), &mut again).unwrap();
        assert_eq!(again, body);
        let noise: String =
            (0..600_u32).map(|n| char::from(33 + (n.wrapping_mul(2_654_435_761) >> 25) as u8 % 94)).collect();
        assert_eq!(compressed(&noise), None);
    }
}
