//! Labels and label selectors with the syntax of the API. Pure.

use std::collections::BTreeMap;

use crate::refusal::Refusal;

/// The labels of a resource.
pub type Labels = BTreeMap<String, String>;

/// The longest name of a key, and the longest value.
const MAX_NAME: usize = 63;

/// The longest prefix of a key.
const MAX_PREFIX: usize = 253;

/// The longest selector of a target.
const MAX_SELECTOR: usize = 1_000;

/// Checks keys and values of labels.
pub(super) fn check(labels: &Labels) -> Result<(), Refusal> {
    for (key, value) in labels {
        if !is_key(key) {
            return Err(Refusal::invalid("labels", format!("label key '{key}' is not correctly formatted")));
        }
        if !is_value(value) {
            return Err(Refusal::invalid(
                "labels",
                format!("label value '{value}' (key: {key}) is not correctly formatted"),
            ));
        }
    }
    Ok(())
}

fn is_name(name: &str, most: usize) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= most
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        // The API reserves the prefix for its own labels.
        Some((prefix, name)) => {
            prefix != "hetzner.cloud" && is_name(prefix, MAX_PREFIX) && is_name(name, MAX_NAME)
        }
        None => is_name(key, MAX_NAME),
    }
}

fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value, MAX_NAME)
}

/// A parsed label selector: all of its terms must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    /// The key must have one of these values, or any value.
    values: Option<Vec<String>>,
    is_negated: bool,
}

impl Selector {
    /// Parses the terms `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a,b)` and `k notin (a,b)`, separated by commas. The error
    /// names `field`.
    pub(super) fn parse(text: &str, field: &str) -> Result<Self, Refusal> {
        let invalid = || Refusal::invalid(field, format!("label selector '{text}' is invalid"));
        if text.len() > MAX_SELECTOR {
            return Err(invalid());
        }
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let mut depth = 0_i32;
        let terms = text.split(|character| {
            depth += i32::from(character == '(') - i32::from(character == ')');
            character == ',' && depth == 0
        });
        terms.map(|term| Term::parse(term.trim()).ok_or_else(invalid)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it has no terms and so matches everything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels match.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|term| term.matches(labels))
    }
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let term = |key: &str, values: Option<Vec<String>>, is_negated| {
            let is_valid = is_key(key) && values.iter().flatten().all(|value| is_value(value));
            is_valid.then(|| Self { key: key.to_owned(), values, is_negated })
        };
        let set = |list: &str| {
            let inner = list.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
        };
        let one = |value: &str| Some(vec![value.trim().to_owned()]);
        if let Some((key, list)) = text.split_once(" notin ") {
            return term(key.trim(), Some(set(list)?), true);
        }
        if let Some((key, list)) = text.split_once(" in ") {
            return term(key.trim(), Some(set(list)?), false);
        }
        if let Some((key, value)) = text.split_once("!=") {
            return term(key.trim(), one(value), true);
        }
        if let Some((key, value)) = text.split_once('=') {
            return term(key.trim(), one(value.strip_prefix('=').unwrap_or(value)), false);
        }
        match text.strip_prefix('!') {
            Some(key) => term(key.trim(), None, true),
            None => term(text, None, false),
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        let holds = labels.get(&self.key).is_some_and(|value| {
            self.values.as_ref().is_none_or(|values| values.iter().any(|known| known == value))
        });
        holds != self.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn keys_may_have_a_prefix_and_values_may_not() {
        let (long, longer) = ("x".repeat(63), "x".repeat(64));
        let table = [
            ("env", "prod", true),
            ("hcloud-ccm/service-uid", "0d3b8b1e-6f2b-4b55", true),
            ("a.b_c-d", "", true),
            (&long, &long, true),
            (&longer, "", false),
            ("k", &longer, false),
            ("k", "default/web", false),
            ("k", "-a", false),
            ("k", "a.", false),
            ("k", "a b", false),
            ("", "v", false),
            ("a/b/c", "v", false),
            ("/b", "v", false),
            ("hetzner.cloud/x", "v", false),
        ];
        for (key, value, is_valid) in table {
            assert_eq!(check(&labels(&[(key, value)])).is_ok(), is_valid, "{key}={value}");
        }
    }

    #[test]
    fn selectors_match_as_documented() {
        let resource = labels(&[("env", "prod"), ("tier", "web"), ("empty", "")]);
        let table = [
            ("", true),
            ("env", true),
            ("!env", false),
            ("none", false),
            ("!none", true),
            ("env=prod", true),
            ("env==prod", true),
            ("env = prod", true),
            ("env=dev", false),
            ("env!=dev", true),
            ("env!=prod", false),
            ("none!=prod", true),
            ("empty=", true),
            ("env in (dev,prod)", true),
            ("env in (dev, test)", false),
            ("env notin (dev)", true),
            ("none notin (dev)", true),
            ("env=prod,tier=web", true),
            ("env in (dev,prod),tier=db", false),
            ("tier=web, env in (dev,prod)", true),
        ];
        for (text, expected) in table {
            assert_eq!(Selector::parse(text, "s").unwrap().matches(&resource), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused() {
        for text in ["=v", "k=a/b", "k in a", "k in (a", "k,,l", "a b", "k=v w", "!"] {
            assert!(Selector::parse(text, "s").is_err(), "{text}");
        }
        assert!(Selector::parse(&"k,".repeat(600), "s").is_err());
    }
}
