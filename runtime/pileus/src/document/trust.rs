//! The `trust` of a document: what makes the component trusted. A policy that can never be met, or that trusts nothing where a
//! registry may change what it serves, is refused when the document is read.

use std::io::Read as _;
use std::path::Path;

use jiff::Timestamp;
use pileus_loader::{
    Digest, Identity, Key, Layout, PublicKey, Subject, SubjectPattern, TrustPolicy, TrustSpec, TrustedRoot,
};

use super::fields::Fields;
use super::non_empty;
use super::origin::Origin;
use super::source::{Image, Source};

/// The largest threshold; a policy has at most so many keys, and so many identities.
const MAX_THRESHOLD: u64 = 64;
/// The largest file of authorities and logs. Sigstore's own has 7 KiB.
const MAX_ROOT: u64 = 1 << 20;

/// Reads the optional field `trust`. Without a source, what depends on it is not checked.
pub(super) fn trust(spec: &mut Fields<'_>, source: Option<&Source>, origin: &Origin<'_>) -> TrustPolicy {
    let before = spec.problems();
    let TrustSpec { threshold: default, .. } = TrustSpec::default();
    let layouts = Layout::ALL.map(Layout::as_str);
    let mut fields = spec.object("trust");
    let read = |value: &serde_json::Value| {
        let threshold = value.as_u64().filter(|number| (1..=MAX_THRESHOLD).contains(number))?;
        usize::try_from(threshold).ok()
    };
    let expected = format!("a whole number from 1 to {MAX_THRESHOLD}");
    let threshold = fields.has("threshold").then(|| fields.number("threshold", &expected, read)).flatten();
    let policy = TrustSpec {
        digest: fields.optional("digest", digest),
        keys: fields.objects("keys", key).into_iter().flatten().collect(),
        identities: fields
            .objects("identities", |fields| identity(fields, origin))
            .into_iter()
            .flatten()
            .collect(),
        threshold: threshold.unwrap_or(default),
        layouts: fields.list("layouts", &layouts, layout),
        insecure: fields.boolean("insecure", false),
    };
    fields.end();
    // Invalid fields would cause misleading follow-up problems here.
    if spec.problems() > before {
        return TrustPolicy::default();
    }
    if let Some(problem) = source.and_then(|source| contradiction(&policy, source)) {
        spec.wrong_at("trust", problem);
    }
    match TrustPolicy::new(policy) {
        Ok(policy) => policy,
        Err(pileus_loader::Error::Policy { problems }) => {
            for problem in problems {
                spec.wrong_at("trust", problem);
            }
            TrustPolicy::default()
        }
        Err(other) => {
            spec.wrong_at("trust", other.to_string());
            TrustPolicy::default()
        }
    }
}

/// Why a policy can't be met by a source, or trusts everything that the source serves.
fn contradiction(policy: &TrustSpec, source: &Source) -> Option<String> {
    let TrustSpec { digest, keys, identities, insecure, .. } = policy;
    let has_signers = !keys.is_empty() || !identities.is_empty();
    let pinned = match source {
        Source::File(_) => {
            let problem =
                "a file has no signatures that could be checked; pin its digest, or push it to a registry";
            return has_signers.then(|| problem.to_owned());
        }
        Source::Image(image) => match &image.image {
            Image::Reference(reference) => reference.digest,
            Image::Range(..) => None,
        },
    };
    match (digest, pinned) {
        (Some(digest), Some(pinned)) if *digest != pinned => {
            Some(format!("the digest differs from that of the image, {pinned}; remove one of them"))
        }
        (None, None) if !has_signers && !insecure => Some(
            "a registry can change what a tag names, and nothing says whom to trust; add the keys of those who sign it, or a \
             digest, or pin the image by a digest. `insecure: true` accepts what the registry serves"
                .to_owned(),
        ),
        _ => None,
    }
}

fn digest(text: &str) -> Result<Digest, String> {
    text.parse().map_err(|cause: &str| cause.to_owned())
}

fn key(fields: &mut Fields<'_>) -> Option<Key> {
    let name = fields.required("name", non_empty);
    // The text isn't repeated: it may be a private key.
    let key = fields.required("key", |pem| PublicKey::from_pem(pem).map_err(str::to_owned));
    let expires = fields.optional("expires", time_in_utc);
    Some(Key { name: name?, key: key?, expires })
}

