//! The canonical form of a request. Rules, grants, the dialer and the log read only this form, and the request that is sent
//! is built from it: two readers that parse the same text can't disagree on where it goes. A request with more than one
//! reading (a user name in front of the host, an absolute-form path, `..`, raw control characters) is refused, not repaired.

mod canonical;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::{Method, Uri};

use crate::effect;
use crate::error::Error;
use canonical::is_visible;
pub(crate) use canonical::{canonical_path, check_single_reading};

/// A host as requests and grants name it: lower case, without a trailing dot, and with every spelling of an address
/// converted into the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name in ASCII (international names in their `xn--` form).
    Name(String),
    /// A literal address; an IPv4 address mapped into IPv6 is the IPv4 address.
    Ip(IpAddr),
}

impl Host {
    /// Reads a host without a port: a name, an IPv4 address in any of its spellings, or an IPv6 address with or without
    /// brackets.
    ///
    /// # Errors
    /// What is wrong, as a verb phrase.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('%') {
            return Err("holds a %; hosts are written without percent-encoding and zones");
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::Ip(IpAddr::V6(address).to_canonical()));
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        match url::Host::parse(text) {
            Ok(url::Host::Ipv4(address)) => Ok(Self::Ip(IpAddr::V4(address))),
            Ok(url::Host::Ipv6(address)) => Ok(Self::Ip(IpAddr::V6(address).to_canonical())),
            Ok(url::Host::Domain(name)) if is_dns_name(&name) => Ok(Self::Name(name)),
            Ok(url::Host::Domain(_)) | Err(_) => Err("is neither a DNS name nor an address"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Where a request goes and what it asks for, in canonical form. Requests for the same thing are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) tls: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Starts with one `/`. Characters that need no percent-encoding are decoded; all other codes are in upper case.
    pub(crate) path: String,
    /// As the sender wrote it, since only the cloud knows its encoding.
    pub(crate) query: Option<String>,
}

impl Request {
    /// Converts method and URI into canonical form.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a request that could be read in two ways.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, Error> {
        let Some(scheme) = uri.scheme_str() else {
            return Err(malformed("URI", "", "has no scheme; use https"));
        };
        let Some(authority) = uri.authority() else {
            return Err(malformed("URI", "", "has no host"));
        };
        Self::from_parts(method, scheme, authority.as_str(), uri.path(), uri.query())
    }

    pub(crate) fn from_parts(
        method: &Method,
        scheme: &str,
        authority: &str,
        path: &str,
        query: Option<&str>,
    ) -> Result<Self, Error> {
        // Lengths first: nothing reads a text that may have megabytes.
        if authority.len() > MAX_AUTHORITY {
            return Err(malformed("host", "", "is longer than 512 bytes"));
        }
        if path.len() + query.map_or(0, str::len) > MAX_TARGET {
            return Err(malformed("URI", "", "is longer than 64 KiB; send the query in a body"));
        }
        let method = canonical_method(method)?;
        let tls = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(malformed("scheme", scheme, "isn't carried; use https")),
        };
        let (host, port) = canonical_authority(authority)?;
        let port = port.unwrap_or(default_port(tls));
        let path = canonical_path(path).map_err(|cause| malformed("path", path, cause))?;
        if query.is_some_and(|query| query.bytes().any(|byte| !is_visible(byte) || byte == b'#')) {
            return Err(malformed("query", "", "holds a character that must be percent-encoded"));
        }
        Ok(Self { method, tls, host, port, path, query: query.map(str::to_owned) })
    }

    /// The method, in upper case.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The query, as the sender wrote it. It may carry a secret.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The URI to send, built from the canonical parts.
    pub(crate) fn uri(&self) -> Result<Uri, Error> {
        let mut text = self.url();
        if let Some(query) = &self.query {
            text.push('?');
            text.push_str(query);
        }
        // The library bounds a URI to 64 KiB; nothing else can fail for canonical parts.
        text.parse().map_err(|_| malformed("URI", "", "is longer than 64 KiB; send the query in a body"))
    }

    /// As [`Self::url`], cut to a length for logs and events, since a path may have 64 KiB. A segment that is too long for a
    /// name may be a token or a signature, so only its beginning is shown.
    pub(crate) fn shown_url(&self) -> String {
        let mut url = self.url();
        if url.split('/').any(|segment| segment.len() > MAX_SEGMENT) {
            let shown = |segment: &str| match segment.get(..SHOWN_OF_SEGMENT) {
                Some(start) if segment.len() > MAX_SEGMENT => format!("{start}…"),
                _ => segment.to_owned(),
            };
            url = url.split('/').map(shown).collect::<Vec<_>>().join("/");
        }
        if url.len() > MAX_SHOWN {
            url.truncate(url.floor_char_boundary(MAX_SHOWN));
            url.push('…');
        }
        url
    }

    /// Whether it changes nothing by its method, and its query names no other method. Only such a request leaves a replica that
    /// doesn't lead.
    pub fn is_safe(&self) -> bool {
        effect::is_safe(&self.method) && !self.query.as_deref().is_some_and(effect::names_writing_method)
    }

    /// Scheme, host, port and path for logs and messages. The query stays out: it may carry a secret.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        if self.port == default_port(self.tls) {
            format!("{scheme}://{}{}", self.host, self.path)
        } else {
            format!("{scheme}://{}:{}{}", self.host, self.port, self.path)
        }
    }
}

