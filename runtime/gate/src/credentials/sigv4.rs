//! AWS Signature Version 4, as AWS documents it ("Create a signed AWS API request"). A signature is over the whole
//! request: that it is valid shows that no later stage changes a request.
//!
//! Own code: the official crate adds a second implementation of HMAC and SHA-256 and a dozen crates of its SDK, to save
//! some hundred lines on top of ring.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri, header};
use ring::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::headers::remove_twins;
use crate::secret::sensitive;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// An access key, for one service in one region.
pub(crate) struct Signer {
    region: String,
    service: String,
    id: SecretString,
    key: SecretString,
    token: Option<HeaderValue>,
}

/// Whether it makes the same signatures.
impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        let Self { region, service, id, key, token } = self;
        *region == other.region
            && *service == other.service
            && id.expose_secret() == other.id.expose_secret()
            && key.expose_secret() == other.key.expose_secret()
            && *token == other.token
    }
}

/// The parts of AWS's canonical request, which is signed.
struct Canonical<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    /// The names in lower case and in order.
    headers: &'a [(&'a str, Cow<'a, str>)],
    content: &'a str,
}

impl Signer {
    /// None if the key's ID or the token is not valid in a header.
    pub(crate) fn new(
        region: &str,
        service: &str,
        id: SecretString,
        key: SecretString,
        token: Option<SecretString>,
    ) -> Option<Self> {
        let id_is_sound = id.expose_secret().bytes().all(|byte| byte.is_ascii_alphanumeric());
        let token = match token {
            Some(token) => Some(sensitive(Zeroizing::new(token.expose_secret().to_owned()))?),
            None => None,
        };
        let (region, service) = (region.to_owned(), service.to_owned());
        id_is_sound.then_some(Self { region, service, id, key, token })
    }

    /// Signs the request, whose body has this digest, with all headers that AWS wants signed: the host, the content type and
    /// its own.
    pub(crate) fn sign(&self, request: &mut http::Request<Bytes>, content: &str, now: SystemTime) {
        let time = time(now);
        let headers = request.headers_mut();
        for name in [DATE, CONTENT, TOKEN, header::AUTHORIZATION] {
            remove_twins(headers, name.as_str());
        }
        let value =
            |text: &str| HeaderValue::from_str(text).expect("digits and letters can stand in a header");
        headers.insert(DATE, value(&time));
        headers.insert(CONTENT, value(content));
        if let Some(token) = &self.token {
            headers.insert(TOKEN, token.clone());
        }
        let authorization = {
            let host = host(request.uri());
            let mut headers = vec![("host", Cow::from(host))];
            for name in request.headers().keys() {
                if *name == header::CONTENT_TYPE || name.as_str().starts_with("x-amz-") {
                    let lines = request.headers().get_all(name).iter();
                    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
                    headers.push((name.as_str(), lines.join(",").into()));
                }
            }
            headers.sort_unstable();
            let (method, path) = (request.method().as_str(), request.uri().path());
            let query = request.uri().query().unwrap_or_default();
            let canonical = Canonical { method, path, query, headers: &headers, content };
            self.authorization(&canonical, &time)
        };
        let authorization = sensitive(Zeroizing::new(authorization)).expect("all its parts were checked");
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
    }

    /// The value of the header `Authorization`.
    fn authorization(&self, canonical: &Canonical<'_>, time: &str) -> String {
        let Self { region, service, id, key, token: _ } = self;
        let Canonical { method, path, query, headers, content } = canonical;
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let path = canonical_path(path, service == "s3");
        let mut text = format!("{method}\n{path}\n{}\n", canonical_query(query));
        for (name, value) in *headers {
            // AWS treats several spaces as one.
            let words: Vec<_> = value.split_ascii_whitespace().collect();
            text.extend([name, ":", &words.join(" "), "\n"]);
        }
        text.extend(["\n", &names, "\n", content]);
        let day = time.split('T').next().unwrap_or_default();
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let hash = hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");

        let key = Zeroizing::new(["AWS4", key.expose_secret()].concat());
        let mut signature = keyed(key.as_bytes(), day);
        for part in [region.as_str(), service, "aws4_request", &to_sign] {
            signature = keyed(signature.as_ref(), part);
        }
        let (id, signature) = (id.expose_secret(), hex(signature.as_ref()));
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }
}

/// How much of a body is digested at one go, in bytes: it takes a millisecond on a slow machine.
const DIGESTED_AT_ONCE: usize = 256 << 10;

/// The digest of a body, in hexadecimal. Other tasks get their turn in between.
pub(crate) async fn digest_of(body: &[u8]) -> String {
    let mut digest = digest::Context::new(&digest::SHA256);
    for (number, part) in body.chunks(DIGESTED_AT_ONCE).enumerate() {
        if number > 0 {
            tokio::task::yield_now().await;
        }
        digest.update(part);
    }
    hex(digest.finish().as_ref())
}

