//! Who may do what: by a token, by a client certificate, or because it is open to all.
//!
//! What a request needs follows from its method and path in one place, and everything that is not
//! named there needs a reader. A token is compared by its SHA-256, the only form that is kept.

mod token;

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

pub use token::{Granted, Role, Token};

use super::model::Refusal;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Read,
    Write,
    /// Either of the two: a host asks what became of what it has sent.
    Either,
}

/// What stands open without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub reading: bool,
    pub writing: bool,
}

/// The tokens that count now, and what is open to all.
#[derive(Clone)]
pub struct Access {
    granted: Arc<RwLock<Vec<Granted>>>,
    open: Open,
    /// Without a token of the kind everybody may, since only this machine can ask.
    is_local: bool,
}

/// What a request needs, by method and path as they came. A path that is written otherwise (with
/// percent signs, say) is none of these, and the router does not know it either.
pub fn need(method: &Method, path: &str) -> Need {
    let posted = method == Method::POST;
    match path {
        "/healthz" | "/v1/receipt-keys" => Need::Nothing,
        "/v1/records" | "/v1/challenges" | "/v1/enroll" | "/v1/alert-sink" | "/upload" | "/v1/upload" if posted => {
            Need::Write
        }
        _ if path.starts_with("/static/") => Need::Nothing,
        _ if path.starts_with("/v1/alert-sink/") && !posted => Need::Either,
        _ => Need::Read,
    }
}

impl Access {
    pub fn new(open: Open, is_local: bool, granted: Vec<Granted>) -> Access {
        Access { granted: Arc::new(RwLock::new(granted)), open, is_local }
    }

    /// Takes over what the store has now: a token that was made or revoked elsewhere.
    pub fn replace(&self, granted: Vec<Granted>) {
        *self.granted.write().unwrap_or_else(PoisonError::into_inner) = granted;
    }

    /// What needs no token now.
    pub fn open(&self) -> Open {
        let granted = self.granted.read().unwrap_or_else(PoisonError::into_inner);
        let free = |may: fn(Role) -> bool| self.is_local && !granted.iter().any(|granted| may(granted.role));
        Open { reading: self.open.reading || free(Role::may_read), writing: self.open.writing || free(Role::may_write) }
    }

    /// Whether this request may be answered.
    ///
    /// # Errors
    ///
    /// `Unauthorised` without or with a wrong token, `Forbidden` with one of another role.
    pub fn check(&self, need: Need, headers: &HeaderMap, certified: bool, now: Timestamp) -> Result<(), Refusal> {
        if need == Need::Nothing {
            return Ok(());
        }
        let open = self.open();
        let enough = |reads: bool, writes: bool| match need {
            Need::Nothing => true,
            Need::Read => reads,
            Need::Write => writes,
            Need::Either => reads || writes,
        };
        if enough(open.reading, open.writing || certified) {
            return Ok(());
        }
        let Some(token) = token_of(headers)? else {
            return Err(Refusal::Unauthorised("a token is needed: Authorization: Bearer TOKEN".to_owned()));
        };
        let role = self.role_of(&token, now);
        let role =
            role.ok_or_else(|| Refusal::Unauthorised("this token is not known here, or has expired".to_owned()))?;
        if enough(role.may_read(), role.may_write()) {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!("a {role}'s token is not for this")))
    }

    /// Looks at every token, so that how long it takes says nothing.
    fn role_of(&self, token: &Token, now: Timestamp) -> Option<Role> {
        let digest = token.digest();
        let granted = self.granted.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for granted in granted.iter() {
            let same = verify_slices_are_equal(&granted.digest.0, &digest.0).is_ok();
            if same && granted.expires_at.is_none_or(|end| now < end) {
                found = Some(granted.role);
            }
        }
        found
    }
}

