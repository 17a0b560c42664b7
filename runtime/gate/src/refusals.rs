//! What a refusal of a cloud means where its status alone misleads: throttling is a 400 in one API and a 403 in another, and
//! a 429 may be a lock on a single object. The provider declares it by the cloud's error codes. Pure.
//!
//! Limits, evidence and metrics follow the meaning. The provider sees the response as the cloud sent it.

mod code;

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, StatusCode};

use crate::pattern::{HostPattern, TextPattern};
use crate::problem::Problem;
use crate::request::Host;

/// How many bytes of a body are searched for a code. Those of refusals have some hundred.
pub(crate) const MAX_SEARCHED: usize = 64 << 10;

/// The most refusals of a provider. An API has some dozen codes that mislead.
const MOST: usize = 256;

/// The part of a response that has the cloud's error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodePlace {
    /// The header of this name.
    Header(HeaderName),
    /// The text or whole number at this path of a JSON body: names and positions, separated by dots, as in
    /// `error.errors.0.reason`.
    Json(String),
    /// The text of the first element of this name in an XML body. A name without a prefix stands for that name with any
    /// prefix.
    Xml(String),
}

/// What a refusal means for later requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalMeaning {
    /// The cloud throttles. It closes the limits of the request as a 429 does.
    Throttled,
    /// The object of the request is locked. The path of the request closes for writes, and no limit.
    Locked,
    /// The object doesn't exist: evidence of absence, as a 404 is.
    Absent,
    /// Not yet: another object has to change first. Nothing closes.
    Later,
    /// None of these. Nothing closes, regardless of the status, and nothing is absent.
    Other,
}

impl RefusalMeaning {
    /// The meaning as the contract writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Locked => "locked",
            Self::Absent => "absent",
            Self::Later => "later",
            Self::Other => "other",
        }
    }

    /// The value of the `result` label in metrics; `None` where the status says more.
    pub(crate) fn label(self) -> Option<&'static str> {
        (self != Self::Other).then(|| self.as_str())
    }
}

/// What a response with a status and a code means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Matches the host, on any port.
    pub host: HostPattern,
    /// The status, from 400 to 599.
    pub status: StatusCode,
    /// Where the code is.
    pub place: CodePlace,
    /// Matches the code.
    pub code: TextPattern,
    /// What it means.
    pub meaning: RefusalMeaning,
}

/// The mistakes in refusals whose parts are each valid, with their place in the provider's settings.
pub(crate) fn problems(refusals: &[Refusal]) -> Vec<Problem> {
    let wrong = |(index, refusal): (usize, &Refusal)| {
        let place = |message: &str| Some(Problem::at(format!("settings.refusals[{index}].place"), message));
        match &refusal.place {
            _ if !(400..600).contains(&refusal.status.as_u16()) => {
                let message = format!("{} is not from 400 to 599", refusal.status.as_u16());
                Some(Problem::at(format!("settings.refusals[{index}].status"), message))
            }
            CodePlace::Json(path) if path.split('.').any(str::is_empty) => {
                place("a path in JSON has names between its dots, as in error.code")
            }
            CodePlace::Xml(name) if !code::is_element_name(name) => {
                place("an element of XML has a name, as in Code")
            }
            _ => None,
        }
    };
    let too_many = (refusals.len() > MOST).then(|| {
        let message = format!("{} refusals; at most {MOST} are allowed", refusals.len());
        Problem::at("settings.refusals", message)
    });
    too_many.into_iter().chain(refusals.iter().enumerate().filter_map(wrong)).collect()
}

/// A provider's refusals, in order. The first that fits a response holds.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Vec<Refusal>);

/// The head of a response from a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) host: &'a Host,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
}

/// What the head of a response tells of its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadReading {
    /// All that is to be known; `None` where no refusal fits, so that the status alone holds.
    Known(Option<RefusalMeaning>),
    /// The body may have the code.
    InBody,
}

impl Refusals {
    pub(crate) fn new(refusals: Vec<Refusal>) -> Self {
        Self(refusals)
    }

    fn of(&self, head: ResponseHead<'_>) -> impl Iterator<Item = &Refusal> {
        self.0.iter().filter(move |refusal| refusal.status == head.status && refusal.host.matches(head.host))
    }

