//! Which headers are carried. A provider may have its headers from anywhere. So headers are removed that carry credentials,
//! that open metadata services, that change a request after it was checked, or that frame it. A request isn't refused for
//! them, because SDKs set some of them on their own and must keep working; the lines are counted for the operator.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HOST, SET_COOKIE,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::error::Error;

/// SDKs send 10 to 20. The HTTP library accepts no more than 100 in a response either.
pub(crate) const MAX_HEADERS: usize = 100;
/// Servers commonly refuse heads over 8 to 64 KiB.
const MAX_BYTES: usize = 32 * 1024;

/// Marks a response as the gate's own, and says why the gate answered.
pub(crate) const GATE_HEADER: &str = "pileus-gate";

/// Removed from requests, in addition to the hop-by-hop headers.
const REQUEST: &[&str] = &[
    // Only the host attaches credentials.
    "authentication",
    "cookie",
    "cookie2",
    "x-auth-token",
    "x-auth-key",
    "x-auth-email",
    "x-auth-user",
    "x-subject-token",
    "x-service-token",
    "x-storage-token",
    "x-storage-user",
    "x-storage-pass",
    "x-vault-token",
    "x-consul-token",
    "x-nomad-token",
    "x-access-token",
    "x-tc-token",
    "x-api-key",
    "x-api-token",
    "x-apikey",
    "api-key",
    "apikey",
    "x-goog-api-key",
    "x-goog-iam-authority-selector",
    "private-token",
    "job-token",
    "ocp-apim-subscription-key",
    // Azure's identity endpoints of applications and clusters.
    "secret",
    "x-identity-header",
    // OpenStack's proxy in front of its metadata service.
    "x-instance-id-signature",
    // They make a server treat the request as another one than was checked.
    "content-length",
    "forwarded",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-host",
    "x-http-host-override",
    "x-http-path-override",
    "x-http-destinationurl",
    "x-override-url",
    "x-accel-redirect",
    "x-sendfile",
    // They name another client or user than the credential does.
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-remote-user",
    "x-remote-group",
    "x-remote-uid",
    "remote-user",
];

/// The same for all names that begin so. The first two are Kubernetes' impersonation.
const REQUEST_PREFIXES: &[&str] =
    &["impersonate-", "x-remote-extra-", "x-forwarded-", "x-forward-", "x-original-", "x-rewrite-"];

/// The same for all names that hold this. Metadata services of clouds (`Metadata-Flavor`, `X-aws-ec2-metadata-token`,
/// `Metadata-Token`) want such a header as proof that their caller isn't a confused proxy, which the gate would be.
const REQUEST_PARTS: &[&str] =
    &["authorization", "metadata", "security-token", "session-token", "method", "-override"];

/// Removed from requests that carry a credential: with them a response would hold only a part of what the gate searches, or
/// a digest of it.
const PARTIAL: &[&str] = &[
    "range",
    "if-range",
    "x-ms-range",
    "x-amz-range",
    "x-goog-range",
    "request-range",
    "a-im",
    "want-digest",
    "want-content-digest",
    "want-repr-digest",
];

/// Removed from requests and responses: they are about one connection, not about the request.
const HOP_BY_HOP: &[&str] =
    &["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"];

/// Returns the headers of a request as they are sent, and how many lines were removed.
///
/// # Errors
/// [`Error::HeadersTooLarge`].
pub(crate) fn edit_request(mut headers: HeaderMap) -> Result<(HeaderMap, u64), Error> {
    if headers.len() > MAX_HEADERS {
        let found = format!("{} lines", headers.len());
        return Err(Error::HeadersTooLarge { found, limit: "100 lines" });
    }
    let bytes = size(&headers);
    if bytes > MAX_BYTES {
        return Err(Error::HeadersTooLarge { found: format!("{bytes} bytes"), limit: "32 KiB" });
    }
    // Only the URI says where a request goes, and only the HTTP library frames it. These two aren't counted, because every
    // client sets them.
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    let stripped = strip(&mut headers, is_unwanted_of_request);
    Ok((headers, stripped))
}

fn is_unwanted_of_request(name: &str) -> bool {
    REQUEST.contains(&name)
        || name == HOST.as_str()
        || REQUEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || REQUEST_PARTS.iter().any(|part| name.contains(part))
        || (name.starts_with("x-ms-") && name.contains("auth"))
        || is_hop_by_hop(name)
}

