//! The limits of one provider: those that its rules name, with the numbers that the provider declares and the operator
//! tightens. All keys are known from the start, so that metrics can use them as labels.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::limits::buckets::LimitId;
use crate::limits::capacity::LimitReading;
use crate::limits::decide::LimiterState;
use crate::limits::feedback::ToldLimit;
use crate::limits::limit::{Limit, LimitScope, LimitState, LimitsState, Rate};
use crate::limits::urgency::Urgency;
use crate::path::KeyPattern;
use crate::pattern::HostPattern;
use crate::problem::Problem;
use crate::request::Request;
use crate::rules::{Classification, Limits, Rule, Rules};

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
    /// The requests that count, for a limit of the operator's own.
    scope: Option<LimitScope>,
}

/// The most keys that a message lists.
const SHOWN: usize = 20;

/// Problems of limits that are each valid: the provider has too many, or the operator names one against which no request
/// would count.
pub(crate) fn problems(rules: &[Rule], declared: &[Limit], operator: &[Limit]) -> Vec<Problem> {
    let counted = counted(rules);
    let declared: HashSet<_> = declared.iter().map(|limit| limit.key.name()).collect();
    let wrong = operator.iter().filter_map(|Limit { key, scope, .. }| {
        let (is_counted, is_declared) = (counted.contains(&key.name()), declared.contains(&key.name()));
        let message = match scope {
            Some(_) if is_counted || is_declared => {
                "the provider has a limit of this name; choose another one for a limit with a match"
                    .to_owned()
            }
            None if is_declared && !is_counted => {
                format!(
                    "the provider declares this limit, but no rule of it counts a request against it; {}",
                    keys(&counted)
                )
            }
            None if !is_counted => {
                format!("the provider has no such limit; {}", keys(&counted))
            }
            _ => return None,
        };
        Some(Problem::at(format!("spec.limits.{key}"), message))
    });
    let names = counted.iter().chain(&declared).collect::<HashSet<_>>().len();
    let too_many = (names > MOST).then(|| {
        let message = format!("rules and limits name {names} limits; at most {MOST} are allowed");
        Problem::at("settings.limits", message)
    });
    too_many.into_iter().chain(wrong).collect()
}

/// The names of the limits that rules count requests against.
fn counted(rules: &[Rule]) -> BTreeSet<String> {
    rules.iter().flat_map(|rule| &rule.limits).map(KeyPattern::name).collect()
}

/// Says which keys exist.
fn keys(counted: &BTreeSet<String>) -> String {
    let shown: Vec<_> = counted.iter().take(SHOWN).map(String::as_str).collect();
    let (shown, more) = (shown.join(", "), counted.len().saturating_sub(SHOWN));
    let exist = match (counted.len(), more) {
        (0, _) => "its rules have no keys".to_owned(),
        (_, 0) => format!("its rules have the keys {shown}"),
        _ => format!("its rules have the keys {shown} and {more} more"),
    };
    format!("{exist}; a limit with a match needs none")
}

/// The declared limits that no rule counts a request against. Only requests that no rule matches count against them.
pub fn uncounted(rules: &[Rule], declared: &[Limit]) -> Vec<Problem> {
    let counted = counted(rules);
    let unnamed = declared.iter().enumerate().filter(|(_, limit)| !counted.contains(&limit.key.name()));
    unnamed
        .map(|(index, Limit { key, .. })| {
            let message =
                format!("no rule counts a request against the limit {key}, so it limits none of them");
            Problem::at(format!("settings.limits[{index}].key"), message)
        })
        .collect()
}

/// The limits of a provider.
#[derive(Debug)]
pub(crate) struct LimitTable {
    limits: Vec<LimitEntry>,
    by_name: HashMap<String, LimitId>,
    /// The limits for which answers have a number of their own.
    told: Vec<ToldLimit>,
    /// The label for the absence of a limit.
    none: Arc<str>,
}

