//! Identities that sign without a key of their own (keyless): a person or a workflow, as a provider of identities knows it. A
//! certificate authority binds the key of one signature to the identity, and a log proves when. Pure.

use std::sync::Arc;

use crate::trust::keyless;

/// An identity that may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The URL of the provider that vouches for it, as in `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// Who it is there.
    pub subject: Subject,
    /// The authorities and logs whose word counts.
    pub root: TrustedRoot,
}

/// Who an identity is: an email address, or the URL of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// This one.
    Exact(String),
    /// All that match.
    Pattern(SubjectPattern),
}

/// A pattern of subjects, in which `*` stands for any characters except `/`. So the author of a branch can't make its name
/// look like another workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectPattern(String);

/// Authorities and logs, as a file `trusted_root.json` of Sigstore lists them with their times of validity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TrustedRoot {
    /// Those of Sigstore's public instance, as this build knows them.
    #[default]
    PublicGood,
    /// Those of a file, whose text this is.
    Own(Arc<str>),
}

impl TrustedRoot {
    /// Reads the text of a file `trusted_root.json`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let root = Self::Own(text.into());
        keyless::check(&root).map(|()| root)
    }
}

impl SubjectPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if !text.contains('*') {
            return Err(
                "a pattern has a `*`, which stands for any characters except `/`; use `subject` for one subject",
            );
        }
        if text.chars().all(|letter| "*/@.:".contains(letter)) {
            return Err("the pattern matches every subject; name what they have in common");
        }
        Ok(Self(text.to_owned()))
    }

    fn matches(&self, subject: &str) -> bool {
        let (pattern, subject) = (self.0.split('/'), subject.split('/'));
        pattern.clone().count() == subject.clone().count()
            && pattern.zip(subject).all(|(pattern, part)| part_matches(pattern, part))
    }
}

/// Whether a part between slashes matches. The leftmost match of each piece leaves the most for those that follow.
fn part_matches(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = part.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

impl Identity {
    /// Whether a certificate with this subject, of this issuer, is of this identity.
    #[cfg_attr(not(feature = "keyless"), expect(dead_code, reason = "no certificate is read"))]
    pub(super) fn is(&self, issuer: &str, subject: &str) -> bool {
        self.issuer == issuer
            && match &self.subject {
                Subject::Exact(exact) => exact == subject,
                Subject::Pattern(pattern) => pattern.matches(subject),
            }
    }

    /// The subject or the pattern, for messages.
    pub(super) fn subject_text(&self) -> &str {
        match &self.subject {
            Subject::Exact(text) | Subject::Pattern(SubjectPattern(text)) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_within_the_parts_of_a_subject() {
        let workflow = "https://github.com/acme/*/.github/workflows/release.yml@refs/tags/v*";
        for (pattern, subject, expected) in [
            (workflow, "https://github.com/acme/cloud/.github/workflows/release.yml@refs/tags/v1.2", true),
            (workflow, "https://github.com/acme/cloud/.github/workflows/release.yml@refs/tags/v", true),
            (workflow, "https://github.com/acme/cloud/.github/workflows/release.yml@refs/heads/v1", false),
            (workflow, "https://github.com/evil/cloud/.github/workflows/release.yml@refs/tags/v1", false),
            // A branch of another workflow, whose name ends like the pattern.
            (
                workflow,
                "https://github.com/acme/cloud/.github/workflows/x.yml@refs/heads/.github/workflows/release.yml@refs/tags/v1",
                false,
            ),
            (workflow, "https://github.com/acme/cloud/.github/workflows/release.yml@refs/tags/v1/x", false),
            ("*@acme.example", "ann@acme.example", true),
            ("*@acme.example", "ann@acme.example.evil.example", false),
            ("*@acme.example", "https://evil.example/ann@acme.example", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*bc", "abc", false),
            ("a*", "a", true),
            ("a*", "b", false),
            ("**a", "xa", true),
        ] {
            assert_eq!(
                SubjectPattern::new(pattern).unwrap().matches(subject),
                expected,
                "{pattern} {subject}"
            );
        }
        assert!(SubjectPattern::new("ann@acme.example").unwrap_err().contains("use `subject`"));
        for pattern in ["*", "*@*", "*://*/*", "**.*"] {
            assert!(SubjectPattern::new(pattern).unwrap_err().contains("every subject"), "{pattern}");
        }
    }
}
