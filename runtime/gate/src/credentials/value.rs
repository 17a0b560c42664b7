//! What is put into requests. It has no `Debug`; what of it lies in our own memory is overwritten when the last request
//! that carries it is gone. The HTTP and TLS libraries' buffers aren't ours.

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::secret::sensitive;

use crate::credentials::sigv4::Signer;

/// A credential in the form in which it is attached. Clones share the secret.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// This header.
    Header(HeaderName, HeaderValue),
    /// A signature made with this.
    Signature(Arc<Signer>),
}

impl Value {
    /// A bearer token. None if it isn't one: RFC 6750 allows visible characters of ASCII only.
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

    /// A header. None if it can't have that value.
    pub(crate) fn header(name: HeaderName, value: Zeroizing<String>) -> Option<Self> {
        sensitive(value).map(|value| Self::Header(name, value))
    }

    /// Puts the credential into a request that isn't changed any more after this.
    pub(crate) fn attach(&self, request: &mut http::Request<Bytes>, now: SystemTime) {
        match self {
            Self::Header(name, value) => {
                request.headers_mut().insert(name, value.clone());
            }
            Self::Signature(signer) => signer.sign(request, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(value: &Value) -> HeaderValue {
        let mut request = http::Request::new(Bytes::new());
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("the provider's"));
        value.attach(&mut request, SystemTime::UNIX_EPOCH);
        assert_eq!(request.headers().len(), 1, "in the place of whatever stood there");
        request.headers()[AUTHORIZATION].clone()
    }

    #[test]
    fn a_credential_takes_the_place_of_the_header_and_shows_itself_to_nobody() {
        let bearer = attached(&Value::bearer("planted").unwrap());
        assert_eq!(bearer, "Bearer planted");
        // RFC 7617, 2.
        let basic = attached(&Value::basic("Aladdin", "open sesame").unwrap());
        assert_eq!(basic, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for value in [bearer, basic] {
            assert!(value.is_sensitive() && !format!("{value:?}").contains(value.to_str().unwrap()));
        }
    }

    #[test]
    fn what_can_not_be_a_header_or_a_token_is_none() {
        for token in ["", "two words", "new\nline", "ümlaut"] {
            assert!(Value::bearer(token).is_none(), "{token:?}");
        }
        assert!(sensitive(Zeroizing::new("a\r\nb: c".to_owned())).is_none());
    }
}
