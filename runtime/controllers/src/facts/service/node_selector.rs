//! Which Nodes a Service chooses: a label selector, in the form of `kubectl get --selector`. Pure.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::facts::Labels;
use crate::label_syntax::{is_key, is_value};

/// What the labels of a Node must fulfill. Without requirements it matches every Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    /// The label has one of these values; without values, it exists with any value.
    values: Option<BTreeSet<String>>,
    /// Whether the opposite is required.
    is_negated: bool,
}

/// The most requirements of a Service: each is checked for each Node.
const MAX_REQUIREMENTS: usize = 16;

impl NodeSelector {
    /// Reads a selector as Kubernetes does. Blanks count only between words, and an empty text matches every Node.
    ///
    /// # Errors
    /// What is wrong with it, in words that fit into a message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text }.peekable();
        let mut requirements = Vec::new();
        if tokens.peek().is_none() {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                None => return Self(requirements).bounded(),
                Some(",") => {}
                Some(other) => return Err(unexpected(other)),
            }
        }
    }

    /// What both require.
    ///
    /// # Errors
    /// Where that is too much.
    pub fn and(mut self, other: Self) -> Result<Self, String> {
        self.0.extend(other.0);
        self.bounded()
    }

    fn bounded(self) -> Result<Self, String> {
        if self.0.len() > MAX_REQUIREMENTS {
            return Err(format!("more than {MAX_REQUIREMENTS} requirements"));
        }
        Ok(self)
    }

    /// Whether it matches every Node.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a Node with these labels fulfills all requirements.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.is_met(labels))
    }
}

impl Requirement {
    fn is_met(&self, labels: &Labels) -> bool {
        let Self { key, values, is_negated } = self;
        let value = labels.get(key);
        let is_one = value.is_some_and(|value| values.as_ref().is_none_or(|values| values.contains(value)));
        is_one != *is_negated
    }
}

/// The words of a selector, and the signs between them.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let is_end = |letter: char| is_sign(letter) || letter.is_whitespace();
        let end = match self.rest.chars().next()? {
            '=' | '!' if self.rest.get(1..).is_some_and(|rest| rest.starts_with('=')) => 2,
            first if is_sign(first) => 1,
            _ => self.rest.find(is_end).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        Some(token)
    }
}

