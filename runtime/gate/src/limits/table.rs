//! The limits of one provider: those that its rules name, with the numbers that the provider declares and the operator
//! tightens. All keys are known from the start, so that metrics can use them as labels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::limits::buckets::LimitId;
use crate::limits::capacity::LimitReading;
use crate::limits::decide::LimiterState;
use crate::limits::limit::{Limit, LimitState, LimitsState, Rate};
use crate::limits::urgency::Urgency;
use crate::path::KeyPattern;
use crate::pattern::HostPattern;
use crate::problem::Problem;
use crate::request::Host;
use crate::rules::{Limits, Rule, Rules};

/// The most limits of a provider: each has series in metrics. Azure publishes about 30.
const MOST: usize = 256;

#[derive(Debug)]
struct LimitEntry {
    label: Arc<str>,
    is_plain: bool,
    /// The hosts of the rules that name it.
    hosts: Vec<HostPattern>,
    declared: Option<Rate>,
    configured: Option<Rate>,
}

/// Problems of limits that are each valid: the provider has too many, or the operator names one that the provider does
/// not have and that would hold nothing back.
pub(crate) fn problems(rules: &[Rule], declared: &[Limit], operator: &[Limit]) -> Vec<Problem> {
    let declared = declared.iter().map(|limit| &limit.key);
    let keys = declared.chain(rules.iter().flat_map(|rule| &rule.limits));
    let names: HashSet<_> = keys.map(KeyPattern::name).collect();
    let unknown =
        operator.iter().filter(|limit| !names.contains(&limit.key.name())).map(|Limit { key, .. }| {
            let message =
                "the provider has no such limit; `pileus inspect` shows those that its rules and limits name";
            Problem::at(format!("spec.limits.{key}"), message)
        });
    let too_many = (names.len() > MOST).then(|| {
        let message = format!("rules and limits name {} limits; at most {MOST} are allowed", names.len());
        Problem::at("settings.limits", message)
    });
    too_many.into_iter().chain(unknown).collect()
}

/// The limits of a provider.
#[derive(Debug)]
pub(crate) struct LimitTable {
    limits: Vec<LimitEntry>,
    by_name: HashMap<String, LimitId>,
    /// The label for the absence of a limit.
    none: Arc<str>,
}

impl LimitTable {
    pub(crate) fn new(rules: &Rules, declared: Vec<Limit>, operator: Vec<Limit>) -> Self {
        let mut known = Self { limits: Vec::new(), by_name: HashMap::new(), none: "none".into() };
        let lesser = |rate: Rate, other: Option<Rate>| Some(other.map_or(rate, |other| other.least(rate)));
        for Limit { key, rate } in declared {
            let one = known.find_or_add(&key);
            one.declared = lesser(rate, one.declared);
        }
        for rule in rules.iter() {
            for key in &rule.limits {
                let hosts = &mut known.find_or_add(key).hosts;
                if !hosts.contains(&rule.host) {
                    hosts.push(rule.host.clone());
                }
            }
        }
        for Limit { key, rate } in operator {
            let one = known.find_or_add(&key);
            one.configured = lesser(rate, one.configured);
        }
        known
    }

    fn find_or_add(&mut self, key: &KeyPattern) -> &mut LimitEntry {
        let id = *self.by_name.entry(key.name()).or_insert_with(|| {
            self.limits.push(LimitEntry {
                label: key.to_string().into(),
                is_plain: key.is_plain(),
                hosts: Vec::new(),
                declared: None,
                configured: None,
            });
            self.limits.len() - 1
        });
        self.limits.get_mut(id).expect("names are of limits that are there")
    }

    /// The highest rates of the limits, by [`LimitId`].
    pub(crate) fn ceilings(&self) -> Vec<Rate> {
        let most = |one: &LimitEntry| {
            let rates = [one.declared, one.configured].into_iter().flatten();
            rates.reduce(Rate::least).unwrap_or(Rate::UNDECLARED)
        };
        self.limits.iter().map(most).collect()
    }

