//! Bundles of identities: made here with an authority and logs of our own, in the form in which cosign 3 makes them with
//! Fulcio and Rekor 1, and two that were recorded. These are of the test data of `sigstore-verify` and of sigstore-python
//! (Apache-2.0).

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber, SigningKey as _,
};
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::error::{Distrust, Error, Signer};
use crate::reference::Repository;
use crate::trust::evidence::Evidence;
use crate::trust::identity::{Identity, Subject, SubjectPattern, TrustedRoot};
use crate::trust::key::PublicKey;
use crate::trust::policy::{Key, Layout, TrustPolicy, TrustSpec};
use crate::trust::verify::{Artifact, Trust, verify};

const ISSUER: &str = "https://token.actions.example";
const WORKFLOW: &str = "https://git.example/acme/cloud/.github/workflows/release.yml@refs/tags/v1";
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// When the certificates begin, at midnight of 2026-01-01, in seconds. They hold for ten minutes.
const BEGIN: i64 = 1_767_225_600;

fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

/// An instance of Sigstore.
struct Instance {
    authority: KeyPair,
    certificates: KeyPair,
    log: KeyPair,
}

/// What is signed, by whom and when.
#[derive(Clone)]
struct Signing<'a> {
    issuer: &'a str,
    subject: &'a str,
    /// Seconds after the certificate begins.
    at: i64,
    digest: Digest,
    /// The repository in the statement, which cosign leaves out.
    name: &'a str,
    predicate: &'a str,
    /// Who says that the certificate is logged; none says so without a key.
    noted_by: Option<&'a KeyPair>,
}

impl Instance {
    fn new() -> Self {
        let [authority, certificates, log] = [(); 3].map(|()| KeyPair::generate().unwrap());
        Self { authority, certificates, log }
    }

