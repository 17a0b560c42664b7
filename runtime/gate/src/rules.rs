//! Classifies requests, since a method doesn't always say what a request does: whether it changes something, which limits
//! it counts against and what it drops from the cache. The provider declares rules, and the first match applies. A request
//! that no rule surely matches is a write, which is never cached or repeated.

mod fields;

use std::cell::OnceCell;
use std::collections::HashMap;

use http::{HeaderMap, HeaderName};

use crate::effect::Effect;
use crate::error::Error;
use crate::path::{KeyPattern, PathPattern};
use crate::pattern::{HostPattern, MethodPattern, TextPattern};
use crate::problem::Problem;
use crate::request::Request;
use fields::{Fields, Wanted};

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
    /// Whether it is in the body.
    fn is_in_body(&self) -> bool {
        matches!(self, Self::FormField(_) | Self::JsonField(_))
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
    /// What the requests do. Only a GET, HEAD, OPTIONS or POST may be something else than a write.
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
pub struct Rules {
    rules: Vec<Rule>,
    wanted: Wanted,
}

impl Rules {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Checks that the keys of these rules refer only to segments that their paths have.
    ///
    /// # Errors
    /// [`Error::Config`] with each key that refers to another segment.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Error> {
        let problems: Vec<_> = problems(&rules).collect();
        if !problems.is_empty() {
            return Err(Error::Config { problems });
        }
        Ok(Self { wanted: Wanted::of(&rules), rules })
    }

    /// Whether [`Self::classify`] may have to read the body of a request.
    pub(crate) fn read_body_of(&self, request: &Request) -> bool {
        self.rules.iter().any(|rule| {
            let operation = rule.operation.as_ref().map(|operation| &operation.place);
            let mut places = operation.into_iter().chain(&rule.page);
            rule.method.matches(&request.method) && places.any(Place::is_in_body)
        })
    }

    /// Says what a request with these headers and this body does. It reads the query once, and the body once in each of the
    /// two forms that rules ask for.
    pub fn classify(&self, request: &Request, headers: &HeaderMap, body: &[u8]) -> Classification {
        let method = (&request.method, request.query.as_deref());
        let mut named = Named::new(&self.wanted, request, headers, body);
        for rule in &self.rules {
            if !rule.host.matches(&request.host) || !rule.method.matches(&request.method) {
                continue;
            }
            let Some(segments) = rule.path.matches(&request.path, rule.fold_case) else { continue };
            if rule.operation.as_ref().is_some_and(|operation| !named.is(operation)) {
                continue;
            }
            let effect = Effect::decide(method, headers, body, Some(rule.effect));
            return Classification {
                effect,
                limits: Limits::Keys(rule.limits.iter().map(|key| LimitKey::new(key, &segments)).collect()),
                cache_scope: rule.cache_scope.as_ref().map(|scope| scope.fill(&segments)),
                fold_case: rule.fold_case,
                page: rule.page.as_ref().filter(|_| effect == Effect::Read).map(|place| {
                    let is_first = !named.has(place);
                    Box::new(Page { place: place.clone(), is_first })
                }),
            };
        }
        let limits = Limits::AllOfHost;
        let effect = Effect::decide(method, headers, body, None);
        Classification { effect, limits, cache_scope: None, fold_case: false, page: None }
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

/// The rules that call requests reads which write by their method, with their place in the provider's settings. The gate
/// doesn't follow them there.
pub fn contradictions(rules: &[Rule]) -> Vec<Problem> {
    let contradiction = |(index, rule): (usize, &Rule)| {
        let said = match rule.effect {
            Effect::Read => "read",
            Effect::OperationPoll => "operation-poll",
            Effect::Write => return None,
        };
        let message = match &rule.method {
            MethodPattern::Any => format!(
                "calls requests of every method {said}; all but GET, HEAD, OPTIONS and POST stay writes"
            ),
            MethodPattern::Exact(method) if ["GET", "HEAD", "OPTIONS", "POST"].contains(&method.as_str()) => {
                return None;
            }
            MethodPattern::Exact(method) => format!("calls {method} requests {said}; they stay writes"),
        };
        Some(Problem::at(format!("settings.rules[{index}].effect"), message))
    };
    rules.iter().enumerate().filter_map(contradiction).collect()
}

/// What one request names. Each place is read once, even if many rules ask for it: the rules for an API with one path have
/// one for each operation.
struct Named<'a> {
    wanted: &'a Wanted,
    request: &'a Request,
    headers: &'a HeaderMap,
    body: &'a [u8],
    lines: HashMap<&'a HeaderName, Option<String>>,
    query: OnceCell<Fields>,
    form: OnceCell<Fields>,
    json: OnceCell<Fields>,
}

impl<'a> Named<'a> {
    fn new(wanted: &'a Wanted, request: &'a Request, headers: &'a HeaderMap, body: &'a [u8]) -> Self {
        let [query, form, json] = [const { OnceCell::new() }; 3];
        Self { wanted, request, headers, body, lines: HashMap::new(), query, form, json }
    }

    fn query(&self) -> &Fields {
        let query = self.request.query.as_deref().unwrap_or_default();
        self.query.get_or_init(|| self.wanted.in_query(query))
    }

    fn form(&self) -> &Fields {
        self.form.get_or_init(|| self.wanted.in_form(self.body))
    }

    fn json(&self) -> &Fields {
        self.json.get_or_init(|| self.wanted.in_json(self.body))
    }

    /// Whether the request names this operation.
    fn is(&mut self, operation: &'a Operation) -> bool {
        let name = match &operation.place {
            Place::Query(name) => self.query().only(name),
            Place::FormField(name) => self.form().only(name),
            Place::JsonField(name) => self.json().only(name),
            Place::Header(name) => {
                let read = || only_line(self.headers, name);
                self.lines.entry(name).or_insert_with(read).as_deref()
            }
        };
        name.is_some_and(|name| operation.name.matches(name))
    }

    /// Whether a request has anything at this place. A body that can't be read might have.
    fn has(&self, place: &Place) -> bool {
        match place {
            Place::Query(name) => self.query().has(name),
            Place::FormField(name) => self.form().has(name),
            Place::JsonField(name) => self.json().has(name),
            Place::Header(name) => self.headers.contains_key(name),
        }
    }
}

/// The value of a header, if there is exactly one. It can't be known which of two the cloud would use.
fn only_line(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    if lines.next().is_some() { None } else { fields::short(first.to_str().ok()?) }
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

    #[test]
    fn a_long_body_is_read_once_however_many_places_and_rules_ask_for_it() {
        let places = (0..8).flat_map(|number| {
            let name = format!("place{number}");
            [Place::JsonField(name.clone()), Place::Query(name)]
        });
        let rules: Vec<_> = places.cycle().take(1_000).map(|place| about(place, "*x")).collect();
        let rules = Rules::new(rules).unwrap();
        let items = "{\"a\":[1,\"b\"]},".repeat((4 << 20) / 16);
        let body = format!("{{\"items\":[{items}null],\"place7\":\"{}\"}}", "y".repeat(1 << 20));
        let asked = request(&Method::POST, &format!("https://api.example.com/?{}", "a=b&".repeat(15_000)));
        let took = |rules: &Rules| {
            let begun = std::time::Instant::now();
            assert_eq!(rules.classify(&asked, &HeaderMap::new(), body.as_bytes()).effect, Effect::Write);
            begun.elapsed()
        };
        let one = Rules::new(vec![about(Place::JsonField("place0".to_owned()), "*x")]).unwrap();
        let (once, all) = (took(&one), took(&rules));
        assert!(all < once * 4, "once {once:?}, for all {all:?}");
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
