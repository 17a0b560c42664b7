//! Maps a status code to the contract's error kinds, and writes the message. Pure: the time is an argument.

use std::time::{Duration, SystemTime};

use ::http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::Response;
use super::codes::{Meaning, xml_text};
use crate::{Error, ErrorKind};

/// The header that marks a response of the host's gate.
pub(crate) const GATE: &str = "pileus-gate";

/// The headers in which clouds return the ID of a request, for a support ticket.
const REQUEST_IDS: [&str; 6] = [
    "x-request-id",
    "x-ms-request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-openstack-request-id",
    "x-correlation-id",
];

/// How many characters of the cloud's message are kept: a sentence or two. The host keeps 1 KiB of the whole message.
const MAX_MESSAGE: usize = 500;

/// The error kind of a response, by the meaning of its code, or else by its status. None for a success.
pub(super) fn kind(
    status: StatusCode,
    meaning: Option<Meaning>,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<ErrorKind> {
    let after = || retry_after(headers, now);
    Some(match (meaning, status.as_u16()) {
        (None, 200..=299) => return None,
        (Some(Meaning::Throttled), _) | (None, 429) => ErrorKind::Throttled(after()),
        (Some(Meaning::Denied), _) | (None, 401 | 403 | 407) => ErrorKind::Denied,
        (Some(Meaning::Locked | Meaning::Later), _) | (None, 409 | 412 | 423) => ErrorKind::Conflict(after()),
        (Some(Meaning::Invalid), _) | (None, 400 | 422) => ErrorKind::Invalid,
        (Some(Meaning::Unavailable), _) | (None, 408 | 425 | 500..=599) => ErrorKind::Unavailable(after()),
        (Some(Meaning::Absent) | None, _) => ErrorKind::Broken,
    })
}

/// Whether the gate says that its cache has no such response. A gateway in front of a cloud answers 504 too.
pub(super) fn is_not_cached(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::GATEWAY_TIMEOUT && headers.contains_key(GATE)
}

/// When to retry, according to `Retry-After`. A date counts from the response's own `Date`, if there is one, because the
/// cloud's clock and the local clock may differ.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let again = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(header::DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    Some(again.duration_since(date.unwrap_or(now)).unwrap_or_default())
}

/// Whether the gate held the request back because a limit allows it only after the soft deadline of the call.
fn is_held_back(headers: &HeaderMap) -> bool {
    headers.get(GATE).is_some_and(|why| why.as_bytes().starts_with(b"reason=rate"))
}

/// The error of a failed response.
pub(super) fn error(kind: ErrorKind, response: &Response) -> Error {
    let Response { status, headers, bytes, subject, .. } = response;
    let message = match cloud_message(response.code(), bytes) {
        _ if headers.contains_key(GATE) => format!("{subject} was held back by the host's gate"),
        Some(text) => format!("{subject} answered {status}: {text}"),
        None => format!("{subject} answered {status}"),
    };
    let id = REQUEST_IDS.iter().find_map(|name| response.header(name));
    let error = Error::new(kind, message);
    let error = if is_held_back(headers) { error.held_back() } else { error };
    id.into_iter().fold(error, |error, id| error.with_extra("request-id", id))
}

