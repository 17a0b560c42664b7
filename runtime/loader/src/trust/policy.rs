//! What an operator trusts: a digest, keys of which a number must have signed, or, in so many words, everything. A policy
//! that contradicts itself can't be made. Pure.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::error::Error;
use crate::trust::key::PublicKey;

/// The most keys in a policy. Each signature is tried with each key.
const MAX_KEYS: usize = 32;

/// What makes a component trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    pub(crate) digest: Option<Digest>,
    pub(crate) keys: Vec<Key>,
    pub(crate) threshold: usize,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) insecure: bool,
}

/// A key that may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The operator's name for it, for messages.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// When it stops to count. Without it, never.
    pub expires: Option<Timestamp>,
}

/// How cosign stores a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A Sigstore bundle that refers to the manifest; cosign 3 writes it by default.
    Bundle,
    /// A tag `sha256-….sig`; cosign 2, and cosign 3 with `--new-bundle-format=false`.
    Tag,
}

impl Layout {
    /// Both layouts.
    pub const ALL: [Self; 2] = [Self::Bundle, Self::Tag];

    /// Its name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Tag => "tag",
        }
    }
}

/// A policy as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustSpec {
    /// The only digest that is accepted: of the manifest, or of a file's bytes.
    pub digest: Option<Digest>,
    /// The keys that may sign.
    pub keys: Vec<Key>,
    /// How many different keys must have signed. Without keys, it has no meaning.
    pub threshold: usize,
    /// The layouts in which a signature counts.
    pub layouts: Vec<Layout>,
    /// Accepts everything. Needed for a tag if there is neither a digest nor a key.
    pub insecure: bool,
}

impl Default for TrustSpec {
    fn default() -> Self {
        Self { digest: None, keys: Vec::new(), threshold: 1, layouts: Layout::ALL.to_vec(), insecure: false }
    }
}

impl Default for TrustPolicy {
    /// No requirement: only an operator's file and a reference with a digest are trusted.
    fn default() -> Self {
        let TrustSpec { digest, keys, threshold, layouts, insecure } = TrustSpec::default();
        Self { digest, keys, threshold, layouts, insecure }
    }
}

impl TrustPolicy {
    /// Checks a policy.
    ///
    /// # Errors
    /// [`Error::Policy`] with every contradiction.
    pub fn new(spec: TrustSpec) -> Result<Self, Error> {
        let TrustSpec { digest, keys, threshold, layouts, insecure } = spec;
        let mut problems = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let earlier = || keys.iter().take(position);
            if earlier().any(|other| other.name == key.name) {
                problems.push(format!("two keys have the name {:?}", key.name));
            }
            // Otherwise one signature would count twice.
            if let Some(other) = earlier().find(|other| other.key == key.key) {
                problems.push(format!("keys {:?} and {:?} are the same key", other.name, key.name));
            }
        }
        if keys.len() > MAX_KEYS {
            problems.push(format!("there are {} keys, but the limit is {MAX_KEYS}", keys.len()));
        }
        if !keys.is_empty() && (threshold == 0 || threshold > keys.len()) {
            problems.push(format!("a threshold of {threshold} can't be met with {} keys", keys.len()));
        }
        if keys.is_empty() && threshold > 1 {
            problems.push(format!("a threshold of {threshold} needs keys"));
        }
        if !keys.is_empty() && layouts.is_empty() {
            problems.push("no layout of signatures is accepted; list `bundle`, `tag` or both".to_owned());
        }
        if insecure && (digest.is_some() || !keys.is_empty()) {
            problems.push("`insecure: true` contradicts a digest and keys; remove one of them".to_owned());
        }
        if !problems.is_empty() {
            return Err(Error::Policy { problems });
        }
        Ok(Self { digest, keys, threshold, layouts, insecure })
    }

    /// The policy for an artifact that the operator pins by its digest, beside which nothing else has to be accepted.
    #[must_use]
    pub fn pinned(self, digest: Digest) -> Self {
        Self { digest: Some(digest), insecure: false, ..self }
    }
}