/// The token of `Bearer TOKEN`, or the password of `Basic`, as browsers ask for it.
fn token_of(headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let malformed = || Refusal::Unauthorised("Authorization is neither Bearer TOKEN nor Basic".to_owned());
    if values.next().is_some() {
        return Err(malformed());
    }
    let (scheme, rest) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(malformed)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(Token::given(rest)));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed());
    }
    let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(malformed)?;
    let (_, password) = decoded.split_once(':').ok_or_else(malformed)?;
    Ok(Some(Token::given(password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn granted(role: Role, expires_at: Option<Timestamp>) -> (Token, Granted) {
        let token = Token::random();
        let granted = Granted { digest: token.digest(), role, expires_at };
        (token, granted)
    }

    fn closed(granted: Vec<Granted>) -> Access {
        Access::new(Open { reading: false, writing: false }, false, granted)
    }

    #[test]
    fn what_is_not_named_needs_a_reader() {
        for path in ["/", "/v1/nodes", "/metrics", "/v1/%72ecords", "//v1/records", "/v1/records/", "/v1/enrol", "*"] {
            assert_eq!(need(&Method::POST, path), Need::Read, "{path}");
        }
        assert_eq!(need(&Method::GET, "/v1/records"), Need::Read);
        assert_eq!(need(&Method::POST, "/v1/records"), Need::Write);
        assert_eq!(need(&Method::GET, "/healthz"), Need::Nothing);
    }

    #[test]
    fn a_role_opens_what_is_its_own() {
        let roles = [Role::Reader, Role::Writer, Role::Admin].map(|role| (role, granted(role, None)));
        let access = closed(roles.iter().map(|(_, (_, granted))| granted.clone()).collect());
        for (role, (token, _)) in &roles {
            let given = headers(&format!("Bearer {}", token.reveal()));
            for (need, may) in [
                (Need::Read, *role != Role::Writer),
                (Need::Write, *role != Role::Reader),
                (Need::Either, true),
                (Need::Nothing, true),
            ] {
                let checked = access.check(need, &given, false, NOW);
                assert_eq!(checked.is_ok(), may, "{role} {need:?}");
                assert!(checked.is_ok() || matches!(checked, Err(Refusal::Forbidden(_))));
            }
        }
    }

    #[test]
    fn a_browser_sends_the_token_as_its_password() {
        let (token, granted) = granted(Role::Reader, None);
        let access = closed(vec![granted]);
        let given = headers(&format!("Basic {}", STANDARD.encode(format!("ada:{}", token.reveal()))));
        assert!(access.check(Need::Read, &given, false, NOW).is_ok());
    }

    #[test]
    fn what_is_no_token_of_ours_is_refused_and_never_shown() {
        let (token, granted) = granted(Role::Admin, Some(NOW));
        let access = closed(vec![granted]);
        let expired = format!("Bearer {}", token.reveal());
        for value in [
            expired.as_str(),
            "Bearer hunter2",
            "Bearer ",
            "hunter2",
            "Basic hunter2",
            "Digest hunter2",
            "Basic aHVudGVyMg==",
        ] {
            let error = access.check(Need::Read, &headers(value), false, NOW).unwrap_err();
            assert!(matches!(error, Refusal::Unauthorised(_)), "{value}");
            assert!(!error.to_string().contains("hunter2") && !error.to_string().contains(token.reveal()));
        }
        assert!(access.check(Need::Read, &HeaderMap::new(), false, NOW).is_err());
        let mut twice = headers(&expired);
        twice.append(AUTHORIZATION, expired.parse().unwrap());
        assert!(access.check(Need::Read, &twice, false, NOW).is_err());
    }

    #[test]
    fn alone_on_this_machine_it_is_open_until_there_is_a_token() {
        let access = Access::new(Open { reading: false, writing: false }, true, Vec::new());
        assert_eq!(access.open(), Open { reading: true, writing: true });
        access.replace(vec![granted(Role::Reader, None).1]);
        assert_eq!(access.open(), Open { reading: false, writing: true });
        assert_eq!(closed(Vec::new()).open(), Open { reading: false, writing: false });
    }

    #[test]
    fn a_certificate_of_the_fleet_writes_and_does_not_read() {
        let access = closed(Vec::new());
        assert!(access.check(Need::Write, &HeaderMap::new(), true, NOW).is_ok());
        assert!(access.check(Need::Read, &HeaderMap::new(), true, NOW).is_err());
    }
}
