//! The media types of OCI, of the CNCF's format for WebAssembly, and of signatures. Pure.

use std::path::Path;

/// An OCI manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An OCI index: several manifests under one digest.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Docker's form of a manifest, which some registries convert to.
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's form of an index.
pub(crate) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The configuration of a component in the CNCF's format.
pub(crate) const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// A component in the CNCF's format, uncompressed.
pub(crate) const WASM: &str = "application/wasm";
/// A component as tools wrote it before that format.
const OLDER_WASM: [&str; 2] =
    ["application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"];
/// What oras calls a file whose type its user didn't give, and what means "just bytes".
const UNTYPED: [&str; 2] = ["application/vnd.oci.image.layer.v1.tar", "application/octet-stream"];

/// A signature of cosign 3: a Sigstore bundle, attached as a referrer.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The same type as it was written before it had a name of its own.
pub(crate) const BUNDLE_LONG: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";
/// A signature of cosign 2: what is signed. The signature is an annotation.
pub(crate) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// What the loader asks a registry for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

fn is_wasm_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "wasm")
}

/// Whether a layer of this type, with this file name, is a component. An untyped layer is one by its file's name.
pub(crate) fn is_component(media_type: &str, title: Option<&str>) -> bool {
    media_type == WASM
        || OLDER_WASM.contains(&media_type)
        || (UNTYPED.contains(&media_type) && title.is_some_and(is_wasm_file))
}
