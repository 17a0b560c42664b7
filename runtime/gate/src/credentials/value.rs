//! The value that is attached to requests. It has no `Debug`. Its memory is overwritten when the last request that
//! carries it is gone, except in the buffers of the HTTP and TLS libraries and in the search that looks for it in responses.

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::credentials::sigv4::{self, Signer};
use crate::headers;
use crate::secret::sensitive;

/// Carries the tokens of other tenants, each with its scheme.
const AUXILIARY: HeaderName = HeaderName::from_static("x-ms-authorization-auxiliary");

/// A credential as it is attached to requests. Clones share the secret.
#[derive(Clone, PartialEq)]
pub(crate) enum CredentialValue {
    /// This header.
    Header(HeaderName, HeaderValue),
    /// A signature of this signer.
    Signature(Arc<Signer>),
}

impl CredentialValue {
    /// A bearer token. None if it is not valid: RFC 6750 allows only visible ASCII characters.
    pub(crate) fn bearer(token: &str) -> Option<Self> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        Self::header(AUTHORIZATION, Zeroizing::new(["Bearer ", token].concat()))
    }

    /// A user name and a password.
    pub(crate) fn basic(username: &str, password: &str) -> Option<Self> {
        let pair = Zeroizing::new([username, ":", password].concat());
        let encoded = Zeroizing::new(BASE64_STANDARD.encode(pair.as_bytes()));
        Self::header(AUTHORIZATION, Zeroizing::new(["Basic ", encoded.as_str()].concat()))
    }

    /// A header. None if the value is not valid.
    pub(crate) fn header(name: HeaderName, value: Zeroizing<String>) -> Option<Self> {
        sensitive(value).map(|value| Self::Header(name, value))
    }

    /// What comes after the scheme in its header, if it has one: a server may repeat it so.
    pub(crate) fn without_scheme(&self) -> Option<SecretString> {
        let Self::Header(_, value) = self else { return None };
        let (_, bare) = value.to_str().ok()?.split_once(' ')?;
        Some(SecretString::from(bare))
    }

    /// The header that carries the tokens of these values along with another, if they are tokens.
    pub(crate) fn auxiliary<'a>(values: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let mut all = Zeroizing::new(String::new());
        for value in values {
            let Self::Header(_, bearer) = value else { return None };
            if !all.is_empty() {
                all.push_str(", ");
            }
            all.push_str(bearer.to_str().ok()?);
        }
        Self::header(AUXILIARY, all)
    }

    /// Attaches the credential to a request, which must not change afterwards.
    pub(crate) async fn attach(&self, request: &mut http::Request<Bytes>, now: SystemTime) {
        match self {
            Self::Header(name, value) => {
                headers::remove_twins(request.headers_mut(), name.as_str());
                request.headers_mut().insert(name, value.clone());
            }
            Self::Signature(signer) => {
                let content = sigv4::digest_of(request.body()).await;
                signer.sign(request, &content, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attached(value: &CredentialValue) -> HeaderValue {
        let mut request = http::Request::new(Bytes::new());
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("the provider's"));
        value.attach(&mut request, SystemTime::UNIX_EPOCH).await;
        assert_eq!(request.headers().len(), 1, "in place of the earlier header");
        request.headers()[AUTHORIZATION].clone()
    }

    #[tokio::test]
    async fn a_credential_replaces_the_header_in_every_spelling_and_is_never_shown() {
        let bearer = attached(&CredentialValue::bearer("planted").unwrap()).await;
        assert_eq!(bearer, "Bearer planted");
        // RFC 7617, 2.
        let basic = attached(&CredentialValue::basic("Aladdin", "open sesame").unwrap()).await;
        let key = CredentialValue::header("x-my-key".parse().unwrap(), Zeroizing::new("planted".to_owned()))
            .unwrap();
        let mut request = http::Request::new(Bytes::new());
        for twin in ["x-my-key", "x_my_key", "x-my.key", "X_My-Key"] {
            request
                .headers_mut()
                .append(twin.parse::<HeaderName>().unwrap(), HeaderValue::from_static("own"));
        }
        key.attach(&mut request, SystemTime::UNIX_EPOCH).await;
        let sent: Vec<_> = request.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((sent, &request.headers()["x-my-key"]), (vec!["x-my-key"], &"planted".parse().unwrap()));
        assert_eq!(basic, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for value in [bearer, basic] {
            assert!(value.is_sensitive() && !format!("{value:?}").contains(value.to_str().unwrap()));
        }
    }

    #[test]
    fn an_invalid_header_or_token_is_none() {
        for token in ["", "two words", "new\nline", "ümlaut"] {
            assert!(CredentialValue::bearer(token).is_none(), "{token:?}");
        }
        assert!(sensitive(Zeroizing::new("a\r\nb: c".to_owned())).is_none());
    }
}
