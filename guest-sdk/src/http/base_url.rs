//! The base URL of a cloud's API, and the escaping of the segments after it. It doesn't use the crate `url`, whose tables
//! of international domain names would triple the size of a small component.

use std::fmt::Write;

use ::http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CodePlace, Codes};
use crate::{Effect, Endpoint, Rule};

/// The base URL of a cloud's API: `http` or `https`, a host, and optionally a port and a path. A field of this type in a
/// configuration is checked while it is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("format" = "uri"), inline)]
pub struct BaseUrl {
    tls: bool,
    host: String,
    port: Option<u16>,
    /// Empty, or a path that starts with a slash and doesn't end with one.
    path: String,
}

impl BaseUrl {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// A sentence that says what the URL must look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{text}` must start with `https://` or `http://`")),
        };
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err(format!("`{text}` must name a host"));
        };
        if authority.as_str().contains('@') {
            // The message doesn't quote the text, which may hold a password.
            return Err("the URL must not hold credentials, the host adds its own".to_owned());
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(format!("`{text}` must end with its path, without `?` and `#`"));
        }
        if uri.path().contains('*') {
            return Err(format!("`{text}` must not contain `*`"));
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host: authority.host().to_ascii_lowercase(), port: authority.port_u16(), path })
    }

    /// The URL of a path below the base URL. The segments are escaped and joined by slashes, so any identifier can be a
    /// segment.
    pub fn join<S: AsRef<str>>(&self, segments: impl IntoIterator<Item = S>) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let mut url = format!("{scheme}://{}", self.host);
        if let Some(port) = self.port {
            // Writing to a String doesn't fail.
            let _ = write!(url, ":{port}");
        }
        url.push_str(&self.path);
        for segment in segments {
            url.push('/');
            match segment.as_ref() {
                // Unescaped, servers and proxies would resolve these two as parent folders.
                dots @ ("." | "..") => url.push_str(&dots.replace('.', "%2E")),
                segment => escape(segment, &mut url),
            }
        }
        url
    }

    /// The request for access to this host.
    pub fn endpoint(&self, reason: impl Into<String>) -> Endpoint {
        Endpoint { tls: self.tls, port: self.port, ..Endpoint::new(&self.host, reason) }
    }

    /// A table of what this host's error codes mean, without rows.
    pub fn codes(&self, place: CodePlace) -> Codes {
        Codes::new(&self.host, place)
    }

    /// A rule about requests to a path below the base URL. The path starts with a slash.
    pub fn rule(&self, method: &str, path: &str, effect: Effect) -> Rule {
        Rule::new(&self.host, method, format!("{}{path}", self.path), effect)
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// Appends a text, with all but the unreserved characters of RFC 3986 escaped. That is correct in a path segment, a query
/// and a form.
pub(super) fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Writing to a String doesn't fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn joined_segments_are_escaped() {
        let base = BaseUrl::parse("http://Cloud.test:8080/api/").unwrap();
        assert_eq!(base.join(["v1", "a/b?c", ".."]), "http://cloud.test:8080/api/v1/a%2Fb%3Fc/%2E%2E");
        assert_eq!(BaseUrl::parse("https://cloud.test").unwrap().join(["v1"]), "https://cloud.test/v1");
    }

    #[test]
    fn endpoints_and_rules_name_the_configured_host() {
        let base = BaseUrl::parse("http://cloud.test:8080/api").unwrap();
        let expected = Endpoint { tls: false, port: Some(8080), ..Endpoint::new("cloud.test", "to read") };
        assert_eq!(base.endpoint("to read"), expected);
        let rule = Rule::new("cloud.test", "GET", "/api/v1/*", Effect::Read);
        assert_eq!(base.rule("GET", "/v1/*", Effect::Read), rule);
    }

    #[test]
    fn an_invalid_base_url_is_rejected_with_the_reason() {
        let rows = [
            ("cloud.test", "must start with"),
            ("ftp://cloud.test", "must start with"),
            ("http://", "is not a URL"),
            ("http://cloud test", "is not a URL"),
            ("http://user:secret@cloud.test", "must not hold credentials"),
            ("http://cloud.test/?a=b", "must end with its path"),
            ("http://cloud.test/#a", "must end with its path"),
            ("http://cloud.test/*/a", "must not contain"),
        ];
        for (text, expected) in rows {
            let message = BaseUrl::parse(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("secret"), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_segment_stays_one_segment(segment in ".{1,20}") {
            let url = BaseUrl::parse("http://cloud.test").unwrap().join([&segment]);
            let uri: Uri = url.parse().unwrap();
            prop_assert_eq!(uri.path().matches('/').count(), 1);
            prop_assert_eq!(uri.query(), None);
            prop_assert!(!["/.", "/.."].contains(&uri.path()));
        }
    }
}