fn keyed(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// As `20150830T123600Z`.
fn time(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// As the HTTP library writes it.
fn host(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    match uri.port_u16() {
        Some(443) if uri.scheme_str() == Some("https") => host.to_owned(),
        Some(80) if uri.scheme_str() == Some("http") => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The path, encoded once more: the service decides what a percent sign means. Only S3 takes keys as they are, with
/// empty segments.
fn canonical_path(path: &str, is_s3: bool) -> String {
    let mut canonical = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'/' if !is_s3 && canonical.ends_with('/') => {}
            b'/' => canonical.push('/'),
            b'%' if is_s3 => canonical.push('%'),
            _ => push_encoded(&mut canonical, byte),
        }
    }
    canonical
}

/// The sorted query parameters, in the one encoding that AWS accepts.
fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        text.bytes().fold(String::new(), |mut encoded, byte| {
            push_encoded(&mut encoded, byte);
            encoded
        })
    };
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut pairs: Vec<_> = pairs.map(|(name, value)| (encoded(&name), encoded(&value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn push_encoded(text: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
        text.push(char::from(byte));
    } else {
        write!(text, "%{byte:02X}").expect("writing to a string can't fail");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string can't fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TIME: &str = "20150830T123600Z";

    fn signer(service: &str, token: Option<&str>) -> Signer {
        let key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        Signer::new("us-east-1", service, "AKIDEXAMPLE".into(), key.into(), token.map(Into::into)).unwrap()
    }

    /// A request line, an additional header, the body, and the signature.
    type Case = (&'static str, Option<(&'static str, &'static str)>, &'static str, &'static str);

    /// Cases of the test suite that AWS publishes.
    const SUITE: [Case; 12] = [
        ("GET /", None, "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST /", None, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET /?Param2=value2&Param1=value1",
            None,
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "GET /?Param1=value2&Param1=value1",
            None,
            "",
            "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
        ),
        ("GET /?Param1=value1", None, "", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
        ("GET //example//", None, "", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
        ("GET /example space/", None, "", "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
        ("GET /ሴ", None, "", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        (
            "POST /?Param1=value1",
            None,
            "",
            "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
        ),
        (
            "POST /",
            Some(("my-header1", "VALUE1")),
            "",
            "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
        ),
        (
            "POST /",
            Some(("content-type", "application/x-www-form-urlencoded")),
            "Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        (
            "POST /",
            Some(("x-amz-security-token", STS_TOKEN)),
            "",
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
        ),
    ];

    #[test]
    fn signatures_match_the_aws_test_suite() {
        for (line, added, body, expected) in SUITE {
            let (method, target) = line.split_once(' ').unwrap();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let content = hex(digest::digest(&digest::SHA256, body.as_bytes()).as_ref());
            let mut headers = vec![("host", "example.amazonaws.com".into()), ("x-amz-date", TIME.into())];
            headers.extend(added.map(|(name, value)| (name, Cow::from(value))));
            headers.sort_unstable();
            let canonical = Canonical { method, path, query, headers: &headers, content: &content };
            let found = signer("service", None).authorization(&canonical, TIME);
            let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
            let names = names.join(";");
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={names}, Signature={expected}"
            );
            assert_eq!(found, expected, "{line}");
        }
    }

    const STS_TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    #[tokio::test]
    async fn a_signature_covers_the_body_the_token_and_the_aws_headers() {
        let mut request = http::Request::post("https://ec2.example:8443/?Action=B&Action=A")
            .header("x-amz-target", "Service.Action")
            .header("content-type", "text/plain")
            .header("accept", "text/plain")
            .header("x-amz-date", "the provider's")
            .body(Bytes::from("body"))
            .unwrap();
        let now = UNIX_EPOCH + Duration::from_mins(24_015_636);
        let content = digest_of(request.body()).await;
        signer("ec2", Some("session")).sign(&mut request, &content, now);
        let headers = request.headers();
        assert_eq!((&headers[DATE], &headers[TOKEN]), (&TIME.parse().unwrap(), &"session".parse().unwrap()));
        assert_eq!(headers[CONTENT], "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5");
        let signed = headers[header::AUTHORIZATION].to_str().unwrap();
        let names = "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token;x-amz-target,";
        assert!(signed.contains(names), "{signed}");
        assert!(headers[header::AUTHORIZATION].is_sensitive() && headers[TOKEN].is_sensitive());
        let mut other = request.map(|_| Bytes::from("another"));
        let before = other.headers()[header::AUTHORIZATION].clone();
        let content = digest_of(other.body()).await;
        signer("ec2", Some("session")).sign(&mut other, &content, now);
        assert_ne!(other.headers()[header::AUTHORIZATION], before, "the body is signed");
    }

    #[test]
    fn a_path_is_encoded_twice_except_for_s3() {
        for (path, expected, of_s3) in
            [("/", "/", "/"), ("/a%20b/c:d", "/a%2520b/c%3Ad", "/a%20b/c%3Ad"), ("//a//", "/a/", "//a//")]
        {
            assert_eq!(
                (canonical_path(path, false).as_str(), canonical_path(path, true).as_str()),
                (expected, of_s3)
            );
        }
        assert_eq!(canonical_query("b=%2f+&a&a=%7E"), "a=&a=~&b=%2F%20");
    }

    #[test]
    fn an_id_or_token_invalid_in_a_header_makes_no_signer() {
        let signer = |id: &str, token: &str| Signer::new("r", "s", id.into(), "k".into(), Some(token.into()));
        assert!(signer("AKID", "token").is_some());
        assert!(signer("AK\nID", "token").is_none() && signer("AKID", "to\nken").is_none());
    }
}
