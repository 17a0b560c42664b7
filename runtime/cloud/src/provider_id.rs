//! The identity of an instance in its cloud: `spec.providerID` of a Node.
//!
//! The format can't change: a Node keeps its provider ID for life, and the ID decides which provider serves the Node.

use std::fmt;

/// `scheme://rest`, as in `azure:///subscriptions/…`. The scheme names the provider. Only the provider interprets the
/// rest; it is compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    text: String,
    scheme_length: usize,
}

/// Why a text is not a provider ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a provider ID: {problem}")]
pub struct ParseProviderIdError {
    text: String,
    problem: &'static str,
}

/// The maximum length in bytes: more than any cloud needs (Azure's reach about 300), and short enough for a log line.
const MAX_LENGTH: usize = 1024;

impl ProviderId {
    /// Parses `scheme://rest`. The scheme consists of letters, digits, `+`, `-` and `.`, and starts with a letter. The
    /// rest is not empty and has no white space or control characters.
    ///
    /// # Errors
    /// Says which of these rules the text breaks.
    pub fn parse(text: &str) -> Result<Self, ParseProviderIdError> {
        let refuse = |problem| Err(ParseProviderIdError { text: text.chars().take(80).collect(), problem });
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("expected scheme://name");
        };
        let letters = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(letters) {
            return refuse(
                "the scheme before :// must start with a letter and hold only letters, digits, + - .",
            );
        }
        if rest.is_empty() {
            return refuse("nothing follows the ://");
        }
        if rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refuse("it holds white space or a control character");
        }
        if text.len() > MAX_LENGTH {
            return refuse("it is longer than 1024 bytes");
        }
        Ok(Self { scheme_length: scheme.len(), text: text.to_owned() })
    }

    /// The whole text, as in `spec.providerID`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part before `://`.
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme_length).unwrap_or_default()
    }

    /// The part after `://`.
    pub fn rest(&self) -> &str {
        self.text.get(self.scheme_length + 3..).unwrap_or_default()
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_provider_ids_of_real_clouds_parse() {
        for (text, scheme, rest) in [
            (
                "azure:///subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/vm",
                "azure",
                "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/vm",
            ),
            ("aws:///eu-west-1a/i-0123", "aws", "/eu-west-1a/i-0123"),
            ("hcloud://4711", "hcloud", "4711"),
            ("k3s+x.y-z://a://b", "k3s+x.y-z", "a://b"),
        ] {
            let id = ProviderId::parse(text).unwrap();
            assert_eq!((id.scheme(), id.rest(), id.as_str()), (scheme, rest, text));
        }
    }

    #[test]
    fn an_invalid_provider_id_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("", "expected scheme://name"),
            ("node-1", "expected scheme://name"),
            ("://x", "must start with a letter"),
            ("1cloud://x", "must start with a letter"),
            ("my cloud://x", "must start with a letter"),
            ("cloud://", "nothing follows"),
            ("cloud://a b", "white space"),
            ("cloud://a\nb", "white space or a control"),
        ] {
            let error = ProviderId::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        assert!(ProviderId::parse(&format!("c://{}", "x".repeat(2000))).is_err());
    }

    proptest! {
        #[test]
        fn a_parsed_provider_id_prints_unchanged(text in "\\PC{0,40}|[a-z]{1,5}://\\PC{0,20}") {
            if let Ok(id) = ProviderId::parse(&text) {
                prop_assert_eq!(id.to_string(), text.clone());
                prop_assert_eq!(format!("{}://{}", id.scheme(), id.rest()), text);
            }
        }
    }
}
