//! An artifact before its component is fetched: whether it is trusted, what it consists of, and what is attached to it.
//!
//! Parts and attachments are what a registry and the owner of a repository say, for a user to read. Trust rests on none of
//! it: that is decided by [`crate::trust`] alone.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::attachment::{Attachment, AttachmentKind, attachment};
use crate::digest::Digest;
use crate::error::{Distrust, Error, Finding, Signer};
use crate::manifest::{ComponentLayer, Manifest, Selection};
use crate::reference::Reference;
use crate::registry::{Access, BoxFuture, Place, Registries, Session};
use crate::store::StoredArtifact;
use crate::trust::evidence::{Evidence, MAX_EVIDENCE};
use crate::trust::policy::{Layout, TrustPolicy};
use crate::trust::signature::claimed_predicate;
use crate::trust::verify::{self, Trust, check_digest};

/// The most attachments that are described. The owner of a repository can attach any number.
const MAX_ATTACHMENTS: usize = 64;

/// What a registry has of a trusted artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactDetails {
    /// The digest of its manifest or index, by which it is pinned.
    pub digest: Digest,
    /// What the trust in it rests on.
    pub trust: Trust,
    /// The size of its manifest or index in bytes.
    pub size: u64,
    /// The media type of its manifest or index, if that states one.
    pub media_type: Option<String>,
    /// The digest of the manifest that an index leads to.
    pub entry: Option<Digest>,
    /// The media type of its configuration, which names the format of an artifact.
    pub config_media_type: Option<String>,
    /// The media type of the component.
    pub component_media_type: String,
    /// The digest of the component's bytes.
    pub component_digest: Digest,
    /// The size of the component in bytes.
    pub component_size: u64,
    /// The annotations of its manifest.
    pub annotations: BTreeMap<String, String>,
    /// Its signatures, at most 64.
    pub signatures: Vec<FoundSignature>,
    /// What else is attached to it, at most 64.
    pub attachments: Vec<Attachment>,
    /// How many more attachments there are.
    pub more_attachments: usize,
}

/// One signature of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSignature {
    /// How it is stored; none if it can't be read.
    pub layout: Option<Layout>,
    /// Who made it, or why it doesn't count.
    pub signer: Result<Signer, Finding>,
}

/// An artifact that is trusted, and leads to one component.
pub(crate) struct TrustedArtifact {
    pub(crate) digest: Digest,
    pub(crate) stored: StoredArtifact,
    pub(crate) layer: ComponentLayer,
    pub(crate) trust: Trust,
}

/// What is shown of a manifest, and not needed to use it.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ShownManifest {
    media_type: Option<String>,
    config: Option<ShownPart>,
    layers: Option<Vec<ShownPart>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownPart {
    media_type: String,
}

impl Registries {
    /// Decides whether an artifact is trusted, and says by what, without fetching its component.
    ///
    /// # Errors
    /// Those of [`crate::Loader::fetch`], except those of the store.
    pub async fn verify(
        &self,
        reference: &Reference,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<(Digest, Trust), Error> {
        require_policy(reference, policy)?;
        let ask = |place| -> BoxFuture<'_, _> {
            Box::pin(async move {
                let session = self.session(&place, Access::Pull).await?;
                let found = trusted(&session, reference, &reference.wanted(), policy, now).await?;
                Ok((found.digest, found.trust))
            })
        };
        self.ask_each(reference, ask).await
    }

    /// Describes an artifact that is trusted: its parts, each of its signatures, and what else is attached to it.
    ///
    /// # Errors
    /// Those of [`Registries::verify`].
    pub async fn details(
        &self,
        reference: &Reference,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<ArtifactDetails, Error> {
        require_policy(reference, policy)?;
        let ask = |place| -> BoxFuture<'_, _> {
            Box::pin(async move { self.details_at(&place, reference, policy, now).await })
        };
        self.ask_each(reference, ask).await
    }

