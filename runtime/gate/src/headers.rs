//! Which headers are carried. What a provider sends may be copied from anywhere, so names that carry credentials, that
//! open metadata services, that change the request after it was checked, or that frame it, are taken out without a
//! word: SDKs set some of them by themselves and must keep working. They are counted, so that an operator can see it.

use http::{
    HeaderMap, HeaderName,
    header::{CONNECTION, CONTENT_LENGTH, HOST, SET_COOKIE},
};

use crate::error::Error;

/// SDKs send 10 to 20. The HTTP library takes no more than 100 in an answer either.
pub(crate) const MOST_HEADERS: usize = 100;
/// Servers commonly refuse heads over 8 to 64 KiB.
const MOST_BYTES: usize = 32 * 1024;

/// Says in an answer that it is the gate's and why.
pub(crate) const OWN: &str = "pileus-gate";

/// Taken out of requests, beside the hop-by-hop ones.
const REQUEST: &[&str] = &[
    // Credentials are the host's affair.
    "authorization",
    "cookie",
    "x-auth-token",
    "x-amz-security-token",
    "x-ms-authorization-auxiliary",
    // They prove to a metadata service that its caller isn't a confused proxy, which is what the gate would be.
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
    // They make a server take the request for another than the one that was checked.
    "forwarded",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Taken out of requests and answers: what two neighbours on a connection say to each other.
const HOP_BY_HOP: &[&str] =
    &["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"];

/// The headers of a request as they are sent, and how many were taken out.
///
/// Errors: [`Error::HeadersTooLarge`].
pub(crate) fn edit_request(mut headers: HeaderMap) -> Result<(HeaderMap, u64), Error> {
    if headers.len() > MOST_HEADERS {
        let found = format!("{} lines", headers.len());
        return Err(Error::HeadersTooLarge { found, limit: "100 lines" });
    }
    let bytes = size(&headers);
    if bytes > MOST_BYTES {
        return Err(Error::HeadersTooLarge { found: format!("{bytes} bytes"), limit: "32 KiB" });
    }
    // The URI alone says where a request goes, and the HTTP library alone frames it. Every client sets these two, so
    // they tell an operator nothing.
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    let stripped = strip(&mut headers, |name| {
        REQUEST.contains(&name) || name.starts_with("x-forwarded-") || is_hop_by_hop(name)
    });
    Ok((headers, stripped))
}

/// What headers take on the wire.
pub(crate) fn size(headers: &HeaderMap) -> usize {
    // Each line has a colon, a space and a line end besides.
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// The headers of an answer as the provider sees them, and how many were taken out. Their number and size were bounded
/// when the answer was read.
pub(crate) fn edit_response(mut headers: HeaderMap) -> (HeaderMap, u64) {
    // A cookie is a credential as well, and what the gate says of itself comes from nobody else.
    let unwanted = |name: &str| name == SET_COOKIE.as_str() || name == OWN || is_hop_by_hop(name);
    let stripped = strip(&mut headers, unwanted);
    (headers, stripped)
}

pub(crate) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name) || name.starts_with("proxy-")
}

/// Takes out the headers that are unwanted or that `Connection` names, and counts lines.
fn strip(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) -> u64 {
    // Servers that hand headers on as CGI does take an underscore for a dash.
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
        assert!(edit_request(sized(MOST_BYTES - 7)).is_ok());
        assert!(matches!(edit_request(sized(MOST_BYTES - 6)), Err(Error::HeadersTooLarge { .. })));
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
