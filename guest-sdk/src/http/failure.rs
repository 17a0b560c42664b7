//! Maps the error codes of `wasi:http` to the contract's error kinds. Exhaustive, and by the code alone.

use wasip2::http::types::ErrorCode;

use crate::{Error, ErrorKind, deadline};

/// The error of a request that got no response.
#[cfg_attr(
    not(any(target_arch = "wasm32", test)),
    expect(dead_code, reason = "only a component meets these codes")
)]
pub(crate) fn error(subject: &str, code: &ErrorCode) -> Error {
    // After the soft deadline the host accepts no request, and aborts those in flight.
    if matches!(code, ErrorCode::HttpResponseTimeout) && deadline::has_passed() {
        return Error::deadline(subject);
    }
    let kind = kind(code);
    let what = match kind {
        ErrorKind::Denied => "was denied by the host's gate",
        _ => "got no answer",
    };
    // `wasip2` has no other name for a code. Its prefix means nothing to people.
    let shown = format!("{code:?}");
    Error::new(kind, format!("{subject} {what}: {}", shown.trim_start_matches("ErrorCode::")))
}

fn kind(code: &ErrorCode) -> ErrorKind {
    match code {
        // Denied by the gate: a host or an address that the operator has not granted.
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => ErrorKind::Denied,
        // No response at present, or not in time. Certificate errors belong here too: a certificate expires and is
        // renewed without a change to this cluster.
        ErrorCode::DnsTimeout
        | ErrorCode::DnsError(_)
        | ErrorCode::DestinationNotFound
        | ErrorCode::DestinationUnavailable
        | ErrorCode::DestinationIpUnroutable
        | ErrorCode::ConnectionRefused
        | ErrorCode::ConnectionTerminated
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::ConnectionLimitReached
        | ErrorCode::TlsProtocolError
        | ErrorCode::TlsCertificateError
        | ErrorCode::TlsAlertReceived(_)
        | ErrorCode::HttpResponseIncomplete
        | ErrorCode::HttpResponseTimeout
        | ErrorCode::HttpProtocolError
        | ErrorCode::ConfigurationError
        | ErrorCode::InternalError(_) => ErrorKind::Unavailable(None),
        // A retry would fail the same way: the request is invalid, or the response exceeds a limit.
        ErrorCode::HttpRequestLengthRequired
        | ErrorCode::HttpRequestBodySize(_)
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_)
        | ErrorCode::HttpRequestTrailerSectionSize(_)
        | ErrorCode::HttpRequestTrailerSize(_)
        | ErrorCode::HttpResponseHeaderSectionSize(_)
        | ErrorCode::HttpResponseHeaderSize(_)
        | ErrorCode::HttpResponseBodySize(_)
        | ErrorCode::HttpResponseTrailerSectionSize(_)
        | ErrorCode::HttpResponseTrailerSize(_)
        | ErrorCode::HttpResponseTransferCoding(_)
        | ErrorCode::HttpResponseContentCoding(_)
        | ErrorCode::HttpUpgradeFailed
        | ErrorCode::LoopDetected => ErrorKind::Broken,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::Host;

    #[test]
    fn a_denial_by_the_gate_is_not_taken_for_an_unavailable_cloud() {
        let rows = [
            (ErrorCode::HttpRequestDenied, ErrorKind::Denied),
            (ErrorCode::DestinationIpProhibited, ErrorKind::Denied),
            (ErrorCode::ConnectionRefused, ErrorKind::Unavailable(None)),
            (ErrorCode::ConnectionReadTimeout, ErrorKind::Unavailable(None)),
            (ErrorCode::InternalError(Some("denied".to_owned())), ErrorKind::Unavailable(None)),
            (ErrorCode::HttpRequestUriInvalid, ErrorKind::Broken),
            (ErrorCode::HttpResponseBodySize(Some(1)), ErrorKind::Broken),
        ];
        for (code, expected) in rows {
            assert_eq!(kind(&code), expected, "{code:?}");
        }
    }

    #[test]
    fn the_message_names_the_request_and_the_code() {
        let rows = [
            (ErrorCode::HttpRequestDenied, "GET x was denied by the host's gate: HttpRequestDenied"),
            (ErrorCode::ConnectionRefused, "GET x got no answer: ConnectionRefused"),
        ];
        for (code, expected) in rows {
            assert_eq!(error("GET x", &code).message, expected);
        }
    }

    #[test]
    fn a_timeout_is_unavailable_before_the_deadline_and_the_deadline_after_it() {
        let late = |code: &ErrorCode, left| Host::new().remaining(left).run(async { error("GET x", code) });
        let in_time = late(&ErrorCode::HttpResponseTimeout, Duration::from_millis(1));
        assert_eq!((in_time.kind, in_time.is_past_deadline()), (ErrorKind::Unavailable(None), false));
        assert!(late(&ErrorCode::HttpResponseTimeout, Duration::ZERO).is_past_deadline());
        assert!(!late(&ErrorCode::ConnectionRefused, Duration::ZERO).is_past_deadline());
    }
}
