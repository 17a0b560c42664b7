//! What a request does in the cloud: the one place that decides it, from the method and from what the provider's rule says.
//! Fence, cache, repeats, dry run, drain and metrics follow it. Pure.
//!
//! A rule may make a request stricter: a GET may be a write. Only a POST may be laxer than its method, since some APIs read
//! by it. Every other method writes, regardless of the rule: a provider must not talk its way past the fence. Nor may a query or
//! a form that tells the server to take the request for another method.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use url::form_urlencoded;

/// What a request does in the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Changes nothing: may be answered from a cache and repeated.
    Read,
    /// Changes something: never repeated unless it surely never left.
    Write,
    /// Asks for the state of an operation: changes nothing, but a change is still in progress.
    OperationPoll,
}

impl Effect {
    /// The value of the `effect` label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::OperationPoll => "operation_poll",
        }
    }

    /// The effect of a request with this method, query, headers and body, of which the first rule that matches says `declared`.
    pub(crate) fn decide(
        (method, query): (&Method, Option<&str>),
        headers: &HeaderMap,
        body: &[u8],
        declared: Option<Self>,
    ) -> Self {
        let may_be_lax = (is_safe(method) || *method == Method::POST)
            && !query.is_some_and(names_writing_method)
            && !form_names_writing_method(headers, body);
        declared.filter(|_| may_be_lax).unwrap_or(Self::Write)
    }
}

/// The methods that change nothing by their definition.
pub(crate) const fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Methods that servers accept as an override in a query or a form, and that change something.
const WRITING: [&str; 7] = ["POST", "PUT", "PATCH", "DELETE", "MERGE", "MOVE", "COPY"];

/// The names of an override, without case and without what isn't a letter: `_method`, `$method`, `X-HTTP-Method-Override`.
const OVERRIDES: [&str; 7] = [
    "method",
    "httpmethod",
    "xhttpmethod",
    "methodoverride",
    "httpmethodoverride",
    "xmethodoverride",
    "xhttpmethodoverride",
];

/// The longest form that is searched for an override, in bytes. A longer one may hold one.
const LONGEST_FORM: usize = 64 << 10;

/// Whether the query tells the server to take the request for one with a method that writes.
pub(crate) fn names_writing_method(query: &str) -> bool {
    has_override(query.as_bytes())
}

fn form_names_writing_method(headers: &HeaderMap, body: &[u8]) -> bool {
    let is_form = |value: &http::HeaderValue| {
        let form = b"application/x-www-form-urlencoded";
        value.as_bytes().get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form))
    };
    !body.is_empty()
        && headers.get_all(CONTENT_TYPE).iter().any(is_form)
        && (body.len() > LONGEST_FORM || has_override(body))
}

fn has_override(encoded: &[u8]) -> bool {
    form_urlencoded::parse(encoded).any(|(name, value)| {
        WRITING.iter().any(|method| value.trim().eq_ignore_ascii_case(method)) && is_override(&name)
    })
}

fn is_override(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphabetic).collect();
    OVERRIDES.iter().any(|known| letters.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const ALL: [Option<Effect>; 4] =
        [None, Some(Effect::Read), Some(Effect::OperationPoll), Some(Effect::Write)];

    fn decide(method: &str, query: Option<&str>, form: &str, declared: Option<Effect>) -> Effect {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let form_type = HeaderValue::from_static("Application/X-WWW-Form-Urlencoded; charset=utf-8");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, form_type)]);
        Effect::decide((&method, query), &headers, form.as_bytes(), declared)
    }

    #[test]
    fn a_rule_makes_a_request_stricter_and_only_a_post_laxer() {
        for declared in ALL {
            let said = declared.unwrap_or(Effect::Write);
            for method in ["GET", "HEAD", "OPTIONS", "POST"] {
                assert_eq!(decide(method, None, "", declared), said, "{method} {declared:?}");
            }
            for method in ["PUT", "PATCH", "DELETE", "MERGE", "PROPFIND", "QUERY", "GETX"] {
                assert_eq!(decide(method, None, "", declared), Effect::Write, "{method} {declared:?}");
            }
        }
    }

    #[test]
    fn a_request_that_names_another_method_is_a_write() {
        let read = Some(Effect::Read);
        for text in [
            "_method=DELETE",
            "a=b&_method=delete",
            "%5Fmethod=put",
            "_METHOD=%50ATCH",
            "method=DELETE",
            "$method=DELETE",
            "X-HTTP-Method-Override=PATCH",
            "httpMethod=merge",
        ] {
            for method in ["GET", "HEAD", "POST"] {
                assert_eq!(decide(method, Some(text), "", read), Effect::Write, "{method} ?{text}");
                assert_eq!(decide(method, None, text, read), Effect::Write, "{method} {text}");
            }
        }
        for text in
            ["method=roundrobin", "_method=GET", "payment=DELETE", "methods=DELETE", "Action=Describe"]
        {
            assert_eq!(decide("POST", Some(text), text, read), Effect::Read, "{text}");
        }
        let long = format!("a={}", "x".repeat(LONGEST_FORM));
        assert_eq!(decide("POST", None, &long, read), Effect::Write, "too long to be searched");
    }
}
