//! What a failure of `wasi:http` means in the contract's words. Exhaustive, and by the code alone.

use wasip2::http::types::ErrorCode;

use crate::{Error, ErrorKind, deadline};

/// The error of a request that got no answer.
#[cfg_attr(
    not(any(target_arch = "wasm32", test)),
    expect(dead_code, reason = "only a component meets these codes")
)]
pub(crate) fn error(subject: &str, code: &ErrorCode) -> Error {
    // Past the soft deadline the host takes no request, and gives up those that it has taken.
    if matches!(code, ErrorCode::HttpResponseTimeout) && deadline::has_passed() {
        return Error::deadline(subject);
    }
    let kind = kind(code);
    let what = match kind {
        ErrorKind::Denied => "was refused by the host's gate",
        _ => "got no answer",
    };
    // `wasip2` has no other name for a code; its prefix tells people nothing.
    let shown = format!("{code:?}");
    Error::new(kind, format!("{subject} {what}: {}", shown.trim_start_matches("ErrorCode::")))
}

fn kind(code: &ErrorCode) -> ErrorKind {
    match code {
        // The gate's own refusals: a host or an address that the operator has not granted.
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => ErrorKind::Denied,
        // Nobody answers at the moment, or not in time. A certificate belongs here too: it expires and is renewed
        // without anybody touching this cluster.
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
        | ErrorCode::InternalError(_) => ErrorKind::Unavailable,
        // Asking again would end the same way: the request is wrong, or the answer is more than was bargained for.
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
    fn a_refusal_by_the_gate_is_not_taken_for_a_cloud_that_is_away() {
        let rows = [
            (ErrorCode::HttpRequestDenied, ErrorKind::Denied),
            (ErrorCode::DestinationIpProhibited, ErrorKind::Denied),
            (ErrorCode::ConnectionRefused, ErrorKind::Unavailable),
            (ErrorCode::ConnectionReadTimeout, ErrorKind::Unavailable),
            (ErrorCode::InternalError(Some("denied".to_owned())), ErrorKind::Unavailable),
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
            (ErrorCode::HttpRequestDenied, "GET x was refused by the host's gate: HttpRequestDenied"),
            (ErrorCode::ConnectionRefused, "GET x got no answer: ConnectionRefused"),
        ];
        for (code, expected) in rows {
            assert_eq!(error("GET x", &code).message, expected);
        }
    }

    #[test]
    fn an_answer_that_is_late_is_the_clouds_fault_before_the_deadline_and_nobodys_after_it() {
        let late = |code: &ErrorCode, left| Host::new().remaining(left).run(async { error("GET x", code) });
        let in_time = late(&ErrorCode::HttpResponseTimeout, Duration::from_millis(1));
        assert_eq!((in_time.kind, in_time.is_deadline()), (ErrorKind::Unavailable, false));
        assert!(late(&ErrorCode::HttpResponseTimeout, Duration::ZERO).is_deadline());
        assert!(!late(&ErrorCode::ConnectionRefused, Duration::ZERO).is_deadline());
    }
}
