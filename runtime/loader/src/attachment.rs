//! What is attached to an artifact in a registry, told by the types under which tools attach it: cosign, oras, notation and
//! the scanners that write bills of materials. It says what an attachment claims to be; nothing is read or verified. Pure.

use crate::manifest::Descriptor;
use crate::trust::signature::SIGNED;

/// Something that is attached to an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The digest of its manifest, or its tag.
    pub name: String,
    /// What it claims to be.
    pub kind: AttachmentKind,
    /// The type under which it is attached, as in `application/spdx+json`; for a bundle of Sigstore what it states, as in
    /// `https://slsa.dev/provenance/v1`.
    pub media_type: Option<String>,
}

/// What an attachment claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentKind {
    /// A signature.
    Signature,
    /// A bill of materials.
    Sbom,
    /// How it was built.
    Provenance,
    /// Another signed statement about it.
    Attestation,
    /// Anything else.
    Other,
}

impl AttachmentKind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signature => "signature",
            Self::Sbom => "sbom",
            Self::Provenance => "provenance",
            Self::Attestation => "attestation",
            Self::Other => "other",
        }
    }
}

impl Attachment {
    /// What older tools attach under a tag.
    pub(crate) fn under_tag(tag: String, kind: AttachmentKind) -> Self {
        Self { name: tag, kind, media_type: None }
    }
}

/// What a referrer is. `predicate` is what it states, if it is a bundle that can be read.
pub(crate) fn attachment(referrer: &Descriptor, predicate: Option<String>) -> Attachment {
    let kind = match &predicate {
        Some(predicate) if predicate == SIGNED => AttachmentKind::Signature,
        Some(predicate) => kind(predicate).unwrap_or(AttachmentKind::Attestation),
        None if referrer.is_bundle() => AttachmentKind::Signature,
        None => kind(referrer.artifact_type.as_deref().unwrap_or_default()).unwrap_or(AttachmentKind::Other),
    };
    let media_type = predicate.or(referrer.artifact_type.clone());
    Attachment { name: referrer.digest.clone(), kind, media_type }
}

/// The kind that a type or a predicate names. There is no list of them: each tool has its own.
fn kind(name: &str) -> Option<AttachmentKind> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["spdx", "cyclonedx", "sbom", "syft"]) {
        Some(AttachmentKind::Sbom)
    } else if has(&["provenance", "slsa.dev"]) {
        Some(AttachmentKind::Provenance)
    } else if has(&["notary.signature", "cosign.simplesigning"]) {
        Some(AttachmentKind::Signature)
    } else if has(&["in-toto"]) {
        Some(AttachmentKind::Attestation)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::media_type::BUNDLE;

    #[test]
    fn attachments_are_told_by_the_types_that_tools_use() {
        use AttachmentKind::{Attestation, Other, Provenance, Sbom, Signature};
        for (artifact_type, predicate, expected) in [
            (BUNDLE, None, Signature),
            (BUNDLE, Some(SIGNED), Signature),
            (BUNDLE, Some("https://slsa.dev/provenance/v1"), Provenance),
            (BUNDLE, Some("https://spdx.dev/Document/v2.3"), Sbom),
            (BUNDLE, Some("https://cyclonedx.org/bom"), Sbom),
            (BUNDLE, Some("https://cosign.sigstore.dev/attestation/vuln/v1"), Attestation),
            ("application/spdx+json", None, Sbom),
            ("application/vnd.cyclonedx+json", None, Sbom),
            ("application/vnd.in-toto.provenance+json", None, Provenance),
            ("application/vnd.in-toto+json", None, Attestation),
            ("application/vnd.cncf.notary.signature", None, Signature),
            ("application/vnd.example.readme", None, Other),
        ] {
            let referrer = Descriptor {
                media_type: String::new(),
                digest: "sha256:…".to_owned(),
                size: 1,
                artifact_type: Some(artifact_type.to_owned()),
                platform: None,
                annotations: BTreeMap::new(),
            };
            let found = attachment(&referrer, predicate.map(str::to_owned));
            assert_eq!(found.kind, expected, "{artifact_type} {predicate:?}");
            assert_eq!(found.media_type.as_deref(), predicate.or(Some(artifact_type)));
        }
    }
}