/// The longest host with its port, in bytes: names have 253 at most, and those with letters outside ASCII a little more.
const MAX_AUTHORITY: usize = 512;

/// The longest path with its query, in bytes. The HTTP library sends no longer URI.
const MAX_TARGET: usize = 64 << 10;

/// The longest URL in a log or a message, in bytes: Azure's longest have some 400.
const MAX_SHOWN: usize = 512;

/// The longest path segment that is shown whole, in bytes. Azure's longest names have 90 characters; a signed token has
/// several hundred.
const MAX_SEGMENT: usize = 128;

/// How much of a longer segment is shown. That much shows its kind and no secret, since all tokens of an issuer begin alike.
const SHOWN_OF_SEGMENT: usize = 8;

/// The longest method in bytes, since logs show it: the longest registered one (UPDATEREDIRECTREF) has 17.
const MAX_METHOD: usize = 32;

/// The default port of a scheme.
pub(crate) fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

fn canonical_method(method: &Method) -> Result<Method, Error> {
    let text = method.as_str();
    if text.len() > MAX_METHOD || !text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(malformed("method", text, "must be in upper-case letters, at most 32 of them"));
    }
    match text {
        "CONNECT" => {
            Err(malformed("method", text, "isn't carried, since it asks for a tunnel past the gate"))
        }
        "TRACE" => {
            Err(malformed("method", text, "isn't carried, since its answer repeats the host's credential"))
        }
        _ => Ok(method.clone()),
    }
}

