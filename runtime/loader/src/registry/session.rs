//! Requests to one repository at one registry: with its credential, through its redirects, and again where that can help.
//!
//! A registry answers the first request with what it demands. That is met once; a second refusal is final, so that a
//! registry that refuses forever costs two requests. A credential goes only to the registry, and to the place that it names
//! for tokens, if [`target::may_issue_tokens`] says so. A redirect to another origin gets none.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::credential::{Credential, CredentialKind};
use crate::error::Error;
use crate::progress::Progress;
use crate::reference::Repository;
use crate::registry::address::NamedBy;
use crate::registry::challenge::{self, Challenge};
use crate::registry::exchange::{Answer, Call, exchange};
use crate::registry::network::Network;
use crate::registry::settings::{RegistrySettings, Timeouts};
use crate::registry::target::{Origin, Target, may_issue_tokens};

/// The most redirects of one request. Registries use one.
const MAX_REDIRECTS: usize = 3;
/// The largest answer of a token service. Tokens of large registries have some KiB.
const MAX_TOKEN: u64 = 64 << 10;
/// Attempts of a request that fails for a reason that may pass.
const ATTEMPTS: u32 = 3;
/// The pause after the first attempt; it doubles.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// A registry that wants a longer pause is asked again by the caller, later.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Boxed, since the compiler can't tell that those of asynchronous closures can be sent to another thread.
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What may be done in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Pull,
    Push,
}

