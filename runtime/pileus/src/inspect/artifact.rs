//! What an inspection shows of an artifact in a registry, besides its component. Everything here is text of the registry and
//! of the owner of the repository, except the digests and what a key of the command line verified.

use pileus_host::sanitize;
use pileus_loader::{ArtifactDetails, Attachment, FoundSignature, Signer};
use serde_json::{Value, json};

use crate::sources::{trust_json, trust_text};

/// An artifact in a registry.
pub(super) struct InspectedArtifact {
    /// Its reference, pinned to its digest.
    pub(super) reference: String,
    /// The tag by which it was found.
    pub(super) tag: Option<String>,
    /// Whether the command line has keys with which to verify signatures.
    pub(super) has_keys: bool,
    pub(super) details: ArtifactDetails,
}

impl InspectedArtifact {
    /// Its lines in a report, by label.
    pub(super) fn lines(&self) -> Vec<(&'static str, Vec<String>)> {
        let Self { reference, tag, has_keys: _, details } = self;
        let none = || "not stated".to_owned();
        let mut media_types = vec![
            format!("manifest {}", details.media_type.clone().unwrap_or_else(none)),
            format!("configuration {}", details.config_media_type.clone().unwrap_or_else(none)),
            format!("component {}", details.component_media_type),
        ];
        if let Some(entry) = details.entry {
            media_types.insert(1, format!("an index, which leads to the manifest {entry}"));
        }
        let annotations = details.annotations.iter().map(|(key, value)| format!("{key}: {value}"));
        let mut attachments: Vec<_> = details.attachments.iter().map(attachment_text).collect();
        if details.more_attachments > 0 {
            attachments.push(format!("and {} more", details.more_attachments));
        }
        vec![
            ("reference", vec![reference.clone()]),
            ("tag", tag.iter().cloned().collect()),
            ("manifest", vec![format!("{}, {} bytes", details.digest, details.size)]),
            ("trust", vec![trust_text(&details.trust)]),
            ("media types", media_types),
            ("annotations", annotations.collect()),
            ("signatures", details.signatures.iter().map(|one| self.signature_text(one)).collect()),
            ("attached", attachments),
        ]
    }

    fn signature_text(&self, signature: &FoundSignature) -> String {
        let layout = signature.layout.map_or("unknown layout", |layout| layout.as_str());
        match &signature.signer {
            Ok(signer) => format!("{layout}: by {signer}"),
            Err(_) if !self.has_keys => format!("{layout}: not verified; pass --key FILE"),
            Err(finding) => format!("{layout}: doesn't count: {finding}"),
        }
    }

    /// Its JSON object.
    pub(super) fn object(&self) -> Value {
        let Self { reference, tag, has_keys, details } = self;
        let signature = |FoundSignature { layout, signer }: &FoundSignature| {
            let problem =
                signer.as_ref().err().filter(|_| *has_keys).map(|finding| sanitize(&finding.to_string()));
            json!({
                "layout": layout.map(pileus_loader::Layout::as_str),
                "key": signer.as_ref().ok().map(Signer::name),
                "problem": problem,
            })
        };
        let attachment = |Attachment { name, kind, media_type, .. }: &Attachment| json!({"name": name, "kind": kind.as_str(), "mediaType": media_type});
        json!({
            "reference": reference,
            "tag": tag,
            "digest": details.digest.to_string(),
            "sizeBytes": details.size,
            "mediaType": details.media_type,
            "entry": details.entry.map(|entry| entry.to_string()),
            "configMediaType": details.config_media_type,
            "component": {
                "mediaType": details.component_media_type,
                "digest": details.component_digest.to_string(),
                "sizeBytes": details.component_size,
            },
            "annotations": details.annotations,
            "trust": trust_json(&details.trust),
            "signatures": details.signatures.iter().map(signature).collect::<Vec<_>>(),
            "attachments": details.attachments.iter().map(attachment).collect::<Vec<_>>(),
            "moreAttachments": details.more_attachments,
        })
    }
}

fn attachment_text(Attachment { name, kind, media_type, .. }: &Attachment) -> String {
    let media_type = media_type.as_ref().map(|media_type| format!(" {media_type}")).unwrap_or_default();
    format!("{}{media_type}, {name}", kind.as_str())
}
