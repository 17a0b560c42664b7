//! The settings that a provider returns for its configuration: the endpoints that it needs, what its requests mean, and the
//! limits of its cloud. They are parsed into the gate's own types, so that later code can't misread them, and all problems
//! are reported at once.

mod refusal;
mod rule;

use std::collections::HashSet;
use std::str::FromStr;

use pileus_gate::{Endpoint, HostPattern, KeyPattern, Limit, Problem, Refusal, Rule};

use crate::bindings::info;
use crate::call::{CallOptions, call};
use crate::component::{Capability, Component};
use crate::error::Error;
use crate::limits::Limits;
use crate::metadata_key::is_key;
use crate::metrics::Metrics;
use crate::retained;
use crate::sanitize::{excerpt, sanitize_message};

/// The most rules. The host compares each request with them one after another; all of Azure's network and compute API
/// takes some 50.
const MAX_RULES: usize = 1_000;

/// The most places where requests name their operation or their page. For each place, the host may have to search a body of
/// up to 8 MiB. An API names its operations in one place, and its pages rarely in more than two.
const MAX_PLACES: usize = 8;

/// The most endpoints.
const MAX_ENDPOINTS: usize = 100;

/// The most limits.
const MAX_LIMITS: usize = 1_000;

/// The most refusals. An API has some dozen codes that mislead.
const MAX_REFUSALS: usize = 256;

/// The most keys of Node labels. The host compares the labels of each Node with them.
const MAX_NODE_LABELS: usize = 256;

/// The most notices that are shown.
const MAX_NOTICES: usize = 64;

/// The longest text that is parsed, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// What a provider requests from the gate with its configuration.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The endpoints that it requests access to.
    pub endpoints: Vec<RequestedEndpoint>,
    /// What its requests mean to the gate.
    pub rules: Vec<Rule>,
    /// The limits that its cloud publishes.
    pub limits: Vec<PublishedLimit>,
    /// What the cloud's refusals mean.
    pub refusals: Vec<Refusal>,
    /// The keys of the Node labels that it reads with this configuration. A `*` at the end stands for any text.
    pub node_labels: Vec<String>,
    /// What the operator should know about the configuration although it is accepted.
    pub notices: Vec<Problem>,
    /// The capabilities of which no two calls may run at the same time.
    pub one_at_a_time: Vec<Capability>,
}

/// An endpoint that a provider requests access to.
#[derive(Debug, Clone)]
pub struct RequestedEndpoint {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Why it needs access, in the provider's words.
    pub reason: String,
    /// The credential that its requests need, if the provider says.
    pub credential: Option<CredentialHint>,
}

/// What kind of credential an endpoint wants, with the values that are public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialHint {
    /// The kind, as the CloudProvider document names it.
    pub kind: String,
    /// The public values by the document's field names.
    pub values: Vec<(String, String)>,
}

/// A rate limit that a cloud publishes: a token bucket with a capacity and a rate.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedLimit {
    /// The name by which rules refer to it.
    pub key: String,
    /// The requests that a full bucket holds.
    pub capacity: u32,
    /// The requests that are added each minute.
    pub per_minute: u32,
    /// The same in the gate's type.
    pub limit: Limit,
}

impl Component {
    /// Calls the provider's `configure` with a configuration, which is JSON text.
    ///
    /// # Errors
    /// [`Error::Configuration`] with all problems that the provider finds, [`Error::Info`] where the call fails,
    /// [`Error::Settings`] with all problems of the settings that it returns.
    pub async fn configure(
        &self,
        document: &str,
        limits: &Limits,
        metrics: &Metrics,
    ) -> Result<Settings, Error> {
        let (info, document) = (self.info.clone(), document.to_owned());
        let options = CallOptions::for_info("configure", limits, metrics);
        let denials = options.denials.clone();
        let answer = call(self, options, move |store, instance| {
            Box::pin(async move { info.load(&mut *store, &instance)?.call_configure(store, &document).await })
        })
        .await
        .and_then(|answer| {
            match &answer {
                Ok(settings) => retained::check_settings(settings)?,
                Err(problems) => retained::check_problems(problems)?,
            }
            Ok(answer)
        })
        .map_err(|fault| Error::Info { function: "configure", fault })?;
        match answer {
            Ok(answer) => settings(answer),
            Err(problems) if problems.is_empty() => {
                Err(Error::Description("configure failed without a problem in its answer".to_owned()))
            }
            Err(problems) => {
                // A denied request may be why the provider found a problem.
                let denied = denials
                    .reason()
                    .map(|reason| Problem { path: String::new(), message: sanitize_message(reason) });
                Err(Error::Configuration(problems.into_iter().map(problem).chain(denied).collect()))
            }
        }
    }
}

