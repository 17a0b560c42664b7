//! How operators and providers write hosts, methods and operation names. Each pattern is read strictly, once, when a
//! document or a provider's settings are loaded, so that a mistake is an error then and not a grant that means something
//! else later.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::request::Host;

/// A host or all names below one: `api.example.com`, `10.0.0.5`, `*.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// This host alone.
    Exact(Host),
    /// Every name below this one, at any depth, but not this name.
    Below(String),
}

impl HostPattern {
    /// Whether the pattern matches this host.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(exact), _) => exact == host,
            (Self::Below(parent), Host::Name(name)) => is_below(name, parent),
            (Self::Below(_), Host::Ip(_)) => false,
        }
    }

    /// Whether the pattern matches every host that the other matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Below(parent), Self::Below(name)) => name == parent || is_below(name, parent),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}

impl FromStr for HostPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "host",
            // The text before an @ usually holds a password.
            text: text.rsplit('@').next().unwrap_or_default().to_owned(),
            cause,
            example: "api.example.com, *.example.com or 10.0.0.5, with scheme and port in fields of their own",
        };
        if let Some(parent) = text.strip_prefix("*.") {
            return match Host::parse(parent).map_err(wrong)? {
                Host::Name(name) if !name.contains('*') => Ok(Self::Below(name)),
                _ => Err(wrong("has *. in front of something that isn't a name")),
            };
        }
        if text.contains('*') {
            return Err(wrong("has a * elsewhere than in a leading *."));
        }
        Ok(Self::Exact(Host::parse(text).map_err(wrong)?))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

/// A method, or `*` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodPattern {
    /// Every method.
    Any,
    /// This method alone.
    Exact(String),
}

impl MethodPattern {
    /// Whether the pattern matches this method.
    pub fn matches(&self, method: &http::Method) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == method.as_str(),
        }
    }
}

impl FromStr for MethodPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "*" => Ok(Self::Any),
            _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                Ok(Self::Exact(text.to_owned()))
            }
            _ => Err(Error::Syntax {
                kind: "method",
                text: text.to_owned(),
                cause: "isn't a word in upper-case letters",
                example: "GET, or * for any",
            }),
        }
    }
}

impl fmt::Display for MethodPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

/// A text in which one `*` may match any text, including an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPattern {
    before: String,
    after: Option<String>,
}

impl TextPattern {
    /// Whether the pattern matches this text.
    pub fn matches(&self, text: &str) -> bool {
        match (text.strip_prefix(self.before.as_str()), &self.after) {
            (Some(rest), Some(after)) => rest.ends_with(after.as_str()),
            (Some(rest), None) => rest.is_empty(),
            (None, _) => false,
        }
    }
}

impl FromStr for TextPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "name pattern",
            text: text.to_owned(),
            cause,
            example: "DescribeInstances or Describe*",
        };
        let (before, after) = match text.split_once('*') {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        if text.is_empty() {
            return Err(wrong("is empty"));
        }
        if after.is_some_and(|after| after.contains('*')) {
            return Err(wrong("has more than one *"));
        }
        Ok(Self { before: before.to_owned(), after: after.map(str::to_owned) })
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        self.after.iter().try_for_each(|after| write!(f, "*{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_for<P: FromStr<Err = Error>>(pattern: &str, matches: impl Fn(P) -> bool) -> bool {
        matches(pattern.parse().unwrap_or_else(|error| panic!("{pattern}: {error}")))
    }

    #[test]
    fn a_host_pattern_matches_one_host_or_the_names_below_one() {
        let rows = [
            ("api.example.com", "api.example.com", true),
            ("API.example.com.", "api.example.com", true),
            ("api.example.com", "x.api.example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
            ("*.example.com", "example.com.evil.org", false),
            ("10.0.0.5", "10.0.0.5", true),
            ("10.0.0.5", "0xa000005", true),
            ("::1", "[::1]", true),
            ("[::ffff:10.0.0.5]", "10.0.0.5", true),
        ];
        for (pattern, host, expected) in rows {
            let host = Host::parse(host).unwrap();
            assert_eq!(is_for(pattern, |p: HostPattern| p.matches(&host)), expected, "{pattern} for {host}");
        }
    }

    #[test]
    fn a_pattern_covers_another_as_a_whole_or_not_at_all() {
        let rows = [
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.eu.example.com", true),
            ("*.eu.example.com", "*.example.com", false),
            ("api.example.com", "*.example.com", false),
            ("*.example.com", "api.example.com", true),
        ];
        for (grant, other, expected) in rows {
            let other: HostPattern = other.parse().unwrap();
            assert_eq!(is_for(grant, |p: HostPattern| p.covers(&other)), expected, "{grant} covers {other}");
        }
    }

    #[test]
    fn a_star_in_a_name_matches_any_text() {
        let rows = [
            ("DescribeInstances", "DescribeInstances", true),
            ("DescribeInstances", "DescribeInstancesX", false),
            ("Describe*", "DescribeInstances", true),
            ("Describe*", "Describe", true),
            ("*.get", "compute.get", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(is_for(pattern, |p: TextPattern| p.matches(text)), expected, "{pattern} for {text}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_is_written() {
        for text in ["*", "GET"] {
            assert_eq!(text.parse::<MethodPattern>().unwrap().to_string(), text);
        }
        for text in ["*", "DescribeInstances", "Describe*", "*.get", "a*b"] {
            assert_eq!(text.parse::<TextPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_mistake_is_refused_with_a_valid_example() {
        fn message<P: FromStr<Err = Error> + fmt::Debug>(text: &str) -> String {
            text.parse::<P>().expect_err(text).to_string()
        }
        for text in [
            "",
            "*",
            "https://a.example",
            "a.example:443",
            "a.example/x",
            "a.*.example",
            "*.*.a",
            "*.10.0.0.5",
        ] {
            assert!(message::<HostPattern>(text).contains("*.example.com"), "{text}");
        }
        for text in ["", "get", "GET,PUT", "G*"] {
            assert!(message::<MethodPattern>(text).contains("* for any"), "{text}");
        }
        for text in ["", "a*b*"] {
            assert!(message::<TextPattern>(text).contains("Describe*"), "{text}");
        }
    }
}
