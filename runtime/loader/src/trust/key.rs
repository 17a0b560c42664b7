//! Public keys of cosign: P-256 and Ed25519, the two kinds that its users have. A key is read from the PEM form in which
//! cosign writes it, compared byte for byte with the one encoding that each kind has: no parser of certificates and
//! algorithm parameters is needed for two fixed headers. Pure.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

/// How a P-256 key begins: a sequence of the curve's name and a bit string. An uncompressed point follows.
const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
/// How an Ed25519 key begins. Its 32 bytes follow.
const ED25519_HEADER: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// A public key, which is no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
    /// The point, or the 32 bytes of the key.
    bytes: Vec<u8>,
    fingerprint: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    P256,
    Ed25519,
}

impl PublicKey {
    /// Reads a key in PEM form, as `cosign.pub` has it.
    ///
    /// # Errors
    /// What is wrong, as in "it is not a public key in PEM form".
    pub fn from_pem(pem: &str) -> Result<Self, &'static str> {
        if pem.contains("PRIVATE KEY") {
            return Err("it is a private key: use the public one, and consider this one as disclosed");
        }
        let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes());
        let Some(Ok(key)) = keys.next() else {
            return Err("it is not a public key in PEM form, which begins with -----BEGIN PUBLIC KEY-----");
        };
        if keys.next().is_some() {
            return Err("it holds more than one key: list each one with a name of its own");
        }
        let der: &[u8] = &key;
        let (kind, bytes) = match (der.strip_prefix(P256), der.strip_prefix(ED25519_HEADER)) {
            (Some(point), _) if point.len() == 65 && point.first() == Some(&4) => (Kind::P256, point),
            (_, Some(bytes)) if bytes.len() == 32 => (Kind::Ed25519, bytes),
            _ => {
                return Err(
                    "it is neither a P-256 nor an Ed25519 key; make one with `cosign generate-key-pair`",
                );
            }
        };
        Ok(Self { kind, bytes: bytes.to_vec(), fingerprint: Sha256::digest(der).into() })
    }

    /// Whether this key made the signature of a message.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.kind {
            Kind::P256 => &ECDSA_P256_SHA256_ASN1,
            Kind::Ed25519 => &ED25519,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }

    /// The text by which bundles name the key that made them.
    pub(crate) fn hint(&self) -> String {
        BASE64_STANDARD.encode(self.fingerprint)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.hint())
    }
}
