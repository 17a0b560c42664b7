//! A refusal as a provider declares it, in the gate's types.

use http::{HeaderName, StatusCode};
use pileus_gate::{CodePlace, Refusal, RefusalMeaning, TextPattern};

use super::{ProblemCollector, check_length};
use crate::bindings::info;

/// Reads a refusal. Reports all its problems, not just the first.
pub(super) fn refusal(declared: info::Refusal, problems: &mut ProblemCollector<'_>) -> Option<Refusal> {
    let info::Refusal { host, status, place, code, meaning } = declared;
    let host = problems.parse("host", &host);
    let is_refusal = |status: &StatusCode| status.is_client_error() || status.is_server_error();
    let status = StatusCode::from_u16(status).ok().filter(is_refusal);
    let status = problems.check("status", status.ok_or_else(|| "expected 400 to 599".to_owned()));
    let place = problems.check("place", code_place(place));
    let code = problems.parse::<TextPattern>("code", &code);
    let meaning = match meaning {
        info::RefusalMeaning::Throttled => RefusalMeaning::Throttled,
        info::RefusalMeaning::Locked => RefusalMeaning::Locked,
        info::RefusalMeaning::Absent => RefusalMeaning::Absent,
        info::RefusalMeaning::Later => RefusalMeaning::Later,
        info::RefusalMeaning::Other => RefusalMeaning::Other,
    };
    Some(Refusal { host: host?, status: status?, place: place?, code: code?, meaning })
}

fn code_place(place: info::CodePlace) -> Result<CodePlace, String> {
    let (info::CodePlace::Header(name) | info::CodePlace::Json(name) | info::CodePlace::Xml(name)) = &place;
    check_length(name)?;
    Ok(match place {
        info::CodePlace::Header(name) => {
            let header = HeaderName::try_from(name.as_str());
            CodePlace::Header(header.map_err(|_| format!("invalid header name {name:?}"))?)
        }
        info::CodePlace::Json(path) => CodePlace::Json(path),
        info::CodePlace::Xml(name) => CodePlace::Xml(name),
    })
}

#[cfg(test)]
mod tests {
    use pileus_gate::Problem;

    use super::*;

    fn declared(status: u16, place: info::CodePlace, code: &str) -> info::Refusal {
        info::Refusal {
            host: "api.cloud.example".to_owned(),
            status,
            place,
            code: code.to_owned(),
            meaning: info::RefusalMeaning::Locked,
        }
    }

    #[test]
    fn each_problem_has_its_field() {
        let json = || info::CodePlace::Json("error.code".to_owned());
        let header = |name: &str| info::CodePlace::Header(name.to_owned());
        let rows: [(info::Refusal, &[&str]); 6] = [
            (declared(429, json(), "Retryable*"), &[]),
            (declared(200, json(), "a"), &["r.status"]),
            (declared(1000, header("no header"), "a*b*"), &["r.status", "r.place", "r.code"]),
            (declared(400, header("x-code"), "a"), &[]),
            (declared(400, info::CodePlace::Xml("x".repeat(2 << 10)), "a"), &["r.place"]),
            (info::Refusal { host: "https://a".to_owned(), ..declared(400, json(), "a") }, &["r.host"]),
        ];
        for (declared, expected) in rows {
            let shown = format!("{declared:?}");
            let mut problems = Vec::new();
            let read =
                refusal(declared, &mut ProblemCollector { path: "r".to_owned(), problems: &mut problems });
            let paths: Vec<_> = problems.iter().map(|Problem { path, .. }| path.as_str()).collect();
            assert_eq!((paths.as_slice(), read.is_some()), (expected, expected.is_empty()), "{shown}");
        }
    }
}