fn problem(info::Problem { path, message }: info::Problem) -> Problem {
    Problem { path: sanitize_message(&path), message: sanitize_message(&message) }
}

fn settings(answer: info::Settings) -> Result<Settings, Error> {
    let info::Settings { endpoints, rules, limits, refusals, node_labels, notices, one_at_a_time, extra: _ } =
        answer;
    let mut problems = Vec::new();
    let settings = Settings {
        endpoints: read_each("endpoints", MAX_ENDPOINTS, endpoints, &mut problems, endpoint),
        rules: read_each("rules", MAX_RULES, rules, &mut problems, rule::rule),
        limits: read_each("limits", MAX_LIMITS, limits, &mut problems, limit),
        refusals: read_each("refusals", MAX_REFUSALS, refusals, &mut problems, refusal::refusal),
        node_labels: read_each("node-labels", MAX_NODE_LABELS, node_labels, &mut problems, node_label),
        notices: notices.into_iter().take(MAX_NOTICES).map(problem).collect(),
        // Without duplicates.
        one_at_a_time: Capability::ALL
            .into_iter()
            .filter(|capability| one_at_a_time.iter().any(|named| Capability::from(*named) == *capability))
            .collect(),
    };
    let operations = settings.rules.iter().filter_map(|rule| Some(&rule.operation.as_ref()?.place));
    let pages = settings.rules.iter().filter_map(|rule| rule.page.as_ref());
    let places = operations.chain(pages).collect::<HashSet<_>>().len();
    if places > MAX_PLACES {
        let message = format!("{places} places of operations and pages; the limit is {MAX_PLACES}");
        problems.push(Problem::at("settings.rules", message));
    }
    if problems.is_empty() { Ok(settings) } else { Err(Error::Settings(problems)) }
}

/// Reads the items of a list, unless there are more than the limit. Leaves out those with problems.
fn read_each<A, T>(
    name: &str,
    limit: usize,
    items: Vec<A>,
    problems: &mut Vec<Problem>,
    read: impl Fn(A, &mut ProblemCollector<'_>) -> Option<T>,
) -> Vec<T> {
    let path = format!("settings.{name}");
    if items.len() > limit {
        let message = format!("{} {name}; the limit is {limit}", items.len());
        problems.push(Problem::at(path, message));
        return Vec::new();
    }
    let read =
        |(index, item)| read(item, &mut ProblemCollector { path: format!("{path}[{index}]"), problems });
    items.into_iter().enumerate().filter_map(read).collect()
}

/// Collects the problems of one item, with the messages of its parser and the field names of the contract.
struct ProblemCollector<'a> {
    path: String,
    problems: &'a mut Vec<Problem>,
}

impl ProblemCollector<'_> {
    /// Adds a problem of a field.
    fn add(&mut self, field: &str, message: &str) {
        let path = if field.is_empty() { self.path.clone() } else { format!("{}.{field}", self.path) };
        self.problems.push(Problem::at(path, sanitize_message(message)));
    }

    /// The value, or `None` and a problem.
    fn check<T>(&mut self, field: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.inspect_err(|message| self.add(field, message)).ok()
    }

    /// The parsed text, or `None` and a problem.
    fn parse<T: FromStr<Err = pileus_gate::Error>>(&mut self, field: &str, text: &str) -> Option<T> {
        let parsed =
            check_length(text).and_then(|text| text.parse().map_err(|error: T::Err| error.to_string()));
        self.check(field, parsed)
    }
}

fn check_length(text: &str) -> Result<&str, String> {
    if text.len() > MAX_TEXT_BYTES {
        Err(format!("it is longer than {MAX_TEXT_BYTES} bytes"))
    } else {
        Ok(text)
    }
}

fn endpoint(declared: info::Endpoint, problems: &mut ProblemCollector<'_>) -> Option<RequestedEndpoint> {
    let info::Endpoint { tls, host, port, reason, credential, extra: _ } = declared;
    let host: HostPattern = problems.parse("host", &host)?;
    let hint = |info::CredentialHint { kind, values }| CredentialHint {
        kind: sanitize_message(&kind),
        values: values
            .iter()
            .map(|(name, value)| (sanitize_message(name), sanitize_message(value)))
            .collect(),
    };
    Some(RequestedEndpoint {
        endpoint: Endpoint::new(tls, host, port),
        reason: sanitize_message(&reason),
        credential: credential.map(hint),
    })
}

