//! What follows from a provider's configuration, in the provider's opinion: the hosts that it needs, what its requests
//! mean, and what its cloud allows. Parsed into the gate's own types, so that nothing of it can be misread later.

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
        let answer = call(self, info_terms("configure", limits, metrics), move |store, instance| {
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
            Err(problems) => Err(Error::Configuration(problems.into_iter().map(problem).collect())),
        }
    }
}

fn settings(answer: info::Settings) -> Result<Settings, Error> {
    let info::Settings { endpoints, rules, limits, extra: _ } = answer;
    let limit = |info::Limit { key, capacity, per_minute, extra: _ }| PublishedLimit {
        key: text(&key),
        capacity,
        per_minute,
    };
    Ok(Settings {
        wishes: endpoints.into_iter().map(wish).collect::<Result<_, _>>()?,
        rules: rules
            .into_iter()
            .enumerate()
            .map(|(index, answer)| rule(index, answer))
            .collect::<Result<_, _>>()?,
        limits: limits.into_iter().map(limit).collect(),
    })
}

fn wish(answer: info::Endpoint) -> Result<Wish, Error> {
    let info::Endpoint { tls, host, port, reason, extra: _ } = answer;
    let host = HostPattern::from_str(&host).map_err(|error| Error::Settings(text(&error.to_string())))?;
    Ok(Wish { endpoint: Endpoint::new(tls, host, port), reason: text(&reason) })
}

fn rule(index: usize, answer: info::Rule) -> Result<Rule, Error> {
    let info::Rule { host, method, path, operation, effect, limits, cache_scope, fold_case, extra: _ } =
        answer;
    let rule_is_wrong = |why: String| Error::Settings(format!("rule {}: {}", index + 1, text(&why)));
    let wrong = |error: pileus_gate::Error| rule_is_wrong(error.to_string());
    let effect = match effect {
        info::Effect::Read => Effect::Read,
        info::Effect::Write => Effect::Write,
        info::Effect::OperationPoll => Effect::OperationPoll,
    };
    Ok(Rule {
        host: host.parse().map_err(wrong)?,
        method: method.parse().map_err(wrong)?,
        path: path.parse().map_err(wrong)?,
        operation: operation.map(rule_operation).transpose().map_err(rule_is_wrong)?,
        effect,
        limits: limits.iter().map(|key| key.parse()).collect::<Result<_, _>>().map_err(wrong)?,
        cache_scope: cache_scope.as_deref().map(KeyPattern::from_str).transpose().map_err(wrong)?,
        fold_case,
    })
}

fn rule_operation(answer: info::Operation) -> Result<Operation, String> {
    let info::Operation { place, name } = answer;
    let place = match place {
        info::OperationPlace::Query(name) => Place::Query(name),
        info::OperationPlace::Header(name) => {
            let header = http::HeaderName::from_str(&name);
            Place::Header(header.map_err(|_| format!("{:?} is no header name", text(&name)))?)
        }
        info::OperationPlace::FormField(name) => Place::FormField(name),
        info::OperationPlace::JsonField(name) => Place::JsonField(name),
    };
    Ok(Operation { place, name: TextPattern::from_str(&name).map_err(|error| error.to_string())? })
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

    fn named(place: info::OperationPlace) -> info::Operation {
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
            info::Rule {
                operation: Some(named(info::OperationPlace::Header("no header".to_owned()))),
                ..rule()
            },
        ] {
            let text = format!("{wrong:?}");
            let error = read(wrong).expect_err(&text).to_string();
            assert!(error.contains("rule 1: "), "{error}");
        }
        let query = named(info::OperationPlace::Query("Action".to_owned()));
        assert!(read(info::Rule { operation: Some(query), ..rule() }).is_ok());
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
