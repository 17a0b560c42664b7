//! What counts and what doesn't, as a table over signatures that are made here in the forms of cosign. `tests/registry` has
//! signatures that cosign itself makes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

use super::evidence::Evidence;
use super::key::PublicKey;
use super::policy::{Key, Layout, TrustPolicy, TrustSpec};
use super::verify::{Artifact, Trust, counted, verify};
use crate::digest::Digest;
use crate::error::{self, Distrust, Finding};
use crate::reference::Repository;

const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// A key pair with the name under which policies list it.
struct Signer {
    name: &'static str,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    fn p256(name: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self { name, pair: Pair::P256(pair) }
    }

    fn ed25519(name: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { name, pair: Pair::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()) }
    }

    fn pem(&self) -> String {
        let head = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
        let der = match &self.pair {
            Pair::P256(pair) => [&head[..], pair.public_key().as_ref()].concat(),
            Pair::Ed25519(pair) => {
                [b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", pair.public_key().as_ref()].concat()
            }
        };
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64_STANDARD.encode(der))
    }

    fn key(&self) -> Key {
        Key { name: self.name.to_owned(), key: PublicKey::from_pem(&self.pem()).unwrap(), expires: None }
    }

    fn expiring(&self, at: i64) -> Key {
        Key { expires: Some(Timestamp::from_second(at).unwrap()), ..self.key() }
    }

    fn sign(&self, message: &[u8]) -> String {
        BASE64_STANDARD.encode(match &self.pair {
            Pair::P256(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        })
    }

    /// A bundle as cosign 3 makes it.
    fn bundle(&self, digest: Digest) -> Evidence {
        self.statement(digest, PREDICATE, "application/vnd.in-toto+json")
    }

    fn statement(&self, digest: Digest, predicate: &str, payload_type: &str) -> Evidence {
        let payload = format!(
            r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"digest":{{"sha256":"{}"}},"annotations":{{}}}}],"predicateType":"{predicate}","predicate":{{}}}}"#,
            digest.hex()
        );
        let message = format!("DSSEv1 {} {payload_type} {} {payload}", payload_type.len(), payload.len());
        let text = format!(
            r#"{{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{{"publicKey":{{"hint":"{}"}}}},"dsseEnvelope":{{"payload":"{}","payloadType":"{payload_type}","signatures":[{{"sig":"{}"}}]}}}}"#,
            self.key().key.hint(),
            BASE64_STANDARD.encode(&payload),
            self.sign(message.as_bytes()),
        );
        Evidence::Bundle { text }
    }

    /// A signature under a tag, as cosign 2 makes it.
    fn tag(&self, digest: Digest, repository: &str) -> Evidence {
        let payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"{repository}"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"https://sigstore.dev/cosign/sign/v1"}},"optional":null}}"#
        )
        .replace(PREDICATE, "cosign container image signature");
        Evidence::Tag { signature: self.sign(payload.as_bytes()), payload }
    }
}

fn replaced(evidence: &Evidence, from: &str, to: &str) -> Evidence {
    let change = |text: &String| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    };
    match evidence {
        Evidence::Bundle { text } => Evidence::Bundle { text: change(text) },
        Evidence::Tag { payload, signature } => {
            Evidence::Tag { payload: change(payload), signature: signature.clone() }
        }
        other @ Evidence::Unreadable { .. } => other.clone(),
    }
}

const NOW: i64 = 1000;

fn decide(policy: TrustSpec, evidence: &[Evidence]) -> Result<Trust, Distrust> {
    let repository = Repository { registry: "r.example".into(), name: "team/p".into() };
    let artifact = Artifact { repository: &repository, digest: ours(), pinned: None };
    verify(artifact, &TrustPolicy::new(policy).unwrap(), evidence, Timestamp::from_second(NOW).unwrap())
}

fn ours() -> Digest {
    Digest::of(b"ours")
}

fn other() -> Digest {
    Digest::of(b"other")
}

fn keys<const N: usize>(keys: [Key; N]) -> TrustSpec {
    TrustSpec { keys: keys.into(), ..TrustSpec::default() }
}

fn signed<const N: usize>(names: [&str; N]) -> Trust {
    Trust::Signed { signers: names.map(|name| error::Signer::Key(name.to_owned())).to_vec() }
}

