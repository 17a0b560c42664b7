//! Header rules only remove lines, remove all that a provider must not send or see, and change nothing in a second pass.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::headers::{GATE_HEADER, MAX_HEADERS, edit_request, edit_response, size};

/// What must never be sent. A second list, because the rules' own could be wrong.
const NEVER_SENT: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-auth-token",
    "x-amz-security-token",
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
    "host",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "connection",
    "upgrade",
    "x-forwarded-host",
    "x-http-method-override",
];

/// The same for responses.
const NEVER_SEEN: &[&str] = &[
    "set-cookie",
    "proxy-authenticate",
    "transfer-encoding",
    "trailer",
    "connection",
    "upgrade",
    GATE_HEADER,
];

/// The input is lines of `name: value`.
pub(super) fn hold(data: &[u8]) {
    let given = lines(data);
    match edit_request(given.clone()) {
        Err(refusal) => {
            assert!(given.len() > MAX_HEADERS || size(&given) > 32 << 10, "{refusal}");
        }
        Ok((kept, stripped)) => {
            assert!(kept.len() <= 100 && size(&kept) <= 32 << 10);
            let framing = [HOST, CONTENT_LENGTH].map(|name| given.get_all(name).iter().count());
            are_a_part(&given, &kept, stripped, framing.iter().sum());
            assert!(NEVER_SENT.iter().all(|name| !kept.contains_key(*name)), "{kept:?}");
            assert_eq!(edit_request(kept.clone()).ok(), Some((kept, 0)));
        }
    }
    let (kept, stripped) = edit_response(given.clone());
    are_a_part(&given, &kept, stripped, 0);
    assert!(NEVER_SEEN.iter().all(|name| !kept.contains_key(*name)), "{kept:?}");
    assert_eq!(edit_response(kept.clone()), (kept, 0));
}

/// Reads lines of `name: value`. Those that can't be headers are left out.
pub(super) fn lines(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = parts.next().and_then(|value| HeaderValue::from_bytes(value.trim_ascii_start()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Checks that the kept lines are unchanged, and that all others but so many were counted.
fn are_a_part(given: &HeaderMap, kept: &HeaderMap, stripped: u64, uncounted: usize) {
    assert_eq!(usize::try_from(stripped).ok(), Some(given.len() - kept.len() - uncounted));
    for name in kept.keys() {
        assert!(kept.get_all(name).iter().eq(given.get_all(name)), "{name}");
        let named = |value: &HeaderValue| value.to_str().is_ok_and(|value| names(value, name.as_str()));
        assert!(!given.get_all(CONNECTION).iter().any(named), "{name} belongs to the connection");
    }
}

fn names(connection: &str, name: &str) -> bool {
    connection.split(',').any(|named| named.trim().eq_ignore_ascii_case(name))
}