fn canonical_authority(authority: &str) -> Result<(Host, Option<u16>), Error> {
    if let Some((_, host)) = authority.rsplit_once('@') {
        // The text before the @ usually holds a password, so it isn't repeated.
        return Err(malformed("host", host, "comes with a user name; only the host adds credentials"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside the brackets of an IPv6 address doesn't begin a port.
        Some((_, after)) if after.ends_with(']') => (authority, None),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    // Without brackets the last group of an IPv6 address would look like a port.
    if host.is_empty() || (host.contains(':') && !host.starts_with('[')) {
        return Err(malformed("host", authority, "is empty or an IPv6 address without brackets"));
    }
    let host = Host::parse(host).map_err(|cause| malformed("host", authority, cause))?;
    let port =
        port.map(|port| parse_port(port).ok_or_else(|| malformed("port", port, "isn't in 1 to 65535")));
    Ok((host, port.transpose()?))
}

fn parse_port(text: &str) -> Option<u16> {
    // `parse` alone would accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn malformed(part: &'static str, found: &str, cause: &str) -> Error {
    // Long enough to recognize the request, short enough for a log line.
    let found = found.chars().take(200).collect();
    Error::Malformed { part, found, cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(authority: &str, path: &str) -> Result<Request, Error> {
        Request::from_parts(&Method::GET, "https", authority, path, None)
    }

    fn ip(text: &str) -> Host {
        Host::Ip(text.parse().unwrap())
    }

    #[test]
    fn every_spelling_of_a_host_becomes_one_form() {
        let name = |text: &str| Host::Name(text.to_owned());
        let rows = [
            ("Management.Azure.COM", name("management.azure.com"), 443),
            ("management.azure.com.", name("management.azure.com"), 443),
            ("management.azure.com.:8443", name("management.azure.com"), 8443),
            ("a.example:00443", name("a.example"), 443),
            ("bücher.example", name("xn--bcher-kva.example"), 443),
            ("XN--BCHER-KVA.example", name("xn--bcher-kva.example"), 443),
            ("169.254.169.254", ip("169.254.169.254"), 443),
            ("169.254.169.254.", ip("169.254.169.254"), 443),
            ("2852039166", ip("169.254.169.254"), 443),
            ("0xa9fea9fe", ip("169.254.169.254"), 443),
            ("0xA9.0xFE.0xA9.0xFE", ip("169.254.169.254"), 443),
            ("0251.0376.0251.0376", ip("169.254.169.254"), 443),
            ("169.254.43518", ip("169.254.169.254"), 443),
            ("127.1", ip("127.0.0.1"), 443),
            ("0", ip("0.0.0.0"), 443),
            ("１６９.254.169.254", ip("169.254.169.254"), 443),
            ("[::ffff:a9fe:a9fe]", ip("169.254.169.254"), 443),
            ("[::FFFF:169.254.169.254]:80", ip("169.254.169.254"), 80),
            ("[0:0:0:0:0:0:0:1]", ip("::1"), 443),
            ("[FD00:EC2::254]:80", ip("fd00:ec2::254"), 80),
        ];
        for (authority, host, port) in rows {
            let request = parse(authority, "/").unwrap_or_else(|error| panic!("{authority}: {error}"));
            assert_eq!((request.host, request.port), (host, port), "{authority}");
        }
    }

    #[test]
    fn a_host_with_two_readings_is_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let rows = [
            "",
            ":443",
            ".",
            "a..",
            "a..b",
            ".a.example",
            "user@a.example",
            "user:secret@a.example",
            "a.example@b.example",
            "a.example:0",
            "a.example:443x",
            "a.example:+443",
            "a.example:",
            "a.example:65536",
            "a.example:80:80",
            "a%2eexample",
            "%61.example",
            "a example",
            "a.example/b",
            "a\\b",
            "a?b",
            "1.2.3.4.5",
            "256.1.1.1",
            "[::1",
            "::1",
            "[::1]x",
            "[::1].",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            long.as_str(),
        ];
        for authority in rows {
            let refusal = parse(authority, "/");
            assert!(matches!(refusal, Err(Error::Malformed { .. })), "{authority}: {refusal:?}");
        }
    }

    #[test]
    fn a_path_is_canonical_or_refused() {
        let rows = [
            ("/", Some("/")),
            ("/a/b/", Some("/a/b/")),
            ("/a//b", Some("/a//b")),
            ("/%61%2Db%7e", Some("/a-b~")),
            ("/a%2fb", Some("/a%2Fb")),
            ("/a%20b", Some("/a%20b")),
            ("/%2541", Some("/%2541")),
            ("/a...b/...", Some("/a...b/...")),
            ("http://evil.example/", None),
            ("evil", None),
            ("*", None),
            ("", None),
            ("//evil.example/", None),
            ("/a b", None),
            ("/a\r\nHost: evil", None),
            ("/a\0", None),
            ("/a%00", None),
            ("/a%0d%0A", None),
            ("/ä", None),
            ("/a#b", None),
            ("/a\\..\\b", None),
            ("/a/../b", None),
            ("/a/..", None),
            ("/./a", None),
            ("/a/%2e%2E/b", None),
            ("/a/.%2e", None),
            ("/a%2f..%2fb", None),
            ("/a%5c..%5Cb", None),
            ("/a/..;x/b", None),
            ("/a/..%3bx/b", None),
            ("/%", None),
            ("/%4", None),
            ("/%zz", None),
        ];
        for (path, expected) in rows {
            let found = parse("a.example", path);
            match expected {
                Some(expected) => assert_eq!(found.unwrap().path, expected, "{path}"),
                None => assert!(matches!(found, Err(Error::Malformed { .. })), "{path}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_host_or_a_target_over_its_length_is_refused_before_it_is_read() {
        // Nothing of these can be read, so that only a look at the length finds that they are too long.
        let long = "%".repeat(8 << 20);
        let refusals = [
            parse(&long, "/"),
            parse("a.example", &format!("/{long}")),
            Request::from_parts(&Method::GET, "https", "a.example", "/", Some(&long)),
        ];
        for refusal in refusals {
            let message = refusal.unwrap_err().to_string();
            assert!(message.contains("is longer than"), "{message}");
        }
        assert!(parse(&format!("{}example:443", "a.".repeat(100)), "/").is_ok());
        assert!(parse("a.example", &format!("/{}", "a".repeat(60_000))).is_ok());
    }

    #[test]
    fn methods_that_tunnel_reflect_or_differ_in_case_are_refused() {
        for (text, carried) in [
            ("GET", true),
            ("PATCH", true),
            ("PURGE", true),
            ("CONNECT", false),
            ("TRACE", false),
            ("get", false),
            (&*"A".repeat(33), false),
        ] {
            let method = Method::from_bytes(text.as_bytes()).unwrap();
            let found = Request::from_parts(&method, "https", "a.example", "/", None);
            assert_eq!(found.is_ok(), carried, "{text}");
        }
    }

    #[test]
    fn a_refusal_repeats_neither_password_nor_query() {
        let userinfo = parse("admin:hunter2@a.example", "/").unwrap_err().to_string();
        let query = Request::from_parts(&Method::GET, "https", "a.example", "/", Some("sig=hunter2 x"));
        let query = query.unwrap_err().to_string();
        assert!(!userinfo.contains("hunter2") && !query.contains("hunter2"), "{userinfo} / {query}");
    }

    #[test]
    fn a_scheme_other_than_http_and_https_is_refused() {
        assert!(Request::from_parts(&Method::GET, "ftp", "a.example", "/", None).is_err());
        assert!(Request::parse(&Method::GET, &Uri::from_static("/only/a/path")).is_err());
    }

    proptest! {
        #[test]
        fn what_is_canonical_stays_as_it_is(
            authority in "([a-zA-Z0-9.-]{1,20}|\\[[0-9a-f:.]{2,20}\\]|[0-9x.]{1,15})(:[0-9]{1,5})?",
            path in "/[a-zA-Z0-9/.%2ef;*-]{0,24}",
            query in proptest::option::of("[a-z0-9=&%?]{0,12}"),
        ) {
            if let Ok(once) = Request::from_parts(&Method::GET, "https", &authority, &path, query.as_deref()) {
                let again = Request::parse(&once.method, &once.uri().unwrap()).unwrap();
                prop_assert_eq!(&once, &again);
                prop_assert!(!once.path.split('/').any(|segment| segment == ".."));
            }
        }

        #[test]
        fn arbitrary_bytes_are_canonical_or_refused_but_never_panic(
            method in proptest::collection::vec(any::<u8>(), 1..8),
            uri in proptest::collection::vec(any::<u8>(), 0..64),
            authority in any::<String>(),
            path in any::<String>(),
            query in any::<String>(),
        ) {
            if let (Ok(method), Ok(uri)) = (Method::from_bytes(&method), Uri::try_from(uri)) {
                let _ = Request::parse(&method, &uri);
            }
            let _ = Request::from_parts(&Method::GET, "https", &authority, &path, Some(&query));
            let _ = Request::from_parts(&Method::GET, "https", "a.example", &format!("/{path}"), None);
        }
    }

    #[test]
    fn a_url_is_sent_whole_and_shown_short() {
        let (long, token) = ("a/".repeat(5_000), "eyJhbGci.".repeat(20));
        let rows = [
            ("https://a.example/a?sig=hunter2".to_owned(), "https://a.example/a".to_owned()),
            (format!("https://a.example/{long}"), format!("https://a.example/{}…", &long[..494])),
            (format!("https://a.example/b/{token}/c"), "https://a.example/b/eyJhbGci…/c".to_owned()),
            (format!("https://a.example/{}", &token[..128]), format!("https://a.example/{}", &token[..128])),
        ];
        for (url, shown) in rows {
            let request = Request::parse(&Method::GET, &url.parse().unwrap()).unwrap();
            assert_eq!((request.uri().unwrap().to_string(), request.shown_url()), (url, shown));
        }
    }
}
