//! Assertions that prove a client: signed with the key of a certificate, or issued by a federated issuer. Pure.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaParameters, UnparsedPublicKey,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::{Client, Denial, Federated};
use crate::json::{at, text};

/// The claims of a token, without a check of its signature.
pub(super) fn claims(token: &str) -> Option<Value> {
    part(token, 1)
}

fn part(token: &str, index: usize) -> Option<Value> {
    let part = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(index)?).ok()?;
    serde_json::from_slice(&part).ok()
}

/// An assertion, and what it is checked against.
pub(super) struct Assertion<'a> {
    pub(super) text: &'a str,
    /// The token endpoint, which is the audience of an assertion with a certificate.
    pub(super) endpoint: &'a str,
    /// The time, in seconds since 1970.
    pub(super) now: i64,
}

impl Assertion<'_> {
    /// Checks that it proves a client.
    pub(super) fn check(&self, client: &Client) -> Result<(), Denial> {
        let malformed = || Denial(401, "invalid_client", 50_027, "JWT token is invalid or malformed.");
        let (header, claims) = part(self.text, 0).zip(claims(self.text)).ok_or_else(malformed)?;
        let expires = at(&claims, "/exp").as_i64().unwrap_or_default();
        if expires <= self.now || at(&claims, "/nbf").as_i64().is_some_and(|from| from > self.now + 300) {
            return Err(Denial(
                401,
                "invalid_client",
                700_024,
                "Client assertion is not within its valid time range.",
            ));
        }
        if text(&claims, "/iss").eq_ignore_ascii_case(&client.client_id) {
            return self.check_certificate(client, &header, &claims);
        }
        // The signatures of federated issuers aren't checked: their keys are outside this process.
        let is_federated = |it: &Federated| {
            let audience = at(&claims, "/aud");
            let has = |value: &Value| value.as_str() == Some(it.audience.as_str());
            let is_for = has(audience) || audience.as_array().is_some_and(|all| all.iter().any(has));
            it.issuer == text(&claims, "/iss") && it.subject == text(&claims, "/sub") && is_for
        };
        if client.federated.iter().any(is_federated) {
            return Ok(());
        }
        let message = "No matching federated identity record found for presented assertion subject.";
        Err(Denial(401, "invalid_client", 700_213, message))
    }

    fn check_certificate(&self, client: &Client, header: &Value, claims: &Value) -> Result<(), Denial> {
        let denied = |message| Denial(401, "invalid_client", 700_027, message);
        let audience = text(claims, "/aud");
        let is_own = audience.eq_ignore_ascii_case(self.endpoint)
            || audience
                .to_lowercase()
                .contains(&self.endpoint.to_lowercase().replace("/oauth2/v2.0/token", ""));
        if text(claims, "/sub") != text(claims, "/iss") || !is_own {
            return Err(denied("Client assertion contains an invalid audience or subject."));
        }
        let known =
            client.certificates.iter().filter_map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).ok());
        let leaf = at(header, "/x5c/0").as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        let is_meant = |certificate: &CertificateDer<'_>| {
            let sha1 = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate));
            let sha256 = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, certificate));
            text(header, "/x5t") == sha1
                || text(header, "/x5t#S256") == sha256
                || leaf.as_deref() == Some(certificate.as_ref())
        };
        let certificate = known.into_iter().find(is_meant).ok_or_else(|| {
            denied("The certificate with identifier used to sign the client assertion is not registered.")
        })?;
        let algorithm: &RsaParameters = match text(header, "/alg") {
            "RS256" => &RSA_PKCS1_2048_8192_SHA256,
            "PS256" => &RSA_PSS_2048_8192_SHA256,
            _ => return Err(denied("Client assertion has an unsupported algorithm.")),
        };
        let (signed, signature) = self.text.rsplit_once('.').unwrap_or_default();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        let key = public_key(&certificate).ok_or_else(|| denied("The certificate has no RSA key."))?;
        let checked = UnparsedPublicKey::new(algorithm, key).verify(signed.as_bytes(), &signature);
        checked.map_err(|_| denied("Client assertion contains an invalid signature."))
    }
}

/// The RSA public key of a certificate (RFC 5280), in the form of PKCS #1.
fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // Version (tagged 0, optional), serial number, signature, issuer, validity, subject, public key.
    let (tag, _, after) = element(rest)?;
    if tag == 0xa0 {
        rest = after;
    }
    for _ in 0..5 {
        (_, _, rest) = element(rest)?;
    }
    let (_, info, _) = element(rest)?;
    let (_, _, key) = element(info)?;
    let (tag, bits, _) = element(key)?;
    // The first byte of a bit string is the number of unused bits.
    bits.get(1..).filter(|_| tag == 0x03)
}

/// The tag and the content of the first DER element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = if *length < 0x80 {
        (usize::from(*length), rest)
    } else {
        let (octets, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
        (octets.iter().fold(0, |sum, octet| (sum << 8) | usize::from(*octet)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use serde_json::json;

    use super::*;

    const KEY: &str = include_str!("../../../../../runtime/gate/tests/wire/rsa-key.pem");
    const ENDPOINT: &str = "https://login/tenant/oauth2/v2.0/token";

    fn certificate() -> rcgen::Certificate {
        let key = rcgen::KeyPair::from_pem(KEY).unwrap();
        rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap()
    }

    fn client(certificate: &rcgen::Certificate) -> Client {
        let client = json!({"tenants": ["tenant"], "clientId": "app", "certificates": [certificate.pem()]});
        serde_json::from_value(client).unwrap()
    }

    fn sign(header: &Value, claims: &Value, padding: &'static dyn RsaEncoding) -> String {
        let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let key = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(padding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn an_assertion_is_proven_by_the_key_of_a_registered_certificate() {
        let own = certificate();
        let thumbprint = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, own.der()));
        let legacy = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, own.der()));
        let claims = |audience: &str, expires: i64| json!({"aud": audience, "iss": "app", "sub": "app", "exp": expires});
        let good = claims(ENDPOINT, 100);
        let by_thumbprint = json!({"alg": "PS256", "x5t#S256": thumbprint});
        let rows = [
            (by_thumbprint.clone(), good.clone(), &RSA_PSS_SHA256 as &dyn RsaEncoding, true),
            (json!({"alg": "RS256", "x5t": legacy}), good.clone(), &RSA_PKCS1_SHA256, true),
            (
                json!({"alg": "RS256", "x5c": [BASE64_STANDARD.encode(own.der())]}),
                good.clone(),
                &RSA_PKCS1_SHA256,
                true,
            ),
            (json!({"alg": "RS256", "x5t": "other"}), good.clone(), &RSA_PKCS1_SHA256, false),
            (json!({"alg": "RS256", "x5t": legacy}), good, &RSA_PSS_SHA256, false),
            (by_thumbprint.clone(), claims("https://elsewhere/token", 100), &RSA_PSS_SHA256, false),
            (by_thumbprint, claims(ENDPOINT, 10), &RSA_PSS_SHA256, false),
        ];
        for (header, claims, padding, is_proof) in rows {
            let text = sign(&header, &claims, padding);
            let assertion = Assertion { text: &text, endpoint: ENDPOINT, now: 50 };
            assert_eq!(assertion.check(&client(&own)).is_ok(), is_proof, "{header} {claims}");
        }
    }
}
