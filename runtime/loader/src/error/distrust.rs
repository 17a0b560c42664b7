//! Why an artifact isn't trusted: each cause in words of its own, since an operator does something else about each. Pure.

use std::fmt;

use jiff::Timestamp;

use crate::digest::Digest;

/// How many findings a message has.
const MAX_SHOWN: usize = 5;

/// Why an artifact isn't trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distrust {
    /// A tag, and nothing by which to trust what it points to.
    NoPolicy,
    /// The artifact is not the pinned one.
    OtherDigest {
        /// The digest in the policy or in the reference.
        pinned: Digest,
    },
    /// There is no signature.
    Unsigned,
    /// There are signatures, but none counts.
    Rejected {
        /// One for each signature.
        findings: Vec<Finding>,
    },
    /// Some signatures count, but not enough.
    BelowThreshold {
        /// How many keys must have signed.
        threshold: usize,
        /// The names of the keys that have.
        keys: Vec<String>,
        /// One for each signature that doesn't count.
        findings: Vec<Finding>,
    },
    /// So many keys of the policy have expired that no signatures could suffice.
    KeysExpired {
        /// Their names, and when they expired.
        keys: Vec<(String, Timestamp)>,
        /// How many keys must sign.
        threshold: usize,
    },
}

/// Why one signature doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// No key of the policy made it.
    WrongKey,
    /// It names a key of the policy, but was altered.
    Altered {
        /// The name of the key.
        key: String,
    },
    /// It is for another artifact.
    OtherDigest {
        /// The name of the key.
        key: String,
        /// The digest that it is for.
        signed: Option<Digest>,
    },
    /// It was made for another repository and copied here.
    OtherRepository {
        /// The name of the key.
        key: String,
        /// The repository that it is for.
        signed: String,
    },
    /// Its key has expired.
    Expired {
        /// The name of the key.
        key: String,
        /// When.
        expires: Timestamp,
    },
    /// It is stored in a layout that the policy doesn't accept.
    Downgraded {
        /// The name of the key.
        key: String,
        /// Its layout.
        layout: &'static str,
    },
    /// It says something about the artifact, but doesn't approve it.
    Attestation {
        /// The name of the key.
        key: String,
        /// What it states.
        kind: String,
    },
    /// It can't be read.
    Unreadable {
        /// Why.
        cause: String,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => f.write_str(
                "a tag can be moved to any component, and there is no trust policy: add its digest to the reference, list \
                 the keys that sign it (--key, or `trust` in a document), or accept any component (--insecure, or \
                 `insecure: true`)",
            ),
            Self::OtherDigest { pinned } => {
                write!(f, "it is not the pinned one, {pinned}: change the pinned digest if this version is meant")
            }
            Self::Unsigned => f.write_str(
                "it has no signature: sign it with `cosign sign --key`, or pin its digest in place of the keys",
            ),
            Self::Rejected { findings } => write!(f, "no signature counts: {}", Findings(findings)),
            Self::BelowThreshold { threshold, keys, findings } => {
                write!(f, "{} of {threshold} necessary keys signed it: {}", keys.len(), keys.join(", "))?;
                if findings.is_empty() { Ok(()) } else { write!(f, "; other signatures: {}", Findings(findings)) }
            }
            Self::KeysExpired { keys, threshold } => {
                let each: Vec<_> = keys.iter().map(|(name, when)| format!("{name} on {when}")).collect();
                write!(
                    f,
                    "keys of the trust policy have expired ({}), and fewer than the necessary {threshold} are left: put \
                     current keys in `trust`",
                    each.join(", ")
                )
            }
        }
    }
}

struct Findings<'a>(&'a [Finding]);

impl fmt::Display for Findings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, finding) in self.0.iter().take(MAX_SHOWN).enumerate() {
            write!(f, "{}{finding}", if position == 0 { "" } else { "; " })?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongKey => {
                f.write_str("one matches no key in the trust policy: another key made it, or it was altered")
            }
            Self::Altered { key } => {
                write!(
                    f,
                    "one names key {key}, but was altered after it was made: it doesn't verify with that key"
                )
            }
            Self::OtherDigest { key, signed: Some(signed) } => {
                write!(f, "one by key {key} is for another artifact, {signed}")
            }
            Self::OtherDigest { key, signed: None } => write!(f, "one by key {key} names no artifact"),
            Self::OtherRepository { key, signed } => {
                write!(f, "one by key {key} is for another repository, {signed:?}, and was copied here")
            }
            Self::Expired { key, expires } => write!(f, "one is by key {key}, which expired on {expires}"),
            Self::Downgraded { key, layout } => write!(
                f,
                "one by key {key} is stored in the layout `{layout}`, which the trust policy doesn't accept"
            ),
            Self::Attestation { key, kind } => {
                write!(f, "one by key {key} is an attestation ({kind:?}), not a signature")
            }
            Self::Unreadable { cause } => write!(f, "one can't be read: {cause}"),
        }
    }
}
