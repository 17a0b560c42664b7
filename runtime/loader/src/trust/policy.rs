//! What an operator trusts: a digest, keys and identities of which a number must have signed, or, in so many words,
//! everything. A policy that contradicts itself can't be made. Pure.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::error::Error;
use crate::trust::identity::Identity;
use crate::trust::key::PublicKey;
use crate::trust::keyless;

/// The most keys in a policy, and the most identities. Each signature is tried with each one.
const MAX_KEYS: usize = 32;

/// What makes a component trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    pub(crate) digest: Option<Digest>,
    pub(crate) keys: Vec<Key>,
    pub(crate) identities: Vec<Identity>,
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

/// An entry of a policy by which a signature counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Key(&'a Key),
    #[cfg_attr(not(feature = "keyless"), expect(dead_code, reason = "no bundle of an identity is read"))]
    Identity(&'a Identity),
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
    /// The identities that may sign, in bundles. A signature counts for the first one that it matches.
    pub identities: Vec<Identity>,
    /// How many different keys and identities must have signed. Without either, it has no meaning.
    pub threshold: usize,
    /// The layouts in which a signature counts.
    pub layouts: Vec<Layout>,
    /// Accepts everything. Needed for a tag if there is neither a digest, a key nor an identity.
    pub insecure: bool,
}

impl Default for TrustSpec {
    fn default() -> Self {
        Self {
            digest: None,
            keys: Vec::new(),
            identities: Vec::new(),
            threshold: 1,
            layouts: Layout::ALL.to_vec(),
            insecure: false,
        }
    }
}

impl Default for TrustPolicy {
    /// No requirement: only an operator's file and a reference with a digest are trusted.
    fn default() -> Self {
        let TrustSpec { digest, keys, identities, threshold, layouts, insecure } = TrustSpec::default();
        Self { digest, keys, identities, threshold, layouts, insecure }
    }
}

impl TrustPolicy {
    /// Checks a policy.
    ///
    /// # Errors
    /// [`Error::Policy`] with every contradiction.
    pub fn new(spec: TrustSpec) -> Result<Self, Error> {
        let TrustSpec { digest, keys, identities, threshold, layouts, insecure } = spec;
        let mut problems = problems_of_keys(&keys);
        problems.extend(problems_of_identities(&identities, &layouts));
        let signers = keys.len() + identities.len();
        if signers > 0 && (threshold == 0 || threshold > signers) {
            let and = if identities.is_empty() {
                String::new()
            } else {
                format!(" and {} identities", identities.len())
            };
            problems.push(format!("a threshold of {threshold} can't be met with {} keys{and}", keys.len()));
        }
        if signers == 0 && threshold > 1 {
            problems.push(format!("a threshold of {threshold} needs keys or identities"));
        }
        if !keys.is_empty() && layouts.is_empty() {
            problems.push("no layout of signatures is accepted; list `bundle`, `tag` or both".to_owned());
        }
        if insecure && (digest.is_some() || signers > 0) {
            problems.push(
                "`insecure: true` contradicts a digest, keys and identities; remove one of them".to_owned(),
            );
        }
        if !problems.is_empty() {
            return Err(Error::Policy { problems });
        }
        Ok(Self { digest, keys, identities, threshold, layouts, insecure })
    }

    /// Whether an artifact has to be signed.
    pub(crate) fn needs_signatures(&self) -> bool {
        !self.keys.is_empty() || !self.identities.is_empty()
    }

    /// The policy for an artifact that the operator pins by its digest, beside which nothing else has to be accepted.
    #[must_use]
    pub fn pinned(self, digest: Digest) -> Self {
        Self { digest: Some(digest), insecure: false, ..self }
    }
}

fn problems_of_keys(keys: &[Key]) -> Vec<String> {
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
    problems
}

fn problems_of_identities(identities: &[Identity], layouts: &[Layout]) -> Vec<String> {
    if identities.is_empty() {
        return Vec::new();
    }
    if !keyless::IS_BUILT {
        let problem = "this build of Pileus can't verify `identities`: use one that is built with `--features keyless`, or list \
                       keys";
        return vec![problem.to_owned()];
    }
    let mut problems = Vec::new();
    for (position, identity) in identities.iter().enumerate() {
        let Identity { issuer, subject, .. } = identity;
        let text = identity.subject_text();
        if issuer.is_empty() || text.is_empty() {
            problems.push("each identity needs an issuer and a subject".to_owned());
        }
        let is_same = |other: &Identity| other.issuer == *issuer && other.subject == *subject;
        if identities.iter().take(position).any(is_same) {
            problems.push(format!("two identities are the same: {text:?} of {issuer}"));
        }
    }
    if identities.len() > MAX_KEYS {
        problems.push(format!("there are {} identities, but the limit is {MAX_KEYS}", identities.len()));
    }
    if !layouts.contains(&Layout::Bundle) {
        problems.push("identities sign in bundles; accept the layout `bundle`".to_owned());
    }
    problems
}
