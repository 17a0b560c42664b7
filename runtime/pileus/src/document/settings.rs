//! The settings of a document: what changes how a component runs, and not which one or when. A release runs under them, so they are
//! kept beside its status, and a document can be made of them again.

use pileus_loader::Digest;
use serde_json::{Map, Value, json};

use super::source::{Image, ImageSource, Source};

/// What of the source is no setting: it says which component, and when to look.
const NOT_OF_SOURCE: [&str; 2] = ["versions", "interval"];

/// The settings of a document. They hold references to secrets, and no secrets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Of the spec.
    pub(crate) digest: Digest,
    /// The `spec` of the document, without what is no setting. Its image is a repository.
    pub(crate) spec: Value,
}

impl Settings {
    /// Those of a `spec`. The order of its fields has no effect, nor do fields that are null.
    pub(super) fn of(spec: &Value, source: &Source) -> Self {
        let mut fields = spec.as_object().cloned().unwrap_or_default();
        fields.remove("swap");
        // Here null is a value like any other.
        let configuration = fields.remove("configuration").filter(|value| !value.is_null());
        let mut fields = without_nulls(fields);
        fields.extend(configuration.map(|configuration| ("configuration".to_owned(), configuration)));
        if let Some(of_source) = fields.get_mut("source").and_then(Value::as_object_mut) {
            of_source.retain(|name, _| !NOT_OF_SOURCE.contains(&&**name));
            if let Source::Image(ImageSource { image, .. }) = source {
                of_source.insert("image".to_owned(), json!(image.repository().to_string()));
                // The digest by which the operator pins an image is what makes it trusted.
                if let Image::Reference(reference) = image
                    && let Some(digest) = reference.digest
                {
                    let trust = fields.entry("trust").or_insert_with(|| json!({}));
                    if let Some(trust) = trust.as_object_mut() {
                        trust.remove("insecure");
                        trust.insert("digest".to_owned(), json!(digest));
                    }
                }
            }
        }
        Self::kept(Value::Object(fields))
    }

    /// Those that were kept as this `spec`.
    pub(crate) fn kept(mut spec: Value) -> Self {
        spec.sort_all_objects();
        Self { digest: Digest::of(spec.to_string().as_bytes()), spec }
    }

    /// The `spec` of a document that runs this component under these settings.
    pub(super) fn with_component(spec: &Value, component: Digest) -> Value {
        let mut spec = spec.clone();
        if let Some(image) = spec.pointer_mut("/source/image") {
            let repository = image.as_str().unwrap_or_default();
            *image = json!(format!("{repository}@{component}"));
        }
        spec
    }
}

/// A field that is null counts as missing when the document is read.
fn without_nulls(fields: Map<String, Value>) -> Map<String, Value> {
    let each = fields.into_iter().filter(|(_, value)| !value.is_null());
    each.map(|(name, value)| (name, without_nulls_inside(value))).collect()
}

fn without_nulls_inside(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(without_nulls(fields)),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls_inside).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "
source: {image: 'ghcr.io/a/b:1', versions: '1', interval: 1m, pullSecret: {name: a}, registries: [{registry: ghcr.io}]}
trust: {insecure: true}
swap: {observe: 1m}
configuration: {a: 1, b: null, c: {d: 1, e: 2}}
grants: [{host: a.example, port: 1}]
limits: {reads: {burst: 1, perSecond: 1}}
credentials: [{name: main, hosts: [a.example], bearer: {token: {secret: {name: a, key: b}}}}]
identity: {project: p}
connection: {caBundle: a}
deadlines: {lookup: {soft: 1s}}
resources: {memory: 64Mi}
loadBalancerClasses: [a.example/b]
nodeSelector: {matchLabels: {a: b}}
default: false
";

    fn settings(text: &str) -> Settings {
        let spec: Value = serde_saphyr::from_str(text).unwrap();
        let image = Image::Reference(spec["source"]["image"].as_str().unwrap().parse().unwrap());
        let (credentials, registries) = (Vec::new(), Vec::new());
        Settings::of(&spec, &Source::Image(ImageSource { image, credentials, registries }))
    }

    fn of(text: &str) -> Digest {
        settings(text).digest
    }

    #[test]
    fn settings_that_are_kept_are_those_of_the_document_that_they_make() {
        let component = Digest::of(b"component");
        for spec in [SPEC.to_owned(), SPEC.replace("ghcr.io/a/b:1", &format!("ghcr.io/a/b@{component}"))] {
            let kept = settings(&spec);
            let again = Settings::with_component(&kept.spec, component);
            assert_eq!(again["source"]["image"], format!("ghcr.io/a/b@{component}"));
            assert_eq!(Settings::kept(kept.spec.clone()), kept);
            let trusts_digest = again["trust"]["digest"] == component.to_string();
            assert_eq!(trusts_digest, spec.contains('@'), "a digest that was found adds no trust");
        }
    }

    #[test]
    fn what_changes_without_a_new_component_changes_the_digest() {
        let base = of(SPEC);
        let lines: Vec<_> = SPEC.trim().lines().collect();
        let reversed: Vec<_> = lines.iter().rev().copied().collect();
        assert_eq!(of(&reversed.join("\n")), base, "the order of fields");
        for (from, to) in [
            ("image: 'ghcr.io/a/b:1'", "image: 'ghcr.io/a/b:2'"),
            ("versions: '1', ", ""),
            ("interval: 1m", "interval: 2m"),
            ("observe: 1m", "observe: 2m"),
            ("swap: {observe: 1m}\n", ""),
            ("{d: 1, e: 2}", "{e: 2, d: 1}"),
            ("{host: a.example, port: 1}", "{port: 1, paths: null, host: a.example}"),
            ("default: false", "default: false\nextra: null"),
        ] {
            assert_eq!(of(&SPEC.replace(from, to)), base, "{from}: {to}");
        }
        let mut seen = vec![base];
        for (from, to) in [
            ("ghcr.io/a/b:1", "ghcr.io/a/c:1"),
            ("ghcr.io/a/b:1", &format!("ghcr.io/a/b@{}", Digest::of(b""))),
            ("pullSecret: {name: a}", "pullSecret: {name: b}"),
            ("registry: ghcr.io", "registry: ghcr.io, plainHTTP: true"),
            ("insecure: true", "insecure: false"),
            ("b: null", "b: 1"),
            ("b: null, ", ""),
            ("port: 1", "port: 2"),
            ("burst: 1", "burst: 2"),
            ("key: b", "key: c"),
            ("project: p", "project: q"),
            ("caBundle: a", "caBundle: b"),
            ("soft: 1s", "soft: 2s"),
            ("memory: 64Mi", "memory: 65Mi"),
            ("a.example/b", "a.example/c"),
            ("a: b", "a: c"),
            ("default: false", "default: true"),
        ] {
            let changed = of(&SPEC.replace(from, to));
            assert!(!seen.contains(&changed), "{from}: {to}");
            seen.push(changed);
        }
    }
}
