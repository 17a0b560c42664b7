//! The digest of a document's settings: of what changes how a component runs, and not which one or when.

use pileus_loader::Digest;
use serde_json::{Map, Value};

/// What of the source is a setting: how to reach the registry. The rest says which component.
const OF_SOURCE: [&str; 3] = ["pullSecret", "dockerConfig", "registries"];

/// Digests a `spec`. The order of its fields has no effect, nor do fields that are null. It holds references to secrets, and
/// no secrets.
pub(super) fn digest(spec: &Value) -> Digest {
    let mut fields = spec.as_object().cloned().unwrap_or_default();
    fields.remove("swap");
    if let Some(source) = fields.get_mut("source").and_then(Value::as_object_mut) {
        source.retain(|name, _| OF_SOURCE.contains(&&**name));
    }
    // Here null is a value like any other.
    let configuration = fields.remove("configuration").filter(|value| !value.is_null());
    let mut settings = Value::Object(without_nulls(fields));
    if let (Some(configuration), Some(fields)) = (configuration, settings.as_object_mut()) {
        fields.insert("configuration".to_owned(), configuration);
    }
    settings.sort_all_objects();
    Digest::of(settings.to_string().as_bytes())
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

    fn of(text: &str) -> Digest {
        digest(&serde_saphyr::from_str(text).unwrap())
    }

    #[test]
    fn what_changes_without_a_new_component_changes_the_digest() {
        let base = of(SPEC);
        let lines: Vec<_> = SPEC.trim().lines().collect();
        let reversed: Vec<_> = lines.iter().rev().copied().collect();
        assert_eq!(of(&reversed.join("\n")), base, "the order of fields");
        for (from, to) in [
            ("image: 'ghcr.io/a/b:1'", "image: 'ghcr.io/a/b:2'"),
            ("image: 'ghcr.io/a/b:1'", "file: a"),
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
