//! Reads the signature of an identity: a bundle whose key a certificate binds to it. `sigstore-verify` verifies, without the
//! network: that an authority of the trusted root issued the certificate and a log of certificates has it, that a
//! transparency log or a time stamp proves that it was valid when the signature was made, and the signature itself. Pure,
//! except that the library reads the clock to refuse times in the future.

mod crypto;
#[cfg(test)]
mod tests;

use std::sync::Once;

use jiff::Timestamp;
use sigstore_verify::crypto::{CertificateInfo, install_default_provider, parse_certificate_info};
use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot as Authorities};
use sigstore_verify::types::{Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{
    CertificateError, Error, SubjectAltName, VerificationPolicy, VerificationResult, Verifier,
};

use crate::digest::Digest;
use crate::error::{Finding, Signer};
use crate::trust::identity::{Identity, TrustedRoot};
use crate::trust::policy::Entry;
use crate::trust::signature::{Signed, Unusable, digests};

/// Whether this build verifies identities.
pub(super) const IS_BUILT: bool = true;
/// How many characters are shown of what a certificate says.
const MAX_SHOWN: usize = 200;

/// Checks that authorities and logs can be read.
pub(super) fn check(root: &TrustedRoot) -> Result<(), String> {
    verifier(root).map(drop)
}

fn verifier(root: &TrustedRoot) -> Result<Verifier, String> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // It fails only where there is one already.
        let _installed = install_default_provider(&crypto::Ring);
    });
    let text = match root {
        TrustedRoot::PublicGood => SIGSTORE_PRODUCTION_TRUSTED_ROOT,
        TrustedRoot::Own(text) => text,
    };
    // The parser's own message would repeat a part of a file that may be something else.
    let authorities =
        Authorities::from_json(text).map_err(|_| "it is not a trusted root of Sigstore".to_owned())?;
    if authorities.certificate_authorities.is_empty() {
        return Err("it lists no certificate authority".to_owned());
    }
    Verifier::new(&authorities).map_err(|error| error.to_string())
}

/// Reads a bundle with the identities of a policy. `digest` is that of the artifact; a bundle that is right but for another
/// artifact is returned, too.
pub(super) fn read<'a>(
    text: &str,
    digest: Digest,
    identities: &'a [Identity],
) -> Result<Signed<'a>, Unusable> {
    let unreadable = |cause: String| Unusable::Unreadable { cause };
    let bundle = Bundle::from_json(text).map_err(|error| unreadable(error.to_string()))?;
    let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
        return Err(unreadable("it holds no envelope with a statement".to_owned()));
    };
    let certificate =
        bundle.signing_certificate().ok_or_else(|| unreadable("it has no certificate".to_owned()))?;
    let claimed = parse_certificate_info(certificate)
        .map_err(|error| unreadable(format!("its certificate can't be read: {error}")))?;
    let mut refused = None;
    for (position, identity) in identities.iter().enumerate() {
        // Once for each root.
        if identities.iter().take(position).any(|earlier| earlier.root == identity.root) {
            continue;
        }
        match verify(&bundle, digest, &identity.root) {
            Ok(found) => {
                let issuer = found.issuer().unwrap_or_default();
                let subject = found.identity().map_or("", SubjectAltName::as_str);
                let signer = || Signer::Identity { subject: shown(subject), issuer: shown(issuer) };
                let mut of_root = identities.iter().filter(|other| other.root == identity.root);
                if let Some(entry) = of_root.find(|entry| entry.is(issuer, subject)) {
                    let payload = envelope.payload.as_bytes().to_vec();
                    let payload_type = envelope.payload_type.clone();
                    return Ok(Signed {
                        entry: Entry::Identity(entry),
                        signer: signer(),
                        payload,
                        payload_type,
                    });
                }
                let is_issuer_listed = identities.iter().any(|entry| entry.issuer == issuer);
                refused = Some(Finding::OtherIdentity { signer: signer(), is_issuer_listed });
            }
            Err(error) => {
                refused.get_or_insert_with(|| finding(&error, &claimed, &bundle));
            }
        }
    }
    Err(refused.map_or(Unusable::WrongKey, Unusable::Identity))
}

/// Verifies all but whose identity it is.
fn verify(bundle: &Bundle, digest: Digest, root: &TrustedRoot) -> Result<VerificationResult, Error> {
    let verifier = verifier(root).map_err(Error::InvalidTrustRoot)?;
    let hash = |digest: Digest| Sha256Hash::from_hex(&digest.hex());
    let policy = VerificationPolicy::any_identity();
    match verifier.verify(hash(digest)?, bundle, &policy) {
        Err(Error::ArtifactMismatch(cause)) => match signed_digest(bundle) {
            Some(signed) if signed != digest => verifier.verify(hash(signed)?, bundle, &policy),
            _ => Err(Error::ArtifactMismatch(cause)),
        },
        done => done,
    }
}

/// The digest of the first artifact that a bundle is about. Nothing of it is verified.
fn signed_digest(bundle: &Bundle) -> Option<Digest> {
    let SignatureContent::DsseEnvelope(envelope) = &bundle.content else { return None };
    digests(envelope.payload.as_bytes()).ok()?.first().copied()
}

/// Says why a bundle is not trusted. What its certificate claims is not verified.
fn finding(error: &Error, claimed: &CertificateInfo, bundle: &Bundle) -> Finding {
    let subject = shown(claimed.identity.as_ref().map_or("", SubjectAltName::as_str));
    let signer = Signer::Identity { subject, issuer: shown(claimed.issuer.as_deref().unwrap_or_default()) };
    let (from, until) = (claimed.not_before, claimed.not_after);
    let outside = |made: Timestamp| Finding::OutsideCertificate { signer: signer.clone(), made, from, until };
    // These times are verified before the certificate is.
    let mut logged =
        bundle.verification_material.tlog_entries.iter().filter_map(|entry| entry.integrated_time);
    match error {
        Error::SignatureInvalid(_) => Finding::Altered { signer },
        Error::Certificate(
            CertificateError::NotYetValid { time, .. } | CertificateError::Expired { time, .. },
        ) => outside(*time),
        Error::Certificate(CertificateError::ChainInvalid(_)) => {
            match logged.find(|at| *at < from || *at > until) {
                Some(made) => outside(made),
                None => Finding::Uncertified { signer, cause: error.to_string() },
            }
        }
        Error::TransparencyLog(_) | Error::Timestamp(_) | Error::Bundle(_) => {
            Finding::Unlogged { signer, cause: error.to_string() }
        }
        _ => Finding::Uncertified { signer, cause: error.to_string() },
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
