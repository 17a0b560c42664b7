//! The annotations of a Service: those that the provider reads, and those that look as if it did.

use std::collections::BTreeMap;

use pileus_cloud::{AnnotationType, ServiceRequirements};

use super::{NodeSelector, ranges, shown};
use crate::well_known::ANNOTATION_SOURCE_RANGES;

/// The annotations that `requirements` names, in the order of their keys. Booleans are in canonical form, so that a provider
/// compares with one word, and another spelling is no change.
pub(super) fn annotations(
    all: BTreeMap<String, String>,
    requirements: &ServiceRequirements,
    problems: &mut Vec<String>,
) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for (key, value) in all {
        if let Some(kind) = type_of(&key, requirements) {
            let value = checked(&key, value, kind, problems);
            named.push((key, value));
        }
    }
    named
}

/// The type of the value of an annotation that the provider reads.
fn type_of(key: &str, requirements: &ServiceRequirements) -> Option<AnnotationType> {
    let mut matching = requirements.annotations.iter().filter(|(pattern, _)| matches_pattern(pattern, key));
    matching.next().map(|(_, kind)| *kind)
}

/// The value in its canonical form, and what is wrong with it.
fn checked(key: &str, value: String, kind: AnnotationType, problems: &mut Vec<String>) -> String {
    let expected = match kind {
        AnnotationType::Boolean => match boolean(&value) {
            Some(is) => return is.to_string(),
            None => "true or false",
        },
        AnnotationType::Integer if value.parse::<i64>().is_err() => "a whole number",
        AnnotationType::RangeList if !value.trim().is_empty() => {
            let texts: Vec<&str> = value.split(',').collect();
            ranges(&texts, &format!("annotation {key}"), problems);
            return value;
        }
        _ => return value,
    };
    problems.push(format!("annotation {key} has an invalid value {}: use {expected}", shown(&value)));
    value
}

/// What the annotations of type node selector, among those that the provider reads, require together.
pub(super) fn node_selector(
    named: &[(String, String)],
    requirements: &ServiceRequirements,
    problems: &mut Vec<String>,
) -> NodeSelector {
    let mut all = NodeSelector::default();
    let is_selector = |key: &str| type_of(key, requirements) == Some(AnnotationType::NodeSelector);
    for (key, value) in named.iter().filter(|(key, _)| is_selector(key)) {
        match NodeSelector::parse(value).and_then(|selector| all.clone().and(selector)) {
            Ok(both) => all = both,
            Err(problem) => problems.push(format!(
                "annotation {key} has an invalid label selector {}: {problem}; use one such as pool=web,!spot",
                shown(value)
            )),
        }
    }
    all
}

/// The annotations that the provider sets.
pub(super) fn written_annotations(
    all: &BTreeMap<String, String>,
    requirements: &ServiceRequirements,
) -> BTreeMap<String, String> {
    let keys = requirements.written_annotations.iter();
    keys.filter_map(|key| Some((key.clone(), all.get(key)?.clone()))).collect()
}

/// Whether a provider may set an annotation to this value, or remove it: it has named the key, and the value doesn't make the
/// Service invalid.
pub fn is_valid_annotation(key: &str, value: Option<&str>, requirements: &ServiceRequirements) -> bool {
    let named: Vec<_> = value.map(|value| (key.to_owned(), value.to_owned())).into_iter().collect();
    let mut problems = Vec::new();
    node_selector(&named, requirements, &mut problems);
    annotations(named.into_iter().collect(), requirements, &mut problems);
    problems.is_empty() && requirements.written_annotations.iter().any(|written| written == key)
}

/// A boolean as the users of other controllers write it: what Go's `strconv.ParseBool` accepts, which most controllers use,
/// and the two words in any case, as Azure's controller accepts.
fn boolean(text: &str) -> Option<bool> {
    let is = |words: [&str; 3]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match text {
        _ if is(["true", "t", "1"]) => Some(true),
        _ if is(["false", "f", "0"]) => Some(false),
        _ => None,
    }
}

