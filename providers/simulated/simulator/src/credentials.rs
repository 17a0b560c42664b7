//! The client that the cloud knows and the tokens that it has issued: what proves a client, and which requests a token
//! authorizes. The clock is an argument. Tokens are easy to recognize in a log and to tell apart; they need not be secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::faults::Random;
use crate::refusal::Refusal;

/// How long a token is valid by default, in seconds.
const DEFAULT_LIFETIME_SECONDS: u32 = 3_600;

/// The client that the cloud knows, and how long its tokens are valid. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Credentials {
    /// The name of the only client.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// The client's secret. Without one, no secret is accepted.
    #[serde(default)]
    pub secret: Option<String>,
    /// Assertions that are accepted too. They are compared as text; signatures are not verified.
    #[serde(default)]
    pub assertions: BTreeSet<String>,
    /// Tokens that are valid without being issued, and that never expire.
    #[serde(default)]
    pub tokens: BTreeSet<String>,
    /// How long tokens that are issued from now on are valid, in seconds.
    #[serde(default = "default_lifetime")]
    pub expires_in_seconds: u32,
}

fn default_lifetime() -> u32 {
    DEFAULT_LIFETIME_SECONDS
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_id, secret: _, assertions: _, tokens: _, expires_in_seconds } = self;
        formatter
            .debug_struct("Credentials")
            .field("client_id", client_id)
            .field("expires_in_seconds", expires_in_seconds)
            .finish_non_exhaustive()
    }
}

impl FromStr for Credentials {
    type Err = Refusal;

    /// Parses the JSON form. The error message quotes no value.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let credentials: Self = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Refusal::Invalid(format!(
                "invalid credentials (line {line}, column {column}): expected JSON with clientID and, as needed, \
                 secret, assertions, tokens and expiresInSeconds"
            ))
        })?;
        if credentials.expires_in_seconds == 0 {
            return Err(Refusal::Invalid("expiresInSeconds is 0; it must be at least 1".into()));
        }
        Ok(credentials)
    }
}

/// How a client proves its identity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Proof<'a> {
    /// By the secret of a client.
    Secret {
        /// The client's name.
        client_id: &'a str,
        /// The secret that it sent.
        secret: &'a str,
    },
    /// By an assertion about a client.
    Assertion {
        /// The client's name.
        client_id: &'a str,
        /// The assertion.
        assertion: &'a str,
    },
    /// By reaching the metadata service, which only machines of the cloud can do.
    Machine,
}

/// A token that was issued.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token.
    pub token: String,
    /// How long it is valid, in seconds.
    pub expires_in_seconds: u32,
}

/// What the admin API shows of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenOverview {
    /// Whether requests need a token.
    pub required: bool,
    /// How long tokens that are issued from now on are valid, in seconds.
    pub expires_in_seconds: u32,
    /// How many issued tokens are valid now.
    pub live: usize,
}

/// The tokens of a cloud.
#[derive(Clone)]
pub struct Tokens {
    known: Option<Credentials>,
    /// When each expires.
    issued: BTreeMap<String, Duration>,
    /// How many were ever issued.
    count: u64,
    random: Random,
}

impl Tokens {
    /// The tokens of a cloud that knows this client. Without a client, requests need no token.
    pub fn new(known: Option<Credentials>, seed: u64) -> Self {
        Self { known, issued: BTreeMap::new(), count: 0, random: Random::seeded(seed) }
    }

    /// Replaces the client. Issued tokens stay valid until they expire.
    pub fn replace(&mut self, known: Option<Credentials>) {
        self.known = known;
    }

    /// Revokes all issued tokens.
    pub fn revoke(&mut self) {
        self.issued.clear();
    }

    /// Issues a token for a proof. `None` for an invalid proof, and in a cloud that needs no tokens.
    pub fn issue(&mut self, now: Duration, proof: Proof<'_>) -> Option<IssuedToken> {
        let known = self.known.as_ref()?;
        let is_proven = match proof {
            Proof::Secret { client_id, secret } => {
                known.client_id == client_id && known.secret.as_deref() == Some(secret)
            }
            Proof::Assertion { client_id, assertion } => {
                known.client_id == client_id && known.assertions.contains(assertion)
            }
            Proof::Machine => true,
        };
        if !is_proven {
            return None;
        }
        let expires_in_seconds = known.expires_in_seconds;
        self.issued.retain(|_, until| *until > now);
        self.count += 1;
        let [one, other] = std::array::from_fn(|_| self.random.number());
        let token = format!("simulated-token-{}-{one:08x}{other:08x}", self.count);
        self.issued.insert(token.clone(), now + Duration::from_secs(expires_in_seconds.into()));
        Some(IssuedToken { token, expires_in_seconds })
    }

