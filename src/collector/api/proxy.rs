//! Who asks, where a reverse proxy stands before us.

use axum::http::{HeaderMap, HeaderName};

use super::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The last address of `X-Forwarded-For` is the one that the proxy itself saw; what stands before it
/// the client may have written. Without one, the proxy is who asks.
pub fn behind(peer: Peer, headers: &HeaderMap) -> Peer {
    let last = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    let seen = last.and_then(|list| list.rsplit(',').next()).and_then(|address| address.trim().parse().ok());
    Peer { address: seen.unwrap_or(peer.address), ..peer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_proxy_wrote_counts() {
        let proxy = Peer { address: "127.0.0.1".parse().unwrap(), certified: false };
        let seen = |values: &[&str]| {
            let headers = values.iter().map(|value| (FORWARDED_FOR, value.parse().unwrap())).collect();
            behind(proxy, &headers).address.to_string()
        };
        assert_eq!(seen(&["192.0.2.1"]), "192.0.2.1");
        assert_eq!(seen(&["10.0.0.1, 192.0.2.1"]), "192.0.2.1");
        assert_eq!(seen(&["10.0.0.1", "2001:db8::1"]), "2001:db8::1");
        for none in [&[][..], &["unknown"], &["192.0.2.1,"], &["192.0.2.1:80"]] {
            assert_eq!(seen(none), "127.0.0.1", "{none:?}");
        }
    }
}
