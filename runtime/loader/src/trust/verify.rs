//! Decides whether an artifact is trusted: from its digest, the signatures beside it, the policy and the time. It answers
//! with what the trust rests on, or with every reason against it. Pure.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::error::{Distrust, Finding, Signer};
use crate::reference::Repository;
use crate::trust::evidence::Evidence;
use crate::trust::policy::{Entry, Key, TrustPolicy};
use crate::trust::signature::{self, Statement, Unusable};

/// What the trust in an artifact rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The digest in the reference or in the policy.
    Digest,
    /// Signatures by these keys and identities of the policy, and the digest if there is one.
    Signed {
        /// Who signed.
        signers: Vec<Signer>,
    },
    /// The operator's file.
    File,
    /// Nothing: the policy accepts everything.
    Insecure,
}

/// An artifact about which to decide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Artifact<'a> {
    /// Where the operator wants it from; not the mirror that has it.
    pub(crate) repository: &'a Repository,
    /// The digest of its manifest.
    pub(crate) digest: Digest,
    /// The digest that the reference pins.
    pub(crate) pinned: Option<Digest>,
}

/// Checks what needs no signature, so that an artifact that no signature could save is not fetched.
pub(crate) fn check_digest(artifact: Artifact<'_>, policy: &TrustPolicy) -> Result<(), Distrust> {
    for pinned in [policy.digest, artifact.pinned].into_iter().flatten() {
        if pinned != artifact.digest {
            return Err(Distrust::OtherDigest { pinned });
        }
    }
    let is_pinned = policy.digest.is_some() || artifact.pinned.is_some();
    if !policy.needs_signatures() && !policy.insecure && !is_pinned {
        Err(Distrust::NoPolicy)
    } else {
        Ok(())
    }
}

/// Decides whether an artifact is trusted.
pub(crate) fn verify(
    artifact: Artifact<'_>,
    policy: &TrustPolicy,
    evidence: &[Evidence],
    now: Timestamp,
) -> Result<Trust, Distrust> {
    check_digest(artifact, policy)?;
    if !policy.needs_signatures() {
        return Ok(if policy.insecure { Trust::Insecure } else { Trust::Digest });
    }
    let is_expired = |key: &Key| key.expires.is_some_and(|expires| expires <= now);
    let expired: Vec<_> = policy.keys.iter().filter(|key| is_expired(key)).collect();
    if policy.keys.len() + policy.identities.len() - expired.len() < policy.threshold {
        let keys = expired.into_iter().filter_map(|key| Some((key.name.clone(), key.expires?))).collect();
        return Err(Distrust::KeysExpired { keys, threshold: policy.threshold });
    }
    // By entry of the policy, so that two signatures by one key or identity count once.
    let mut signed: Vec<(Entry<'_>, Signer)> = Vec::new();
    let mut findings = Vec::new();
    for one in evidence {
        match judge(one, artifact, policy, now) {
            Ok((entry, signer)) if signed.iter().all(|(earlier, _)| *earlier != entry) => {
                signed.push((entry, signer));
            }
            Ok(_) => {}
            Err(finding) => findings.push(finding),
        }
    }
    let mut signers: Vec<_> = signed.into_iter().map(|(_, signer)| signer).collect();
    signers.sort();
    if signers.len() >= policy.threshold {
        return Ok(Trust::Signed { signers });
    }
    // Attestations are expected beside an artifact, and say nothing about why a signature is missing.
    findings.retain(|finding| !matches!(finding, Finding::Attestation { .. }));
    findings.dedup();
    Err(match (&*signers, &*findings) {
        ([], []) => Distrust::Unsigned,
        ([], _) => Distrust::Rejected { findings },
        _ => Distrust::BelowThreshold { threshold: policy.threshold, signers, findings },
    })
}

/// The signatures that have to be kept to verify an artifact again: one by each entry of the policy that counts. The owner of a
/// repository can attach any number of others.
pub(crate) fn counted(
    mut evidence: Vec<Evidence>,
    artifact: Artifact<'_>,
    policy: &TrustPolicy,
    now: Timestamp,
) -> Vec<Evidence> {
    let mut entries = Vec::new();
    evidence.retain(|one| match judge(one, artifact, policy, now) {
        Ok((entry, _)) if !entries.contains(&entry) => {
            entries.push(entry);
            true
        }
        _ => false,
    });
    evidence
}

/// Judges one signature: which entry of the policy made it, or why it doesn't count.
pub(crate) fn judge<'a>(
    evidence: &Evidence,
    artifact: Artifact<'_>,
    policy: &'a TrustPolicy,
    now: Timestamp,
) -> Result<(Entry<'a>, Signer), Finding> {
    let found = signature::read(evidence, artifact.digest, policy).map_err(finding)?;
    judge_statement(found, artifact, policy, now)
}

/// Judges what an entry of the policy has signed.
fn judge_statement<'a>(
    found: Statement<'a>,
    artifact: Artifact<'_>,
    policy: &TrustPolicy,
    now: Timestamp,
) -> Result<(Entry<'a>, Signer), Finding> {
    let Statement { entry, signer, layout, digests, repository } = found;
    if !digests.contains(&artifact.digest) {
        return Err(Finding::OtherDigest { signer, signed: digests.first().copied() });
    }
    if let Some(signed) = repository.filter(|signed| !names(signed, artifact)) {
        return Err(Finding::OtherRepository { signer, signed });
    }
    if let Entry::Key(Key { name, expires: Some(expires), .. }) = entry
        && *expires <= now
    {
        return Err(Finding::Expired { key: name.clone(), expires: *expires });
    }
    if !policy.layouts.contains(&layout) {
        return Err(Finding::Downgraded { signer, layout: layout.as_str() });
    }
    Ok((entry, signer))
}

/// Whether the repository in a signature is the artifact's. cosign writes it with or without the tag and the digest.
fn names(signed: &str, artifact: Artifact<'_>) -> bool {
    let whole = artifact.repository.to_string();
    let hub = whole.strip_prefix("docker.io/").map(|name| format!("index.docker.io/{name}"));
    [Some(whole), hub].into_iter().flatten().any(|own| {
        signed.strip_prefix(&*own).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
    })
}

fn finding(unusable: Unusable) -> Finding {
    match unusable {
        Unusable::WrongKey => Finding::WrongKey,
        Unusable::Altered { key } => Finding::Altered { signer: Signer::Key(key) },
        Unusable::Identity(finding) => finding,
        Unusable::Attestation { signer, kind } => Finding::Attestation { signer, kind },
        Unusable::Unreadable { cause } => Finding::Unreadable { cause },
    }
}
