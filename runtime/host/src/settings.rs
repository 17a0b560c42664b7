//! What follows from a provider's configuration, in the provider's opinion: the hosts that it needs, what its requests
//! mean, and what its cloud allows. Parsed into the gate's own types, so that nothing of it can be misread later, and all that
//! is wrong is told at once.

mod rule;

use std::collections::HashSet;
use std::str::FromStr;

use pileus_gate::{Endpoint, HostPattern, KeyPattern, Limit, Problem, Rule};

use crate::bindings::info;
use crate::call::call;
use crate::component::{Capability, Component};
use crate::description::{capability_of, info_terms};
use crate::error::Error;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::wire::text;

/// The most rules. Each request is held against them one after another, in the host's time; all of Azure's networks and
/// machines take some 50.
const RULES: usize = 1_000;

/// The most places where requests name their operation or their page. For each, a body of up to 8 MiB may have to be read
/// through; an API has one of the first kind, and has rarely more than two words for the second.
const PLACES: usize = 8;

/// The most endpoints, and limits.
const ENDPOINTS: usize = 100;
/// See [`ENDPOINTS`].
const LIMITS: usize = 1_000;

/// The longest text that is parsed, in bytes.
const LONGEST: usize = 1 << 10;

/// What follows from a provider's configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The hosts that it needs, and why.
    pub wishes: Vec<Wish>,
    /// What its requests mean, for the gate.
    pub rules: Vec<Rule>,
    /// The limits that its cloud publishes.
    pub limits: Vec<PublishedLimit>,
    /// The capabilities of which no two calls may run at the same time.
    pub one_at_a_time: Vec<Capability>,
}

/// A host that a provider needs.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Which one.
    pub endpoint: Endpoint,
    /// Why, in the provider's words.
    pub reason: String,
}

/// A limit that a cloud publishes: a bucket that holds so many requests and fills at such a rate.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedLimit {
    /// The name by which rules refer to it.
    pub key: String,
    /// The requests that a full bucket holds.
    pub capacity: u32,
    /// The requests that flow in each minute.
    pub per_minute: u32,
    /// The same as the gate takes it.
    pub limit: Limit,
}

impl Component {
    /// Has the provider check its configuration, JSON text.
    ///
    /// # Errors
    /// [`Error::Configuration`] with all that is wrong with it, [`Error::Info`] where the provider doesn't answer,
    /// [`Error::Settings`] with all that can't be of what it wants.
    pub async fn configure(
        &self,
        document: &str,
        limits: &Limits,
        metrics: &Metrics,
    ) -> Result<Settings, Error> {
        let (info, document) = (self.info.clone(), document.to_owned());
        let terms = info_terms("configure", limits, metrics);
        let denial = terms.denial.clone();
        let answer = call(self, terms, move |store, instance| {
            Box::pin(async move { info.load(&mut *store, &instance)?.call_configure(store, &document).await })
        })
        .await
        .map_err(|fault| Error::Info { function: "configure", fault })?;
        let problem =
            |info::Problem { path, message }| Problem { path: text(&path), message: text(&message) };
        match answer {
            Ok(answer) => settings(answer),
            Err(problems) if problems.is_empty() => {
                Err(Error::Description("configure failed without saying what is wrong".to_owned()))
            }
            Err(problems) => {
                // Maybe it found something wrong because it was refused what it asked for.
                let denied =
                    denial.reason().map(|reason| Problem { path: String::new(), message: text(reason) });
                Err(Error::Configuration(problems.into_iter().map(problem).chain(denied).collect()))
            }
        }
    }
}

fn settings(answer: info::Settings) -> Result<Settings, Error> {
    let info::Settings { endpoints, rules, limits, one_at_a_time, extra: _ } = answer;
    let mut found = Vec::new();
    let settings = Settings {
        wishes: each("endpoints", ENDPOINTS, endpoints, &mut found, wish),
        rules: each("rules", RULES, rules, &mut found, rule::rule),
        limits: each("limits", LIMITS, limits, &mut found, limit),
        // A capability that is named again says nothing new.
        one_at_a_time: Capability::ALL
            .into_iter()
            .filter(|capability| one_at_a_time.iter().any(|named| capability_of(*named) == *capability))
            .collect(),
    };
    let operations = settings.rules.iter().filter_map(|rule| Some(&rule.operation.as_ref()?.place));
    let pages = settings.rules.iter().filter_map(|rule| rule.page.as_ref());
    let places = operations.chain(pages).collect::<HashSet<_>>().len();
    if places > PLACES {
        let message = format!("{places} places of operations and pages, where at most {PLACES} are taken");
        found.push(Problem::at("settings.rules", message));
    }
    if found.is_empty() { Ok(settings) } else { Err(Error::Settings(found)) }
}

/// Reads each of a list, unless there are too many to go through.
fn each<A, T>(
    name: &str,
    most: usize,
    answers: Vec<A>,
    found: &mut Vec<Problem>,
    read: impl Fn(A, &mut Mistakes<'_>) -> Option<T>,
) -> Vec<T> {
    let path = format!("settings.{name}");
    if answers.len() > most {
        let message = format!("{} {name}, where at most {most} are taken", answers.len());
        found.push(Problem::at(path, message));
        return Vec::new();
    }
    let read = |(index, answer)| read(answer, &mut Mistakes { path: format!("{path}[{index}]"), found });
    answers.into_iter().enumerate().filter_map(read).collect()
}

/// What is wrong with one thing, in the words of its parser and by the names of the contract.
struct Mistakes<'f> {
    path: String,
    found: &'f mut Vec<Problem>,
}

