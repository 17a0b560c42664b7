//! One attempt to acquire a credential: its sources are read, and for a token its endpoint is asked. Nothing is cached
//! between attempts, so the next one sees all changes by the operator.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderName;
use ipnet::IpNet;
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::credentials::assertion::Claims;
use crate::credentials::endpoint::Endpoint;
use crate::credentials::sigv4::Signer;
use crate::credentials::spec::{Credential, CredentialKind, MetadataFlavor, OAuthClient};
use crate::credentials::token::Token;
use crate::credentials::token_url::TokenUrl;
use crate::credentials::value::CredentialValue;
use crate::credentials::{assertion, metadata, oauth};
use crate::network::Network;
use crate::secret::Secret;

/// The longest an attempt may take.
pub(crate) const LONGEST_TRY: Duration = Duration::from_secs(10);

/// What an attempt acquired.
pub(crate) struct Acquired {
    pub(crate) value: CredentialValue,
    /// What no response may show: all of the value that is secret, in clear, and what it was acquired with.
    pub(crate) secrets: Vec<SecretString>,
    /// How long it is valid after the begin of the attempt. None if it does not expire.
    pub(crate) lifetime: Option<Duration>,
}

/// Why an attempt failed. Contains no secret and no text of the endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AcquireError {
    /// The value of the `result` label in metrics: one of a fixed set.
    pub(crate) result: &'static str,
    pub(crate) cause: String,
    /// How long the endpoint asks to wait, if it says so.
    pub(crate) retry_after: Option<Duration>,
}

impl AcquireError {
    pub(crate) fn new(result: &'static str, cause: impl Into<String>) -> Self {
        Self { result, cause: cause.into(), retry_after: None }
    }
}

/// Acquires one credential.
pub(crate) struct Acquirer {
    kind: CredentialKind,
    endpoint: Option<Endpoint>,
}

impl Acquirer {
    /// The acquirer of a credential. `port` is the one at which its host is granted, for a metadata service that issues the token
    /// for itself.
    pub(crate) fn new(credential: Credential, network: &Arc<Network>, port: u16) -> Self {
        let Credential { hosts, mut addresses, kind, .. } = credential;
        let mut network = network.clone();
        let url = match &kind {
            CredentialKind::Metadata { flavor: MetadataFlavor::Aws } => {
                metadata::service(&hosts).map(|host| TokenUrl::plain(host, port, metadata::AWS_PATH))
            }
            kind => kind.endpoint().map(|(_, url)| url.clone()),
        };
        if let CredentialKind::ManagedIdentity { .. } | CredentialKind::Metadata { .. } = &kind {
            addresses.extend(url.as_ref().and_then(TokenUrl::literal).map(IpNet::from));
            // Through a proxy, the metadata service would return the identity of the proxy's host.
            network = Arc::new(Network { proxy: None, ..(*network).clone() });
        }
        Self { kind, endpoint: url.map(|url| Endpoint::new(&url, addresses, network)) }
    }

    pub(crate) async fn acquire(&self) -> Result<Acquired, AcquireError> {
        timeout(LONGEST_TRY, self.attempt())
            .await
            .unwrap_or_else(|_| Err(AcquireError::new("timeout", "acquiring took longer than 10 s")))
    }