/// A header's name as a server reads it that passes headers on as CGI does: an underscore, and in some servers every
/// character that is no letter or digit, is the same as a dash.
fn as_read(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Removes a header in each spelling that some server takes for it.
pub(crate) fn remove_twins(headers: &mut HeaderMap, name: &str) {
    let twin = as_read(name);
    let twins: Vec<_> = headers.keys().filter(|name| as_read(name.as_str()) == twin).cloned().collect();
    for twin in twins {
        headers.remove(twin);
    }
}

/// Edits a request that is about to get a credential, so that the whole response comes and can be searched for it.
pub(crate) fn make_searchable(headers: &mut HeaderMap) {
    strip(headers, |name| PARTIAL.contains(&name) || name == ACCEPT_ENCODING.as_str());
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Why a response can't be searched, as a verb phrase, if it can't: it is a part, or it is coded although identity was asked
/// for.
pub(crate) fn unsearchable(status: StatusCode, headers: &HeaderMap) -> Option<&'static str> {
    let is_coded = |name: HeaderName, plain: &str| {
        let values = headers.get_all(name).iter();
        let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        codings.any(|coding| {
            let coding = coding.trim_ascii();
            !coding.is_empty() && !coding.eq_ignore_ascii_case(plain.as_bytes())
        })
    };
    if status == StatusCode::PARTIAL_CONTENT
        || status == StatusCode::IM_USED
        || headers.contains_key(CONTENT_RANGE)
    {
        Some("holds only a part of what was asked for")
    } else if is_coded(CONTENT_ENCODING, "identity") || is_coded(TRANSFER_ENCODING, "chunked") {
        Some("is compressed although the request asked that it isn't")
    } else {
        None
    }
}

/// How many bytes headers take on the wire.
pub(crate) fn size(headers: &HeaderMap) -> usize {
    // Each line also has a colon, a space and a line end.
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Returns the headers of a response as the provider sees them, and how many lines were removed. The HTTP library bounded
/// their number and size when it read them.
pub(crate) fn edit_response(mut headers: HeaderMap) -> (HeaderMap, u64) {
    // A cookie is a credential too, and only the gate may mark a response as its own.
    let unwanted = |name: &str| name == SET_COOKIE.as_str() || name == GATE_HEADER || is_hop_by_hop(name);
    let stripped = strip(&mut headers, unwanted);
    (headers, stripped)
}

pub(crate) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name) || name.starts_with("proxy-")
}

