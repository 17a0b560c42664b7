//! An inspection as one JSON object. Fields may be added; existing ones keep their meaning. Missing values are null,
//! missing items an empty list.
//!
//! ```json
//! {
//!   "file": "provider.wasm", "artifact": null, "digest": "sha256:…", "sizeBytes": 400000,
//!   "code": {"from": "compiler", "milliseconds": 300},
//!   "contract": {"version": "0.2.0", "accepted": "0.2.x"},
//!   "exports": ["pileus:provider/info@0.2.0"],
//!   "imports": [{"interface": "wasi:http/types@0.2.12", "provides": "…"}],
//!   "capabilities": [{"name": "instances", "controllers": ["cloud-node"], "largestBatch": 5000, "sideBySide": true}],
//!   "memory": {"initialBytes": 1114112, "limitBytes": 67108864},
//!   "tables": {"initialElements": 300, "limitElements": 50000},
//!   "producers": [{"field": "language", "name": "Rust", "version": ""}],
//!   "provider": {
//!     "name": "…", "version": "…", "providerIdSchemes": ["…"], "nodeLabels": ["…"],
//!     "serviceAnnotations": [{"name": "…", "type": "text", "default": null, "description": "…"}],
//!     "serviceFacts": ["known"],
//!     "configurationSchema": {}
//!   },
//!   "identity": {"subscription": "…"},
//!   "settings": {
//!     "requestedHosts": [{"endpoint": "https://api.example:443", "reason": "…", "grantedBy": ["api.example"], "credentials": ["main"]}],
//!     "limits": [{"key": "reads", "capacity": 100, "perMinute": 600}],
//!     "nodeLabels": ["example.com/*"],
//!     "notices": [{"path": "vmType", "message": "…"}],
//!     "operatorLimits": [{"key": "reads", "burst": 50, "perSecond": 5, "requests": null}],
//!     "credentials": [{"name": "main", "kind": "bearer", "hosts": ["api.example"], "plain": false}],
//!     "notFollowed": [{"path": "settings.rules[3].effect", "message": "…"}],
//!     "rules": 4, "listsInPages": 1,
//!     "ruleTable": [{
//!       "host": "api.example", "method": "GET", "path": "/servers/*",
//!       "operation": {"place": {"in": "query", "name": "Action"}, "name": "Describe*"},
//!       "effect": "read", "limits": ["reads"], "cacheScope": "servers", "foldCase": false,
//!       "page": {"in": "query", "name": "cursor"}, "granted": true, "notGrantedBecause": null
//!     }]
//!   }
//! }
//! ```
//!
//! For a reference, `file` is null, and `artifact` is what the registry has:
//!
//! ```json
//! {
//!   "reference": "ghcr.io/example/provider:1.2@sha256:…", "tag": "1.2", "digest": "sha256:…", "sizeBytes": 700,
//!   "mediaType": "application/vnd.oci.image.manifest.v1+json", "entry": null,
//!   "configMediaType": "application/vnd.wasm.config.v0+json",
//!   "component": {"mediaType": "application/wasm", "digest": "sha256:…", "sizeBytes": 400000},
//!   "annotations": {"org.opencontainers.image.version": "1.2"},
//!   "trust": {"by": "signatures", "keys": ["cosign"]},
//!   "signatures": [{"layout": "bundle", "key": "cosign", "problem": null}],
//!   "attachments": [{"name": "sha256:…", "kind": "sbom", "mediaType": "application/spdx+json"}], "moreAttachments": 0
//! }
//! ```
//!
//! - `digest` is that of the component's bytes; the artifact's own is the one by which it is pinned.
//! - `entry` is the digest of the manifest that an index leads to.
//! - `key` of a signature is the given key that made it, or null. `problem` says why it doesn't count; null without keys.
//! - `kind` of an attachment is `signature`, `sbom`, `provenance`, `attestation` or `other`, by what it claims to be.
//! - `provides` is null for an import that is linked but provides nothing.
//! - `code.from` is `compiler` or `cache`.
//! - `settings` is null if the provider needs a configuration that wasn't given.
//! - `grantedBy` and `credentials` of a requested host are null without a document, and empty if no grant or credential
//!   applies.
//! - `identity` has the facts of the document that the provider may read.
//! - `nodeLabels` of the provider has all Node labels that it reads, and those of the settings follow from the configuration.
//! - `granted` of a rule is null without a document, and false where no grant lets some of its requests through.
//! - `operatorLimits` and `credentials` of the settings are those of the document.
//! - `requests` of an operator's limit says which requests its match names; null for a limit by the provider's key.
//! - `notFollowed` is what the settings say and the gate doesn't follow.
//! - `rules` is the length of `ruleTable`, which is in matching order and uses the words of the contract. A
//!   `cacheScope` of null means all that the provider reads.

