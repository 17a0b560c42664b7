//! Reads one signature: who made it, and what it says. Nothing that it says counts before a key of the policy has verified
//! it, or the certificate of an identity. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{Finding, Signer};
use crate::media_type::{BUNDLE, BUNDLE_LONG};
use crate::trust::evidence::Evidence;
use crate::trust::keyless;
use crate::trust::policy::{Entry, Key, Layout, TrustPolicy};

/// The payload of a bundle: a statement of in-toto.
const STATEMENT_PAYLOAD: &str = "application/vnd.in-toto+json";
/// What cosign states when it signs; everything else is an attestation, such as a bill of materials.
pub(crate) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// How many characters are shown of what a signature states.
const MAX_KIND: usize = 200;
/// The two names of the payload under a tag: cosign's own, and the one of the format that it follows.
const SIMPLE_TYPES: [&str; 2] = ["cosign container image signature", "atomic container signature"];

/// What an entry of the policy has signed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    pub(crate) entry: Entry<'a>,
    pub(crate) signer: Signer,
    pub(crate) layout: Layout,
    /// The digests of the artifacts that it is about.
    pub(crate) digests: Vec<Digest>,
    /// The repository that it is about, if it names one.
    pub(crate) repository: Option<String>,
}

/// The verified content of a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) signer: Signer,
    pub(super) payload: Vec<u8>,
    pub(super) payload_type: String,
}

/// Why a signature says nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// No key of the policy made it.
    WrongKey,
    /// It says that this key made it, but it does not verify.
    Altered {
        key: String,
    },
    /// What is wrong with a bundle of an identity.
    #[cfg_attr(not(feature = "keyless"), expect(dead_code, reason = "no such bundle is read"))]
    Identity(Finding),
    /// It is about something else than the artifact itself, as an attestation is.
    Attestation {
        signer: Signer,
        kind: String,
    },
    Unreadable {
        cause: String,
    },
}

