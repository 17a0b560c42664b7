//! What follows from a provider's configuration, in the provider's opinion: the hosts that it needs, what its requests
//! mean, and what its cloud allows. Parsed into the gate's own types, so that nothing of it can be misread later.

use std::collections::HashSet;
use std::str::FromStr;

use pileus_gate::{Effect, Endpoint, HostPattern, KeyPattern, Operation, Place, Rule, TextPattern};

use crate::bindings::info;
use crate::call::call;
use crate::component::Component;
use crate::description::info_terms;
use crate::error::{Error, Problem};
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

/// The most limits that a request counts against: one of the account, and one of the kind of thing, most often.
const KEYS: usize = 16;

/// The longest text in a rule, in bytes.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedLimit {
    /// The name by which rules refer to it.
    pub key: String,
    /// The requests that a full bucket holds.
    pub capacity: u32,
    /// The requests that flow in each minute.
    pub per_minute: u32,
}

impl Component {
    /// Has the provider check its configuration, JSON text.
    ///
    /// # Errors
    /// [`Error::Configuration`] with all that is wrong with it, [`Error::Info`] where the provider doesn't answer,
    /// [`Error::Settings`] where what it wants can't be.
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
    let info::Settings { endpoints, rules, limits, extra: _ } = answer;
    at_most(ENDPOINTS, endpoints.len(), "endpoints")?;
    at_most(RULES, rules.len(), "rules")?;
    at_most(LIMITS, limits.len(), "limits")?;
    let limit = |info::Limit { key, capacity, per_minute, extra: _ }| PublishedLimit {
        key: text(&key),
        capacity,
        per_minute,
    };
    let rules = rules.into_iter().enumerate().map(|(index, answer)| rule(index, answer));
    let rules: Vec<_> = rules.collect::<Result<_, _>>()?;
    let operations = rules.iter().filter_map(|rule| Some(&rule.operation.as_ref()?.place));
    let pages = rules.iter().filter_map(|rule| rule.page.as_ref());
    let places: HashSet<_> = operations.chain(pages).collect();
    at_most(PLACES, places.len(), "places of operations and pages")?;
    Ok(Settings {
        wishes: endpoints.into_iter().map(wish).collect::<Result<_, _>>()?,
        rules,
        limits: limits.into_iter().map(limit).collect(),
    })
}

fn at_most(most: usize, found: usize, what: &str) -> Result<(), Error> {
    if found > most {
        return Err(Error::Settings(format!("{found} {what}, where at most {most} are taken")));
    }
    Ok(())
}

fn wish(answer: info::Endpoint) -> Result<Wish, Error> {
    let info::Endpoint { tls, host, port, reason, extra: _ } = answer;
    let host = HostPattern::from_str(&host).map_err(|error| Error::Settings(text(&error.to_string())))?;
    Ok(Wish { endpoint: Endpoint::new(tls, host, port), reason: text(&reason) })
}

fn rule(index: usize, answer: info::Rule) -> Result<Rule, Error> {
    let info::Rule { host, method, path, operation, effect, limits, cache_scope, page, fold_case, extra: _ } =
        answer;
    let rule_is_wrong = |why: String| Error::Settings(format!("rule {}: {}", index + 1, text(&why)));
    let wrong = |error: pileus_gate::Error| rule_is_wrong(error.to_string());
    let texts = [&host, &method, &path].into_iter().chain(&limits).chain(&cache_scope);
    if texts.map(String::len).max().is_some_and(|longest| longest > LONGEST) {
        return Err(rule_is_wrong(format!("a text of it is longer than {LONGEST} bytes")));
    }
    if limits.len() > KEYS {
        return Err(rule_is_wrong(format!("{} limits, where at most {KEYS} are taken", limits.len())));
    }
    let effect = match effect {
        info::Effect::Read => Effect::Read,
        info::Effect::Write => Effect::Write,
        info::Effect::OperationPoll => Effect::OperationPoll,
    };
    if page.is_some() && effect != Effect::Read {
        return Err(rule_is_wrong("only a read has pages".to_owned()));
    }
    Ok(Rule {
        host: host.parse().map_err(wrong)?,
        method: method.parse().map_err(wrong)?,
        path: path.parse().map_err(wrong)?,
        operation: operation.map(rule_operation).transpose().map_err(rule_is_wrong)?,
        effect,
        limits: limits.iter().map(|key| key.parse()).collect::<Result<_, _>>().map_err(wrong)?,
        cache_scope: cache_scope.as_deref().map(KeyPattern::from_str).transpose().map_err(wrong)?,
        page: page.map(rule_place).transpose().map_err(rule_is_wrong)?,
        fold_case,
    })
}