    fn authority_params() -> CertificateParams {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2035, 1, 1);
        params
    }

    /// The text of its `trusted_root.json`.
    fn root(&self) -> TrustedRoot {
        let log = |key: &KeyPair| {
            json!({
                "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": base64(key.subject_public_key_info()), "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2025-01-01T00:00:00Z"},
                },
                "logId": {"keyId": base64(sha256(&key.subject_public_key_info()))},
            })
        };
        let certificate = Self::authority_params().self_signed(&self.authority).unwrap();
        let root = json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(&self.log)],
            "certificateAuthorities": [{
                "subject": {"organization": "example", "commonName": "authority"}, "uri": "https://ca.example",
                "certChain": {"certificates": [{"rawBytes": base64(certificate.der())}]},
                "validFor": {"start": "2025-01-01T00:00:00Z"},
            }],
            "ctlogs": [log(&self.certificates)],
            "timestampAuthorities": [],
        });
        TrustedRoot::from_json(&root.to_string()).unwrap()
    }

    fn identity(&self, subject: &str) -> Identity {
        let subject = match SubjectPattern::new(subject) {
            Ok(pattern) => Subject::Pattern(pattern),
            Err(_) => Subject::Exact(subject.to_owned()),
        };
        Identity { issuer: ISSUER.to_owned(), subject, root: self.root() }
    }

    fn signing(&self) -> Signing<'_> {
        Signing {
            issuer: ISSUER,
            subject: WORKFLOW,
            at: 60,
            digest: ours(),
            name: "",
            predicate: SIGN,
            noted_by: Some(&self.certificates),
        }
    }

    /// A certificate for a key, in DER form.
    fn certificate(&self, key: &KeyPair, signing: &Signing<'_>) -> Vec<u8> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names = vec![if signing.subject.contains("://") {
            SanType::URI(signing.subject.try_into().unwrap())
        } else {
            SanType::Rfc822Name(signing.subject.try_into().unwrap())
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = params.not_before + Duration::from_mins(10);
        params.serial_number = Some(SerialNumber::from(vec![7]));
        let issuer =
            [&[0x0c, u8::try_from(signing.issuer.len()).unwrap()], signing.issuer.as_bytes()].concat();
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer)];
        let authority = Issuer::new(Self::authority_params(), &self.authority);
        let logged = params.signed_by(key, &authority).unwrap();
        if let Some(log) = signing.noted_by {
            let note = self.note(log, first_element(logged.der()));
            params
                .custom_extensions
                .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], note));
        }
        params.signed_by(key, &authority).unwrap().der().to_vec()
    }

    /// What a log of certificates says about one before it has this note (RFC 6962).
    fn note(&self, log: &KeyPair, certificate: &[u8]) -> Vec<u8> {
        let time = u64::try_from(BEGIN * 1000).unwrap().to_be_bytes();
        let length = u32::try_from(certificate.len()).unwrap().to_be_bytes();
        let signed = [
            &[0, 0][..],
            &time,
            &[0, 1],
            &sha256(&self.authority.subject_public_key_info()),
            &length[1..],
            certificate,
            &[0, 0],
        ];
        let signature = log.sign(&signed.concat()).unwrap();
        let id = sha256(&log.subject_public_key_info());
        let note =
            [&[0][..], &id, &time, &[0, 0, 4, 3, 0, u8::try_from(signature.len()).unwrap()], &signature]
                .concat();
        let length = u8::try_from(note.len()).unwrap();
        // A string of bytes with a list that has one entry.
        [&[0x04, length + 4, 0, length + 2, 0, length], &note[..]].concat()
    }

    /// A bundle as cosign 3 makes it.
    fn bundle(&self, signing: &Signing<'_>) -> Value {
        let key = KeyPair::generate().unwrap();
        let certificate = self.certificate(&key, signing);
        let Signing { digest, name, predicate, .. } = signing;
        let mut subject = json!({"digest": {"sha256": digest.hex()}, "annotations": {}});
        if !name.is_empty() {
            subject["name"] = json!(name);
        }
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1", "subject": [subject],
            "predicateType": predicate, "predicate": {},
        })
        .to_string();
        let kind = "application/vnd.in-toto+json";
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let signature = key.sign(message.as_bytes()).unwrap();
        let pem =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(&certificate));
        let body = json!({
            "apiVersion": "0.0.1", "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "00".repeat(32)},
                "payloadHash": {"algorithm": "sha256", "value": Digest::of(payload.as_bytes()).hex()},
                "signatures": [{"signature": base64(&signature), "verifier": base64(pem)}],
            },
        });
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": base64(&certificate)},
                "tlogEntries": [self.entry(&body, BEGIN + signing.at)],
            },
            "dsseEnvelope": {
                "payload": base64(payload), "payloadType": kind, "signatures": [{"sig": base64(&signature)}],
            },
        })
    }

    /// The entry of a log that has no other one: its promise, and the proof that the log contains it.
    fn entry(&self, body: &Value, time: i64) -> Value {
        let body = body.to_string();
        let key = sha256(&self.log.subject_public_key_info());
        let id = key.iter().fold(String::new(), |id, byte| id + &format!("{byte:02x}"));
        let promise =
            format!(r#"{{"body":"{}","integratedTime":{time},"logID":"{id}","logIndex":0}}"#, base64(&body));
        let leaf = sha256(&[&[0_u8], body.as_bytes()].concat());
        let head = format!("log.example\n1\n{}\n", base64(&leaf));
        let signed = [&key[..4], &self.log.sign(head.as_bytes()).unwrap()].concat();
        json!({
            "logIndex": "0",
            "logId": {"keyId": base64(&key)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": time.to_string(),
            "inclusionPromise": {"signedEntryTimestamp": base64(self.log.sign(promise.as_bytes()).unwrap())},
            "inclusionProof": {
                "logIndex": "0", "rootHash": base64(&leaf), "treeSize": "1", "hashes": [],
                "checkpoint": {"envelope": format!("{head}\n— log.example {}\n", base64(signed))},
            },
            "canonicalizedBody": base64(&body),
        })
    }
}

/// The first element of a sequence in DER form, whose lengths have two bytes.
fn first_element(der: &[u8]) -> &[u8] {
    assert_eq!((der[0], der[1], der[4], der[5]), (0x30, 0x82, 0x30, 0x82));
    let length = usize::from(u16::from_be_bytes([der[6], der[7]]));
    &der[4..8 + length]
}

fn ours() -> Digest {
    Digest::of(b"ours")
}

fn other() -> Digest {
    Digest::of(b"other")
}

fn decide(policy: TrustSpec, bundles: &[Value]) -> Result<Trust, Distrust> {
    let evidence: Vec<_> = bundles.iter().map(|text| Evidence::Bundle { text: text.to_string() }).collect();
    decide_about(policy, &evidence, ours())
}

fn decide_about(policy: TrustSpec, evidence: &[Evidence], digest: Digest) -> Result<Trust, Distrust> {
    let repository = Repository { registry: "r.example".into(), name: "team/p".into() };
    let artifact = Artifact { repository: &repository, digest, pinned: None };
    verify(artifact, &TrustPolicy::new(policy).unwrap(), evidence, Timestamp::UNIX_EPOCH)
}

fn by<const N: usize>(identities: [Identity; N]) -> TrustSpec {
    TrustSpec { identities: identities.into(), ..TrustSpec::default() }
}

fn signer(subject: &str) -> Signer {
    Signer::Identity { subject: subject.to_owned(), issuer: ISSUER.to_owned() }
}

fn with(bundle: &Value, pointer: &str, change: impl FnOnce(&Value) -> Value) -> Value {
    let mut changed = bundle.clone();
    let place = changed.pointer_mut(pointer).unwrap();
    *place = change(place);
    changed
}

/// Changes a byte of a text in base64.
fn altered(text: &Value) -> Value {
    let mut bytes = BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    json!(base64(bytes))
}

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

#[test]
fn a_workflow_or_a_person_counts_by_name_or_by_pattern() {
    let instance = Instance::new();
    let pattern = "https://git.example/acme/*/.github/workflows/release.yml@refs/tags/v*";
    for (subject, policy) in [
        (WORKFLOW, WORKFLOW),
        (WORKFLOW, pattern),
        ("ann@acme.example", "ann@acme.example"),
        ("ann@acme.example", "*@acme.example"),
    ] {
        let bundle = instance.bundle(&Signing { subject, ..instance.signing() });
        let expected = Ok(Trust::Signed { signers: vec![signer(subject)] });
        assert_eq!(decide(by([instance.identity(policy)]), &[bundle]), expected, "{policy}");
    }
    // The last second of the certificate counts.
    let last = instance.bundle(&Signing { at: 600, ..instance.signing() });
    assert!(decide(by([instance.identity(WORKFLOW)]), &[last]).is_ok());
}

#[test]
fn each_identity_counts_once_beside_keys() {
    let instance = Instance::new();
    let sign = |subject| instance.bundle(&Signing { subject, ..instance.signing() });
    let (ann, bob) = (sign("ann@acme.example"), sign("bob@acme.example"));
    let exact = instance.identity("ann@acme.example");
    let both = || TrustSpec { threshold: 2, ..by([exact.clone(), instance.identity("*@acme.example")]) };
    let signers = vec![signer("ann@acme.example"), signer("bob@acme.example")];
    assert_eq!(decide(both(), &[bob.clone(), ann.clone()]), Ok(Trust::Signed { signers }));
    // One signature counts for one entry, and one entry counts once.
    let refusal = |found: Result<Trust, Distrust>| found.unwrap_err().to_string();
    let half = "it has 1 of 2 necessary signatures: by \"ann@acme.example\" (https://token.actions.example)";
    assert_eq!(refusal(decide(both(), &[ann.clone(), ann.clone()])), half);
    let one =
        TrustSpec { threshold: 2, ..by([instance.identity("*@acme.example"), instance.identity("none@x")]) };
    assert!(refusal(decide(one, &[ann.clone(), bob])).contains("1 of 2 necessary"));

    // Beside a key.
    let key = KeyPair::generate().unwrap();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        base64(key.subject_public_key_info())
    );
    let release = Key { name: "release".into(), key: PublicKey::from_pem(&pem).unwrap(), expires: None };
    let payload = format!(
        r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"digest":{{"sha256":"{}"}}}}],"predicateType":"{SIGN}"}}"#,
        ours().hex()
    );
    let kind = "application/vnd.in-toto+json";
    let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let by_key = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": ""}},
        "dsseEnvelope": {
            "payload": base64(&payload), "payloadType": kind,
            "signatures": [{"sig": base64(key.sign(message.as_bytes()).unwrap())}],
        },
    });
    let mixed = || TrustSpec { threshold: 2, keys: vec![release.clone()], ..by([exact.clone()]) };
    let signers = vec![Signer::Key("release".into()), signer("ann@acme.example")];
    assert_eq!(decide(mixed(), &[ann.clone(), by_key.clone()]), Ok(Trust::Signed { signers }));
    assert_eq!(
        refusal(decide(mixed(), std::slice::from_ref(&by_key))),
        "it has 1 of 2 necessary signatures: by key release"
    );
    assert_eq!(refusal(decide(mixed(), &[ann])), half);
    // A bundle of a key says nothing about identities, and the other way round.
    assert!(refusal(decide(by([exact.clone()]), &[by_key])).contains("matches no key"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn each_reason_against_an_identity_has_words_of_its_own() {
    let (instance, evil) = (Instance::new(), Instance::new());
    let policy = || by([instance.identity(WORKFLOW)]);
    let sign = |change: fn(&mut Signing<'_>)| {
        let mut signing = instance.signing();
        change(&mut signing);
        instance.bundle(&signing)
    };
    let good = sign(|_| {});
    let of_other = sign(|signing| signing.digest = other());
    let take = |pointer: &str| of_other.pointer(pointer).unwrap().clone();
    let far = i64::from(u32::MAX);
    let future = with(&good, ENTRY, |entry| {
        let body = BASE64_STANDARD.decode(entry["canonicalizedBody"].as_str().unwrap()).unwrap();
        instance.entry(&serde_json::from_slice(&body).unwrap(), far)
    });
    for (name, bundle, expected) in [
        (
            "wrong issuer",
            sign(|signing| signing.issuer = "https://evil.example"),
            format!("one is by {WORKFLOW:?} (https://evil.example), of an issuer that no identity in the trust policy has"),
        ),
        (
            "wrong subject",
            sign(|signing| signing.subject = "https://git.example/evil/cloud/.github/workflows/release.yml@refs/tags/v1"),
            "v1\" (https://token.actions.example), which is no subject that the trust policy lists for this issuer".into(),
        ),
        (
            "after the certificate",
            sign(|signing| signing.at = 601),
            "was made at 2026-01-01T00:10:01Z, but its certificate is valid from 2026-01-01T00:00:00Z to \
             2026-01-01T00:10:00Z"
                .into(),
        ),
        ("before the certificate", sign(|signing| signing.at = -1), "was made at 2025-12-31T23:59:59Z, but".into()),
        ("in the future", future, "is in the future".into()),
        (
            "other digest",
            of_other.clone(),
            format!("one by {WORKFLOW:?} ({ISSUER}) is for another artifact, {}", other()),
        ),
        (
            "copied from another repository",
            sign(|signing| signing.name = "r.example/team/p-staging"),
            "is for another repository, \"r.example/team/p-staging\", and was copied here".into(),
        ),
        (
            "altered payload",
            with(&of_other, "/dsseEnvelope/payload", |_| good["dsseEnvelope"]["payload"].clone()),
            "names \"https://git.example/acme/cloud/.github/workflows/release.yml@refs/tags/v1\" \
             (https://token.actions.example), but was altered"
                .into(),
        ),
        ("altered signature", with(&good, "/dsseEnvelope/signatures/0/sig", altered), "but was altered".into()),
        (
            "altered certificate",
            with(&good, "/verificationMaterial/certificate/rawBytes", altered),
            "can't be trusted: certificate chain is invalid".into(),
        ),
        (
            "altered promise",
            with(&good, &format!("{ENTRY}/inclusionPromise/signedEntryTimestamp"), altered),
            "nothing proves when one that claims to be by".into(),
        ),
        (
            "altered time",
            with(&good, &format!("{ENTRY}/integratedTime"), |_| json!((BEGIN + 61).to_string())),
            "invalid inclusion promise".into(),
        ),
        (
            "altered proof",
            with(&good, &format!("{ENTRY}/inclusionProof/hashes"), |_| json!([base64([0; 32])])),
            "nothing proves when one that claims to be by".into(),
        ),
        (
            "altered checkpoint",
            with(&good, &format!("{ENTRY}/inclusionProof/checkpoint/envelope"), |text| {
                json!(text.as_str().unwrap().replace("log.example\n1\n", "log2.example\n1\n"))
            }),
            "invalid checkpoint".into(),
        ),
        (
            "the entry of another bundle",
            with(&good, ENTRY, |_| take(ENTRY)),
            "log entry does not match the bundle".into(),
        ),
        ("not logged", with(&good, "/verificationMaterial/tlogEntries", |_| json!([])), "nothing proves when".into()),
        (
            "another authority and its logs",
            evil.bundle(&evil.signing()),
            "nothing proves when one that claims to be by".into(),
        ),
        (
            "another authority",
            {
                let forged = Instance {
                    authority: KeyPair::generate().unwrap(),
                    certificates: KeyPair::try_from(instance.certificates.serialize_der()).unwrap(),
                    log: KeyPair::try_from(instance.log.serialize_der()).unwrap(),
                };
                forged.bundle(&forged.signing())
            },
            "can't be trusted: certificate chain is invalid".into(),
        ),
        (
            "a certificate that no log has",
            sign(|signing| signing.noted_by = None),
            "can't be trusted: invalid signed certificate timestamp".into(),
        ),
        (
            "a certificate that another log has",
            instance.bundle(&Signing { noted_by: Some(&evil.certificates), ..instance.signing() }),
            "can't be trusted: invalid signed certificate timestamp".into(),
        ),
        ("an attestation", sign(|signing| signing.predicate = "https://slsa.dev/provenance/v1"), "it has no signature".into()),
        ("no certificate", with(&good, "/verificationMaterial/certificate/rawBytes", |_| json!("AAAA")), "can't be read".into()),
    ] {
        let error = decide(policy(), std::slice::from_ref(&bundle)).expect_err(name).to_string();
        assert!(error.contains(&expected), "{name}: {error}");
        // What doesn't count spoils nothing.
        assert!(decide(policy(), &[bundle, good.clone()]).is_ok(), "{name}");
    }
}

/// The text of a certificate can be long, and what is shown of it is not what is compared.
#[test]
fn a_subject_is_compared_as_a_whole() {
    let instance = Instance::new();
    let long = format!("https://git.example/{}", "x".repeat(180));
    assert_eq!(long.len(), super::MAX_SHOWN);
    let bundle = instance.bundle(&Signing { subject: &format!("{long}/evil"), ..instance.signing() });
    let error = decide(by([instance.identity(&long)]), &[bundle]).unwrap_err().to_string();
    assert!(error.contains("which is no subject"), "{error}");
}

#[test]
fn policies_with_identities_that_contradict_themselves_are_refused() {
    let instance = Instance::new();
    let identity = || instance.identity(WORKFLOW);
    let empty = |issuer: &str, subject: &str| Identity {
        issuer: issuer.into(),
        subject: Subject::Exact(subject.into()),
        root: TrustedRoot::PublicGood,
    };
    for (spec, expected) in [
        (by([identity(), identity()]), "two identities are the same"),
        (
            TrustSpec { threshold: 2, ..by([identity()]) },
            "a threshold of 2 can't be met with 0 keys and 1 identities",
        ),
        (TrustSpec { layouts: vec![Layout::Tag], ..by([identity()]) }, "accept the layout `bundle`"),
        (TrustSpec { insecure: true, ..by([identity()]) }, "contradicts"),
        (by([empty("", "a")]), "needs an issuer and a subject"),
        (by([empty(ISSUER, "")]), "needs an issuer and a subject"),
    ] {
        let Err(Error::Policy { problems }) = TrustPolicy::new(spec) else { panic!("{expected}") };
        assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
    }
    for (text, expected) in [
        ("\"planted\"", "it is not a trusted root"),
        (
            r#"{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#,
            "no certificate authority",
        ),
    ] {
        let error = TrustedRoot::from_json(text).unwrap_err();
        assert!(error.contains(expected) && !error.contains("planted"), "{error}");
    }
}

/// Recorded: one of Sigstore's public instance with an entry of Rekor 1, and one of its staging instance with an entry of
/// Rekor 2 and a time stamp. Both are attestations of a workflow.
#[test]
fn recorded_bundles_are_verified_offline() {
    let staging = TrustedRoot::from_json(sigstore_verify::trust_root::SIGSTORE_STAGING_TRUSTED_ROOT).unwrap();
    let (rekor1, rekor2) = (include_str!("recorded-rekor1.json"), include_str!("recorded-rekor2.json"));
    for (text, root, digest) in [
        (rekor1, TrustedRoot::PublicGood, "54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f"),
        (rekor2, staging, "a0cfc71271d6e278e57cd332ff957c3f7043fdda354c4cbb190a30d56efa01bf"),
    ] {
        let digest: Digest = format!("sha256:{digest}").parse().unwrap();
        let workflow =
            SubjectPattern::new("https://github.com/*/*/.github/workflows/*@refs/heads/main").unwrap();
        let identity = |issuer: &str, root: &TrustedRoot| Identity {
            issuer: issuer.to_owned(),
            subject: Subject::Pattern(workflow.clone()),
            root: root.clone(),
        };
        let github = [identity("https://token.actions.githubusercontent.com", &root)];
        let found = super::read(text, digest, &github).map(|signed| signed.payload_type);
        assert_eq!(found.as_deref(), Ok("application/vnd.in-toto+json"));
        // It is right, and for another artifact, which the caller finds out.
        assert!(super::read(text, ours(), &github).is_ok());
        let value: Value = serde_json::from_str(text).unwrap();
        let evidence = |value: &Value| [Evidence::Bundle { text: value.to_string() }];
        let refusal = |identity: &Identity, value: &Value| {
            decide_about(by([identity.clone()]), &evidence(value), digest).unwrap_err().to_string()
        };
        assert!(
            refusal(&github[0], &value).contains("it has no signature"),
            "an attestation is no signature"
        );
        let changed = with(&value, "/dsseEnvelope/signatures/0/sig", altered);
        assert!(refusal(&github[0], &changed).contains("no signature counts"));
        let gitlab = identity("https://gitlab.com", &root);
        assert!(refusal(&gitlab, &value).contains("of an issuer that no identity in the trust policy has"));
        let elsewhere = identity("https://token.actions.githubusercontent.com", &Instance::new().root());
        assert!(refusal(&elsewhere, &value).contains("no signature counts"));
    }
}