/// Requests to one repository.
pub(crate) struct Session<'a> {
    pub(super) network: &'a Network,
    pub(super) settings: RegistrySettings,
    pub(super) timeouts: Timeouts,
    pub(super) origin: Origin,
    pub(super) repository: Repository,
    pub(super) access: Access,
    pub(super) credential: Option<Credential>,
    /// What the registry accepted last.
    pub(super) authorization: Mutex<Option<HeaderValue>>,
    /// Is told how far components are.
    pub(crate) progress: Option<Progress>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Session<'_> {
    /// Sends a request to a path of the repository, as in `/manifests/latest`, and repeats it where the failure may pass.
    pub(super) async fn send(&self, call: &Call, path: &str) -> Result<Answer, Error> {
        let target = self.origin.at(format!("/v2/{}{path}", self.repository.name));
        self.repeat(|| Box::pin(self.send_once(call, target.clone()))).await
    }

    /// Repeats what fails for a reason that may pass.
    pub(super) async fn repeat<'a, T>(
        &self,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match attempt().await {
                Err(error) if may_pass(&error).is_some_and(|after| after <= MAX_PAUSE) => {
                    let asked = may_pass(&error).unwrap_or_default();
                    tracing::debug!(%error, "request to a registry failed; repeating it");
                    tokio::time::sleep(pause.max(asked)).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        attempt().await
    }

    /// Sends a request, meets what the registry demands, and follows redirects of reads.
    pub(super) async fn send_once(&self, call: &Call, target: Target) -> Result<Answer, Error> {
        let answer = self.follow(call, target.clone()).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return self.check(call, &target, answer).await;
        }
        let challenge = challenge::read(&answer.headers);
        let said = answer.said().await;
        self.authorize(challenge, said).await?;
        let answer = self.follow(call, target.clone()).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(self.unauthorized("the registry refuses the credential", answer.said().await));
        }
        self.check(call, &target, answer).await
    }

    async fn check(&self, call: &Call, target: &Target, answer: Answer) -> Result<Answer, Error> {
        match answer.status {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(Error::NotFound { place: target.to_string() }),
            StatusCode::FORBIDDEN => {
                Err(self.unauthorized("the credential lacks the right", answer.said().await))
            }
            _ => Err(answer.into_error(format!("{} {target}", call.method)).await),
        }
    }

    async fn follow(&self, call: &Call, mut target: Target) -> Result<Answer, Error> {
        let is_read = call.method == Method::GET || call.method == Method::HEAD;
        for _ in 0..=MAX_REDIRECTS {
            let is_own = target.origin == self.origin;
            let mut call = call.clone();
            let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(value) = known.filter(|_| is_own) {
                call = call.with(AUTHORIZATION, value);
            }
            let answer = self.exchange(&target, is_own, call).await?;
            if !(is_read && answer.status.is_redirection()) {
                return Ok(answer);
            }
            let location = answer.header(LOCATION.as_str()).unwrap_or_default();
            target = target.follow(location).map_err(|cause| self.misled(location, cause))?;
        }
        Err(self.misled(&target.to_string(), "it is one redirect too many"))
    }

    /// One exchange, on a connection of its own.
    pub(super) async fn exchange(&self, target: &Target, is_own: bool, call: Call) -> Result<Answer, Error> {
        let named = match (is_own, self.origin.is_loopback()) {
            (true, false) => NamedBy::Operator,
            (true, true) => NamedBy::OperatorAsThisMachine,
            // From loopback, only to loopback: tests and local mirrors.
            (false, true) if target.origin.is_loopback() => NamedBy::OperatorAsThisMachine,
            (false, _) => NamedBy::Registry,
        };
        let stream =
            self.network.connect(&target.origin, named, &self.settings, self.timeouts.connect).await?;
        exchange(stream, target, call, self.timeouts).await
    }

    /// Meets what the registry demands.
    async fn authorize(&self, challenge: Option<Challenge>, said: Option<String>) -> Result<(), Error> {
        let value = match (challenge, self.credential.as_ref().map(|credential| &credential.kind)) {
            (None, _) => {
                return Err(self.unauthorized("it demands a kind of login that is not supported", said));
            }
            (Some(_), Some(CredentialKind::Bearer(token))) => {
                sensitive(&Zeroizing::new(format!("Bearer {}", **token)))
            }
            (Some(Challenge::Basic), None) => return Err(self.unauthorized("it demands a credential", said)),
            (Some(Challenge::Basic), Some(CredentialKind::Identity(_))) => {
                return Err(
                    self.unauthorized("it demands a password, but the credential is an identity token", said)
                );
            }
            (Some(Challenge::Basic), Some(CredentialKind::Basic { username, password })) => {
                basic(username, password)
            }
            (Some(Challenge::Bearer { realm, service }), _) => {
                let token = self.token(&realm, service.as_deref()).await?;
                sensitive(&Zeroizing::new(format!("Bearer {}", *token)))
            }
        };
        let value = value.ok_or_else(|| Error::Credential {
            registry: self.repository.registry.clone(),
            cause: "it has characters that a header can't have".to_owned(),
        })?;
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(())
    }

    /// Gets a token for the repository.
    async fn token(&self, realm: &str, service: Option<&str>) -> Result<Zeroizing<String>, Error> {
        let (target, call) = self.token_request(realm, service)?;
        let answer = self.exchange(&target, target.origin == self.origin, call).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                return Err(self.unauthorized("its token service refuses", answer.said().await));
            }
            _ => return Err(answer.into_error(format!("a request for a token at {target}")).await),
        }
        let bytes = Zeroizing::new(answer.bytes(MAX_TOKEN, "the token").await?);
        // The parser's error may contain a part of the token.
        let TokenAnswer { token, access_token } =
            serde_json::from_slice(&bytes).map_err(|_| Error::Protocol {
                registry: self.repository.registry.clone(),
                cause: format!("the answer of {target} is not a token"),
            })?;
        Ok(Zeroizing::new(if token.is_empty() { access_token } else { token }))
    }

    /// The request for a token: to a place that may have the credential.
    fn token_request(&self, realm: &str, service: Option<&str>) -> Result<(Target, Call), Error> {
        let mut target = Target::parse(realm).map_err(|cause| self.misled(realm, cause))?;
        let is_near = self.origin.is_loopback() && target.origin.is_loopback();
        if !target.origin.tls && target.origin != self.origin && !is_near {
            return Err(self.misled(realm, "tokens are only fetched over TLS"));
        }
        if !may_issue_tokens(&self.origin.host, &target.origin.host, &self.settings.token_hosts) && !is_near {
            return Err(
                self.misled(realm, "it is in another domain; list the host in `tokenHosts` of the registry")
            );
        }
        let actions = match self.access {
            Access::Pull => "pull",
            Access::Push => "pull,push",
        };
        let mut form = Serializer::new(String::new());
        if let Some(service) = service {
            form.append_pair("service", service);
        }
        form.append_pair("scope", &format!("repository:{}:{actions}", self.repository.name));
        let kind = self.credential.as_ref().map(|credential| &credential.kind);
        if let Some(CredentialKind::Identity(token)) = kind {
            form.append_pair("grant_type", "refresh_token").append_pair("client_id", "pileus");
            form.append_pair("refresh_token", token);
            let media_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            let mut call = Call::new(Method::POST).with(CONTENT_TYPE, media_type);
            call.body = form.finish().into();
            return Ok((target, call));
        }
        let separator = if target.path.contains('?') { '&' } else { '?' };
        target.path = format!("{}{separator}{}", target.path, form.finish());
        let login = match kind {
            Some(CredentialKind::Basic { username, password }) => basic(username, password),
            _ => None,
        };
        let call = Call::new(Method::GET);
        Ok((target, login.map_or(call.clone(), |login| call.with(AUTHORIZATION, login))))
    }

    pub(super) fn unauthorized(&self, cause: &'static str, said: Option<String>) -> Error {
        Error::Unauthorized {
            registry: self.repository.registry.clone(),
            name: self.repository.name.clone(),
            credential: self
                .credential
                .as_ref()
                .map_or("none".to_owned(), |credential| credential.origin.clone()),
            cause,
            said,
        }
    }

    /// `location` may hold a signature in its query.
    pub(super) fn misled(&self, location: &str, cause: &str) -> Error {
        let shown = location.split(['?', '#']).next().unwrap_or_default();
        // A login in it is as secret.
        let shown = shown.rsplit_once('@').map_or(shown, |(_, rest)| rest);
        Error::Misled {
            registry: self.repository.registry.clone(),
            target: shown.chars().take(200).collect(),
            cause: cause.to_owned(),
        }
    }
}

/// The pause that a failure that may pass within this fetch calls for at least. `None` if it won't.
pub(super) fn may_pass(error: &Error) -> Option<Duration> {
    match error {
        Error::Unreachable { .. } | Error::Timeout { .. } => Some(Duration::ZERO),
        Error::Answer { status: 408 | 429 | 500.., after, .. } => Some(after.unwrap_or_default()),
        _ => None,
    }
}

fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let plain = Zeroizing::new(format!("{username}:{password}"));
    sensitive(&Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(plain.as_bytes()))))
}

/// A header value that has no readable `Debug`.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
