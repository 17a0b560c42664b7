//! The schema of the document, as `pileus schema` prints it: for the API server as a CustomResourceDefinition, and for editors
//! as a JSON schema of the file. The reader in the files beside this one decides; the schema refuses what it can tell
//! without files and keys, and texts and lists that are longer than any real one. A table of documents, which is run against
//! the API server and against the reader, compares the two. Pure.

mod access;
mod credentials;
mod nodes;
mod source;
mod status;
mod swap;
mod trust;
mod value;

use serde_json::{Value, json};

use value::Schema;

/// The most items of a list, and fields of a map.
const MAX_ITEMS: usize = 256;
/// The most ranges of addresses, each of which a rule reads.
const MAX_ADDRESSES: usize = 32;
/// The most characters of a text.
const MAX_TEXT: usize = 4096;

/// The CustomResourceDefinition.
pub(crate) fn resource_definition() -> Value {
    let columns = [
        ("Reference", "string", ".spec.source.image"),
        ("Version", "string", ".status.active.version"),
        ("Digest", "string", ".status.active.release.component"),
        ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ];
    let columns = columns.map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}));
    let name = "self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')";
    let schema = Schema::object(
        "A cloud provider: which component runs, its configuration, grants, limits and credentials.",
    )
    .required("spec", spec())
    .field("status", status::schema())
    .rule(name, "choose a name of 1 to 63 lower-case letters, digits and dashes; it appears in metrics");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "cloudproviders.pileus.dev", "labels": {"app.kubernetes.io/name": "pileus"}},
        "spec": {
            "group": "pileus.dev",
            "scope": "Cluster",
            "names": {
                "kind": "CloudProvider",
                "listKind": "CloudProviderList",
                "plural": "cloudproviders",
                "singular": "cloudprovider",
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": Value::from(schema)},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    })
}

/// The JSON schema of the file.
pub(crate) fn file() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CloudProvider",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": super::API_VERSION},
            "kind": {"const": "CloudProvider"},
            "metadata": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}},
            },
            "spec": Value::from(spec()),
        },
    });
    for_editors(&mut schema);
    schema
}

/// Replaces what only the API server understands.
fn for_editors(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.remove("x-kubernetes-int-or-string").is_some() {
                fields.insert("type".to_owned(), json!(["integer", "string"]));
            }
            let is_open = fields.contains_key("x-kubernetes-preserve-unknown-fields");
            if fields.get("properties").is_some_and(Value::is_object) && !is_open {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
            fields.retain(|name, _| !name.starts_with("x-kubernetes-"));
            fields.values_mut().for_each(for_editors);
        }
        Value::Array(items) => items.iter_mut().for_each(for_editors),
        _ => {}
    }
}

fn spec() -> Schema {
    let trusts = "self.source.image.contains('@') || has(self.trust.digest) || (has(self.trust.keys) && \
                  size(self.trust.keys) > 0) || (has(self.trust.identities) && size(self.trust.identities) > 0) || \
                  self.trust.insecure";
    let same = "!has(self.trust.digest) || !self.source.image.contains('@') || \
                self.source.image.endsWith('@' + self.trust.digest)";
    let with_image = |rule: &str| format!("!has(self.source.image) || {rule}");
    Schema::object("What the operator asks for.")
        .required("source", source::schema())
        .field("trust", trust::schema().with_defaults())
        .field("swap", swap::schema().with_defaults())
        .field(
            "configuration",
            Schema::any_object("The provider's own configuration; `pileus inspect` shows its schema.").default(json!({})),
        )
        .field("grants", access::grants())
        .field("limits", access::limits())
        .field("credentials", credentials::schema())
        .field("connection", access::connection())
        .field("identity", nodes::identity())
        .field("deadlines", nodes::deadlines().with_defaults())
        .field("resources", nodes::resources().with_defaults())
        .field("loadBalancerClasses", nodes::classes())
        .field("nodeSelector", nodes::node_selector())
        .field("default", Schema::boolean("Whether it serves Services without a class.").default(true))
        .rule_of(
            "trust",
            &with_image(&format!("({trusts})")),
            "a registry can change what a tag names, and nothing says whom to trust; add the keys of those who sign it, or a \
             digest, or pin the image by a digest. `insecure: true` accepts what the registry serves",
        )
        .rule_of("trust", &with_image(&format!("({same})")), "the digest differs from that of the image; remove one of them")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::document::tests::parse;

    /// All objects of a schema with the fields that they can have. `build` puts a value into their place in a spec.
    fn objects(
        schema: &Value,
        path: &str,
        build: &dyn Fn(Value) -> Value,
        found: &mut Vec<(String, Value, BTreeSet<String>)>,
    ) {
        if let Some(fields) = schema["properties"].as_object() {
            let names = fields.keys().cloned().collect();
            found.push((path.to_owned(), build(json!({"unknown": 1})), names));
            for (name, field) in fields {
                let inside = |value: Value| build(json!({name: value}));
                objects(field, &format!("{path}.{name}"), &inside, found);
            }
        }
        objects_of(&schema["items"], &format!("{path}[0]"), &|item| build(json!([item])), found);
        objects_of(
            &schema["additionalProperties"],
            &format!("{path}.a"),
            &|item| build(json!({"a": item})),
            found,
        );
    }

    fn objects_of(
        schema: &Value,
        path: &str,
        build: &dyn Fn(Value) -> Value,
        found: &mut Vec<(String, Value, BTreeSet<String>)>,
    ) {
        if schema.is_object() {
            objects(schema, path, build, found);
        }
    }

    #[test]
    fn the_schema_and_the_reader_know_the_same_fields() {
        let mut all = Vec::new();
        objects(&spec().into(), "spec", &|value| value, &mut all);
        assert!(all.len() > 40, "{} objects", all.len());
        for (path, mut spec, names) in all {
            // Most fields of a source belong to an image.
            if let Some(source) = spec.get_mut("source").and_then(Value::as_object_mut) {
                source.insert("image".to_owned(), json!("registry.example/a:1"));
            }
            let document = json!({
                "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "a"}, "spec": spec,
            });
            let problems = parse(&document.to_string(), "/").unwrap_err();
            let unknown = format!("{path}.unknown");
            let problem = problems.iter().find(|problem| problem.path == unknown);
            let message = &problem.unwrap_or_else(|| panic!("{path}: {problems:?}")).message;
            let known =
                message.rsplit_once("known fields are ").unwrap_or_else(|| panic!("{path}: {message}")).1;
            assert_eq!(known.split(", ").map(str::to_owned).collect::<BTreeSet<_>>(), names, "{path}");
        }
    }

    #[test]
    fn the_schema_of_the_file_has_nothing_that_editors_do_not_know() {
        let schema = file();
        assert!(!schema.to_string().contains("x-kubernetes-"), "{schema}");
        let source = &schema["properties"]["spec"]["properties"]["source"];
        assert_eq!(source["additionalProperties"], json!(false));
        assert_eq!(source["properties"]["file"]["type"], json!("string"));
        let spec = &schema["properties"]["spec"]["properties"];
        assert_eq!(spec["configuration"]["additionalProperties"], Value::Null, "it may have any field");
        assert_eq!(spec["limits"]["additionalProperties"]["additionalProperties"], json!(false));
        assert_eq!(spec["resources"]["properties"]["memory"]["type"], json!(["integer", "string"]));
    }
}