use pileus_gate::{CodePlace, Credential, KeyPattern, Operation, Place, Problem, Rate, Refusal, Rule};
use pileus_host::{
    Annotation, Capability, Description, PublishedLimit, RequestedEndpoint, Settings, sanitize,
};
use serde_json::{Value, json};

use super::artifact::InspectedArtifact;
use super::binary::Producer;
use super::{CodeSource, Inspection, controllers, provides, rules};
use crate::access_review::{ComparedLimit, warnings};

/// The object for an inspection.
pub(super) fn object(inspection: &Inspection) -> Value {
    let Inspection {
        source: name,
        artifact,
        digest,
        size,
        code: (source, took),
        contract,
        exports,
        imports,
        capabilities,
        binary,
        limits,
        description,
        identity,
        settings,
        access: _, // shown with the settings
    } = inspection;
    let from = match source {
        CodeSource::Compiler => "compiler",
        CodeSource::Cache => "cache",
    };
    let import = |import: &String| json!({"interface": import, "provides": provides(import)});
    let producer = |Producer { field, name, version }: &Producer| json!({"field": field, "name": name, "version": version});
    json!({
        "file": artifact.is_none().then_some(name),
        "artifact": artifact.as_ref().map(InspectedArtifact::object),
        "digest": digest,
        "sizeBytes": size,
        "code": {"from": from, "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX)},
        "contract": {"version": contract, "accepted": format!("{}.x", pileus_host::CONTRACT_VERSION)},
        "exports": exports,
        "imports": imports.iter().map(import).collect::<Vec<_>>(),
        "capabilities": capabilities.iter().map(|it| capability(*it, description)).collect::<Vec<_>>(),
        "memory": {"initialBytes": binary.memory, "limitBytes": limits.memory},
        "tables": {"initialElements": binary.tables, "limitElements": limits.table_elements},
        "producers": binary.producers.iter().map(producer).collect::<Vec<_>>(),
        "provider": provider(description),
        "identity": identity,
        "settings": settings.as_ref().map(|settings| settings_object(settings, inspection)),
    })
}

fn capability(capability: Capability, description: &Description) -> Value {
    let shape = description.call_shape(capability);
    json!({
        "name": capability.as_str(),
        "controllers": controllers(capability),
        "largestBatch": shape.largest_batch,
        "sideBySide": shape.side_by_side,
    })
}

fn provider(description: &Description) -> Value {
    let Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations,
        service_facts,
        node_labels,
        call_shapes: _, // shown with each capability
    } = description;
    let annotation = |Annotation { name, value, default, is_written, description }: &Annotation| json!({"name": name, "type": value.as_str(), "default": default, "written": is_written, "description": description});
    json!({
        "name": name,
        "version": version,
        "providerIdSchemes": provider_id_schemes,
        "nodeLabels": node_labels,
        "serviceAnnotations": service_annotations.iter().map(annotation).collect::<Vec<_>>(),
        "serviceFacts": service_facts.names().collect::<Vec<_>>(),
        "configurationSchema": configuration_schema,
    })
}

