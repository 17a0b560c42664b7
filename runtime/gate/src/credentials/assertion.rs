//! The assertion with which a client proves that it holds the key of a certificate (RFC 7523), in the form that
//! Microsoft Entra documents: PS256, with the SHA-256 thumbprint of the certificate. The chain is sent along for
//! applications that trust an issuer and a subject instead of one certificate.
//!
//! Signed with ring, which TLS needs anyway: the crate `jsonwebtoken` would add a second cryptography library for these
//! few lines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PSS_SHA256, RsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use zeroize::{Zeroize, Zeroizing};

/// Entra recommends 5 to 10 minutes; clock differences take some of that.
const LIFETIME: Duration = Duration::from_mins(10);

/// The claims of an assertion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claims<'a> {
    /// The token endpoint's URL.
    pub(crate) audience: &'a str,
    pub(crate) client_id: &'a str,
    /// The unique name of this assertion.
    pub(crate) id: &'a str,
    pub(crate) now: SystemTime,
}

/// Signs an assertion.
///
/// # Errors
/// What is wrong with certificate or key, as a sentence that contains neither.
pub(crate) fn sign(
    claims: Claims<'_>,
    certificates: &str,
    key: &str,
) -> Result<Zeroizing<String>, &'static str> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| "the certificate is not valid PEM")?;
    let leaf = chain.first().ok_or("there is no PEM certificate")?;
    let key = key_pair(key)?;

    let chain: Vec<_> = chain.iter().map(|certificate| BASE64_STANDARD.encode(certificate)).collect();
    let thumbprint = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, leaf));
    let header = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint, "x5c": chain});
    let Claims { audience, client_id, id, now } = claims;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (from, until) = (now.as_secs(), (now + LIFETIME).as_secs());
    let claims = json!({
        "aud": audience, "iss": client_id, "sub": client_id, "jti": id, "nbf": from, "iat": from, "exp": until,
    });
    let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = [header, claims].join(".");

    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PSS_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "the key can't sign")?;
    Ok(Zeroizing::new([signed, BASE64_URL_SAFE_NO_PAD.encode(signature)].join(".")))
}

fn key_pair(pem: &str) -> Result<RsaKeyPair, &'static str> {
    let mut key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| "there is no PEM key")?;
    let pair = match &key {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err("the key is not an RSA key"),
    };
    key.zeroize();
    // The library's error is about the form of the key.
    pair.map_err(|_| "the key is not an RSA key of 2048 to 4096 bits")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const KEY: &str = include_str!("../../tests/wire/rsa-key.pem");
    const CLAIMS: Claims<'_> =
        Claims { audience: "https://login.example/token", client_id: "client", id: "one", now: UNIX_EPOCH };

    fn certificate() -> rcgen::Certificate {
        let key = rcgen::KeyPair::from_pem(KEY).unwrap();
        rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap()
    }

    #[test]
    fn an_assertion_names_the_certificate_and_expires_after_ten_minutes() {
        let certificate = certificate();
        let assertion = sign(CLAIMS, &certificate.pem(), KEY).unwrap();
        let parts: Vec<_> = assertion.split('.').collect();
        let part = |index: usize| -> Value {
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[index]).unwrap()).unwrap()
        };
        let thumbprint = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, certificate.der()));
        assert_eq!(
            part(0),
            json!({"alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint, "x5c": [BASE64_STANDARD.encode(certificate.der())]})
        );
        assert_eq!(
            part(1),
            json!({
                "aud": "https://login.example/token", "iss": "client", "sub": "client", "jti": "one", "nbf": 0,
                "iat": 0, "exp": 600,
            })
        );
        assert_eq!(parts.len(), 3);
    }

    #[test]
    fn an_invalid_certificate_or_key_is_reported_without_its_content() {
        let certificate = certificate().pem();
        let elliptic = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (certificate, key, expected) in [
            ("", KEY, "there is no PEM certificate"),
            (KEY, KEY, "there is no PEM certificate"),
            (certificate.as_str(), "", "there is no PEM key"),
            (&certificate, &elliptic, "the key is not an RSA key of 2048 to 4096 bits"),
        ] {
            assert_eq!(sign(CLAIMS, certificate, key).err(), Some(expected));
        }
        let together = format!("{KEY}{certificate}");
        assert!(sign(CLAIMS, &together, &together).is_ok(), "one file may hold both");
    }
}