    /// The limits that a request counts against, each with the value that selects its bucket.
    pub(crate) fn of<'a>(&self, limits: &'a Limits, host: &Host) -> Vec<(LimitId, &'a str)> {
        match limits {
            Limits::Keys(keys) => {
                let found = |key: &'a crate::rules::LimitKey| {
                    Some((*self.by_name.get(&key.limit)?, key.bucket.as_str()))
                };
                keys.iter().filter_map(found).collect()
            }
            Limits::AllOfHost => {
                let is_of_host = |one: &LimitEntry| {
                    let named = one.hosts.iter().any(|pattern| pattern.matches(host));
                    one.is_plain && (named || one.hosts.is_empty())
                };
                let all = self.limits.iter().enumerate().filter(|(_, one)| is_of_host(one));
                all.map(|(id, _)| (id, "")).collect()
            }
        }
    }

    /// Maps the limits of another table to the limits of the same name in this one.
    pub(crate) fn common_limits(&self, other: &Self) -> HashMap<LimitId, LimitId> {
        let heir = |(name, id): (&String, &LimitId)| Some((*id, *self.by_name.get(name)?));
        other.by_name.iter().filter_map(heir).collect()
    }

    /// The name of a limit in metrics, logs and messages, or "none".
    pub(crate) fn label(&self, limit: Option<LimitId>) -> Arc<str> {
        let one = limit.and_then(|limit| self.limits.get(limit));
        one.map_or(&self.none, |one| &one.label).clone()
    }

    /// The present state of the limits.
    pub(crate) fn describe(&self, now: std::time::Instant, state: &mut LimiterState) -> LimitsState {
        let describe = |(one, look): (&LimitEntry, LimitReading)| {
            let LimitReading { rate, learned, tokens, buckets, paused_until } = look;
            LimitState {
                key: one.label.to_string(),
                declared: one.declared,
                configured: one.configured,
                learned,
                rate: rate.unwrap_or(Rate::UNDECLARED),
                tokens: tokens.unwrap_or_default(),
                buckets,
                paused_for: paused_until.map(|until| until.saturating_duration_since(now)),
            }
        };
        let limits = self.limits.iter().zip(state.capacity.readings(now)).map(describe).collect();
        let waiting = Urgency::ALL.map(|urgency| (urgency, state.queue.count(urgency)));
        let paused_resources = state.capacity.pauses.count(now);
        LimitsState { limits, paused_resources, waiting, waiting_bytes: state.queue.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Effect, LimitKey, Rule};

    fn rule(host: &str, limits: &[&str]) -> Rule {
        Rule {
            host: host.parse().unwrap(),
            method: "*".parse().unwrap(),
            path: "/*/*".parse().unwrap(),
            operation: None,
            effect: Effect::Read,
            limits: limits.iter().map(|key| key.parse().unwrap()).collect(),
            cache_scope: None,
            fold_case: false,
            page: None,
        }
    }

    fn rules() -> Vec<Rule> {
        vec![rule("a.example", &["reads", "each/{1}"]), rule("b.example", &["each/{2}", "other"])]
    }

    fn limits(all: &[(&str, u32)]) -> Vec<Limit> {
        all.iter().map(|(key, burst)| Limit::new(key, *burst, f64::from(*burst)).unwrap()).collect()
    }

    fn known(declared: &[(&str, u32)], operator: &[(&str, u32)]) -> LimitTable {
        LimitTable::new(&Rules::new(rules()).unwrap(), limits(declared), limits(operator))
    }

    #[test]
    fn the_lower_of_declared_and_operator_limits_is_in_force() {
        let known = known(&[("reads", 10), ("each/{1}", 5)], &[("reads", 20), ("each/{7}", 3), ("other", 4)]);
        let bursts: Vec<_> = known.ceilings().iter().map(|rate| rate.burst).collect();
        assert_eq!(bursts, [10.0, 3.0, 4.0]);
    }

    #[test]
    fn a_limit_without_numbers_holds_nothing_back() {
        assert_eq!(known(&[], &[]).ceilings(), [Rate::UNDECLARED; 3]);
    }

    #[test]
    fn an_operator_limit_that_the_provider_does_not_have_is_a_problem() {
        let operator = limits(&[("unused", 1), ("raeds", 1), ("each/{9}", 1), ("other/{1}", 1)]);
        let told: Vec<_> = problems(&rules(), &limits(&[("unused", 1)]), &operator)
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected =
            ["spec.limits.raeds: the provider has no such limit", "spec.limits.other/{1}: the provider"];
        assert!(told.iter().zip(expected).all(|(told, expected)| told.starts_with(expected)), "{told:#?}");
        assert_eq!(told.len(), expected.len(), "{told:#?}");
    }

    #[test]
    fn the_number_of_limits_is_bounded_for_metrics() {
        let many: Vec<_> = (0..254).map(|number| format!("limit{number}")).collect();
        let many: Vec<_> = many.iter().map(|key| (key.as_str(), 1)).collect();
        assert_eq!(problems(&rules(), &limits(&many[..253]), &[]), []);
        let told = problems(&rules(), &limits(&many), &[]);
        assert!(told.len() == 1 && told[0].to_string().contains("name 257 limits; at most 256"), "{told:?}");
    }

    #[test]
    fn a_request_that_no_rule_matches_counts_against_every_plain_limit_of_its_host() {
        let known = known(&[("unused", 1)], &[]);
        let labels = |limits: &Limits, host: &str| {
            let found = known.of(limits, &Host::parse(host).unwrap());
            found
                .iter()
                .map(|(id, bucket)| format!("{} {bucket}", known.label(Some(*id))))
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&Limits::AllOfHost, "a.example"), ["unused ", "reads "]);
        assert_eq!(labels(&Limits::AllOfHost, "b.example"), ["unused ", "other "]);
        let key = |limit: &str, bucket: &str| LimitKey { limit: limit.to_owned(), bucket: bucket.to_owned() };
        let keys = Limits::Keys(vec![key("each/{}", "each/x"), key("reads", "")]);
        assert_eq!(labels(&keys, "a.example"), ["each/{1} each/x", "reads "]);
    }
}
