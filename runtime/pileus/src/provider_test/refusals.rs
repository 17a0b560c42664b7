//! The check of refusals with the codes that a provider declares: it has to read them as it tells the host to.

use http::{HeaderValue, Response, header};
use pileus_cloud::{Answer, ErrorKind};
use pileus_gate::{CodePlace, Refusal, RefusalMeaning};
use serde_json::{Value, json};

use super::check::{Check, CheckResult, failed};
use super::cloud::CloudMode;
use super::describe;
use super::facts::{Facts, LookupCall, LookupOutcome};
use super::instances::{lookups, requests_needed, unless_misaligned};

/// The most refusals that are tried. Each is a call.
pub(super) const MAX_TRIED: usize = 32;

pub(super) const CHECKS: &[Check] = &[Check {
    id: "trouble.codes",
    claim: "a refusal with a declared code is an error of the kind that it means",
    matters: "the host closes limits by the declared meaning; a provider that reads the code otherwise retries too early, or \
              tells users to change what is right",
    test: codes,
}];

/// A response that the refusal matches. The pattern's `*` stands for some text.
pub(super) fn response(refusal: &Refusal) -> Response<Vec<u8>> {
    let code = refusal.code.to_string().replace('*', "Some");
    let message = "this answer is from the conformance test";
    let (kind, body) = match &refusal.place {
        CodePlace::Header(_) => ("application/json", json!({"message": message}).to_string()),
        CodePlace::Json(path) => {
            let nest = |inner: Value, name: &str| match name.parse::<usize>() {
                Ok(position) => {
                    let mut items = vec![Value::Null; position];
                    items.push(inner);
                    Value::Array(items)
                }
                Err(_) => json!({name: inner, "message": message}),
            };
            ("application/json", path.rsplit('.').fold(Value::from(code.as_str()), nest).to_string())
        }
        CodePlace::Xml(name) => {
            let body = format!("<Error><{name}>{code}</{name}><Message>{message}</Message></Error>");
            ("application/xml", body)
        }
    };
    let mut response = Response::new(body.into_bytes());
    *response.status_mut() = refusal.status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let (CodePlace::Header(name), Ok(value)) = (&refusal.place, HeaderValue::from_str(&code)) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn codes(facts: &Facts) -> CheckResult {
    let refused = &lookups(facts)?.refused;
    let mut encountered = refused.iter().filter(|(_, call)| !call.requests.is_empty()).peekable();
    if encountered.peek().is_none() && !refused.is_empty() {
        return Err(requests_needed());
    }
    match encountered.find(|(refusal, call)| !is_right(refusal.meaning, call)) {
        None => Ok(()),
        Some((Refusal { status, code, meaning, .. }, call)) => {
            let sent = format!(
                "{}, with {}, {} and {code}",
                describe::call(call),
                CloudMode::Refusing.as_str(),
                status.as_u16()
            );
            let advice = format!(
                "read the code before the status, and answer what the settings declare, which is {}: {}",
                meaning.as_str(),
                expected(*meaning)
            );
            Err(unless_misaligned(call, failed(sent, describe::outcome(call), advice)))
        }
    }
}

const fn expected(meaning: RefusalMeaning) -> &'static str {
    match meaning {
        RefusalMeaning::Throttled => "an error of kind throttled",
        RefusalMeaning::Locked => "an error of kind conflict",
        RefusalMeaning::Later => "an error of kind conflict or unavailable",
        RefusalMeaning::Absent => "absent, or an error",
        RefusalMeaning::Other => "an error that isn't throttled",
    }
}

fn is_right(meaning: RefusalMeaning, call: &LookupCall) -> bool {
    let is_kind = |kind: ErrorKind| match meaning {
        RefusalMeaning::Throttled => matches!(kind, ErrorKind::Throttled(_)),
        RefusalMeaning::Locked => matches!(kind, ErrorKind::Conflict(_)),
        RefusalMeaning::Later => matches!(kind, ErrorKind::Conflict(_) | ErrorKind::Unavailable(_)),
        RefusalMeaning::Absent => true,
        RefusalMeaning::Other => !matches!(kind, ErrorKind::Throttled(_)),
    };
    match &call.outcome {
        LookupOutcome::Failed(error) => is_kind(error.kind),
        LookupOutcome::Answers(answers) => answers.iter().all(|answer| match answer {
            Err(error) => is_kind(error.kind),
            Ok(Answer::Pending(_)) => true,
            Ok(Answer::Absent) => meaning == RefusalMeaning::Absent,
            Ok(Answer::Found(_) | Answer::Unmanaged(_)) => false,
        }),
        LookupOutcome::Fault(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use pileus_cloud::Error;

    use super::super::samples::{answers, facts, lookups_of, outcomes};
    use super::*;

    fn refusal(place: CodePlace, code: &str, meaning: RefusalMeaning) -> Refusal {
        let host = "cloud.example".parse().unwrap();
        Refusal { host, status: StatusCode::BAD_REQUEST, place, code: code.parse().unwrap(), meaning }
    }

    #[test]
    fn a_response_has_the_code_where_the_refusal_looks_for_it() {
        for (place, expected) in [
            (CodePlace::Json("code".to_owned()), r#""code":"SomeLimit""#),
            (CodePlace::Json("error.errors.1.reason".to_owned()), r#""errors":[null,{"#),
            (CodePlace::Xml("Code".to_owned()), "<Code>SomeLimit</Code>"),
        ] {
            let response = response(&refusal(place, "*Limit", RefusalMeaning::Throttled));
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
            let body = String::from_utf8(response.into_body()).unwrap();
            assert!(body.contains(expected) && body.contains("SomeLimit"), "{body}");
        }
        let place = CodePlace::Header("x-code".parse().unwrap());
        assert_eq!(response(&refusal(place, "Busy", RefusalMeaning::Locked)).headers()["x-code"], "Busy");
    }

    #[test]
    fn each_meaning_has_its_kinds() {
        let throttled = || Err(Error::new(ErrorKind::Throttled(None), "why"));
        let conflict = || Err(Error::new(ErrorKind::Conflict(None), "why"));
        let invalid = || Err(Error::new(ErrorKind::Invalid, "why"));
        let absent = || Ok(Answer::Absent);
        for (meaning, answer, passes) in [
            (RefusalMeaning::Throttled, throttled(), true),
            (RefusalMeaning::Throttled, invalid(), false),
            (RefusalMeaning::Throttled, absent(), false),
            (RefusalMeaning::Locked, conflict(), true),
            (RefusalMeaning::Locked, throttled(), false),
            (RefusalMeaning::Later, conflict(), true),
            (RefusalMeaning::Later, invalid(), false),
            (RefusalMeaning::Absent, absent(), true),
            (RefusalMeaning::Other, invalid(), true),
            (RefusalMeaning::Other, throttled(), false),
            (RefusalMeaning::Other, absent(), false),
        ] {
            let mut facts = facts();
            let lookups = lookups_of(&mut facts);
            let mut call = lookups.missing.clone();
            call.outcome = answers([answer.clone()]);
            let place = CodePlace::Json("code".to_owned());
            lookups.refused.push((refusal(place, "a", meaning), call));
            let failed: &[&str] = if passes { &[] } else { &["trouble.codes"] };
            assert_eq!(outcomes(&facts, "failed"), failed, "{meaning:?} {answer:?}");
        }
    }
}
