//! The child's side: one request over HTTP/1.1 with a deadline over all of it.

use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::runtime::Builder;

use super::{Address, Answer, MAXIMUM_ANSWER, Post};
use crate::ident::printable;

/// The job `post`.
pub fn serve_post_job(post: Post) -> Result<Answer, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| one_line(&error))?;
    let answer = runtime.block_on(async {
        match tokio::time::timeout(post.patience, send(&post)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {:.0} s", post.patience.as_secs_f64())),
        }
    });
    // A resolver that hangs sits in a thread of its own, which nobody waits for.
    runtime.shutdown_background();
    answer
}

async fn send(post: &Post) -> Result<Answer, String> {
    let client = client(&post.address).map_err(|error| one_line(&error))?;
    let request = client.post(post.address.join(&post.path)).headers(headers(post)?).body(post.body.clone());
    let mut response = request.send().await.map_err(|error| one_line(&error.without_url()))?;
    let status = response.status();
    let body = if status.is_success() { body(&mut response).await? } else { String::new() };
    Ok(Answer { status: status.as_u16(), body })
}

fn client(address: &Address) -> Result<Client, reqwest::Error> {
    let builder = Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .user_agent(concat!("nodegate/", env!("CARGO_PKG_VERSION")))
        // The name means this machine, whatever a hosts file says: plain HTTP may go to it.
        .resolve_to_addrs("localhost", &[(Ipv4Addr::LOCALHOST, 0).into(), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))]);
    if address.is_plain() {
        // Nothing is verified in plain HTTP, and a bare image has no certificates to load.
        builder.tls_certs_only([]).build()
    } else {
        builder.https_only(true).build()
    }
}

fn headers(post: &Post) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &post.headers {
        let wrong = |_| format!("header {} cannot be sent", printable(name, 60));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(()))?;
        headers.insert(header, HeaderValue::from_str(value).map_err(|_| wrong(()))?);
    }
    if let Some(token) = &post.token {
        // The error would show what it is about.
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| "the credential cannot be sent in a header".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

async fn body(response: &mut Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| one_line(&error.without_url()))? {
        if bytes.len() + chunk.len() > MAXIMUM_ANSWER {
            return Err(format!("an answer of more than {} KiB", MAXIMUM_ANSWER / 1024));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).map_err(|_| "an answer that is not text".to_owned())
}

/// The last cause of an error says what happened: `Connection refused`, `UnknownIssuer`.
fn one_line(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    printable(&last.to_string(), 200)
}
