//! Header rules only take out, take out all that a provider must not say or see, and are through after one pass.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_LENGTH, HOST},
};

use crate::headers::{MOST_HEADERS, OWN, edit_request, edit_response, size};

/// What must not come out of a request, written down once more: the rules' own list could be wrong.
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

/// The same for answers.
const NEVER_SEEN: &[&str] =
    &["set-cookie", "proxy-authenticate", "transfer-encoding", "trailer", "connection", "upgrade", OWN];

/// The input is lines of `name: value`.
pub(super) fn hold(data: &[u8]) {
    let given = lines(data);
    match edit_request(given.clone()) {
        Err(refusal) => {
            assert!(given.len() > MOST_HEADERS || size(&given) > 32 << 10, "{refusal}");
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

/// Lines of `name: value`. Those that can't be headers at all are left out.
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

/// What was kept is as it was given, and the rest was counted, but for so many lines.
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