impl LimitTable {
    pub(crate) fn new(rules: &Rules, declared: Vec<Limit>, operator: Vec<Limit>) -> Self {
        let (limits, by_name, told) = (Vec::new(), HashMap::new(), Vec::new());
        let mut known = Self { limits, by_name, told, none: "none".into() };
        let lesser = |rate: Rate, other: Option<Rate>| Some(other.map_or(rate, |other| other.least(rate)));
        for Limit { key, rate, told_by, .. } in declared {
            let id = known.id(&key);
            known.told.extend(told_by.map(|by| ToldLimit { limit: id, by }));
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
        for Limit { key, rate, scope, .. } in operator {
            let one = known.find_or_add(&key);
            one.configured = lesser(rate, one.configured);
            one.scope = scope;
        }
        known
    }

    fn find_or_add(&mut self, key: &KeyPattern) -> &mut LimitEntry {
        let id = self.id(key);
        self.limits.get_mut(id).expect("names are of limits that are there")
    }

    fn id(&mut self, key: &KeyPattern) -> LimitId {
        *self.by_name.entry(key.name()).or_insert_with(|| {
            self.limits.push(LimitEntry {
                label: key.to_string().into(),
                is_plain: key.is_plain(),
                hosts: Vec::new(),
                declared: None,
                configured: None,
                scope: None,
            });
            self.limits.len() - 1
        })
    }

    /// The limits for which answers have a number of their own.
    pub(crate) fn told(&self) -> &[ToldLimit] {
        &self.told
    }

    /// The highest rates of the limits, by [`LimitId`].
    pub(crate) fn ceilings(&self) -> Vec<Rate> {
        let most = |one: &LimitEntry| {
            let rates = [one.declared, one.configured].into_iter().flatten();
            rates.reduce(Rate::least).unwrap_or(Rate::UNDECLARED)
        };
        self.limits.iter().map(most).collect()
    }

    /// The limits that a request counts against, each with the value that selects its bucket: those that the provider's rules
    /// name, and those of the operator that match it.
    pub(crate) fn of<'a>(
        &self,
        classification: &'a Classification,
        request: &Request,
    ) -> Vec<(LimitId, &'a str)> {
        let entries = || self.limits.iter().enumerate();
        let is_matched = |one: &LimitEntry| {
            one.scope.as_ref().is_some_and(|scope| scope.holds(request, classification.effect))
        };
        let matched = entries().filter(|(_, one)| is_matched(one)).map(|(id, _)| (id, ""));
        match &classification.limits {
            Limits::Keys(keys) => {
                let found = |key: &'a crate::rules::LimitKey| {
                    Some((*self.by_name.get(&key.limit)?, key.bucket.as_str()))
                };
                keys.iter().filter_map(found).chain(matched).collect()
            }
            Limits::AllOfHost => {
                let is_of_host = |one: &LimitEntry| {
                    let named = one.hosts.iter().any(|pattern| pattern.matches(&request.host));
                    one.is_plain && one.scope.is_none() && (named || one.hosts.is_empty())
                };
                let all = entries().filter(|(_, one)| is_of_host(one));
                all.map(|(id, _)| (id, "")).chain(matched).collect()
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
    use http::Method;

    use super::*;
    use crate::effect::Effect;
    use crate::limits::limit::RequestKind;
    use crate::rules::{LimitKey, Rule};

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
    fn an_operator_limit_that_no_request_counts_against_is_a_problem() {
        let declared = limits(&[("unused", 1), ("reads", 1)]);
        let by_key = |key: &str| Limit::new(key, 1, 1.0).unwrap();
        let matched = |key: &str| by_key(key).of_requests(LimitScope::default()).unwrap();
        let told = |rules: &[Rule], limit: Limit| {
            let told: Vec<_> = problems(rules, &declared, &[limit]).iter().map(ToString::to_string).collect();
            told.join("\n")
        };
        let exist = "its rules have the keys each/{}, other, reads; a limit with a match needs none";
        for (limit, expected) in [
            (by_key("reads"), String::new()),
            (by_key("each/{9}"), String::new()),
            (by_key("raeds"), format!("spec.limits.raeds: the provider has no such limit; {exist}")),
            (by_key("other/{1}"), format!("spec.limits.other/{{1}}: the provider has no such limit; {exist}")),
            (
                by_key("unused"),
                format!("spec.limits.unused: the provider declares this limit, but no rule of it counts a request against it; {exist}"),
            ),
            (matched("everything"), String::new()),
            (
                matched("reads"),
                "spec.limits.reads: the provider has a limit of this name; choose another one for a limit with a match".to_owned(),
            ),
            (
                matched("unused"),
                "spec.limits.unused: the provider has a limit of this name; choose another one for a limit with a match".to_owned(),
            ),
        ] {
            assert_eq!(told(&rules(), limit.clone()), expected, "{limit:?}");
        }
        assert!(told(&[], by_key("a")).contains("its rules have no keys"));
        let many: Vec<_> = (10..40).map(|number| format!("k{number}")).collect();
        let many = rule("a.example", &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(told(&[many], by_key("a")).contains("k29 and 10 more"));
    }

    #[test]
    fn a_declared_limit_that_no_rule_counts_against_is_told() {
        let declared = limits(&[("reads", 1), ("unused", 1), ("each/{7}", 1)]);
        let told: Vec<_> = uncounted(&rules(), &declared).iter().map(ToString::to_string).collect();
        let expected = "settings.limits[1].key: no rule counts a request against the limit unused, so it limits none of them";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn a_limit_with_a_match_counts_what_it_matches_whatever_the_rules_say() {
        let scope = |kind| LimitScope { kind, ..LimitScope::default() };
        let matched = |key: &str, kind| Limit::new(key, 1, 1.0).unwrap().of_requests(scope(kind)).unwrap();
        let operator = vec![matched("all", RequestKind::All), matched("writes", RequestKind::Writes)];
        let known = LimitTable::new(&Rules::new(rules()).unwrap(), Vec::new(), operator);
        let request = |method| Request::parse(&method, &"https://a.example/".parse().unwrap()).unwrap();
        let key = LimitKey { limit: "reads".to_owned(), bucket: String::new() };
        for (limits, method, effect, expected) in [
            (Limits::Keys(Vec::new()), Method::GET, Effect::Read, &["all"][..]),
            (Limits::Keys(Vec::new()), Method::POST, Effect::Read, &["all", "writes"]),
            (Limits::Keys(vec![key]), Method::GET, Effect::Read, &["reads", "all"]),
            (Limits::AllOfHost, Method::GET, Effect::Write, &["reads", "all", "writes"]),
        ] {
            let classification =
                Classification { effect, limits, cache_scope: None, fold_case: false, page: None };
            let found = known.of(&classification, &request(method.clone()));
            let found: Vec<_> = found.iter().map(|(id, _)| known.label(Some(*id)).to_string()).collect();
            assert_eq!(found, expected, "{method} {classification:?}");
        }
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
            let uri = format!("https://{host}/");
            let request = Request::parse(&Method::GET, &uri.parse().unwrap()).unwrap();
            let (effect, limits) = (Effect::Write, limits.clone());
            let classification =
                Classification { effect, limits, cache_scope: None, fold_case: false, page: None };
            let found = known.of(&classification, &request);
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