    async fn attempt(&self) -> Result<Acquired, AcquireError> {
        let (value, secrets) = match &self.kind {
            CredentialKind::ClientSecret { client, secret } => {
                let secret = read(secret).await?;
                let form = oauth::with_secret(client, &secret);
                return self.token(TokenRequest::Form(form), Some(secret)).await;
            }
            CredentialKind::ClientCertificate { client, certificate, key } => {
                let assertion = assertion(client, certificate, key).await?;
                let form = oauth::with_assertion(client, &assertion);
                return self.token(TokenRequest::Form(form), None).await;
            }
            CredentialKind::WorkloadIdentity { client, token } => {
                let assertion = read(token).await?;
                let form = oauth::with_assertion(client, assertion.expose_secret());
                return self.token(TokenRequest::Form(form), Some(assertion)).await;
            }
            CredentialKind::ManagedIdentity { endpoint: _, resource, identity } => {
                let query = oauth::metadata_query(resource, identity.as_ref());
                return self.token(TokenRequest::Metadata(query), None).await;
            }
            CredentialKind::Metadata { flavor } => match metadata::header(*flavor) {
                Some((name, value)) => (CredentialValue::Header(name, value), Vec::new()),
                None => return self.metadata_token().await,
            },
            CredentialKind::Bearer { token } => bearer(token).await?,
            CredentialKind::Basic { username, password } => basic(username, password).await?,
            CredentialKind::Header { name, value } => header(name, value).await?,
            CredentialKind::AwsSigV4 { region, service, access_key_id, secret_access_key, session_token } => {
                let (id, key) = (read(access_key_id).await?, read(secret_access_key).await?);
                let token = match session_token {
                    Some(token) => Some(read(token).await?),
                    None => None,
                };
                let secrets = [&id, &key].into_iter().chain(&token).cloned().collect();
                let signer = Signer::new(region, service, id, key, token).ok_or_else(|| {
                    unfit(access_key_id, "a valid access key ID, or the session token is invalid")
                })?;
                (CredentialValue::Signature(Arc::new(signer)), secrets)
            }
        };
        Ok(Acquired { value, secrets, lifetime: None })
    }

    async fn token(
        &self,
        question: TokenRequest,
        proof: Option<SecretString>,
    ) -> Result<Acquired, AcquireError> {
        let endpoint = self.endpoint.as_ref().expect("each kind that acquires a token has an endpoint");
        let Token { token, lifetime } = match question {
            TokenRequest::Form(form) => endpoint.post(form).await?,
            TokenRequest::Metadata(query) => endpoint.get(query).await?,
        };
        let value = CredentialValue::bearer(token.expose_secret()).ok_or_else(|| {
            AcquireError::new(
                "malformed",
                "the token endpoint returned a token that is not valid in a header",
            )
        })?;
        let secrets = proof.into_iter().chain([token]).collect();
        Ok(Acquired { value, secrets, lifetime: Some(lifetime) })
    }
}

impl Acquirer {
    async fn metadata_token(&self) -> Result<Acquired, AcquireError> {
        let unfit = || AcquireError::new("malformed", "the metadata service is not an address");
        let Token { token, lifetime } = self.endpoint.as_ref().ok_or_else(unfit)?.put().await?;
        let text = Zeroizing::new(token.expose_secret().to_owned());
        let value = CredentialValue::header(metadata::AWS_TOKEN, text)
            .ok_or_else(|| AcquireError::new("malformed", "the token is not valid in a header"))?;
        Ok(Acquired { value, secrets: vec![token], lifetime: Some(lifetime) })
    }
}

enum TokenRequest {
    Form(Zeroizing<String>),
    Metadata(String),
}

/// Reads a secret, without the white space around it: editors and `echo` end files with a newline.
async fn read(source: &Secret) -> Result<SecretString, AcquireError> {
    let read = source.read().await;
    let value =
        read.map_err(|error| AcquireError::new("source", format!("{source} can't be read: {error}")))?;
    match value.expose_secret().trim() {
        "" => Err(AcquireError::new("source", format!("{source} is empty"))),
        trimmed => Ok(SecretString::from(trimmed)),
    }
}

fn unfit(source: &Secret, what: &str) -> AcquireError {
    AcquireError::new("source", format!("{source} doesn't hold {what}"))
}

/// A value, and what of it no response may show.
type WithSecrets = (CredentialValue, Vec<SecretString>);

async fn bearer(source: &Secret) -> Result<WithSecrets, AcquireError> {
    let token = read(source).await?;
    let value = CredentialValue::bearer(token.expose_secret())
        .ok_or_else(|| unfit(source, "a valid token: only visible ASCII characters are allowed"))?;
    Ok((value, vec![token]))
}

async fn basic(username: &str, source: &Secret) -> Result<WithSecrets, AcquireError> {
    let password = read(source).await?;
    let value = CredentialValue::basic(username, password.expose_secret())
        .ok_or_else(|| unfit(source, "a password that is valid in a header"))?;
    // The name alone is no secret; both together are found by the password.
    let encoded = value.without_scheme();
    Ok((value, [Some(password), encoded].into_iter().flatten().collect()))
}

