//! Where something is sent: an HTTP address, parsed once, that holds no secret and betrays none.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::ident::printable;

/// An address without user, password, query or fragment. Plain HTTP never leaves this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(Url);

/// Why a text is no such address. The text itself is not shown: it may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("write an address, https://collector.example:8443")]
    Form,
    #[error("write an address that begins with https://")]
    Scheme,
    #[error("a password does not belong in an address; name a file in the site's `credential`")]
    Password,
    #[error("write the address of the collector alone, without what begins with ? or #")]
    Query,
    #[error("plain http is for this machine alone (localhost, 127.0.0.1, [::1]); write https://")]
    Plain,
}

impl Address {
    /// The whole address of a path, which begins with a slash.
    pub(super) fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&(base + path));
        url
    }

    pub fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Whether it is this machine's own, where no proxy has any business.
    pub fn is_here(&self) -> bool {
        self.0.host_str().is_some_and(is_loopback)
    }

    /// Whether a secret for one may go to the other: scheme, host and port are the same.
    pub fn has_origin_of(&self, other: &Address) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// `collector.example:8443`, for people.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        printable(&self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")), 120)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback())
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let url: Url = text.parse().map_err(|_| AddressError::Form)?;
        let Some(host) = url.host_str().filter(|_| printable(text, usize::MAX) == text) else {
            return Err(AddressError::Scheme);
        };
        let is_here = is_loopback(host);
        match url.scheme() {
            _ if !url.username().is_empty() || url.password().is_some() => Err(AddressError::Password),
            _ if url.query().is_some() || url.fragment().is_some() => Err(AddressError::Query),
            "http" if !is_here => Err(AddressError::Plain),
            "http" | "https" => Ok(Address(url)),
            _ => Err(AddressError::Scheme),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_joins_with_or_without_a_slash_at_its_end() {
        for (base, whole) in [
            ("https://c.example:8443", "https://c.example:8443/v1/records"),
            ("https://c.example:8443/", "https://c.example:8443/v1/records"),
            ("https://c.example/gate", "https://c.example/gate/v1/records"),
            ("https://c.example/gate//", "https://c.example/gate/v1/records"),
        ] {
            assert_eq!(base.parse::<Address>().unwrap().join("/v1/records").as_str(), whole);
        }
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        for here in ["http://localhost:1", "http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]:1/"] {
            assert!(here.parse::<Address>().is_ok(), "{here}");
        }
        for away in ["http://c.example", "http://10.0.0.1", "http://localhost.c.example", "http://[fe80::1]/"] {
            assert_eq!(away.parse::<Address>(), Err(AddressError::Plain), "{away}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_kind_and_not_shown() {
        for (text, error) in [
            ("collector", AddressError::Form),
            ("ftp://c.example", AddressError::Scheme),
            ("file:///etc/passwd", AddressError::Scheme),
            ("https://me:hunter2@c.example", AddressError::Password),
            ("https://c.example?token=hunter2", AddressError::Query),
            ("https://c.example#x", AddressError::Query),
            ("https://c.example/\u{202e}x", AddressError::Scheme),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |a: &str, b: &str| a.parse::<Address>().unwrap().has_origin_of(&b.parse().unwrap());
        assert!(same("https://c.example", "https://C.example:443/gate"));
        assert!(!same("https://c.example", "https://c.example:8443"));
        assert!(!same("http://127.0.0.1:80", "https://127.0.0.1:80"));
    }
}
