//! Classifies requests, since a method doesn't always say what a request does: whether it changes something, which limits
//! it counts against and what it drops from the cache. The provider declares rules, and the first match applies. A request
//! that no rule surely matches is a write, which is never cached or repeated.

use std::collections::HashMap;
use std::fmt;

use http::{HeaderMap, HeaderName};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use url::form_urlencoded;

use crate::error::Error;
use crate::path::{KeyPattern, PathPattern};
use crate::pattern::{HostPattern, MethodPattern, TextPattern};
use crate::problem::Problem;
use crate::request::Request;

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
}

/// Where a request names its operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// The query parameter of this name.
    Query(String),
    /// The header of this name.
    Header(HeaderName),
    /// The field of this name in a form-encoded body.
    FormField(String),
    /// The top-level field of this name in a JSON body. Only a string counts.
    JsonField(String),
}

impl Place {
    /// Whether a request has anything at this place. A body that can't be read might have.
    fn is_named(&self, request: &Request, headers: &HeaderMap, body: &[u8]) -> bool {
        let has_field = |encoded, name: &str| form_urlencoded::parse(encoded).any(|(key, _)| key == name);
        match self {
            Self::Query(name) => has_field(request.query.as_deref().unwrap_or_default().as_bytes(), name),
            Self::Header(name) => headers.contains_key(name),
            Self::FormField(name) => has_field(body, name),
            Self::JsonField(name) if !body.is_empty() => {
                #[expect(clippy::zero_sized_map_values, reason = "serde reads no set from an object")]
                let fields = serde_json::from_slice::<HashMap<String, IgnoredAny>>(body);
                fields.map_or(true, |fields| fields.contains_key(name))
            }
            Self::JsonField(_) => false,
        }
    }
}

/// The operation that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Where the request names it. A request that names it twice matches no rule.
    pub place: Place,
    /// The name.
    pub name: TextPattern,
}

/// Says what requests of one kind do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Matches the host, on any port.
    pub host: HostPattern,
    /// Matches the method.
    pub method: MethodPattern,
    /// Matches the path, without the query.
    pub path: PathPattern,
    /// Matches the operation, if method and path don't identify it.
    pub operation: Option<Operation>,
    /// What the requests do.
    pub effect: Effect,
    /// The limits that they count against.
    pub limits: Vec<KeyPattern>,
    /// The cache scope that they read into or drop; `None` is everything that the provider reads.
    pub cache_scope: Option<KeyPattern>,
    /// Whether the cloud treats paths that differ only in case as the same.
    pub fold_case: bool,
    /// If they ask for pages of a list: where they name the page. A request without a page there asks for the first.
    pub page: Option<Place>,
}

/// What one request does, by the first rule that matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// What it does.
    pub effect: Effect,
    /// The limits that it counts against.
    pub limits: Limits,
    /// The cache scope that it reads into or drops; `None` is everything.
    pub cache_scope: Option<String>,
    /// Whether the cloud treats paths that differ only in case as the same.
    pub fold_case: bool,
    /// Which page of a list it asks for; `None` if its response isn't a page of a list. Boxed, since each request that waits
    /// for a limit holds room for it.
    pub page: Option<Box<Page>>,
}

/// Which page of a list a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where requests for this list name the page.
    pub place: Place,
    /// Whether it asks for the first: it names no page.
    pub is_first: bool,
}

/// The limits that a request counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limits {
    /// These limits.
    Keys(Vec<LimitKey>),
    /// Every limit of its host, because no rule says which.
    AllOfHost,
}

/// A limit that a request counts against, and one of its buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitKey {
    /// The key of the rule with `{}` for each of its numbers.
    pub limit: String,
    /// The key with the segments of the path, which names the bucket; empty if the limit has only one.
    pub bucket: String,
}

impl LimitKey {
    fn new(key: &KeyPattern, segments: &[String]) -> Self {
        let bucket = if key.is_plain() { String::new() } else { key.fill(segments) };
        Self { limit: key.name(), bucket }
    }
}