    async fn details_at(
        &self,
        place: &Place,
        reference: &Reference,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<ArtifactDetails, Error> {
        let session = self.session(place, Access::Pull).await?;
        let TrustedArtifact { digest, stored, layer, trust } =
            trusted(&session, reference, &reference.wanted(), policy, now).await?;
        let (evidence, mut attachments) = attached(&session, digest).await?;
        let signature = |one: &Evidence| FoundSignature {
            layout: one.layout(),
            signer: verify::judge(one, artifact(reference, digest), policy, now).map(|(_, signer)| signer),
        };
        let size = stored.manifest.len() as u64;
        let whole = ShownManifest::read(&stored.manifest);
        let own = stored.entry.as_deref().map(ShownManifest::read);
        let (layers, config) = match &own {
            Some(own) => (&own.layers, &own.config),
            None => (&whole.layers, &whole.config),
        };
        let component = layers.as_ref().and_then(|layers| layers.first());
        let more_attachments = attachments.len().saturating_sub(MAX_ATTACHMENTS);
        attachments.truncate(MAX_ATTACHMENTS);
        Ok(ArtifactDetails {
            digest,
            trust,
            size,
            entry: stored.entry.as_ref().map(|entry| Digest::of(entry.as_bytes())),
            config_media_type: config.as_ref().map(|config| config.media_type.clone()),
            component_media_type: component.map(|layer| layer.media_type.clone()).unwrap_or_default(),
            component_digest: layer.digest,
            component_size: layer.size,
            media_type: whole.media_type,
            annotations: whole.annotations.or(own.and_then(|own| own.annotations)).unwrap_or_default(),
            signatures: evidence.iter().map(signature).collect(),
            attachments,
            more_attachments,
        })
    }
}

impl ShownManifest {
    /// Reads as much as there is: what the component needs is checked already.
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// What is attached: signatures, and everything else. That is found by referrers, and by the tags of older tools.
async fn attached(session: &Session<'_>, digest: Digest) -> Result<(Vec<Evidence>, Vec<Attachment>), Error> {
    let (mut signatures, mut others, mut bundles) = (Vec::new(), Vec::new(), 0);
    for referrer in session.referrers(digest).await? {
        // As many bundles as a verification reads.
        if !referrer.is_bundle() || bundles == MAX_EVIDENCE / 2 {
            others.push(attachment(&referrer, None));
            continue;
        }
        bundles += 1;
        let bundle = session.bundle(&referrer).await?;
        let found = attachment(&referrer, claimed_predicate(&bundle));
        match found.kind {
            AttachmentKind::Signature => signatures.push(bundle),
            _ => others.push(found),
        }
    }
    session.tagged(digest, &mut signatures).await?;
    for (suffix, kind) in [("att", AttachmentKind::Attestation), ("sbom", AttachmentKind::Sbom)] {
        let tag = format!("sha256-{}.{suffix}", digest.hex());
        match session.resolve(&tag).await {
            Ok(_) => others.push(Attachment::under_tag(tag, kind)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((signatures, others))
}

/// Fetches what the trust in an artifact follows from, and decides.
pub(crate) async fn trusted(
    session: &Session<'_>,
    reference: &Reference,
    wanted: &str,
    policy: &TrustPolicy,
    now: Timestamp,
) -> Result<TrustedArtifact, Error> {
    let manifest = session.manifest(wanted).await?;
    let digest = manifest.digest;
    let judged = |distrust| untrusted(reference, Some(digest), distrust);
    check_digest(artifact(reference, digest), policy).map_err(judged)?;
    let evidence = if policy.needs_signatures() {
        session.evidence(digest, &session.referrers(digest).await?).await?
    } else {
        Vec::new()
    };
    let trust = verify::verify(artifact(reference, digest), policy, &evidence, now).map_err(judged)?;
    let evidence = verify::counted(evidence, artifact(reference, digest), policy, now);
    let entry = entry(session, &manifest.text, reference).await?;
    let repository = reference.repository.to_string();
    let stored = StoredArtifact { repository, manifest: manifest.text, entry, evidence };
    let layer = stored.layer(digest).map_err(|cause| not_component(reference, cause))?;
    Ok(TrustedArtifact { digest, stored, layer, trust })
}

/// The manifest that an index leads to.
async fn entry(
    session: &Session<'_>,
    manifest: &str,
    reference: &Reference,
) -> Result<Option<String>, Error> {
    let selection = Manifest::parse(manifest.as_bytes()).and_then(|manifest| manifest.select());
    match selection.map_err(|cause| not_component(reference, cause))? {
        Selection::Component(_) => Ok(None),
        Selection::Manifest(digest) => Ok(Some(session.manifest(&digest.to_string()).await?.text)),
    }
}

/// Refuses at once what no answer could make trusted.
pub(crate) fn require_policy(reference: &Reference, policy: &TrustPolicy) -> Result<(), Error> {
    if !policy.needs_signatures() && policy.digest.or(reference.digest).is_none() && !policy.insecure {
        return Err(untrusted(reference, None, Distrust::NoPolicy));
    }
    Ok(())
}

pub(crate) fn artifact(reference: &Reference, digest: Digest) -> verify::Artifact<'_> {
    verify::Artifact { repository: &reference.repository, digest, pinned: reference.digest }
}

pub(crate) fn untrusted(reference: &Reference, digest: Option<Digest>, distrust: Distrust) -> Error {
    Error::Untrusted { source_name: reference.to_string(), digest, cause: Box::new(distrust) }
}

pub(crate) fn not_component(reference: &Reference, cause: String) -> Error {
    Error::NotComponent { place: reference.to_string(), cause }
}