fn rule_operation(answer: info::Operation) -> Result<Operation, String> {
    let info::Operation { place, name } = answer;
    if name.len() > LONGEST {
        return Err(format!("a text of its operation is longer than {LONGEST} bytes"));
    }
    let name = TextPattern::from_str(&name).map_err(|error| error.to_string())?;
    Ok(Operation { place: rule_place(place)?, name })
}

fn rule_place(answer: info::Place) -> Result<Place, String> {
    let (info::Place::Query(name)
    | info::Place::Header(name)
    | info::Place::FormField(name)
    | info::Place::JsonField(name)) = &answer;
    if name.len() > LONGEST {
        return Err(format!("the name of a place of it is longer than {LONGEST} bytes"));
    }
    Ok(match answer {
        info::Place::Query(name) => Place::Query(name),
        info::Place::Header(name) => {
            let header = http::HeaderName::from_str(&name);
            Place::Header(header.map_err(|_| format!("{:?} is no header name", text(&name)))?)
        }
        info::Place::FormField(name) => Place::FormField(name),
        info::Place::JsonField(name) => Place::JsonField(name),
    })
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
            extra: Vec::new(),
        })
    }

    fn named(place: info::Place) -> info::Operation {
        info::Operation { place, name: "Describe*".to_owned() }
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_with_its_number() {
        assert_eq!(read(rule()).unwrap().rules.len(), 1);
        for wrong in [
            info::Rule { host: "https://api".to_owned(), ..rule() },
            info::Rule { method: "get it".to_owned(), ..rule() },
            info::Rule { path: "servers".to_owned(), ..rule() },
            info::Rule { cache_scope: Some("{".to_owned()), ..rule() },
            info::Rule { operation: Some(named(info::Place::Header("no header".to_owned()))), ..rule() },
            info::Rule { page: Some(info::Place::Header("no header".to_owned())), ..rule() },
            info::Rule {
                page: Some(info::Place::Query("cursor".to_owned())),
                effect: info::Effect::OperationPoll,
                ..rule()
            },
        ] {
            let text = format!("{wrong:?}");
            let error = read(wrong).expect_err(&text).to_string();
            assert!(error.contains("rule 1: "), "{error}");
        }
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
                extra: Vec::new(),
            };
            change(&mut answer);
            settings(answer).err().map(|error| error.to_string())
        };
        let json = |number: usize| {
            let place = info::Place::JsonField(format!("field-{number}"));
            if number % 2 == 0 {
                info::Rule { operation: Some(named(place)), ..rule() }
            } else {
                info::Rule { page: Some(place), ..rule() }
            }
        };
        let fits = with(|it| it.rules = vec![rule(); RULES]);
        assert_eq!(fits, None);
        let rows: [(Change, &str); 8] = [
            (|it| it.rules = vec![rule(); RULES + 1], "1001 rules, where at most 1000"),
            (|it| it.rules[0].limits = vec!["reads".to_owned(); KEYS + 1], "rule 1: 17 limits"),
            (|it| it.rules[0].path = format!("/{}", "a".repeat(LONGEST)), "rule 1: a text"),
            (|it| it.rules[0].limits = vec!["a".repeat(LONGEST + 1)], "rule 1: a text"),
            (|it| it.rules[0].cache_scope = Some("a".repeat(LONGEST + 1)), "rule 1: a text"),
            (
                |it| {
                    let place = info::Place::FormField("a".repeat(LONGEST + 1));
                    it.rules[0].operation = Some(named(place));
                },
                "rule 1: the name of a place",
            ),
            (
                |it| it.rules[0].page = Some(info::Place::Query("a".repeat(LONGEST + 1))),
                "rule 1: the name of a place",
            ),
            (
                |it| {
                    let name = "a".repeat(LONGEST + 1);
                    let place = info::Place::Query("Action".to_owned());
                    it.rules[0].operation = Some(info::Operation { place, name });
                },
                "rule 1: a text of its operation",
            ),
        ];
        for (change, expected) in rows {
            let error = with(change).unwrap_or_default();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let of = |places: usize| {
            let rules = (0..places).map(json).collect();
            settings(info::Settings { endpoints: Vec::new(), rules, limits: Vec::new(), extra: Vec::new() })
        };
        assert!(of(PLACES).is_ok());
        assert!(of(PLACES + 1).is_err_and(|error| error.to_string().contains("9 places of operations")));
    }

    #[test]
    fn a_wish_has_the_port_of_its_scheme() {
        let wished = |tls, port| {
            let host = "cloud.example".to_owned();
            wish(info::Endpoint { tls, host, port, reason: String::new(), extra: Vec::new() }).unwrap()
        };
        assert_eq!(wished(true, None).endpoint.to_string(), "https://cloud.example:443");
        assert_eq!(wished(false, None).endpoint.to_string(), "http://cloud.example:80");
        assert_eq!(wished(true, Some(8443)).endpoint.to_string(), "https://cloud.example:8443");
    }
}