/// Whether a pattern matches a key. A pattern has at most one `*`, which stands for at least one character.
fn matches_pattern(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((before, after)) => {
            key.len() > before.len() + after.len() && key.starts_with(before) && key.ends_with(after)
        }
    }
}

/// The prefixes of the annotations by which users configure load balancers in the clouds' own controllers.
const LOAD_BALANCER_PREFIXES: [&str; 17] = [
    "service.beta.kubernetes.io/",
    "service.kubernetes.io/",
    "cloud.google.com/",
    "networking.gke.io/",
    "load-balancer.hetzner.cloud/",
    "loadbalancer.openstack.org/",
    "oci.oraclecloud.com/",
    "oci-network-load-balancer.oraclecloud.com/",
    "kubernetes.digitalocean.com/",
    "kubernetes.civo.com/",
    "kubernetes.io/elb.",
    "service.cloud.tencent.com/",
    "yandex.cpi.flant.com/",
    "metallb.universe.tf/",
    "metallb.io/",
    "lbipam.cilium.io/",
    "kube-vip.io/",
];

/// Annotations with such a prefix that Kubernetes itself reads, or a controller writes, and that load balancers don't depend on.
const OTHER_ANNOTATIONS: [&str; 6] = [
    ANNOTATION_SOURCE_RANGES,
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/headless",
    "cloud.google.com/neg",
    "cloud.google.com/neg-status",
];

/// The most warnings about one Service, so that comparing keys stays cheap.
const MAX_UNREAD: usize = 8;

/// The most changed characters by which a key with another prefix is still taken for a misspelled one.
const MAX_TYPOS: usize = 2;

/// Warns of annotations that have no effect although they look like settings of a load balancer: a misspelled one, or one of
/// another cloud's controller. A load balancer that was internal there would be public here.
pub(super) fn unread_annotations(
    all: &BTreeMap<String, String>,
    requirements: &ServiceRequirements,
    warnings: &mut Vec<String>,
) {
    let read: Vec<&str> = requirements.annotations.iter().map(|(pattern, _)| pattern.as_str()).collect();
    let prefixes: Vec<&str> = read.iter().filter_map(|key| key.split_inclusive('/').next()).collect();
    let has_prefix = |key: &str| {
        let declared = prefixes.iter().filter(|prefix| prefix.ends_with('/'));
        LOAD_BALANCER_PREFIXES.iter().chain(declared).any(|prefix| key.starts_with(prefix))
    };
    let is_unread = |key: &&String| {
        !OTHER_ANNOTATIONS.contains(&key.as_str())
            && !read.iter().any(|pattern| matches_pattern(pattern, key))
            && !requirements.written_annotations.contains(key)
    };
    let is_typo = |key: &str| read.iter().any(|other| is_similar(key, other));
    let unread = all.keys().filter(is_unread).filter(|key| has_prefix(key) || is_typo(key));
    for key in unread.take(MAX_UNREAD) {
        let nearest = read.iter().min_by_key(|other| distance(key, other));
        let nearest = nearest.map_or_else(
            || "it reads no annotations".to_owned(),
            |nearest| format!("the nearest one that it reads is {nearest}"),
        );
        warnings
            .push(format!("annotation {key} has no effect, since the provider doesn't read it; {nearest}"));
    }
}

/// How far a key that is read is from one that isn't. Controllers of other clouds often put more words before the same name.
fn distance(key: &str, other: &str) -> (bool, usize) {
    let name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    (!name(key).contains(&name(other)), strsim::levenshtein(key, other))
}

/// Whether two keys differ in a few characters. Keys of very different lengths aren't compared.
fn is_similar(key: &str, other: &str) -> bool {
    key.len().abs_diff(other.len()) <= MAX_TYPOS && strsim::levenshtein(key, other) <= MAX_TYPOS
}