/// A provider's rules, in order.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Checks that the keys of these rules refer only to segments that their paths have.
    ///
    /// # Errors
    /// [`Error::Config`] with each key that refers to another segment.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Error> {
        let problems: Vec<_> = problems(&rules).collect();
        if problems.is_empty() { Ok(Self(rules)) } else { Err(Error::Config { problems }) }
    }

    /// Says what a request with these headers and this body does.
    pub fn classify(&self, request: &Request, headers: &HeaderMap, body: &[u8]) -> Classification {
        let mut named = Named { request, headers, body, seen: HashMap::new() };
        for rule in &self.0 {
            if !rule.host.matches(&request.host) || !rule.method.matches(&request.method) {
                continue;
            }
            let Some(segments) = rule.path.matches(&request.path, rule.fold_case) else { continue };
            if rule.operation.as_ref().is_some_and(|operation| !named.is(operation)) {
                continue;
            }
            return Classification {
                effect: rule.effect,
                limits: Limits::Keys(rule.limits.iter().map(|key| LimitKey::new(key, &segments)).collect()),
                cache_scope: rule.cache_scope.as_ref().map(|scope| scope.fill(&segments)),
                fold_case: rule.fold_case,
                page: rule.page.as_ref().map(|place| {
                    let is_first = !place.is_named(request, headers, body);
                    Box::new(Page { place: place.clone(), is_first })
                }),
            };
        }
        let limits = Limits::AllOfHost;
        Classification { effect: Effect::Write, limits, cache_scope: None, fold_case: false, page: None }
    }
}

/// The mistakes in rules whose parts are each valid, with their place in the provider's settings: keys that refer to segments
/// that the path doesn't have.
pub(crate) fn problems(rules: &[Rule]) -> impl Iterator<Item = Problem> {
    rules.iter().enumerate().flat_map(|(index, rule)| {
        let limits = rule.limits.iter().enumerate();
        let limits = limits.map(|(number, key)| (format!("limits[{number}]"), key));
        let scope = rule.cache_scope.iter().map(|key| ("cache-scope".to_owned(), key));
        limits.chain(scope).filter_map(move |(field, key)| {
            let error = key.check(&rule.path).err()?;
            Some(Problem::at(format!("settings.rules[{index}].{field}"), error.to_string()))
        })
    })
}

/// The operation names of one request. Each place is read once, even if many rules ask for it: the rules for an API with one
/// path have one for each operation, and a body may be megabytes.
struct Named<'a> {
    request: &'a Request,
    headers: &'a HeaderMap,
    body: &'a [u8],
    seen: HashMap<&'a Place, Option<String>>,
}

impl<'a> Named<'a> {
    fn is(&mut self, operation: &'a Operation) -> bool {
        let Self { request, headers, body, seen } = self;
        let name = seen.entry(&operation.place).or_insert_with(|| match &operation.place {
            Place::Query(name) => only_field(request.query.as_deref().unwrap_or_default().as_bytes(), name),
            Place::FormField(name) => only_field(body, name),
            Place::Header(name) => {
                only(headers.get_all(name).iter().map(|value| value.to_str().ok().map(str::to_owned)))
            }
            Place::JsonField(name) => only_json_field(body, name),
        });
        name.as_ref().is_some_and(|name| operation.name.matches(name))
    }
}

/// The value, if there is exactly one. It can't be known which of two the cloud would use.
fn only(mut values: impl Iterator<Item = Option<String>>) -> Option<String> {
    let first = values.next()?;
    if values.next().is_some() { None } else { first }
}

fn only_field(encoded: &[u8], name: &str) -> Option<String> {
    only(
        form_urlencoded::parse(encoded)
            .filter(|(key, _)| key == name)
            .map(|(_, value)| Some(value.into_owned())),
    )
}

fn only_json_field(body: &[u8], name: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = reader.deserialize_map(OnlyField(name)).ok()?;
    reader.end().ok()?;
    value
}

struct OnlyField<'a>(&'a str);