/// Reads a signature of the artifact with this digest with the keys and the identities of a policy.
pub(crate) fn read<'a>(
    evidence: &Evidence,
    digest: Digest,
    policy: &'a TrustPolicy,
) -> Result<Statement<'a>, Unusable> {
    match evidence {
        Evidence::Bundle { text } => bundle(text, digest, policy),
        Evidence::Tag { payload, signature } => tag(payload, signature, &policy.keys),
        Evidence::Unreadable { cause } => Err(unreadable(cause)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    #[serde(default)]
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Material {
    public_key: Option<KeyHint>,
    certificate: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct KeyHint {
    #[serde(default)]
    hint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InToto {
    #[serde(rename = "_type")]
    kind: String,
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    name: String,
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

/// What a bundle claims to state, as in `https://slsa.dev/provenance/v1`. Nothing of it is verified.
pub(crate) fn claimed_predicate(evidence: &Evidence) -> Option<String> {
    let Evidence::Bundle { text } = evidence else { return None };
    let found: Bundle = json(text, "a Sigstore bundle").ok()?;
    let payload = decode(&found.dsse_envelope?.payload, "payload").ok()?;
    Some(statement(&payload).ok()?.predicate_type.chars().take(MAX_KIND).collect())
}

fn bundle<'a>(text: &str, digest: Digest, policy: &'a TrustPolicy) -> Result<Statement<'a>, Unusable> {
    let found: Bundle = json(text, "a Sigstore bundle")?;
    if found.media_type != BUNDLE && found.media_type != BUNDLE_LONG {
        return Err(unreadable(format!("its format {:?} is not bundle 0.3", found.media_type)));
    }
    let is_certified = found.verification_material.certificate.is_some() && !policy.identities.is_empty();
    let signed = if is_certified {
        keyless::read(text, digest, &policy.identities)?
    } else {
        bundle_of_key(found, &policy.keys)?
    };
    let Signed { entry, signer, payload, payload_type } = signed;
    if payload_type != STATEMENT_PAYLOAD {
        return Err(attestation(signer, &payload_type));
    }
    let statement = statement(&payload)?;
    if !statement.kind.starts_with("https://in-toto.io/Statement/") || statement.predicate_type != SIGNED {
        return Err(attestation(signer, &statement.predicate_type));
    }
    let repository = statement.subject.iter().map(|subject| &subject.name).find(|name| !name.is_empty());
    let repository = repository.cloned();
    Ok(Statement { entry, signer, layout: Layout::Bundle, digests: digests(&payload)?, repository })
}

/// Verifies a bundle that a key has signed.
fn bundle_of_key(found: Bundle, keys: &[Key]) -> Result<Signed<'_>, Unusable> {
    let envelope = found.dsse_envelope.ok_or_else(|| unreadable("it holds no envelope with a statement"))?;
    let payload = decode(&envelope.payload, "payload")?;
    let message = pre_authentication_encoding(&envelope.payload_type, &payload);
    // An envelope may have several signatures; cosign makes one. More would let one bundle speak for several keys.
    let [signature] = &*envelope.signatures else {
        return Err(unreadable(format!("it has {} signatures instead of one", envelope.signatures.len())));
    };
    let signature = decode(&signature.sig, "signature")?;
    let hint = found.verification_material.public_key.map(|key| key.hint);
    let key = signer(&message, &signature, hint.as_deref(), keys)?;
    let signer = Signer::Key(key.name.clone());
    Ok(Signed { entry: Entry::Key(key), signer, payload, payload_type: envelope.payload_type })
}

fn statement(payload: &[u8]) -> Result<InToto, Unusable> {
    json(&String::from_utf8_lossy(payload), "a statement of in-toto")
}

/// The digests of the artifacts that a statement is about.
pub(super) fn digests(payload: &[u8]) -> Result<Vec<Digest>, Unusable> {
    let subjects = statement(payload)?.subject;
    subjects.iter().filter_map(|subject| subject.digest.sha256.as_deref()).map(digest_of).collect()
}

#[derive(Deserialize)]
struct SimpleSigning {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    identity: SignedIdentity,
    image: Image,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SignedIdentity {
    docker_reference: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

fn tag<'a>(payload: &str, signature: &str, keys: &'a [Key]) -> Result<Statement<'a>, Unusable> {
    let signature = decode(signature, "signature")?;
    let key = signer(payload.as_bytes(), &signature, None, keys)?;
    let signer = Signer::Key(key.name.clone());
    let SimpleSigning { critical } = json(payload, "a payload of simple signing")?;
    if !SIMPLE_TYPES.contains(&&*critical.kind) {
        return Err(attestation(signer, &critical.kind));
    }
    let digest = critical.image.docker_manifest_digest.parse().map_err(|cause: &str| unreadable(cause))?;
    Ok(Statement {
        entry: Entry::Key(key),
        signer,
        layout: Layout::Tag,
        digests: vec![digest],
        repository: Some(critical.identity.docker_reference),
    })
}

/// The key that made a signature.
fn signer<'a>(
    message: &[u8],
    signature: &[u8],
    hint: Option<&str>,
    keys: &'a [Key],
) -> Result<&'a Key, Unusable> {
    if let Some(key) = keys.iter().find(|key| key.key.verifies(message, signature)) {
        return Ok(key);
    }
    match keys.iter().find(|key| hint == Some(&key.key.hint())) {
        Some(key) => Err(Unusable::Altered { key: key.name.clone() }),
        None => Err(Unusable::WrongKey),
    }
}

/// What the signature of an envelope is over (DSSE), so that a payload can't be taken for one of another type.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn json<'de, T: Deserialize<'de>>(text: &'de str, what: &str) -> Result<T, Unusable> {
    serde_json::from_str(text).map_err(|error| unreadable(format!("it is not {what}: {error}")))
}

fn decode(text: &str, what: &str) -> Result<Vec<u8>, Unusable> {
    BASE64_STANDARD.decode(text).map_err(|error| unreadable(format!("its {what} is not base64: {error}")))
}

fn digest_of(hex: &str) -> Result<Digest, Unusable> {
    format!("sha256:{hex}").parse().map_err(|cause: &str| unreadable(cause))
}

fn unreadable(cause: impl Into<String>) -> Unusable {
    Unusable::Unreadable { cause: cause.into() }
}

fn attestation(signer: Signer, kind: &str) -> Unusable {
    Unusable::Attestation { signer, kind: kind.chars().take(MAX_KIND).collect() }
}
