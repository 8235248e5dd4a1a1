//! A collector as this host knows it: where it is, whom it trusts there and by which way it goes.

use std::time::Duration;

use crate::record::PublicKey;
use crate::wire::{self, Address, Answer, Exchange, Method, Secret, Transport};

/// The collector of a host.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: Address,
    /// By which its receipts are verified, or by a key that took its place. Without one nothing
    /// counts as delivered.
    pub receipt_key: Option<PublicKey>,
    pub token: Option<Secret>,
    pub transport: Transport,
    /// Whether this host introduces its key where the collector does not know it.
    pub first_use: bool,
}

impl Target {
    /// A collector with nothing but an address.
    pub fn at(address: Address) -> Target {
        Target { address, receipt_key: None, token: None, transport: Transport::default(), first_use: false }
    }

    /// Asks for `path`. An error says in one line why there is no answer; neither it nor the answer's
    /// problem holds the token.
    pub fn ask(
        &self,
        (method, path): (Method, &str),
        headers: &[(&str, &str)],
        body: Option<String>,
        patience: Duration,
    ) -> Result<Answer, String> {
        let exchange = Exchange {
            method,
            address: self.address.clone(),
            path: path.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            token: self.token.clone(),
            body,
            patience,
            transport: self.transport.clone(),
        };
        wire::exchange(&exchange).map_err(|why| self.redact(&why))
    }

    /// The text without our secrets, should the other side have given one back.
    pub fn redact(&self, text: &str) -> String {
        let text = self.token.as_ref().map_or_else(|| text.to_owned(), |token| token.redact(text));
        self.transport.proxy.as_ref().map_or(text.clone(), |proxy| proxy.redact(&text))
    }
}
