//! Which limits there are: those that rules name, with the numbers that the provider declares and the operator
//! tightens. Their keys are known from the start, so that metrics can carry them.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use crate::{
    error::Error,
    limits::{buckets::LimitId, decide::State, supply::Look, urgency::Urgency},
    path::KeyPattern,
    pattern::HostPattern,
    problem::Problem,
    request::Host,
    rules::{Limits, Rule, Rules},
};

/// The most limits that a provider may have: each has series in metrics. Azure publishes about 30.
const MOST: usize = 256;

/// How many requests a limit lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// At once, after a pause.
    pub burst: f64,
    /// In the long run, each second.
    pub per_second: f64,
}

impl Rate {
    /// What holds where nobody declared a number: so much that it never holds anything back, until the cloud refuses.
    pub(crate) const UNDECLARED: Self = Self { burst: 10_000.0, per_second: 10_000.0 };

    /// The lesser of both.
    pub(crate) fn least(self, other: Self) -> Self {
        let Self { burst, per_second } = other;
        Self { burst: self.burst.min(burst), per_second: self.per_second.min(per_second) }
    }
}

/// A limit with its numbers, as a provider declares it or an operator tightens it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    key: KeyPattern,
    rate: Rate,
}

impl Limit {
    /// The bursts that anything can be done with.
    pub const BURSTS: RangeInclusive<u32> = 1..=1_000_000;
    /// The same for the requests a second in the long run.
    pub const RATES: RangeInclusive<f64> = 0.001..=100_000.0;

    /// The limit of this key, which lets through so many requests at once and so many each second in the long run.
    ///
    /// Errors: [`Error::Syntax`] for a key that isn't written as it must be, and for numbers outside
    /// [`Self::BURSTS`] and [`Self::RATES`].
    pub fn new(key: &str, burst: u32, per_second: f64) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "limit",
            text: key.to_owned(),
            cause,
            example: "a burst of 200 and 10 per second",
        };
        if !Self::BURSTS.contains(&burst) {
            return Err(wrong("has a burst that isn't in 1 to 1000000"));
        }
        if !Self::RATES.contains(&per_second) {
            return Err(wrong("has a rate that isn't in 0.001 to 100000 per second"));
        }
        Ok(Self { key: key.parse()?, rate: Rate { burst: f64::from(burst), per_second } })
    }

    /// Its key.
    pub fn key(&self) -> &KeyPattern {
        &self.key
    }

    /// How many requests it lets through.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether both are about the same: the numbers in a key are those of the path of a rule, and don't tell limits apart.
    pub fn is_the_same_as(&self, other: &Self) -> bool {
        self.key.name() == other.key.name()
    }
}

/// What one limit is like at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitState {
    /// Its key.
    pub key: String,
    /// What the provider declares.
    pub declared: Option<Rate>,
    /// What the operator allows at most.
    pub configured: Option<Rate>,
    /// What the cloud has shown to let through, where that is less; of several buckets the slowest.
    pub learned: Option<Rate>,
    /// What it lets through now: the least of all these, or so much that it holds nothing back.
    pub rate: Rate,
    /// How many requests it would let through at once if it weren't closed; of several buckets the emptiest.
    pub tokens: f64,
    /// How many buckets it has at the moment.
    pub buckets: usize,
    /// For how long it is still closed, since the cloud refused; of several buckets the longest.
    pub closed_for: Option<Duration>,
}

/// What all limits of a provider are like at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsState {
    /// Each limit.
    pub limits: Vec<LimitState>,
    /// How many resources are closed for themselves.
    pub closed_resources: usize,
    /// How many requests wait, from the most urgent.
    pub waiting: [(Urgency, usize); 3],
    /// What these hold in memory, in bytes.
    pub waiting_bytes: usize,
}

#[derive(Debug)]
struct One {
    label: Arc<str>,
    is_plain: bool,
    /// Of the rules that name it.
    hosts: Vec<HostPattern>,
    declared: Option<Rate>,
    configured: Option<Rate>,
}

/// What is wrong with limits that are each written as they must be: the provider has too many, or the operator names one
/// that it doesn't have, which would hold nothing back.
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
        let message = format!("rules and limits name {} limits, where at most {MOST} are taken", names.len());
        Problem::at("settings.limits", message)
    });
    too_many.into_iter().chain(unknown).collect()
}

/// The limits of a provider.
#[derive(Debug)]
pub(crate) struct Known {
    limits: Vec<One>,
    by_name: HashMap<String, LimitId>,
    /// The label where it is no limit.
    none: Arc<str>,
}

impl Known {
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