#[test]
fn signatures_in_both_layouts_by_both_kinds_of_keys_count() {
    let (alice, bob) = (Signer::p256("alice"), Signer::ed25519("bob"));
    for signer in [&alice, &bob] {
        assert_eq!(decide(keys([signer.key()]), &[signer.bundle(ours())]), Ok(signed([signer.name])));
        for repository in ["r.example/team/p", "r.example/team/p:1.2", "r.example/team/p@sha256:x"] {
            assert_eq!(
                decide(keys([signer.key()]), &[signer.tag(ours(), repository)]),
                Ok(signed([signer.name]))
            );
        }
    }
    let threshold = TrustSpec { threshold: 2, ..keys([alice.key(), bob.key()]) };
    let both = [bob.tag(ours(), "r.example/team/p"), alice.bundle(ours())];
    assert_eq!(decide(threshold, &both), Ok(signed(["alice", "bob"])));
    // One that counts is enough, regardless of what else was attached.
    let mixed = [bob.bundle(ours()), alice.bundle(other()), alice.bundle(ours())];
    assert_eq!(decide(keys([alice.key()]), &mixed), Ok(signed(["alice"])));
}

#[test]
fn what_is_kept_is_one_signature_by_each_key_that_counts() {
    let (alice, bob, eve) = (Signer::p256("alice"), Signer::ed25519("bob"), Signer::p256("eve"));
    let (here, bundle, tag) = ("r.example/team/p", alice.bundle(ours()), bob.tag(ours(), "r.example/team/p"));
    // Of the owner of the repository, as large as a signature may be.
    let junk = |text: &str| Evidence::Bundle { text: text.repeat(1000) };
    let padded = Evidence::Bundle { text: format!("{}{}", bundle_text(&bundle), " ".repeat(1000)) };
    let mut evidence = vec![junk("{}"), eve.bundle(ours()), bundle.clone(), alice.bundle(other()), padded];
    evidence.extend([tag.clone(), alice.tag(ours(), here), Evidence::Unreadable { cause: "x".repeat(1000) }]);
    evidence.extend((0..50).map(|_| junk("x")));
    let repository = Repository { registry: "r.example".into(), name: "team/p".into() };
    let artifact = Artifact { repository: &repository, digest: ours(), pinned: None };
    let policy = || TrustSpec { threshold: 2, ..keys([alice.key(), bob.key()]) };
    let now = Timestamp::from_second(NOW).unwrap();
    let kept = counted(evidence, artifact, &TrustPolicy::new(policy()).unwrap(), now);
    assert_eq!(kept, [bundle, tag]);
    assert_eq!(decide(policy(), &kept), Ok(signed(["alice", "bob"])), "it is verified again by them");
}

