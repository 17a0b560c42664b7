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
        /// How many keys and identities must have signed.
        threshold: usize,
        /// Those that have.
        signers: Vec<Signer>,
        /// One for each signature that doesn't count.
        findings: Vec<Finding>,
    },
    /// So many keys of the policy have expired that no signatures could suffice.
    KeysExpired {
        /// Their names, and when they expired.
        keys: Vec<(String, Timestamp)>,
        /// How many keys and identities must sign.
        threshold: usize,
    },
}

/// Who made a signature.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signer {
    /// The key of the policy with this name.
    Key(String),
    /// An identity, as its certificate says.
    Identity {
        /// Who it is.
        subject: String,
        /// Who vouches for it.
        issuer: String,
    },
}

/// Why one signature doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// No key of the policy made it.
    WrongKey,
    /// It names a key of the policy or an identity, but was altered.
    Altered {
        /// Who is said to have made it.
        signer: Signer,
    },
    /// It is for another artifact.
    OtherDigest {
        /// Who made it.
        signer: Signer,
        /// The digest that it is for.
        signed: Option<Digest>,
    },
    /// It was made for another repository and copied here.
    OtherRepository {
        /// Who made it.
        signer: Signer,
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
        /// Who made it.
        signer: Signer,
        /// Its layout.
        layout: &'static str,
    },
    /// It says something about the artifact, but doesn't approve it.
    Attestation {
        /// Who made it.
        signer: Signer,
        /// What it states.
        kind: String,
    },
    /// It is by an identity that the policy doesn't list.
    OtherIdentity {
        /// Who made it.
        signer: Signer,
        /// Whether the policy lists other identities of the issuer.
        is_issuer_listed: bool,
    },
    /// Its certificate, or what logs say about that, isn't from an authority or a log of the trusted root.
    Uncertified {
        /// Who is said to have made it.
        signer: Signer,
        /// What is wrong.
        cause: String,
    },
    /// It was made when its certificate was not valid.
    OutsideCertificate {
        /// Who is said to have made it.
        signer: Signer,
        /// When it was made, as a log says.
        made: Timestamp,
        /// When the certificate begins to be valid.
        from: Timestamp,
        /// When it ends.
        until: Timestamp,
    },
    /// No log and no time stamp proves when it was made.
    Unlogged {
        /// Who is said to have made it.
        signer: Signer,
        /// What is wrong.
        cause: String,
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
                 who signs it (--key, or `trust` in a document), or accept any component (--insecure, or \
                 `insecure: true`)",
            ),
            Self::OtherDigest { pinned } => {
                write!(f, "it is not the pinned one, {pinned}: change the pinned digest if this version is meant")
            }
            Self::Unsigned => f.write_str(
                "it has no signature: sign it with `cosign sign`, or pin its digest in place of keys and identities",
            ),
            Self::Rejected { findings } => write!(f, "no signature counts: {}", Findings(findings)),
            Self::BelowThreshold { threshold, signers, findings } => {
                let each: Vec<_> = signers.iter().map(ToString::to_string).collect();
                let each = each.join(", ");
                write!(f, "it has {} of {threshold} necessary signatures: by {each}", signers.len())?;
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

impl Signer {
    /// The name of the key, or the subject of the identity.
    pub fn name(&self) -> &str {
        match self {
            Self::Key(name) => name,
            Self::Identity { subject, .. } => subject,
        }
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => write!(f, "key {name}"),
            Self::Identity { subject, issuer } => write!(f, "{subject:?} ({issuer})"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongKey => {
                f.write_str("one matches no key in the trust policy: another key made it, or it was altered")
            }
            Self::Altered { signer } => {
                write!(f, "one names {signer}, but was altered after it was made: it doesn't verify")
            }
            Self::OtherDigest { signer, signed: Some(signed) } => {
                write!(f, "one by {signer} is for another artifact, {signed}")
            }
            Self::OtherDigest { signer, signed: None } => write!(f, "one by {signer} names no artifact"),
            Self::OtherRepository { signer, signed } => {
                write!(f, "one by {signer} is for another repository, {signed:?}, and was copied here")
            }
            Self::Expired { key, expires } => write!(f, "one is by key {key}, which expired on {expires}"),
            Self::Downgraded { signer, layout } => write!(
                f,
                "one by {signer} is stored in the layout `{layout}`, which the trust policy doesn't accept"
            ),
            Self::Attestation { signer, kind } => {
                write!(f, "one by {signer} is an attestation ({kind:?}), not a signature")
            }
            Self::OtherIdentity { signer, is_issuer_listed: true } => {
                write!(
                    f,
                    "one is by {signer}, which is no subject that the trust policy lists for this issuer"
                )
            }
            Self::OtherIdentity { signer, is_issuer_listed: false } => {
                write!(f, "one is by {signer}, of an issuer that no identity in the trust policy has")
            }
            Self::Uncertified { signer, cause } => {
                write!(f, "the certificate of one that claims to be by {signer} can't be trusted: {cause}")
            }
            Self::OutsideCertificate { signer, made, from, until } => write!(
                f,
                "one by {signer} was made at {made}, but its certificate is valid from {from} to {until}"
            ),
            Self::Unlogged { signer, cause } => {
                write!(f, "nothing proves when one that claims to be by {signer} was made: {cause}")
            }
            Self::Unreadable { cause } => write!(f, "one can't be read: {cause}"),
        }
    }
}
