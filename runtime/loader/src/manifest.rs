//! Reads manifests: which layer is the component, which entry of an index, which referrers are bundles. A manifest is
//! written by the owner of a repository, so what doesn't fit is refused with what was expected. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::media_type;

/// The largest manifest. Registries accept 4 MiB.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// The largest component, as the host accepts it.
pub const MAX_COMPONENT: u64 = 128 << 20;

/// A part of an artifact: its type, digest and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The platform of an index's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
}

/// What a manifest or an index has of interest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A component's place in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComponentLayer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// What a manifest leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The component itself.
    Component(ComponentLayer),
    /// Another manifest, which an index chose.
    Manifest(Digest),
}

impl Manifest {
    /// Reads a manifest. The error says what is wrong, as in "it is not a manifest: …".
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let found: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is not a manifest: {error}"))?;
        // A document that is both could mean one thing to a tool that signs and another thing here.
        if found.layers.is_some() && found.manifests.is_some() {
            return Err("it is both a manifest and an index".to_owned());
        }
        let is_index = match found.media_type.as_deref() {
            None => found.manifests.is_some(),
            Some(media_type::MANIFEST | media_type::DOCKER_MANIFEST) => false,
            Some(media_type::INDEX | media_type::DOCKER_INDEX) => true,
            Some(other) => return Err(format!("it has the unknown media type {other:?}")),
        };
        if is_index && found.layers.is_some() || !is_index && found.manifests.is_some() {
            return Err("its contents do not fit its media type".to_owned());
        }
        Ok(found)
    }

    /// Finds the component, or the manifest in an index that has it.
    pub(crate) fn select(&self) -> Result<Selection, String> {
        match &self.manifests {
            Some(manifests) => select_manifest(manifests).map(Selection::Manifest),
            None => select_layer(self.layers()).map(Selection::Component),
        }
    }

    /// Its layers; none for an index.
    pub(crate) fn layers(&self) -> &[Descriptor] {
        self.layers.as_deref().unwrap_or_default()
    }

    /// The manifests that it lists; none unless it is an index.
    pub(crate) fn into_manifests(self) -> Vec<Descriptor> {
        self.manifests.unwrap_or_default()
    }
}

impl Descriptor {
    /// Whether it is a Sigstore bundle: a signature or an attestation.
    pub(crate) fn is_bundle(&self) -> bool {
        let kind = self.artifact_type.as_deref().unwrap_or_default();
        kind == media_type::BUNDLE || kind == media_type::BUNDLE_LONG
    }
}

fn select_layer(layers: &[Descriptor]) -> Result<ComponentLayer, String> {
    let layer = match layers {
        [] => return Err("it has no layers; push one file, the component".to_owned()),
        [layer] => layer,
        more => {
            return Err(format!(
                "it has {} layers, but a component is exactly one; is it a container image?",
                more.len()
            ));
        }
    };
    let title = layer.annotations.get("org.opencontainers.image.title").map(String::as_str);
    if !media_type::is_component(&layer.media_type, title) {
        return Err(format!(
            "its layer has the media type {:?}, but a component is {}, not an archive",
            layer.media_type,
            media_type::WASM
        ));
    }
    let digest = layer
        .digest
        .parse()
        .map_err(|cause| format!("its layer has the digest {:?}, but {cause}", layer.digest))?;
    if layer.size > MAX_COMPONENT {
        return Err(format!("its layer has {} bytes, but the limit is {MAX_COMPONENT}", layer.size));
    }
    Ok(ComponentLayer { digest, size: layer.size })
}