fn bundle_text(evidence: &Evidence) -> &str {
    let Evidence::Bundle { text } = evidence else { panic!("a bundle") };
    text
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn each_reason_against_a_signature_has_words_of_its_own() {
    let (alice, bob, eve) = (Signer::p256("alice"), Signer::ed25519("bob"), Signer::p256("eve"));
    let both = || keys([alice.key(), bob.key()]);
    let two = || TrustSpec { threshold: 2, ..both() };
    let only = |layout| TrustSpec { layouts: vec![layout], ..both() };
    let here = "r.example/team/p";
    let hint_only = replaced(&eve.bundle(ours()), &eve.key().key.hint(), &alice.key().key.hint());
    let payload_of = |evidence: &Evidence| {
        let Evidence::Bundle { text } = evidence else { panic!("a bundle") };
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["dsseEnvelope"]["payload"].as_str().unwrap().to_owned()
    };
    let transplanted = replaced(
        &alice.bundle(other()),
        &payload_of(&alice.bundle(other())),
        &payload_of(&alice.bundle(ours())),
    );
    let rows: Vec<(&str, TrustSpec, Vec<Evidence>, &str)> = vec![
        ("unsigned", both(), vec![], "it has no signature"),
        ("wrong key", both(), vec![eve.bundle(ours())], "matches no key in the trust policy"),
        ("wrong key, tag", both(), vec![eve.tag(ours(), here)], "matches no key in the trust policy"),
        ("claims a key", both(), vec![hint_only], "names key alice, but was altered"),
        (
            "other digest",
            both(),
            vec![alice.bundle(other())],
            "by key alice is for another artifact, sha256:",
        ),
        ("other digest, tag", both(), vec![bob.tag(other(), here)], "by key bob is for another artifact"),
        (
            "other repository",
            both(),
            vec![alice.tag(ours(), "r.example/team/p-staging")],
            "is for another repository, \"r.example/team/p-staging\", and was copied here",
        ),
        ("other registry", both(), vec![alice.tag(ours(), "evil.example/team/p")], "for another repository"),
        ("altered payload", both(), vec![transplanted], "names key alice, but was altered"),
        (
            "altered tag",
            both(),
            vec![replaced(&alice.tag(other(), here), &other().to_string(), &ours().to_string())],
            "matches no key in the trust policy",
        ),
        ("half", two(), vec![alice.bundle(ours())], "it has 1 of 2 necessary signatures: by key alice"),
        (
            "twice the same",
            two(),
            vec![alice.bundle(ours()), alice.tag(ours(), here), alice.bundle(ours())],
            "it has 1 of 2 necessary signatures: by key alice",
        ),
        (
            "half and a stranger",
            two(),
            vec![alice.bundle(ours()), eve.bundle(ours())],
            "by key alice; other signatures: one matches no key",
        ),
        (
            "downgraded",
            only(Layout::Bundle),
            vec![alice.tag(ours(), here)],
            "stored in the layout `tag`, which the trust policy doesn't accept",
        ),
        ("other layout", only(Layout::Tag), vec![bob.bundle(ours())], "in the layout `bundle`"),
        (
            "downgraded format",
            both(),
            vec![replaced(&alice.bundle(ours()), "bundle.v0.3+json", "bundle.v0.1+json")],
            "is not bundle 0.3",
        ),
        (
            "expired list",
            keys([alice.expiring(NOW), bob.expiring(NOW - 1)]),
            vec![alice.bundle(ours())],
            "keys of the trust policy have expired (alice on 1970-01-01T00:16:40Z, bob on 1970-01-01T00:16:39Z)",
        ),
        (
            "expired key",
            keys([alice.expiring(NOW), bob.key()]),
            vec![alice.bundle(ours())],
            "by key alice, which expired on",
        ),
        (
            "expired threshold",
            TrustSpec { threshold: 2, ..keys([alice.expiring(NOW), bob.key()]) },
            vec![alice.bundle(ours()), bob.bundle(ours())],
            "fewer than the necessary 2 are left",
        ),
        (
            "attestation",
            both(),
            vec![alice.statement(ours(), "https://slsa.dev/provenance/v1", "application/vnd.in-toto+json")],
            "it has no signature",
        ),
        (
            "other payload",
            both(),
            vec![alice.statement(ours(), PREDICATE, "application/json")],
            "it has no signature",
        ),
        (
            "not JSON",
            both(),
            vec![Evidence::Bundle { text: "<html>".into() }],
            "can't be read: it is not a Sigstore bundle",
        ),
        (
            "unreadable",
            both(),
            vec![Evidence::Unreadable { cause: "it is gone".into() }],
            "can't be read: it is gone",
        ),
        (
            "two signatures",
            both(),
            vec![replaced(&alice.bundle(ours()), r#""signatures":["#, r#""signatures":[{"sig":""},"#)],
            "it has 2 signatures instead of one",
        ),
        (
            "many",
            both(),
            vec![eve.bundle(ours()), eve.tag(other(), here), alice.bundle(other())],
            "; one by key alice",
        ),
    ];
    for (name, policy, evidence, expected) in rows {
        let error = decide(policy, &evidence).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_key_counts_until_it_expires() {
    let alice = Signer::ed25519("alice");
    assert_eq!(decide(keys([alice.expiring(NOW + 1)]), &[alice.bundle(ours())]), Ok(signed(["alice"])));
}

#[test]
fn any_altered_byte_of_a_signature_is_noticed() {
    let alice = Signer::p256("alice");
    let Evidence::Tag { payload, signature } = alice.tag(ours(), "r.example/team/p") else { panic!("a tag") };
    let raw = BASE64_STANDARD.decode(&signature).unwrap();
    for position in 0..raw.len() {
        let mut altered = raw.clone();
        altered[position] ^= 1;
        let evidence = Evidence::Tag { payload: payload.clone(), signature: BASE64_STANDARD.encode(altered) };
        assert!(decide(keys([alice.key()]), &[evidence]).is_err(), "byte {position} of the signature");
    }
    for position in 0..payload.len() {
        let mut altered = payload.clone().into_bytes();
        altered[position] ^= 1;
        let payload = String::from_utf8(altered).unwrap();
        let evidence = Evidence::Tag { payload, signature: signature.clone() };
        assert!(decide(keys([alice.key()]), &[evidence]).is_err(), "byte {position} of the payload");
    }
}

#[test]
fn without_keys_only_a_digest_or_an_explicit_word_is_trusted() {
    let repository = Repository { registry: "r.example".into(), name: "p".into() };
    let decide = |spec: &TrustSpec, pinned| {
        let artifact = Artifact { repository: &repository, digest: ours(), pinned };
        verify(artifact, &TrustPolicy::new(spec.clone()).unwrap(), &[], Timestamp::UNIX_EPOCH)
    };
    let nothing = TrustSpec::default();
    let insecure = TrustSpec { insecure: true, ..TrustSpec::default() };
    let pinned = |digest| TrustSpec { digest: Some(digest), ..TrustSpec::default() };
    assert_eq!(decide(&nothing, None), Err(Distrust::NoPolicy));
    assert_eq!(decide(&nothing, Some(ours())), Ok(Trust::Digest));
    assert_eq!(decide(&pinned(ours()), None), Ok(Trust::Digest));
    assert_eq!(decide(&insecure, None), Ok(Trust::Insecure));
    let refused = Err(Distrust::OtherDigest { pinned: other() });
    assert_eq!(decide(&nothing, Some(other())), refused);
    assert_eq!(decide(&pinned(other()), Some(ours())), refused);
    assert_eq!(decide(&insecure, Some(other())), refused);
    // A digest does not replace signatures that are asked for.
    let both = TrustSpec { digest: Some(ours()), ..keys([Signer::p256("alice").key()]) };
    assert_eq!(decide(&both, Some(ours())), Err(Distrust::Unsigned));
}

#[test]
fn policies_that_contradict_themselves_are_refused_with_every_reason() {
    let (alice, bob) = (Signer::p256("alice"), Signer::ed25519("bob"));
    let renamed = Key { name: "carol".into(), ..alice.key() };
    for (spec, expected) in [
        (keys([alice.key(), renamed]), "\"alice\" and \"carol\" are the same key"),
        (keys([alice.key(), Key { name: "alice".into(), ..bob.key() }]), "two keys have the name \"alice\""),
        (TrustSpec { threshold: 3, ..keys([alice.key(), bob.key()]) }, "can't be met with 2 keys"),
        (TrustSpec { threshold: 0, ..keys([alice.key()]) }, "a threshold of 0"),
        (TrustSpec { threshold: 2, ..TrustSpec::default() }, "needs keys or identities"),
        (TrustSpec { layouts: vec![], ..keys([alice.key()]) }, "no layout"),
        (TrustSpec { insecure: true, ..keys([alice.key()]) }, "contradicts"),
        (TrustSpec { insecure: true, digest: Some(ours()), ..TrustSpec::default() }, "contradicts"),
    ] {
        let error = TrustPolicy::new(spec).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn keys_are_read_from_pem_and_what_else_it_may_be_is_said() {
    let alice = Signer::p256("alice").pem();
    let rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJB\n-----END PUBLIC KEY-----\n";
    let private = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nplanted\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----";
    for (pem, expected) in [
        ("", "not a public key in PEM form"),
        ("ssh-ed25519 AAAA", "not a public key in PEM form"),
        (private, "it is a private key"),
        (&alice.repeat(2), "more than one key"),
        (rsa, "neither a P-256 nor an Ed25519"),
    ] {
        let error = PublicKey::from_pem(pem).unwrap_err();
        assert!(error.contains(expected) && !error.contains("planted"), "{pem}: {error}");
    }
}

#[test]
fn messages_are_bounded_and_findings_not_repeated() {
    let eve = Signer::p256("eve");
    let strangers: Vec<_> = (0..60).map(|_| eve.bundle(ours())).collect();
    let error = decide(keys([Signer::p256("alice").key()]), &strangers).unwrap_err();
    assert_eq!(error, Distrust::Rejected { findings: vec![Finding::WrongKey] });
    let alice = Signer::p256("alice");
    let many: Vec<_> = (0..60_u8).map(|n| alice.bundle(Digest::of(&[n]))).collect();
    let text = decide(keys([alice.key()]), &many).unwrap_err().to_string();
    assert!(text.ends_with("; and 55 more") && text.len() < 1000, "{text}");
}