    fn find_or_add(&mut self, key: &KeyPattern) -> &mut One {
        let id = *self.by_name.entry(key.name()).or_insert_with(|| {
            self.limits.push(One {
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

    /// What the limits let through at most, by their numbers.
    pub(crate) fn most(&self) -> Vec<Rate> {
        let most = |one: &One| {
            let rates = [one.declared, one.configured].into_iter().flatten();
            rates.reduce(Rate::least).unwrap_or(Rate::UNDECLARED)
        };
        self.limits.iter().map(most).collect()
    }

    /// The limits that a request counts against, each with the name of its bucket.
    pub(crate) fn of<'a>(&self, limits: &'a Limits, host: &Host) -> Vec<(LimitId, &'a str)> {
        match limits {
            Limits::Keys(keys) => {
                let found = |key: &'a crate::rules::LimitKey| {
                    Some((*self.by_name.get(&key.limit)?, key.bucket.as_str()))
                };
                keys.iter().filter_map(found).collect()
            }
            Limits::AllOfHost => {
                let is_of_host = |one: &One| {
                    let named = one.hosts.iter().any(|pattern| pattern.matches(host));
                    one.is_plain && (named || one.hosts.is_empty())
                };
                let all = self.limits.iter().enumerate().filter(|(_, one)| is_of_host(one));
                all.map(|(id, _)| (id, "")).collect()
            }
        }
    }

    /// Which limit of these is the one that another set of limits has this number for.
    pub(crate) fn heirs(&self, other: &Self) -> HashMap<LimitId, LimitId> {
        let heir = |(name, id): (&String, &LimitId)| Some((*id, *self.by_name.get(name)?));
        other.by_name.iter().filter_map(heir).collect()
    }

    /// What metrics, logs and messages call a limit, or that it is none.
    pub(crate) fn label(&self, limit: Option<LimitId>) -> Arc<str> {
        let one = limit.and_then(|limit| self.limits.get(limit));
        one.map_or(&self.none, |one| &one.label).clone()
    }

    /// What the limits are like now.
    pub(crate) fn describe(&self, now: std::time::Instant, state: &mut State) -> LimitsState {
        let describe = |(one, look): (&One, Look)| {
            let Look { rate, learned, tokens, buckets, closed_until } = look;
            LimitState {
                key: one.label.to_string(),
                declared: one.declared,
                configured: one.configured,
                learned,
                rate: rate.unwrap_or(Rate::UNDECLARED),
                tokens: tokens.unwrap_or_default(),
                buckets,
                closed_for: closed_until.map(|until| until.saturating_duration_since(now)),
            }
        };
        let limits = self.limits.iter().zip(state.supply.looks(now)).map(describe).collect();
        let waiting = Urgency::ALL.map(|urgency| (urgency, state.queue.count(urgency)));
        let closed_resources = state.supply.closures.count(now);
        LimitsState { limits, closed_resources, waiting, waiting_bytes: state.queue.bytes() }
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

    fn known(declared: &[(&str, u32)], operator: &[(&str, u32)]) -> Known {
        Known::new(&Rules::new(rules()).unwrap(), limits(declared), limits(operator))
    }

    #[test]
    fn the_lesser_of_what_provider_and_operator_say_holds() {
        let known = known(&[("reads", 10), ("each/{1}", 5)], &[("reads", 20), ("each/{7}", 3), ("other", 4)]);
        let bursts: Vec<_> = known.most().iter().map(|rate| rate.burst).collect();
        assert_eq!(bursts, [10.0, 3.0, 4.0]);
    }

    #[test]
    fn a_limit_without_numbers_holds_nothing_back() {
        assert_eq!(known(&[], &[]).most(), [Rate::UNDECLARED; 3]);
    }

    #[test]
    fn a_limit_of_the_operator_that_the_provider_does_not_have_is_a_mistake() {
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
    fn a_provider_has_no_more_limits_than_metrics_can_bear() {
        let many: Vec<_> = (0..254).map(|number| format!("limit{number}")).collect();
        let many: Vec<_> = many.iter().map(|key| (key.as_str(), 1)).collect();
        assert_eq!(problems(&rules(), &limits(&many[..253]), &[]), []);
        let told = problems(&rules(), &limits(&many), &[]);
        assert!(
            told.len() == 1 && told[0].to_string().contains("name 257 limits, where at most 256"),
            "{told:?}"
        );
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

    #[test]
    fn numbers_that_nothing_can_be_done_with_are_refused() {
        for (burst, per_second) in
            [(0, 1.0), (1_000_001, 1.0), (1, 0.0), (1, -1.0), (1, f64::NAN), (1, f64::INFINITY), (1, 1e6)]
        {
            assert!(Limit::new("reads", burst, per_second).is_err(), "{burst} {per_second}");
        }
        assert!(Limit::new("reads/{", 1, 1.0).is_err());
        assert!(Limit::new("reads", 1, 0.001).is_ok());
    }
}