async fn header(name: &HeaderName, source: &Secret) -> Result<WithSecrets, AcquireError> {
    let whole = read(source).await?;
    let text = Zeroizing::new(whole.expose_secret().to_owned());
    let value = CredentialValue::header(name.clone(), text)
        .ok_or_else(|| unfit(source, "a valid header value: control characters are not allowed"))?;
    let bare = value.without_scheme();
    Ok((value, [Some(whole), bare].into_iter().flatten().collect()))
}

async fn assertion(
    client: &OAuthClient,
    certificate: &Secret,
    key: &Secret,
) -> Result<Zeroizing<String>, AcquireError> {
    let (chain, pem) = (read(certificate).await?, read(key).await?);
    let audience = client.token_url.to_string();
    let id = identity()?;
    let claims =
        Claims { audience: &audience, client_id: &client.client_id, id: &id, now: SystemTime::now() };
    let signed = assertion::sign(claims, chain.expose_secret(), pem.expose_secret());
    signed.map_err(|cause| AcquireError::new("source", format!("in {certificate} and {key}: {cause}")))
}

/// A unique name for an assertion.
fn identity() -> Result<String, AcquireError> {
    let mut bytes = [0_u8; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| AcquireError::new("source", "the operating system provides no random numbers"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string can't fail");
        text
    }))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::{fmt, io};

    use super::*;

    /// A source with this value, or one that fails.
    #[derive(Debug)]
    struct Planted(Option<&'static str>);

    impl fmt::Display for Planted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("file x")
        }
    }

    impl crate::secret::SecretSource for Planted {
        fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
            let value = self.0.map(SecretString::from);
            Box::pin(async move { value.ok_or_else(|| io::Error::other("gone")) })
        }
    }

    fn secret(value: &'static str) -> Secret {
        Arc::new(Planted(Some(value)))
    }

    async fn failure(kind: CredentialKind) -> Option<String> {
        let failure = Acquirer { kind, endpoint: None }.acquire().await.err()?;
        assert_eq!(failure.result, "source");
        Some(failure.cause)
    }

    #[tokio::test]
    async fn a_secret_is_trimmed_and_checked_and_never_repeated() {
        let bearer = |value| CredentialKind::Bearer { token: secret(value) };
        let basic = |value| CredentialKind::Basic { username: "u".into(), password: secret(value) };
        let header =
            |value| CredentialKind::Header { name: HeaderName::from_static("x-key"), value: secret(value) };
        let aws = |id| CredentialKind::AwsSigV4 {
            region: "r".into(),
            service: "s".into(),
            access_key_id: secret(id),
            secret_access_key: secret("planted"),
            session_token: None,
        };
        let gone = CredentialKind::Bearer { token: Arc::new(Planted(None)) };
        let rows = [
            (bearer(" token\n"), None),
            (basic("pass word\n"), None),
            (header("any value\n"), None),
            (aws("AKID\n"), None),
            (gone, Some("file x can't be read: gone")),
            (bearer(" \n"), Some("file x is empty")),
            (
                bearer("planted planted"),
                Some("file x doesn't hold a valid token: only visible ASCII characters are allowed"),
            ),
            (
                header("planted\r\nplanted"),
                Some("file x doesn't hold a valid header value: control characters are not allowed"),
            ),
            (
                aws("planted planted"),
                Some("file x doesn't hold a valid access key ID, or the session token is invalid"),
            ),
        ];
        for (kind, expected) in rows {
            let shown = format!("{kind:?}");
            assert_eq!(failure(kind).await.as_deref(), expected, "{shown}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_without_answer_is_given_up() {
        #[derive(Debug)]
        struct Silent;
        impl fmt::Display for Silent {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("silent")
            }
        }
        impl crate::secret::SecretSource for Silent {
            fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
                Box::pin(std::future::pending())
            }
        }
        let kind = CredentialKind::Bearer { token: Arc::new(Silent) };
        let failure = Acquirer { kind, endpoint: None }.acquire().await.err().unwrap();
        assert_eq!(failure.cause, "acquiring took longer than 10 s");
    }
}