    /// What a head tells. Almost all responses end here.
    pub(crate) fn by_head(&self, head: ResponseHead<'_>) -> HeadReading {
        for refusal in self.of(head) {
            match &refusal.place {
                CodePlace::Header(name) if has_code(head.headers, name, &refusal.code) => {
                    return HeadReading::Known(Some(refusal.meaning));
                }
                CodePlace::Header(_) => {}
                CodePlace::Json(_) | CodePlace::Xml(_) => return HeadReading::InBody,
            }
        }
        HeadReading::Known(None)
    }

    /// What a response means whose body begins so. Each place is read once, and a body that can't be read has no code.
    pub(crate) fn by_body(&self, head: ResponseHead<'_>, body: &[u8]) -> Option<RefusalMeaning> {
        let body = body.get(..MAX_SEARCHED).unwrap_or(body);
        let mut read: Vec<(&CodePlace, Option<Cow<'_, str>>)> = Vec::new();
        for Refusal { place, code, meaning, .. } in self.of(head) {
            let fits = if let CodePlace::Header(name) = place {
                has_code(head.headers, name, code)
            } else {
                if !read.iter().any(|(known, _)| *known == place) {
                    read.push((place, code_in(body, place)));
                }
                let found = read.iter().find(|(known, _)| *known == place);
                found.and_then(|(_, found)| found.as_deref()).is_some_and(|found| code.matches(found))
            };
            if fits {
                return Some(*meaning);
            }
        }
        None
    }
}

fn has_code(headers: &HeaderMap, name: &HeaderName, code: &TextPattern) -> bool {
    headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| code.matches(value.trim()))
}