/// A key of a label, or the beginning of keys and a `*`.
fn node_label(key: String, problems: &mut ProblemCollector<'_>) -> Option<String> {
    let whole = key.strip_suffix('*').unwrap_or(&key);
    if is_key(whole) {
        return Some(key);
    }
    problems.add(
        "",
        &format!("invalid label key {:?}; expected a key, with a * at its end at most", excerpt(&key)),
    );
    None
}

fn limit(declared: info::Limit, problems: &mut ProblemCollector<'_>) -> Option<PublishedLimit> {
    let info::Limit { key, capacity, per_minute, told_by, extra: _ } = declared;
    let per_second = f64::from(per_minute) / 60.0;
    let (bursts, rates) = (Limit::BURSTS, Limit::RATES);
    if !bursts.contains(&capacity) {
        let (least, most) = (bursts.start(), bursts.end());
        problems.add("capacity", &format!("expected {least} to {most}, found {capacity}"));
    }
    if !rates.contains(&per_second) {
        // The least is 1, because the contract's numbers are integers.
        problems.add("per-minute", &format!("expected 1 to {}, found {per_minute}", rates.end() * 60.0));
    }
    problems.parse::<KeyPattern>("key", &key)?;
    let limit = Limit::new(&key, capacity, per_second).ok()?;
    let limit = match told_by {
        None => limit,
        Some((header, name)) => {
            let told = check_length(&name).and_then(|name| {
                limit.with_told_by(check_length(&header)?, name).map_err(|error| error.to_string())
            });
            problems.check("told-by", told)?
        }
    };
    Some(PublishedLimit { key: sanitize_message(&key), capacity, per_minute, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> info::Rule {
        info::Rule {
            host: "api.cloud.example".to_owned(),
            method: "GET".to_owned(),
            path: "/servers/*".to_owned(),
            operation: None,
            effect: info::Effect::Read,
            limits: vec!["reads".to_owned()],
            cache_scope: Some("servers-{1}".to_owned()),
            page: None,
            fold_case: false,
            extra: Vec::new(),
        }
    }

    fn read(rule: info::Rule) -> Result<Settings, Error> {
        settings(info::Settings {
            endpoints: Vec::new(),
            rules: vec![rule],
            limits: Vec::new(),
            refusals: Vec::new(),
            node_labels: Vec::new(),
            notices: Vec::new(),
            one_at_a_time: Vec::new(),
            extra: Vec::new(),
        })
    }

    fn named(place: info::Place) -> info::Operation {
        info::Operation { place, name: "Describe*".to_owned() }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_paths() {
        assert_eq!(read(rule()).unwrap().rules.len(), 1);
        let endpoint = |host: &str| info::Endpoint {
            tls: true,
            host: host.to_owned(),
            port: None,
            reason: String::new(),
            credential: None,
            extra: Vec::new(),
        };
        let limit = |key: &str, capacity, per_minute| info::Limit {
            key: key.to_owned(),
            capacity,
            per_minute,
            told_by: None,
            extra: Vec::new(),
        };
        let wrong = info::Rule {
            host: "https://api".to_owned(),
            method: "get it".to_owned(),
            path: "servers".to_owned(),
            operation: Some(info::Operation {
                place: info::Place::Header("no header".to_owned()),
                name: "a*b*".to_owned(),
            }),
            effect: info::Effect::OperationPoll,
            limits: vec!["reads".to_owned(), "{".to_owned()],
            cache_scope: Some("{".to_owned()),
            page: Some(info::Place::Header("nor this".to_owned())),
            ..rule()
        };
        let misfit = info::Rule {
            limits: vec!["vm/{2}".to_owned()],
            cache_scope: Some("{3}".to_owned()),
            host: String::new(),
            ..rule()
        };
        let answer = info::Settings {
            endpoints: vec![endpoint("a.example"), endpoint("a b")],
            rules: vec![rule(), wrong, rule(), misfit],
            limits: vec![limit("reads", 1, 60), limit("{", 1, 60), limit("a", 0, 60), limit("b", 1, 0)],
            refusals: Vec::new(),
            node_labels: Vec::new(),
            notices: Vec::new(),
            one_at_a_time: Vec::new(),
            extra: Vec::new(),
        };
        let Err(Error::Settings(problems)) = settings(answer) else { panic!("it is refused as settings") };
        assert_eq!(
            problems.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(),
            [
                "settings.endpoints[1].host",
                "settings.rules[1].host",
                "settings.rules[1].method",
                "settings.rules[1].path",
                "settings.rules[1].operation.name",
                "settings.rules[1].operation.place",
                "settings.rules[1].limits[1]",
                "settings.rules[1].cache-scope",
                "settings.rules[1].page",
                "settings.rules[1].page",
                "settings.rules[3].host",
                "settings.rules[3].limits[0]",
                "settings.rules[3].cache-scope",
                "settings.limits[1].key",
                "settings.limits[2].capacity",
                "settings.limits[3].per-minute",
            ]
        );
        let message = Error::Settings(problems).to_string();
        assert!(
            message.starts_with(
                "the provider's settings are invalid:\n  settings.endpoints[1].host: host \"a b\""
            ),
            "{message}"
        );
        let query = named(info::Place::Query("Action".to_owned()));
        assert!(read(info::Rule { operation: Some(query), ..rule() }).is_ok());
    }

    type Change = fn(&mut info::Settings);

    #[test]
    fn settings_are_small_enough_to_compare_every_request_with_them() {
        let with = |change: fn(&mut info::Settings)| {
            let mut answer = info::Settings {
                endpoints: Vec::new(),
                rules: vec![rule()],
                limits: Vec::new(),
                refusals: Vec::new(),
                node_labels: Vec::new(),
                notices: Vec::new(),
                one_at_a_time: Vec::new(),
                extra: Vec::new(),
            };
            change(&mut answer);
            settings(answer).err().map(|error| error.to_string())
        };
        let json = |number: usize| {
            let place = info::Place::JsonField(format!("field-{number}"));
            if number.is_multiple_of(2) {
                info::Rule { operation: Some(named(place)), ..rule() }
            } else {
                info::Rule { page: Some(place), ..rule() }
            }
        };
        let fits = with(|it| it.rules = vec![rule(); MAX_RULES]);
        assert_eq!(fits, None);
        let rows: [(Change, &str); 8] = [
            (|it| it.rules = vec![rule(); MAX_RULES + 1], "settings.rules: 1001 rules; the limit is 1000"),
            (|it| it.rules[0].limits = vec!["reads".to_owned(); 17], "settings.rules[0].limits: 17 limits"),
            (
                |it| it.rules[0].path = format!("/{}", "a".repeat(MAX_TEXT_BYTES)),
                "settings.rules[0].path: it is longer",
            ),
            (
                |it| it.rules[0].limits = vec!["a".repeat(MAX_TEXT_BYTES + 1)],
                "settings.rules[0].limits[0]: it is longer",
            ),
            (
                |it| it.rules[0].cache_scope = Some("a".repeat(MAX_TEXT_BYTES + 1)),
                "settings.rules[0].cache-scope: it is longer",
            ),
            (
                |it| {
                    let place = info::Place::FormField("a".repeat(MAX_TEXT_BYTES + 1));
                    it.rules[0].operation = Some(named(place));
                },
                "settings.rules[0].operation.place: it is longer",
            ),
            (
                |it| it.rules[0].page = Some(info::Place::Query("a".repeat(MAX_TEXT_BYTES + 1))),
                "settings.rules[0].page: it is longer",
            ),
            (
                |it| {
                    let name = "a".repeat(MAX_TEXT_BYTES + 1);
                    let place = info::Place::Query("Action".to_owned());
                    it.rules[0].operation = Some(info::Operation { place, name });
                },
                "settings.rules[0].operation.name: it is longer",
            ),
        ];
        for (change, expected) in rows {
            let error = with(change).unwrap_or_default();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let of = |places: usize| {
            let rules = (0..places).map(json).collect();
            settings(info::Settings {
                endpoints: Vec::new(),
                rules,
                limits: Vec::new(),
                refusals: Vec::new(),
                node_labels: Vec::new(),
                notices: Vec::new(),
                one_at_a_time: Vec::new(),
                extra: Vec::new(),
            })
        };
        assert!(of(MAX_PLACES).is_ok());
        assert!(of(MAX_PLACES + 1).is_err_and(|error| error.to_string().contains("9 places of operations")));
    }

    #[test]
    fn an_endpoint_has_the_default_port_of_its_scheme() {
        let requested = |tls, port| {
            let host = "cloud.example".to_owned();
            let mut problems = Vec::new();
            let mut problems = ProblemCollector { path: String::new(), problems: &mut problems };
            let declared = info::Endpoint {
                tls,
                host,
                port,
                reason: String::new(),
                credential: None,
                extra: Vec::new(),
            };
            endpoint(declared, &mut problems).unwrap()
        };
        assert_eq!(requested(true, None).endpoint.to_string(), "https://cloud.example:443");
        assert_eq!(requested(false, None).endpoint.to_string(), "http://cloud.example:80");
        assert_eq!(requested(true, Some(8443)).endpoint.to_string(), "https://cloud.example:8443");
    }
}