/// The cloud's own code and message, which most APIs have in the same fields.
fn cloud_message(code: Option<&str>, bytes: &[u8]) -> Option<String> {
    let in_json = || {
        let body: Value = serde_json::from_slice(bytes).ok()?;
        let inner = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
        inner.get("message")?.as_str().map(str::to_owned)
    };
    let message = match (code, in_json().or_else(|| xml_text(bytes, "Message"))) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(only), None) => only.to_owned(),
        (None, Some(only)) => only,
        (None, None) => return None,
    };
    // On one line, because it becomes part of an event's sentence.
    Some(message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_MESSAGE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Incoming;

    type Pairs = &'static [(&'static str, &'static str)];

    fn headers(pairs: Pairs) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (::http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn response(headers: HeaderMap, body: &str) -> Response {
        let incoming = Incoming { status: StatusCode::BAD_REQUEST, headers, bytes: body.into() };
        Response::new(incoming, "GET x".to_owned(), "cloud.test", None)
    }

    #[test]
    fn every_status_maps_to_an_error_kind() {
        let rows = [
            (200, None),
            (204, None),
            (302, Some(ErrorKind::Broken)),
            (400, Some(ErrorKind::Invalid)),
            (401, Some(ErrorKind::Denied)),
            (403, Some(ErrorKind::Denied)),
            (404, Some(ErrorKind::Broken)),
            (408, Some(ErrorKind::Unavailable(None))),
            (409, Some(ErrorKind::Conflict(None))),
            (410, Some(ErrorKind::Broken)),
            (412, Some(ErrorKind::Conflict(None))),
            (422, Some(ErrorKind::Invalid)),
            (423, Some(ErrorKind::Conflict(None))),
            (429, Some(ErrorKind::Throttled(None))),
            (500, Some(ErrorKind::Unavailable(None))),
            (503, Some(ErrorKind::Unavailable(None))),
        ];
        for (status, expected) in rows {
            let found =
                kind(StatusCode::from_u16(status).unwrap(), None, &HeaderMap::new(), SystemTime::UNIX_EPOCH);
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn the_meaning_of_a_code_precedes_the_status() {
        let rows = [
            (400, Meaning::Throttled, ErrorKind::Throttled(None)),
            (429, Meaning::Locked, ErrorKind::Conflict(None)),
            (400, Meaning::Later, ErrorKind::Conflict(None)),
            (404, Meaning::Invalid, ErrorKind::Invalid),
            (409, Meaning::Denied, ErrorKind::Denied),
            (403, Meaning::Unavailable, ErrorKind::Unavailable(None)),
            (400, Meaning::Absent, ErrorKind::Broken),
        ];
        for (status, meaning, expected) in rows {
            let status = StatusCode::from_u16(status).unwrap();
            let found = kind(status, Some(meaning), &HeaderMap::new(), SystemTime::UNIX_EPOCH);
            assert_eq!(found, Some(expected), "{status} {meaning:?}");
        }
    }

    #[test]
    fn retry_after_is_kept() {
        let now = httpdate::parse_http_date("Sat, 28 Nov 2026 12:00:00 GMT").unwrap();
        let rows: [(&str, Pairs, Option<u64>); 6] = [
            ("none", &[], None),
            ("seconds", &[("retry-after", "17")], Some(17)),
            ("a date", &[("retry-after", "Sat, 28 Nov 2026 12:01:00 GMT")], Some(60)),
            (
                "a date by the cloud's own clock",
                &[
                    ("retry-after", "Sat, 28 Nov 2026 13:00:05 GMT"),
                    ("date", "Sat, 28 Nov 2026 13:00:00 GMT"),
                ],
                Some(5),
            ),
            ("a date that has passed", &[("retry-after", "Sat, 28 Nov 2026 11:00:00 GMT")], Some(0)),
            ("neither", &[("retry-after", "soon")], None),
        ];
        for (name, pairs, seconds) in rows {
            let time = seconds.map(Duration::from_secs);
            for (status, expected) in [
                (StatusCode::TOO_MANY_REQUESTS, ErrorKind::Throttled(time)),
                (StatusCode::CONFLICT, ErrorKind::Conflict(time)),
                (StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Unavailable(time)),
            ] {
                assert_eq!(kind(status, None, &headers(pairs), now), Some(expected), "{name}");
            }
        }
    }

    #[test]
    fn the_message_names_the_request_and_the_clouds_reason() {
        let rows: [(&str, Pairs, &str); 6] = [
            (
                r#"{"code":"gone","message":"no\n such  thing"}"#,
                &[],
                "GET x answered 400 Bad Request: gone: no such thing",
            ),
            (r#"{"error":{"message":"no"}}"#, &[], "GET x answered 400 Bad Request: no"),
            (
                "<Error><Code>X</Code><Message>no</Message></Error>",
                &[],
                "GET x answered 400 Bad Request: X: no",
            ),
            (r#"{"error":"no"}"#, &[], "GET x answered 400 Bad Request"),
            ("<html>", &[], "GET x answered 400 Bad Request"),
            ("", &[("pileus-gate", "limit")], "GET x was held back by the host's gate"),
        ];
        for (body, pairs, expected) in rows {
            let response = response(headers(pairs), body);
            assert_eq!(error(ErrorKind::Invalid, &response).message, expected, "{body}");
        }
    }

    #[test]
    fn the_error_carries_the_clouds_request_id() {
        let response = response(headers(&[("x-ms-request-id", "7")]), "");
        let expected = vec![("request-id".to_owned(), "7".to_owned())];
        assert_eq!(error(ErrorKind::Invalid, &response).extra, expected);
    }
}