impl Mistakes<'_> {
    /// Notes that a field is wrong.
    fn note(&mut self, field: &str, message: &str) {
        self.found.push(Problem::at(format!("{}.{field}", self.path), text(message)));
    }

    /// The value, if it is right.
    fn right<T>(&mut self, field: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.inspect_err(|message| self.note(field, message)).ok()
    }

    /// What a text says, if that is right.
    fn parse<T: FromStr<Err = pileus_gate::Error>>(&mut self, field: &str, text: &str) -> Option<T> {
        let parsed = short(text).and_then(|text| text.parse().map_err(|error: T::Err| error.to_string()));
        self.right(field, parsed)
    }
}

fn short(text: &str) -> Result<&str, String> {
    if text.len() > LONGEST { Err(format!("it is longer than {LONGEST} bytes")) } else { Ok(text) }
}

fn wish(answer: info::Endpoint, mistakes: &mut Mistakes<'_>) -> Option<Wish> {
    let info::Endpoint { tls, host, port, reason, extra: _ } = answer;
    let host: HostPattern = mistakes.parse("host", &host)?;
    Some(Wish { endpoint: Endpoint::new(tls, host, port), reason: text(&reason) })
}

fn limit(answer: info::Limit, mistakes: &mut Mistakes<'_>) -> Option<PublishedLimit> {
    let info::Limit { key, capacity, per_minute, extra: _ } = answer;
    let per_second = f64::from(per_minute) / 60.0;
    let (bursts, rates) = (Limit::BURSTS, Limit::RATES);
    if !bursts.contains(&capacity) {
        let (least, most) = (bursts.start(), bursts.end());
        mistakes.note("capacity", &format!("expected {least} to {most}, found {capacity}"));
    }
    if !rates.contains(&per_second) {
        // The least is one, as the contract has whole numbers.
        mistakes.note("per-minute", &format!("expected 1 to {}, found {per_minute}", rates.end() * 60.0));
    }
    mistakes.parse::<KeyPattern>("key", &key)?;
    let limit = Limit::new(&key, capacity, per_second).ok()?;
    Some(PublishedLimit { key: text(&key), capacity, per_minute, limit })
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
            one_at_a_time: Vec::new(),
            extra: Vec::new(),
        })
    }

    fn named(place: info::Place) -> info::Operation {
        info::Operation { place, name: "Describe*".to_owned() }
    }

    #[test]
    fn all_that_makes_no_sense_is_told_at_once_with_its_place() {
        assert_eq!(read(rule()).unwrap().rules.len(), 1);
        let endpoint = |host: &str| info::Endpoint {
            tls: true,
            host: host.to_owned(),
            port: None,
            reason: String::new(),
            extra: Vec::new(),
        };
        let limit = |key: &str, capacity, per_minute| info::Limit {
            key: key.to_owned(),
            capacity,
            per_minute,
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
        let told = Error::Settings(problems).to_string();
        assert!(
            told.starts_with(
                "the provider's settings are wrong:\n  settings.endpoints[1].host: host \"a b\""
            ),
            "{told}"
        );
        let query = named(info::Place::Query("Action".to_owned()));
        assert!(read(info::Rule { operation: Some(query), ..rule() }).is_ok());
    }

    /// Whatever a provider says more than that, the host would have to compare each request with.
    type Change = fn(&mut info::Settings);

    #[test]
    fn settings_are_small_enough_for_every_request_to_be_held_against_them() {
        let with = |change: fn(&mut info::Settings)| {
            let mut answer = info::Settings {
                endpoints: Vec::new(),
                rules: vec![rule()],
                limits: Vec::new(),
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
        let fits = with(|it| it.rules = vec![rule(); RULES]);
        assert_eq!(fits, None);
        let rows: [(Change, &str); 8] = [
            (|it| it.rules = vec![rule(); RULES + 1], "settings.rules: 1001 rules, where at most 1000"),
            (|it| it.rules[0].limits = vec!["reads".to_owned(); 17], "settings.rules[0].limits: 17 limits"),
            (
                |it| it.rules[0].path = format!("/{}", "a".repeat(LONGEST)),
                "settings.rules[0].path: it is longer",
            ),
            (
                |it| it.rules[0].limits = vec!["a".repeat(LONGEST + 1)],
                "settings.rules[0].limits[0]: it is longer",
            ),
            (
                |it| it.rules[0].cache_scope = Some("a".repeat(LONGEST + 1)),
                "settings.rules[0].cache-scope: it is longer",
            ),
            (
                |it| {
                    let place = info::Place::FormField("a".repeat(LONGEST + 1));
                    it.rules[0].operation = Some(named(place));
                },
                "settings.rules[0].operation.place: it is longer",
            ),
            (
                |it| it.rules[0].page = Some(info::Place::Query("a".repeat(LONGEST + 1))),
                "settings.rules[0].page: it is longer",
            ),
            (
                |it| {
                    let name = "a".repeat(LONGEST + 1);
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
                one_at_a_time: Vec::new(),
                extra: Vec::new(),
            })
        };
        assert!(of(PLACES).is_ok());
        assert!(of(PLACES + 1).is_err_and(|error| error.to_string().contains("9 places of operations")));
    }

    #[test]
    fn a_wish_has_the_port_of_its_scheme() {
        let wished = |tls, port| {
            let host = "cloud.example".to_owned();
            let mut found = Vec::new();
            let mut mistakes = Mistakes { path: String::new(), found: &mut found };
            wish(info::Endpoint { tls, host, port, reason: String::new(), extra: Vec::new() }, &mut mistakes)
                .unwrap()
        };
        assert_eq!(wished(true, None).endpoint.to_string(), "https://cloud.example:443");
        assert_eq!(wished(false, None).endpoint.to_string(), "http://cloud.example:80");
        assert_eq!(wished(true, Some(8443)).endpoint.to_string(), "https://cloud.example:8443");
    }
}
