//! Pushes a component in the CNCF's format for WebAssembly: one layer with its bytes as they are, and a configuration that
//! lets a registry show what the component imports and exports. Without a time, equal components have equal digests.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::timeout;

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::MAX_COMPONENT;
use crate::media_type;
use crate::reference::Reference;
use crate::registry::{Access, Place, Registries};

/// A component to be pushed.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its bytes.
    pub bytes: Bytes,
    /// The interfaces that it imports, as in `wasi:http/outgoing-handler@0.2.6`.
    pub imports: Vec<String>,
    /// The interfaces that it exports.
    pub exports: Vec<String>,
    /// Annotations of the manifest, as in `org.opencontainers.image.version`.
    pub annotations: BTreeMap<String, String>,
    /// When it was built.
    pub created: Option<Timestamp>,
}

impl Package {
    /// Checks that a reference names what can be pushed to, and returns its tag.
    ///
    /// # Errors
    /// [`Error::Reference`] if it has a digest.
    pub fn check_target(reference: &Reference) -> Result<&str, Error> {
        let tag = reference.tag.as_deref().filter(|_| reference.digest.is_none());
        let cause = "a push needs a tag and no digest, which follows from what is pushed";
        tag.ok_or_else(|| Error::Reference { text: reference.to_string(), cause })
    }
}

impl Registries {
    /// Pushes a component, and returns the digest of its manifest, which is what users pin and what is signed. Pushing it
    /// again is harmless. Mirrors are not written.
    ///
    /// # Errors
    /// [`Error::NotComponent`], [`Error::TooLarge`], [`Error::Reference`] if the reference has a digest, and those of the
    /// registry.
    pub async fn push(&self, reference: &Reference, package: &Package) -> Result<Digest, Error> {
        let tag = Package::check_target(reference)?;
        if package.bytes.len() as u64 > MAX_COMPONENT {
            return Err(Error::TooLarge { place: "the component".to_owned(), limit: MAX_COMPONENT });
        }
        // A core module has the version 1 in this place.
        if !package.bytes.starts_with(b"\0asm\x0d\0\x01\0") {
            let cause = "it is not a WebAssembly component; build it for wasm32-wasip2".to_owned();
            return Err(Error::NotComponent { place: "what should be pushed".to_owned(), cause });
        }
        let whole = self.timeouts().whole;
        let registry = reference.repository.registry.clone();
        let late = |_| Error::Timeout { registry, phase: "for the whole push", after: whole };
        let pushing = async {
            let place = Place { repository: reference.repository.clone() };
            let session = self.session(&place, Access::Push).await?;
            let config: Bytes = config(package).into();
            session.put_blob(&package.bytes, session.progress.clone()).await?;
            session.put_blob(&config, None).await?;
            session.put_manifest(tag, manifest(package, &config)).await
        };
        timeout(whole, pushing).await.map_err(late)?
    }
}

fn config(package: &Package) -> Vec<u8> {
    let Package { bytes, imports, exports, annotations: _, created } = package;
    let mut config = json!({
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [Digest::of(bytes).to_string()],
        "component": { "imports": imports, "exports": exports },
    });
    if let (Some(created), Some(fields)) = (created, config.as_object_mut()) {
        fields.insert("created".to_owned(), json!(created.to_string()));
    }
    config.to_string().into_bytes()
}

fn manifest(package: &Package, config: &[u8]) -> Vec<u8> {
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_type::MANIFEST,
        "config": descriptor(media_type::WASM_CONFIG, config),
        "layers": [descriptor(media_type::WASM, &package.bytes)],
    });
    if let Some(fields) = manifest.as_object_mut().filter(|_| !package.annotations.is_empty()) {
        fields.insert("annotations".to_owned(), json!(package.annotations));
    }
    manifest.to_string().into_bytes()
}

fn descriptor(media_type: &str, bytes: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len() })
}