const fn is_sign(letter: char) -> bool {
    matches!(letter, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

fn requirement(tokens: &mut Peekable<Tokens<'_>>) -> Result<Requirement, String> {
    let is_absent = tokens.next_if_eq(&"!").is_some();
    let key = tokens.next().ok_or_else(|| "it ends where a label is expected".to_owned())?;
    if !is_key(key) {
        return Err(unexpected(key));
    }
    let mut requirement = Requirement { key: key.to_owned(), values: None, is_negated: is_absent };
    if !is_absent && let Some(operator) = tokens.next_if(|token| *token != ",") {
        requirement.is_negated = matches!(operator, "!=" | "notin");
        requirement.values = Some(match operator {
            "=" | "==" | "!=" => [value(tokens)?].into(),
            "in" | "notin" => values(tokens)?,
            other => return Err(unexpected(other)),
        });
    }
    Ok(requirement)
}

/// The values between parentheses, at least one.
fn values(tokens: &mut Peekable<Tokens<'_>>) -> Result<BTreeSet<String>, String> {
    if tokens.next_if_eq(&"(").is_none() {
        return Err("in and notin need values in parentheses".to_owned());
    }
    if tokens.peek() == Some(&")") {
        return Err("no values in parentheses".to_owned());
    }
    let mut values = BTreeSet::new();
    loop {
        values.insert(value(tokens)?);
        match tokens.next() {
            Some(",") => {}
            Some(")") => return Ok(values),
            Some(other) => return Err(unexpected(other)),
            None => return Err("a parenthesis is not closed".to_owned()),
        }
    }
}

/// A value, which may be empty.
fn value(tokens: &mut Peekable<Tokens<'_>>) -> Result<String, String> {
    let value = tokens.next_if(|token| !token.starts_with(is_sign)).unwrap_or_default();
    if is_value(value) { Ok(value.to_owned()) } else { Err(unexpected(value)) }
}

fn unexpected(token: &str) -> String {
    format!("unexpected {}", super::shown(token))
}

#[cfg(test)]
impl NodeSelector {
    /// A valid selector.
    pub(crate) fn of(text: &str) -> Self {
        Self::parse(text).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes by their labels.
    const NODES: [(&str, &[(&str, &str)]); 4] = [
        ("web", &[("pool", "web"), ("zone", "a")]),
        ("db", &[("pool", "db"), ("example.com/spot", "")]),
        ("odd", &[("pool", "")]),
        ("bare", &[]),
    ];

    #[test]
    fn a_selector_matches_the_nodes_that_kubernetes_would_select() {
        let all = ["web", "db", "odd", "bare"];
        for (text, expected) in [
            ("", all.as_slice()),
            ("  ", &all),
            ("pool=web", &["web"]),
            ("pool==web", &["web"]),
            (" pool = web ", &["web"]),
            ("pool!=web", &["db", "odd", "bare"]),
            ("pool=", &["odd"]),
            ("pool=,zone", &[]),
            ("pool in (web, db)", &["web", "db"]),
            ("pool in(web)", &["web"]),
            ("pool in (web,)", &["web", "odd"]),
            ("pool notin (web,db)", &["odd", "bare"]),
            ("pool", &["web", "db", "odd"]),
            ("!pool", &["bare"]),
            ("! pool", &["bare"]),
            ("example.com/spot", &["db"]),
            ("pool,!example.com/spot,zone in (a,b)", &["web"]),
            ("pool=web,pool=db", &[]),
            ("in in (in)", &[]),
        ] {
            let selector = NodeSelector::parse(text).unwrap();
            let labels = |labels: &[(&str, &str)]| {
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            };
            let matched = NODES.iter().filter(|(_, node)| selector.matches(&labels(node)));
            assert_eq!(matched.map(|(name, _)| *name).collect::<Vec<_>>(), expected, "{text:?}");
            assert_eq!(selector.is_empty(), text.trim().is_empty(), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_a_reason() {
        let (long, many) = (format!("a={}", "x".repeat(64)), ["a"; MAX_REQUIREMENTS + 1].join(","));
        for (text, why) in [
            ("pool=web,", "it ends where a label is expected"),
            (",pool=web", "unexpected \",\""),
            ("pool=web zone=a", "unexpected \"zone\""),
            ("pool=web=db", "unexpected \"=\""),
            ("pool===web", "unexpected \"=\""),
            ("=web", "unexpected \"=\""),
            ("!pool=web", "unexpected \"=\""),
            ("!!pool", "unexpected \"!\""),
            ("!", "it ends where a label is expected"),
            ("pool in", "in and notin need values in parentheses"),
            ("pool in web", "in and notin need values in parentheses"),
            ("pool in ()", "no values in parentheses"),
            ("pool in (web", "a parenthesis is not closed"),
            ("pool in (web db)", "unexpected \"db\""),
            ("pool in ((web))", "unexpected \"(\""),
            ("pool notin (web))", "unexpected \")\""),
            ("pool like web", "unexpected \"like\""),
            ("cores>2", "unexpected \">\""),
            ("-pool", "unexpected \"-pool\""),
            ("pool=-web", "unexpected \"-web\""),
            ("Example.com/pool", "unexpected \"Example.com/pool\""),
            ("example.com/", "unexpected \"example.com/\""),
            ("/pool", "unexpected \"/pool\""),
            ("a/b/c", "unexpected \"a/b/c\""),
            ("pööl", "unexpected \"pööl\""),
            ("{\"pool\": \"web\"}", "unexpected \"{\\\"pool\\\":\""),
            (&long, &format!("unexpected \"{}\"", "x".repeat(64))),
            (&many, "more than 16 requirements"),
        ] {
            assert_eq!(NodeSelector::parse(text).unwrap_err(), why, "{text:?}");
        }
        let ten = NodeSelector::parse(&["a"; 10].join(",")).unwrap();
        assert!(ten.clone().and(ten).is_err(), "several selectors have one bound");
    }
}