/// Removes the headers that are unwanted or that `Connection` names, and counts the lines.
fn strip(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) -> u64 {
    let is_unwanted = |name: &&HeaderName| unwanted(&as_read(name.as_str()));
    let mut names: Vec<HeaderName> = headers.keys().filter(is_unwanted).cloned().collect();
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    names.extend(connection.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()));
    let before = headers.len();
    for name in names {
        headers.remove(name);
    }
    u64::try_from(before - headers.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_a_provider_must_not_say_is_taken_out_and_counted() {
        let unwanted = [
            ("Authorization", "Bearer x"),
            ("Cookie", "a=b"),
            ("X-Auth-Token", "x"),
            ("X-Amz-Security-Token", "x"),
            ("X-Ms-Authorization-Auxiliary", "Bearer x"),
            ("Metadata", "true"),
            ("Metadata-Flavor", "Google"),
            ("X-Aws-Ec2-Metadata-Token", "x"),
            ("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60"),
            ("X-Google-Metadata-Request", "True"),
            ("Forwarded", "for=1.2.3.4"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("X-Forwarded-Host", "evil"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-HTTP-Method", "DELETE"),
            ("X-Method-Override", "DELETE"),
            ("X-Original-Method", "DELETE"),
            ("Method-Override", "DELETE"),
            ("X-HTTP-Verb-Override", "DELETE"),
            ("_Method", "DELETE"),
            ("X-Original-URL", "/admin"),
            ("X-Rewrite-URL", "/admin"),
            ("Proxy-Authorization", "Basic x"),
            ("Proxy-Anything", "x"),
            ("Host", "evil"),
            ("Content-Length", "5"),
            ("Content-Length", "6"),
            ("Transfer-Encoding", "chunked"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "x"),
            ("Keep-Alive", "5"),
            ("X_Auth_Token", "x"),
            ("X-HTTP_Method-Override", "DELETE"),
            ("X.Auth.Token", "x"),
            ("X_Forwarded_Host", "evil"),
            ("Content_Length", "5"),
            ("Transfer_Encoding", "chunked"),
            ("X-Authorization", "x"),
            ("Metadata-Token", "x"),
            ("X-Metadata-Token-Ttl-Seconds", "60"),
            ("X-aliyun-ecs-metadata-token", "x"),
            ("X-volc-ecs-metadata-token-ttl-seconds", "60"),
            ("Metadata_Flavor", "Google"),
            ("X-Instance-ID-Signature", "x"),
            ("Secret", "x"),
            ("X-IDENTITY-HEADER", "x"),
            ("X-Ms-Cluster-Authority-Token", "x"),
            ("X-Acs-Security-Token", "x"),
            ("X-Subject-Token", "x"),
            ("X-Vault-Token", "x"),
            ("X-Goog-Api-Key", "x"),
            ("Private-Token", "x"),
            ("Impersonate-User", "admin"),
            ("Impersonate-Extra-Scopes", "x"),
            ("X-Remote-User", "admin"),
            ("X-Original-Host", "evil"),
            ("X-Real-IP", "127.0.0.1"),
            ("Connection", "x-secret, accept-charset"),
            ("X-Secret", "named by Connection"),
        ];
        let kept = [
            ("Accept", "application/json"),
            ("X-Ms-Client-Request-Id", "1"),
            ("X-Ms-Version", "1"),
            ("X-OpenStack-Nova-API-Version", "2.1"),
            ("Idempotency-Key", "1"),
            ("If-None-Match", "\"e\""),
        ];
        let (found, stripped) = edit_request(headers(&[&unwanted[..], &kept[..]].concat())).unwrap();
        assert_eq!(
            names(&found),
            [
                "accept",
                "idempotency-key",
                "if-none-match",
                "x-ms-client-request-id",
                "x-ms-version",
                "x-openstack-nova-api-version"
            ]
        );
        // Without the three lines that every client sends and the HTTP library replaces.
        assert_eq!(stripped, u64::try_from(unwanted.len() - 3).unwrap());
    }

    #[test]
    fn a_head_over_100_lines_or_32_kib_is_refused() {
        let lines = |count: usize| headers(&vec![("x-a", "b"); count]);
        assert!(edit_request(lines(100)).is_ok());
        assert!(matches!(edit_request(lines(101)), Err(Error::HeadersTooLarge { .. })));
        assert!(matches!(edit_request(lines(10_000)), Err(Error::HeadersTooLarge { .. })));
        let sized = |bytes: usize| headers(&[("x-a", &"v".repeat(bytes))]);
        assert!(edit_request(sized(MAX_BYTES - 7)).is_ok());
        assert!(matches!(edit_request(sized(MAX_BYTES - 6)), Err(Error::HeadersTooLarge { .. })));
        assert!(matches!(edit_request(sized(1 << 20)), Err(Error::HeadersTooLarge { .. })));
    }

    #[test]
    fn a_header_value_with_control_bytes_has_no_form_in_which_it_could_arrive() {
        for value in ["a\r\nb: c", "a\nb", "a\0b", "a\x7fb"] {
            assert!(HeaderValue::from_str(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn an_answer_loses_its_cookies_and_what_is_between_neighbours() {
        let (found, stripped) = edit_response(headers(&[
            ("Set-Cookie", "a=b"),
            ("Set-Cookie", "c=d"),
            ("Connection", "close, x-hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Proxy-Authenticate", "Basic"),
            ("Pileus-Gate", "reason=rate"),
            ("Content-Length", "5"),
            ("ETag", "\"e\""),
            ("Retry-After", "5"),
        ]));
        assert_eq!(names(&found), ["content-length", "etag", "retry-after"]);
        assert_eq!(stripped, 7);
    }

    proptest! {
        #[test]
        fn editing_twice_takes_out_nothing_more(lines in proptest::collection::vec(
            ("[a-z-]{1,8}|connection|te|host|proxy-[a-z]{1,3}", "[ -~]{0,12}"), 0..20,
        )) {
            let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let (once, _) = edit_request(headers(&lines)).unwrap();
            let (twice, stripped) = edit_request(once.clone()).unwrap();
            prop_assert_eq!((once, 0), (twice, stripped));
        }
    }
}