fn identity(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Identity> {
    let issuer = fields.required("issuer", non_empty);
    let pattern = |text: &str| SubjectPattern::new(text).map_err(str::to_owned);
    let subject = match (fields.has("subject"), fields.has("subjectPattern")) {
        (true, false) => fields.required("subject", non_empty).map(Subject::Exact),
        (false, true) => fields.required("subjectPattern", pattern).map(Subject::Pattern),
        _ => fields.none("an identity has one subject; keep subject or subjectPattern"),
    };
    let root = fields.optional("trustedRoot", |path| trusted_root(&origin.file(path)?));
    Some(Identity { issuer: issuer?, subject: subject?, root: root.unwrap_or_default() })
}

/// Reads a file of authorities and logs. A problem says nothing of its text, since the author of a document of the cluster may
/// name every file of the operator's folder.
fn trusted_root(path: &Path) -> Result<TrustedRoot, String> {
    let failed = |error: std::io::Error| format!("can't read {}: {error}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_ROOT).read_to_string(&mut text).map_err(failed)?;
    TrustedRoot::from_json(&text).map_err(|problem| format!("can't use {}: {problem}", path.display()))
}

/// Parses a time in the one form that Kubernetes writes, so that the API server and this program accept the same texts.
fn time_in_utc(text: &str) -> Result<Timestamp, String> {
    let time = text.parse::<Timestamp>().ok().filter(|time| time.to_string() == text && !text.contains('.'));
    time.ok_or_else(|| format!("invalid time {text:?}; write it in UTC, as in 2027-01-01T00:00:00Z"))
}

fn layout(text: &str) -> Result<Layout, String> {
    let known = Layout::ALL.into_iter().find(|layout| layout.as_str() == text);
    known.ok_or_else(|| format!("unknown layout {text:?}; expected bundle or tag"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::document::tests::parse;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    /// Nothing is signed with this key.
    const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

    fn read(source: &Value, trust: &Value) -> Result<TrustPolicy, Vec<String>> {
        let document = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "a"},
            "spec": {"source": source, "trust": trust},
        });
        let strings = |found: Vec<pileus_gate::Problem>| found.iter().map(ToString::to_string).collect();
        parse(&document.to_string(), "/").map(|document| document.trust).map_err(strings)
    }

    #[test]
    fn a_policy_is_read_with_its_defaults() {
        let tag = json!({"image": "ghcr.io/a/b:1"});
        let (digest, key) = (Some(DIGEST.parse().unwrap()), PublicKey::from_pem(KEY).unwrap());
        let signed = |expires: Option<&str>| TrustSpec {
            keys: vec![Key {
                name: "a".into(),
                key: key.clone(),
                expires: expires.map(|it| it.parse().unwrap()),
            }],
            ..TrustSpec::default()
        };
        let key = json!({"name": "a", "key": KEY});
        let expiring = json!({"name": "a", "key": KEY, "expires": "2027-01-01T00:00:00Z"});
        let rows = [
            (&tag, json!({"insecure": true}), TrustSpec { insecure: true, ..TrustSpec::default() }),
            (&tag, json!({"digest": DIGEST}), TrustSpec { digest, ..TrustSpec::default() }),
            (&tag, json!({"keys": [key]}), signed(None)),
            (
                &tag,
                json!({"digest": DIGEST, "keys": [expiring], "threshold": 1, "layouts": ["tag"]}),
                TrustSpec { digest, layouts: vec![Layout::Tag], ..signed(Some("2027-01-01T00:00:00Z")) },
            ),
            (&json!({"file": "a"}), json!({"digest": DIGEST}), TrustSpec { digest, ..TrustSpec::default() }),
        ];
        for (source, trust, expected) in rows {
            assert_eq!(read(source, &trust), Ok(TrustPolicy::new(expected).unwrap()), "{trust}");
        }
        assert_eq!(read(&json!({"file": "a"}), &Value::Null), Ok(TrustPolicy::default()));
        // The digest of an image is one of the policy, beside which nothing else has to be said.
        let pinned = TrustSpec { digest, ..TrustSpec::default() };
        for image in [format!("ghcr.io/a/b:1@{DIGEST}"), format!("ghcr.io/a/b@{DIGEST}")] {
            let source = json!({"image": image});
            for (trust, expected) in [
                (Value::Null, pinned.clone()),
                (json!({}), pinned.clone()),
                (json!({"digest": DIGEST}), pinned.clone()),
                (json!({"insecure": true}), pinned.clone()),
                (json!({"keys": [key]}), TrustSpec { digest, ..signed(None) }),
            ] {
                assert_eq!(
                    read(&source, &trust),
                    Ok(TrustPolicy::new(expected).unwrap()),
                    "{source} {trust}"
                );
            }
        }
    }

    #[test]
    fn a_policy_that_trusts_nothing_or_everything_without_saying_so_is_refused() {
        let (tag, file) = (json!({"image": "ghcr.io/a/b:1"}), json!({"file": "a"}));
        let range = json!({"image": "ghcr.io/a/b", "versions": "1"});
        let pinned = json!({"image": format!("ghcr.io/a/b@{}0", &DIGEST[..70])});
        let key = json!({"name": "a", "key": KEY});
        let renamed = json!({"name": "b", "key": KEY});
        let identity = |mut identity: Value| {
            identity["issuer"] = json!("https://accounts.example");
            json!({"identities": [identity]})
        };
        let with = |name: &str, value: Value| {
            let mut key = key.clone();
            key[name] = value;
            json!({"keys": [key]})
        };
        for (source, trust, expected) in [
            (
                &tag,
                json!({}),
                ": a registry can change what a tag names, and nothing says whom to trust; add the keys",
            ),
            (&range, Value::Null, ": a registry can change what a tag names"),
            (&tag, json!({"layouts": ["bundle"]}), ": a registry can change what a tag names"),
            (&pinned, json!({"digest": DIGEST}), ": the digest differs from that of the image, sha256:e3b0"),
            (&file, json!({"keys": [key]}), ": a file has no signatures"),
            (
                &tag,
                json!({"insecure": true, "keys": [key]}),
                ": `insecure: true` contradicts a digest, keys and identities",
            ),
            (&tag, json!({"insecure": true, "digest": DIGEST}), ": `insecure: true` contradicts"),
            (&tag, json!({"keys": [key], "threshold": 2}), ": a threshold of 2 can't be met with 1 keys"),
            (&tag, json!({"keys": [key, renamed]}), ": keys \"a\" and \"b\" are the same key"),
            (&tag, json!({"keys": [key], "layouts": []}), ": no layout of signatures is accepted"),
            (
                &tag,
                json!({"keys": [key], "threshold": 0}),
                ".threshold: expected a whole number from 1 to 64, found 0",
            ),
            (&tag, json!({"keys": [key], "layouts": ["oci"]}), ".layouts[0]: unknown layout \"oci\""),
            (&tag, json!({"digest": "sha256:0"}), ".digest: a digest is `sha256:`"),
            (&tag, json!({"insecure": "yes"}), ".insecure: expected true or false"),
            (&tag, json!({"insecur": true}), ".insecur: unknown field"),
            (&tag, with("key", json!("PRIVATE KEY planted")), ".keys[0].key: it is a private key"),
            (&tag, with("key", json!("planted")), ".keys[0].key: it is not a public key in PEM form"),
            (&tag, with("name", Value::Null), ".keys[0].name: required field is missing"),
            (
                &tag,
                with("expires", json!("2027-01-01")),
                ".keys[0].expires: invalid time \"2027-01-01\"; write it in UTC",
            ),
            (&tag, with("expires", json!("2027-01-01T00:00:00+01:00")), ".keys[0].expires: invalid time"),
            (&tag, with("until", json!("2027-01-01T00:00:00Z")), ".keys[0].until: unknown field"),
            (&tag, identity(json!({})), ".identities[0]: an identity has one subject"),
            (
                &tag,
                identity(json!({"subject": "a", "subjectPattern": "a*"})),
                ".identities[0]: an identity has one subject",
            ),
            (
                &tag,
                identity(json!({"subjectPattern": "a"})),
                ".identities[0].subjectPattern: a pattern has a `*`",
            ),
            (
                &tag,
                identity(json!({"subjectPattern": "*@*"})),
                ".identities[0].subjectPattern: the pattern matches every subject",
            ),
            (
                &tag,
                identity(json!({"subject": "a", "trustedRoot": "no-such.json"})),
                ".identities[0].trustedRoot: can't read /no-such.json",
            ),
            (&tag, identity(json!({"subject": "a", "email": "b"})), ".identities[0].email: unknown field"),
        ] {
            let found = read(source, &trust).unwrap_err();
            let expected = format!("spec.trust{expected}");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{trust}: {found:?}");
            assert!(!found[0].contains("planted"), "{found:?}");
        }
    }
    /// A build verifies identities or refuses them, in words.
    #[test]
    fn identities_need_a_build_that_verifies_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trusted_root.json");
        std::fs::write(&path, "\"planted\"").unwrap();
        let tag = json!({"image": "ghcr.io/a/b:1"});
        let identity = |more: Value| {
            let mut identity =
                json!({"issuer": "https://accounts.example", "subjectPattern": "*@acme.example"});
            identity.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&tag, &json!({"identities": [identity]}))
        };
        let with_root = identity(json!({"trustedRoot": path})).unwrap_err();
        assert!(!with_root[0].contains("planted"), "{with_root:?}");
        let found = identity(json!({}));
        if cfg!(feature = "keyless") {
            assert!(found.is_ok(), "{found:?}");
            assert!(with_root[0].contains("it is not a trusted root"), "{with_root:?}");
        } else {
            let expected = "spec.trust: this build of Pileus can't verify `identities`: use one that is built with \
                            `--features keyless`, or list keys";
            assert_eq!(
                (found.unwrap_err(), with_root),
                (vec![expected.to_owned()], vec![expected.to_owned()])
            );
        }
    }
}