fn code_in<'a>(body: &'a [u8], place: &CodePlace) -> Option<Cow<'a, str>> {
    match place {
        CodePlace::Header(_) => None,
        CodePlace::Json(path) => code::in_json(body, path).map(Cow::Owned),
        CodePlace::Xml(element) => code::in_xml(body, element).map(Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use RefusalMeaning::{Absent, Later, Locked, Other, Throttled};

    use super::*;

    fn refusal(host: &str, status: u16, place: CodePlace, code: &str, meaning: RefusalMeaning) -> Refusal {
        let (host, code) = (host.parse().unwrap(), code.parse().unwrap());
        Refusal { host, status: StatusCode::from_u16(status).unwrap(), place, code, meaning }
    }

    fn json(path: &str) -> CodePlace {
        CodePlace::Json(path.to_owned())
    }

    fn header(name: &'static str) -> CodePlace {
        CodePlace::Header(HeaderName::from_static(name))
    }

    /// What four clouds say, as their controllers read it.
    fn refusals() -> Vec<Refusal> {
        let xml = || CodePlace::Xml("Code".to_owned());
        vec![
            refusal("arm.example", 429, header("x-ms-error-code"), "ReferencedResource*", Locked),
            refusal("arm.example", 429, json("error.code"), "RetryableError", Locked),
            refusal("arm.example", 409, json("error.code"), "AnotherOperationInProgress", Later),
            refusal("arm.example", 429, json("error.code"), "Quota*", Other),
            refusal("*.aws.example", 400, xml(), "Throttling*", Throttled),
            refusal("*.aws.example", 400, xml(), "*.NotFound", Absent),
            refusal("*.aws.example", 503, xml(), "RequestLimitExceeded", Throttled),
            refusal("compute.example", 403, json("error.errors.0.reason"), "rateLimitExceeded", Throttled),
            refusal("compute.example", 403, json("error.code"), "403", Other),
            refusal("octavia.example", 409, json("faultstring"), "*is immutable", Later),
        ]
    }

    fn meaning(
        host: &str,
        status: u16,
        lines: &[(&'static str, &'static str)],
        body: &str,
    ) -> Option<RefusalMeaning> {
        let refusals = Refusals::new(refusals());
        let headers: HeaderMap = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let (host, status) = (Host::parse(host).unwrap(), StatusCode::from_u16(status).unwrap());
        let head = ResponseHead { host: &host, status, headers: &headers };
        match refusals.by_head(head) {
            HeadReading::Known(known) => known,
            HeadReading::InBody => refusals.by_body(head, body.as_bytes()),
        }
    }

    #[test]
    fn the_first_refusal_that_fits_host_status_and_code_holds() {
        type Headers = [(&'static str, &'static str)];
        let arm = |code: &str| format!(r#"{{"error": {{"code": "{code}", "message": "m"}}}}"#);
        let aws = |code: &str| {
            format!(
                "<?xml version=\"1.0\"?>\n<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>"
            )
        };
        let gcp = |reason: &str| {
            format!(
                r#"{{"error": {{"code": 403, "errors": [{{"domain": "usage", "reason": "{reason}"}}]}}}}"#
            )
        };
        let locked = ("x-ms-error-code", "ReferencedResourceNotProvisioned");
        let rows: &[(&str, u16, &Headers, String, Option<RefusalMeaning>)] = &[
            ("arm.example", 429, &[locked], String::new(), Some(Locked)),
            ("arm.example", 429, &[locked], arm("QuotaExceeded"), Some(Locked)),
            ("arm.example", 429, &[], arm("RetryableError"), Some(Locked)),
            ("arm.example", 429, &[], arm("QuotaExceeded"), Some(Other)),
            ("arm.example", 429, &[], arm("TooManyRequests"), None),
            ("arm.example", 409, &[], arm("AnotherOperationInProgress"), Some(Later)),
            ("arm.example", 409, &[], arm("RetryableError"), None),
            ("other.example", 429, &[], arm("RetryableError"), None),
            ("ec2.aws.example", 400, &[], aws("ThrottlingException"), Some(Throttled)),
            ("ec2.aws.example", 400, &[], aws("InvalidInstanceID.NotFound"), Some(Absent)),
            ("ec2.aws.example", 503, &[], aws("RequestLimitExceeded"), Some(Throttled)),
            ("ec2.aws.example", 503, &[], aws("InternalError"), None),
            ("compute.example", 403, &[], gcp("rateLimitExceeded"), Some(Throttled)),
            ("compute.example", 403, &[], gcp("forbidden"), Some(Other)),
            ("octavia.example", 409, &[], r#"{"faultstring": "LB 1 is immutable"}"#.to_owned(), Some(Later)),
            ("arm.example", 429, &[], String::new(), None),
            ("arm.example", 429, &[], "<html>".to_owned(), None),
            ("arm.example", 200, &[locked], arm("RetryableError"), None),
        ];
        for (host, status, lines, body, expected) in rows {
            assert_eq!(meaning(host, *status, lines, body), *expected, "{host} {status} {body}");
        }
    }

    #[test]
    fn only_a_body_whose_status_a_refusal_names_for_the_host_is_read() {
        let refusals = Refusals::new(refusals());
        let none = HeaderMap::new();
        for (host, status, expected) in [
            ("arm.example", 409, HeadReading::InBody),
            ("arm.example", 404, HeadReading::Known(None)),
            ("b.example", 409, HeadReading::Known(None)),
        ] {
            let (host, status) = (Host::parse(host).unwrap(), StatusCode::from_u16(status).unwrap());
            assert_eq!(refusals.by_head(ResponseHead { host: &host, status, headers: &none }), expected);
        }
    }

    #[test]
    fn a_code_after_the_first_64_kib_is_not_seen() {
        let body = |before: usize| {
            format!(r#"{{"a": "{}", "error": {{"code": "RetryableError"}}}}"#, "x".repeat(before))
        };
        assert_eq!(meaning("arm.example", 429, &[], &body(MAX_SEARCHED - 100)), Some(Locked));
        assert_eq!(meaning("arm.example", 429, &[], &body(MAX_SEARCHED)), None);
        let cut =
            format!("{}{}", r#"{"error": {"code": "RetryableError"}, "more": ""#, "x".repeat(MAX_SEARCHED));
        assert_eq!(meaning("arm.example", 429, &[], &cut), Some(Locked), "it comes before the cut");
    }

    #[test]
    fn a_mistake_is_reported_with_its_place() {
        let rows = [
            (refusal("a.example", 200, json("code"), "x", Other), "settings.refusals[0].status"),
            (refusal("a.example", 400, json("error..code"), "x", Other), "settings.refusals[0].place"),
            (refusal("a.example", 400, json(""), "x", Other), "settings.refusals[0].place"),
            (
                refusal("a.example", 400, CodePlace::Xml("a b".into()), "x", Other),
                "settings.refusals[0].place",
            ),
            (
                refusal("a.example", 400, CodePlace::Xml(String::new()), "x", Other),
                "settings.refusals[0].place",
            ),
        ];
        for (wrong, expected) in rows {
            let found: Vec<_> =
                problems(std::slice::from_ref(&wrong)).into_iter().map(|it| it.path).collect();
            assert_eq!(found, [expected], "{wrong:?}");
        }
        assert_eq!(problems(&refusals()), []);
        let many = vec![refusal("a.example", 400, json("code"), "x", Other); MOST + 1];
        assert!(problems(&many[..MOST]).is_empty() && problems(&many).len() == 1);
    }
}
