//! Which headers are carried. A provider may have its headers from anywhere. So headers are removed that carry credentials,
//! that open metadata services, that change a request after it was checked, or that frame it. A request isn't refused for
//! them, because SDKs set some of them on their own and must keep working; the lines are counted for the operator.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, SET_COOKIE};
use http::{HeaderMap, HeaderName};

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
    "authorization",
    "cookie",
    "x-auth-token",
    "x-amz-security-token",
    "x-ms-authorization-auxiliary",
    // They prove to a metadata service that its caller isn't a confused proxy, which the gate would be.
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
    // They make a server treat the request as another one than was checked.
    "forwarded",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
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
    let stripped = strip(&mut headers, |name| {
        REQUEST.contains(&name) || name.starts_with("x-forwarded-") || is_hop_by_hop(name)
    });
    Ok((headers, stripped))
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
    // Servers that pass headers on as CGI does read an underscore as a dash.
    let is_unwanted = |name: &&HeaderName| unwanted(&name.as_str().replace('_', "-"));
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
    use http::HeaderValue;
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
            ("Connection", "x-secret, accept-charset"),
            ("X-Secret", "named by Connection"),
        ];
        let kept =
            [("Accept", "application/json"), ("X-Ms-Client-Request-Id", "1"), ("If-None-Match", "\"e\"")];
        let (found, stripped) = edit_request(headers(&[&unwanted[..], &kept[..]].concat())).unwrap();
        assert_eq!(names(&found), ["accept", "if-none-match", "x-ms-client-request-id"]);
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