/// Chooses the entry of an index: the one for WebAssembly, of which WASI 0.2 comes first; or the only one, if it states no
/// platform.
fn select_manifest(manifests: &[Descriptor]) -> Result<Digest, String> {
    let is_manifest = |entry: &&Descriptor| {
        matches!(&*entry.media_type, media_type::MANIFEST | media_type::DOCKER_MANIFEST)
    };
    let of = |os: &str| -> Vec<&Descriptor> {
        let fits =
            |platform: &Platform| platform.architecture == "wasm" && (os.is_empty() || platform.os == os);
        manifests
            .iter()
            .filter(is_manifest)
            .filter(|entry| entry.platform.as_ref().is_some_and(fits))
            .collect()
    };
    let (best, any) = (of("wasip2"), of(""));
    let chosen = match (&*best, &*any, manifests) {
        ([entry], ..) | ([], [entry], _) => *entry,
        ([], [], [entry]) if entry.platform.is_none() && is_manifest(&entry) => entry,
        ([], [], _) => {
            return Err("it is an index without an entry for the architecture `wasm`".to_owned());
        }
        _ => return Err("it is an index with several entries for the architecture `wasm`".to_owned()),
    };
    chosen
        .digest
        .parse()
        .map_err(|cause| format!("its entry has the digest {:?}, but {cause}", chosen.digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const OTHER: &str = "sha256:0000c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn layer(media_type: &str, rest: &str) -> String {
        format!(r#"{{"mediaType": "{media_type}", "digest": "{HEX}", "size": 8{rest}}}"#)
    }

    fn select(text: &str) -> Result<Selection, String> {
        Manifest::parse(text.as_bytes())?.select()
    }

    fn image(layers: &[String]) -> String {
        let media_type = media_type::MANIFEST;
        format!(
            r#"{{"schemaVersion": 2, "mediaType": "{media_type}", "annotations": null, "layers": [{}]}}"#,
            layers.join(",")
        )
    }

    #[test]
    fn one_layer_of_wasm_is_a_component_whichever_tool_wrote_it() {
        let component = Selection::Component(ComponentLayer { digest: HEX.parse().unwrap(), size: 8 });
        let title = r#", "annotations": {"org.opencontainers.image.title": "a.wasm"}"#;
        for (kind, rest) in [
            ("application/wasm", ""),
            ("application/wasm", title),
            ("application/vnd.wasm.content.layer.v1+wasm", ""),
            ("application/vnd.oci.image.layer.v1.tar", title),
            ("application/octet-stream", title),
        ] {
            assert_eq!(select(&image(&[layer(kind, rest)])).unwrap(), component, "{kind}");
        }
        let without_type = format!(r#"{{"layers": [{}]}}"#, layer("application/wasm", ""));
        assert_eq!(select(&without_type).unwrap(), component);
    }

    #[test]
    fn manifests_that_are_not_one_component_are_refused_with_what_was_expected() {
        let wasm = layer("application/wasm", "");
        let gzip = layer("application/vnd.oci.image.layer.v1.tar+gzip", "");
        let tar = layer(
            "application/vnd.oci.image.layer.v1.tar",
            r#", "annotations": {"org.opencontainers.image.title": "a.tar"}"#,
        );
        for (manifest, expected) in [
            ("<html>".to_owned(), "not a manifest"),
            ("{}".to_owned(), "no layers"),
            (image(&[]), "no layers"),
            (image(&[wasm.clone(), wasm.clone()]), "2 layers"),
            (image(&[gzip]), "not an archive"),
            (image(&[tar]), "not an archive"),
            (image(&[wasm.replace("\"size\": 8", "\"size\": 134217729")]), "the limit is 134217728"),
            (image(&[wasm.replace("\"size\": 8", "\"size\": -1")]), "not a manifest"),
            (image(&[wasm.replace("sha256:e", "sha512:e")]), "digest"),
            (image(std::slice::from_ref(&wasm)).replace("image.manifest", "image.index"), "do not fit"),
            (
                image(std::slice::from_ref(&wasm)).replace("vnd.oci.image.manifest.v1", "x"),
                "unknown media type",
            ),
            (format!(r#"{{"layers": [{wasm}], "manifests": []}}"#), "both a manifest and an index"),
            (format!(r#"{{"layers": [{wasm}], "layers": []}}"#), "duplicate field"),
        ] {
            let error = select(&manifest).unwrap_err();
            assert!(error.contains(expected), "{manifest}: {error}");
        }
    }

    #[test]
    fn an_index_leads_to_its_entry_for_wasm_if_there_is_one() {
        let entry = |digest: &str, platform: &str| {
            let rest =
                if platform.is_empty() { String::new() } else { format!(r#", "platform": {platform}"#) };
            layer(media_type::MANIFEST, &rest).replace(HEX, digest)
        };
        let index = |entries: &[String]| {
            format!(r#"{{"mediaType": "{}", "manifests": [{}]}}"#, media_type::INDEX, entries.join(","))
        };
        let wasip1 = entry(OTHER, r#"{"architecture": "wasm", "os": "wasip1"}"#);
        let wasip2 = entry(HEX, r#"{"architecture": "wasm", "os": "wasip2"}"#);
        let amd64 = entry(OTHER, r#"{"architecture": "amd64", "os": "linux"}"#);
        let attestation = entry(OTHER, r#"{"architecture": "unknown", "os": "unknown"}"#);
        let plain = entry(HEX, "");
        let nested = plain.replace("image.manifest", "image.index");
        for (entries, expected) in [
            (vec![wasip1.clone(), wasip2.clone(), amd64.clone()], Ok(HEX)),
            (vec![wasip1.clone(), attestation.clone()], Ok(OTHER)),
            (vec![plain.clone()], Ok(HEX)),
            (vec![], Err("without an entry")),
            (vec![amd64.clone()], Err("without an entry")),
            (vec![attestation, amd64], Err("without an entry")),
            (vec![nested], Err("without an entry")),
            (vec![plain.clone(), plain], Err("without an entry")),
            (vec![wasip2.clone(), wasip2], Err("several entries")),
            (vec![wasip1.clone(), wasip1.replace("wasip1", "wasi")], Err("several entries")),
        ] {
            match (select(&index(&entries)), expected) {
                (Ok(Selection::Manifest(found)), Ok(digest)) => assert_eq!(found.to_string(), digest),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{entries:?}: {error}"),
                (found, expected) => panic!("{entries:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