fn settings_object(settings: &Settings, inspection: &Inspection) -> Value {
    // The last is shown with each capability.
    let Settings { endpoints, rules: declared, limits, refusals, node_labels, notices, one_at_a_time: _ } =
        settings;
    let host = |host: &RequestedEndpoint| {
        let access = inspection.access_to(host);
        json!({
            "endpoint": host.endpoint.to_string(),
            "reason": host.reason,
            "grantedBy": access.map(|access| &access.granted_by),
            "credentials": access.map(|access| &access.credentials),
        })
    };
    let limit = |PublishedLimit { key, capacity, per_minute, limit: _ }: &PublishedLimit| json!({"key": key, "capacity": capacity, "perMinute": per_minute});
    let operator_limit = |ComparedLimit { key, declared: _, allowed, requests }: &ComparedLimit| {
        allowed.map(|Rate { burst, per_second }| json!({"key": key, "burst": burst, "perSecond": per_second, "requests": requests}))
    };
    let warning = |Problem { path, message }: &Problem| json!({"path": path, "message": sanitize(message)});
    let credential =
        |Credential { name, hosts, paths, auxiliary, plain, addresses: _, kind }: &Credential| {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
            json!({"name": name, "kind": kind.label(), "hosts": hosts, "paths": paths, "auxiliary": auxiliary, "plain": plain})
        };
    let access = inspection.access.as_ref();
    let rule_of = |(index, declared): (usize, &Rule)| {
        let mut object = rule(declared);
        let denial = access.map(|access| access.denial(index));
        if let Some(fields) = object.as_object_mut() {
            fields.insert("granted".to_owned(), json!(denial.map(|denial| denial.is_none())));
            fields.insert("notGrantedBecause".to_owned(), json!(denial.flatten()));
        }
        object
    };
    json!({
        "requestedHosts": endpoints.iter().map(host).collect::<Vec<_>>(),
        "limits": limits.iter().map(limit).collect::<Vec<_>>(),
        "refusals": refusals.iter().map(refusal).collect::<Vec<_>>(),
        "nodeLabels": node_labels,
        "notices": notices.iter().map(warning).collect::<Vec<_>>(),
        "operatorLimits": access.map(|access| access.limits.iter().filter_map(operator_limit).collect::<Vec<_>>()),
        "credentials": access.map(|access| access.credentials.iter().map(credential).collect::<Vec<_>>()),
        "notFollowed": warnings(settings).iter().map(warning).collect::<Vec<_>>(),
        "rules": declared.len(),
        "listsInPages": declared.iter().filter(|rule| rule.page.is_some()).count(),
        "ruleTable": declared.iter().enumerate().map(rule_of).collect::<Vec<_>>(),
    })
}

fn refusal(refusal: &Refusal) -> Value {
    let Refusal { host, status, place, code, meaning } = refusal;
    let (kind, name) = match place {
        CodePlace::Header(name) => ("header", name.as_str()),
        CodePlace::Json(path) => ("json", path.as_str()),
        CodePlace::Xml(name) => ("xml", name.as_str()),
    };
    json!({
        "host": host.to_string(),
        "status": status.as_u16(),
        "place": {"in": kind, "name": sanitize(name)},
        "code": code.to_string(),
        "meaning": meaning.as_str(),
    })
}

fn rule(rule: &Rule) -> Value {
    let Rule { host, method, path, operation, effect, limits, cache_scope, fold_case, page } = rule;
    let place = |place: &Place| {
        let (kind, name) = rules::place(place);
        json!({"in": kind, "name": name})
    };
    let operation = operation
        .as_ref()
        .map(|Operation { place: at, name }| json!({"place": place(at), "name": name.to_string()}));
    json!({
        "host": host.to_string(),
        "method": method.to_string(),
        "path": path.to_string(),
        "operation": operation,
        "effect": rules::effect(*effect),
        "limits": limits.iter().map(KeyPattern::to_string).collect::<Vec<_>>(),
        "cacheScope": cache_scope.as_ref().map(KeyPattern::to_string),
        "foldCase": fold_case,
        "page": page.as_ref().map(place),
    })
}
