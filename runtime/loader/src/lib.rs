//! From a reference to a component whose bytes are trusted. The operator names an artifact in a registry and says whose
//! signature counts; this crate fetches it, verifies it and keeps it. It knows neither wasm nor Kubernetes.
//!
//! ```text
//!   Source        reference         ghcr.io/example/provider:1.2@sha256:…, or file:provider.wasm
//!     │
//!   Loader        loader            asks the mirrors and the registry, in order:
//!     │             registry          requests: credential, token, redirects, addresses, time, size
//!     │             credential        where passwords come from: files, pull secrets, credential helpers
//!     │             artifact          what is fetched before the component, and decided by it
//!     │             manifest          which layer is the component (pure)
//!     │             trust             TrustPolicy: digest, keys, signatures (pure)
//!     │             store             what is on this machine; downloads that were cut off
//!     ▼
//!   Verified      verified          the only value from which a component is made
//! ```
//!
//! # Guarantees
//!
//! - Only [`Loader`] makes a [`Verified`]. Bytes from a registry are bound to what was verified by digests all the way: from
//!   the policy or the signature to the manifest, from there to the component. Each load from the store computes and
//!   verifies them again.
//! - Without a policy, a tag is refused, unless the policy says `insecure`.
//! - Everything that a registry sends is bounded in size and time. Where its answers lead is limited: never to the address of
//!   this machine or of a metadata service, to a private network only if the operator lists it, and never away from TLS.
//! - No part of a download is visible before all of it is there and right. A store that lost files, or whose files were
//!   changed, fetches them again; it never runs them.
//! - What is pinned stays in the store. A start needs no registry if the store has what the last start had.
//! - A proxy resolves names itself. Through one, what is said of addresses holds for those that are written as addresses, and
//!   for the proxy; to which addresses a name may lead is up to the proxy.
//!
//! `push` is the opposite direction: a component in the format that this crate, wkg and oras read. `attachment` tells what else
//! is beside an artifact, and `progress` how far a transfer is. `proxy` leads to
//! registries, and to other servers.

mod artifact;
mod attachment;
mod credential;
mod digest;
mod error;
mod loader;
mod manifest;
mod media_type;
mod progress;
mod proxy;
mod push;
mod reference;
mod registry;
mod store;
mod trust;
mod verified;

pub use artifact::{ArtifactDetails, FoundSignature};
pub use attachment::{Attachment, AttachmentKind};
pub use credential::{CredentialSource, SecretFile, SecretSource};
pub use digest::Digest;
pub use error::{Distrust, Error, Finding, Retry, Signer};
pub use loader::Loader;
pub use manifest::MAX_COMPONENT;
pub use progress::Progress;
pub use proxy::{Proxy, ProxyEnvironment, ProxyScheme};
pub use push::Package;
pub use reference::{Reference, Repository, Source};
pub use registry::Registries;
pub use registry::settings::{RegistrySettings, Timeouts};
pub use secrecy::{ExposeSecret, SecretString};
pub use store::Store;
pub use trust::identity::{Identity, Subject, SubjectPattern, TrustedRoot};
pub use trust::key::PublicKey;
pub use trust::policy::{Key, Layout, TrustPolicy, TrustSpec};
pub use trust::verify::Trust;
pub use verified::Verified;
