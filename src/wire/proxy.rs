//! A proxy on the way to a collector: where it is, and for whom it is not used. Its password, if
//! it has one, is never shown.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::ident::printable;

/// An HTTP proxy that opens tunnels (`CONNECT`). TLS is spoken with the collector through it, so
/// that it sees names and sizes and nothing else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    url: String,
    /// `NO_PROXY`: hosts that are gone to directly.
    except: String,
}

/// Why a text names no proxy. The text itself is not shown: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("write the address of an HTTP proxy, http://proxy.example:3128")]
    Form,
    #[error("a proxy is spoken to in plain HTTP: write http:// (TLS goes through it, to the collector)")]
    Scheme,
}

impl Proxy {
    /// The same, with the hosts of `NO_PROXY` gone to directly.
    pub fn except(mut self, hosts: &str) -> Proxy {
        hosts.clone_into(&mut self.except);
        self
    }

    /// Whether its address holds a user or password; a site file must not.
    pub fn has_password(&self) -> bool {
        self.url.parse().is_ok_and(|url: Url| !url.username().is_empty() || url.password().is_some())
    }

    /// The text without this proxy's password.
    pub fn redact(&self, text: &str) -> String {
        let url: Option<Url> = self.url.parse().ok();
        let password = url.as_ref().and_then(Url::password).filter(|password| !password.is_empty());
        password.map_or_else(|| text.to_owned(), |password| text.replace(password, "…"))
    }

    pub(super) fn for_client(&self) -> Result<reqwest::Proxy, reqwest::Error> {
        Ok(reqwest::Proxy::https(&self.url)?.no_proxy(reqwest::NoProxy::from_string(&self.except)))
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    /// `host:port` alone means the same with `http://`, as curl has it.
    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let text = text.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url: Url = whole.parse().map_err(|_| ProxyError::Form)?;
        let plain = printable(text, usize::MAX) == text;
        match (url.scheme(), url.host_str(), url.path()) {
            ("http", Some(_), "/" | "") if plain && url.query().is_none() && url.fragment().is_none() => {
                Ok(Proxy { url: url.to_string(), except: String::new() })
            }
            ("http", ..) => Err(ProxyError::Form),
            _ => Err(ProxyError::Scheme),
        }
    }
}

/// `http://proxy.example:3128`, without user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url: Option<Url> = self.url.parse().ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let port = url.as_ref().and_then(Url::port_or_known_default).unwrap_or_default();
        write!(f, "http://{host}:{port}")
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_reads_as_others_write_it_and_shows_no_password() {
        for (text, shown) in [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("proxy.example:3128", "http://proxy.example:3128"),
            ("http://10.0.0.1/", "http://10.0.0.1:80"),
            ("http://me:hunter2@proxy.example:3128", "http://proxy.example:3128"),
        ] {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!(proxy.to_string(), shown, "{text}");
            assert!(!format!("{proxy:?}").contains("hunter2"));
            assert_eq!(proxy.has_password(), text.contains("hunter2"));
            assert!(!proxy.redact("hunter2 was wrong").contains("hunter2") || !proxy.has_password());
        }
    }

    #[test]
    fn what_is_no_proxy_of_ours_is_refused_and_not_shown() {
        for (text, error) in [
            ("", ProxyError::Form),
            ("http://", ProxyError::Form),
            ("http://p.example/path", ProxyError::Form),
            ("http://p.example?hunter2", ProxyError::Form),
            ("https://p.example", ProxyError::Scheme),
            ("socks5://me:hunter2@p.example", ProxyError::Scheme),
        ] {
            assert_eq!(text.parse::<Proxy>(), Err(error), "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