impl<'de> Visitor<'de> for OnlyField<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with one text field {}", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != self.0 {
                map.next_value::<IgnoredAny>()?;
            } else if value.replace(map.next_value::<String>()?).is_some() {
                return Ok(None);
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;

    fn rule(method: &str, path: &str, effect: Effect) -> Rule {
        Rule {
            host: "api.example.com".parse().unwrap(),
            method: method.parse().unwrap(),
            path: path.parse().unwrap(),
            operation: None,
            effect,
            limits: Vec::new(),
            cache_scope: None,
            fold_case: false,
            page: None,
        }
    }

    fn about(place: Place, name: &str) -> Rule {
        let operation = Operation { place, name: name.parse().unwrap() };
        Rule { operation: Some(operation), ..rule("POST", "/", Effect::Read) }
    }

    fn request(method: &Method, uri: &str) -> Request {
        Request::parse(method, &uri.parse().unwrap()).unwrap()
    }

    fn effect(rules: &[Rule], method: &Method, uri: &str) -> Effect {
        let rules = Rules::new(rules.to_vec()).unwrap();
        rules.classify(&request(method, uri), &HeaderMap::new(), b"").effect
    }

    #[test]
    fn the_first_rule_that_matches_applies() {
        let rules = [
            rule("GET", "/operations/*", Effect::OperationPoll),
            rule("GET", "/**", Effect::Read),
            rule("POST", "/*/search", Effect::Read),
        ];
        let rows = [
            (Method::GET, "https://api.example.com/operations/1", Effect::OperationPoll),
            (Method::GET, "https://api.example.com/operations", Effect::Read),
            (Method::POST, "https://api.example.com/vms/search", Effect::Read),
            (Method::POST, "https://api.example.com/vms", Effect::Write),
            (Method::GET, "https://other.example.com/vms", Effect::Write),
        ];
        for (method, uri, expected) in rows {
            assert_eq!(effect(&rules, &method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_request_that_no_rule_matches_is_a_write_that_counts_against_every_limit_of_its_host() {
        let classification =
            Rules::default().classify(&request(&Method::GET, "https://a.example/"), &HeaderMap::new(), b"");
        assert_eq!(
            classification,
            Classification {
                effect: Effect::Write,
                limits: Limits::AllOfHost,
                cache_scope: None,
                fold_case: false,
                page: None
            }
        );
    }

    #[test]
    fn keys_and_cache_scope_are_filled_with_the_segments_of_the_path() {
        let rule = Rule {
            limits: vec!["reads/{1}".parse().unwrap(), "all".parse().unwrap()],
            cache_scope: Some("{1}/{2}".parse().unwrap()),
            fold_case: true,
            ..rule("GET", "/subscriptions/*/groups/*/**", Effect::Read)
        };
        let rules = Rules::new(vec![rule]).unwrap();
        let asked = request(&Method::GET, "https://api.example.com/Subscriptions/S1/groups/G2/vms");
        let classification = rules.classify(&asked, &HeaderMap::new(), b"");
        let key = |limit: &str, bucket: &str| LimitKey { limit: limit.to_owned(), bucket: bucket.to_owned() };
        assert_eq!(classification.limits, Limits::Keys(vec![key("reads/{}", "reads/s1"), key("all", "")]));
        assert_eq!(classification.cache_scope.as_deref(), Some("s1/g2"));
        assert!(classification.fold_case);
    }

    #[test]
    fn a_page_is_the_first_only_if_the_request_surely_names_none() {
        let token = || "token".to_owned();
        let header = || Place::Header(HeaderName::from_static("x-token"));
        let rows = [
            (Place::Query(token()), "?a=1", &b""[..], true),
            (Place::Query(token()), "?a=1&%74oken=x", b"", false),
            (Place::Query(token()), "?token=", b"", false),
            (Place::Query(token()), "?token=a&token=b", b"", false),
            (header(), "?token=a", b"", true),
            (Place::FormField(token()), "?token=a", b"a=1", true),
            (Place::FormField(token()), "", b"a=1&token=x", false),
            (Place::JsonField(token()), "", b"", true),
            (Place::JsonField(token()), "", br#"{"a": {"token": 1}}"#, true),
            (Place::JsonField(token()), "", br#"{"token": null}"#, false),
            (Place::JsonField(token()), "", br#"{"a": 1"#, false),
        ];
        for (place, query, body, is_first) in rows {
            let rule = Rule { page: Some(place.clone()), ..rule("POST", "/", Effect::Read) };
            let asked = request(&Method::POST, &format!("https://api.example.com/{query}"));
            let classification = Rules::new(vec![rule]).unwrap().classify(&asked, &HeaderMap::new(), body);
            let name = format!("{place:?} {query} {}", String::from_utf8_lossy(body));
            assert_eq!(classification.page, Some(Box::new(Page { place, is_first })), "{name}");
        }
    }

    #[test]
    fn a_key_for_a_segment_that_the_path_lacks_is_refused_at_load() {
        let wrong = Rule {
            limits: ["reads", "vm/{1}", "vm/{3}"].map(|key| key.parse().unwrap()).to_vec(),
            cache_scope: Some("{2}".parse().unwrap()),
            ..rule("GET", "/a/*", Effect::Read)
        };
        let rules = vec![rule("GET", "/a", Effect::Read), wrong];
        let Error::Config { problems } = Rules::new(rules).unwrap_err() else { panic!("of another kind") };
        let found: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected =
            ["settings.rules[1].limits[2]: key \"vm/{3}\"", "settings.rules[1].cache-scope: key \"{2}\""];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)),
            "{found:#?}"
        );
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn an_operation_is_found_only_where_the_rule_says_and_if_named_once() {
        let field = || "Action".to_owned();
        let form = || Place::FormField(field());
        let json = || Place::JsonField(field());
        let header = || Place::Header(HeaderName::from_static("x-amz-target"));
        let rows = [
            (Place::Query(field()), "?Action=DescribeVms", &[][..], &b""[..], true),
            (Place::Query(field()), "?Action=Describe%56ms&x=1", &[], b"", true),
            (Place::Query(field()), "?Action=DeleteVms", &[], b"", false),
            (Place::Query(field()), "?Action=DescribeVms&Action=DeleteVms", &[], b"", false),
            (Place::Query(field()), "", &[], b"Action=DescribeVms", false),
            (header(), "", &["DescribeVms"], b"", true),
            (header(), "", &["DescribeVms", "DeleteVms"], b"", false),
            (header(), "", &[], b"", false),
            (form(), "", &[], b"Version=1&Action=DescribeVms", true),
            (form(), "", &[], b"Action=DescribeVms&Action=DeleteVms", false),
            (form(), "?Action=DescribeVms", &[], b"", false),
            (json(), "", &[], br#"{"a": [1, {"Action": "Delete"}], "Action": "DescribeVms"}"#, true),
            (json(), "", &[], br#"{"Action": "DescribeVms", "Action": "DeleteVms"}"#, false),
            (json(), "", &[], br#"{"Action": "DeleteVms", "\u0041ction": "DescribeVms"}"#, false),
            (json(), "", &[], br#"{"Action": 5}"#, false),
            (json(), "", &[], br#"{"Action": "DescribeVms"} {}"#, false),
            (json(), "", &[], b"\xff{", false),
        ];
        for (place, query, values, body, expected) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-amz-target", HeaderValue::from_str(value).unwrap());
            }
            let rules = Rules::new(vec![about(place.clone(), "Describe*")]).unwrap();
            let asked = request(&Method::POST, &format!("https://api.example.com/{query}"));
            let found = rules.classify(&asked, &headers, body).effect == Effect::Read;
            let body = String::from_utf8_lossy(body);
            assert_eq!(found, expected, "{place:?} {query} {values:?} {body}");
        }
    }

    proptest! {
        #[test]
        fn an_arbitrary_body_causes_no_panic_and_names_no_operation(
            body in proptest::collection::vec(any::<u8>(), 0..128),
        ) {
            let rules = Rules::new(vec![
                about(Place::JsonField("no such field".to_owned()), "*"),
                about(Place::FormField("no such field".to_owned()), "*"),
            ]).unwrap();
            let asked = request(&Method::POST, "https://api.example.com/");
            prop_assert_eq!(rules.classify(&asked, &HeaderMap::new(), &body).effect, Effect::Write);
        }
    }
}