    /// Whether a request with this token is authorized.
    pub fn admits(&self, now: Duration, token: Option<&str>) -> bool {
        let Some(known) = &self.known else { return true };
        token.is_some_and(|token| {
            known.tokens.contains(token) || self.issued.get(token).is_some_and(|until| *until > now)
        })
    }

    /// What the admin API shows.
    pub fn overview(&self, now: Duration) -> TokenOverview {
        TokenOverview {
            required: self.known.is_some(),
            expires_in_seconds: self
                .known
                .as_ref()
                .map_or(DEFAULT_LIFETIME_SECONDS, |known| known.expires_in_seconds),
            live: self.issued.values().filter(|until| **until > now).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = r#"{"clientID":"pileus","secret":"hush","assertions":["signed"],"tokens":["old"],"expiresInSeconds":60}"#;
    const SECRET: Proof<'_> = Proof::Secret { client_id: "pileus", secret: "hush" };

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn tokens() -> Tokens {
        Tokens::new(Some(KNOWN.parse().unwrap()), 1)
    }

    #[test]
    fn only_a_proof_of_the_known_client_gets_a_token() {
        let secret = |client_id, secret| Proof::Secret { client_id, secret };
        let assertion = |client_id, assertion| Proof::Assertion { client_id, assertion };
        for (proof, is_proof) in [
            (SECRET, true),
            (secret("pileus", ""), false),
            (secret("other", "hush"), false),
            (assertion("pileus", "signed"), true),
            (assertion("pileus", "hush"), false),
            (assertion("other", "signed"), false),
            (Proof::Machine, true),
        ] {
            let issued = tokens().issue(seconds(0), proof);
            assert_eq!(issued.is_some(), is_proof, "{:?}", issued.map(|issued| issued.token));
        }
        let mut secretless = Tokens::new(Some(r#"{"clientID":"pileus"}"#.parse().unwrap()), 1);
        assert!(secretless.issue(seconds(0), secret("pileus", "")).is_none());
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked() {
        let mut tokens = tokens();
        let first = tokens.issue(seconds(10), SECRET).unwrap().token;
        let second = tokens.issue(seconds(30), Proof::Machine).unwrap().token;
        assert_ne!(first, second);
        for (at, open) in [(10, [true, true]), (69, [true, true]), (70, [false, true]), (90, [false, false])]
        {
            assert_eq!(
                [&first, &second].map(|token| tokens.admits(seconds(at), Some(token))),
                open,
                "at {at} s"
            );
        }
        assert_eq!(tokens.overview(seconds(70)).live, 1);
        tokens.replace(Some(r#"{"clientID":"pileus","secret":"new"}"#.parse().unwrap()));
        assert!(tokens.admits(seconds(40), Some(&first)), "issued for the previous secret");
        assert!(tokens.issue(seconds(40), SECRET).is_none());
        tokens.revoke();
        assert!(!tokens.admits(seconds(40), Some(&first)));
    }

    #[test]
    fn an_invalid_token_is_refused_and_a_cloud_without_a_client_needs_none() {
        let tokens = tokens();
        for (token, is_open) in [(None, false), (Some(""), false), (Some("hush"), false), (Some("old"), true)]
        {
            assert_eq!(tokens.admits(seconds(1_000_000), token), is_open, "{token:?}");
        }
        let mut open = Tokens::new(None, 1);
        assert!(open.admits(seconds(0), None));
        assert!(open.issue(seconds(0), Proof::Machine).is_none());
    }

    #[test]
    fn no_message_and_no_debug_form_shows_a_secret() {
        let credentials: Credentials = KNOWN.parse().unwrap();
        let shown = format!("{credentials:?}");
        assert!(shown.contains("pileus"), "{shown}");
        for secret in ["hush", "signed", "old"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        for wrong in [r#"{"clientID":1,"secret":"hush"}"#, r#"{"clientID":"a","hush":1}"#, "hush"] {
            let refused = wrong.parse::<Credentials>().unwrap_err().to_string();
            assert!(refused.contains("clientID") && !refused.contains("hush"), "{refused}");
        }
        let endless = r#"{"clientID":"a","expiresInSeconds":0}"#.parse::<Credentials>().unwrap_err();
        assert!(endless.to_string().starts_with("expiresInSeconds is 0"));
    }
}
