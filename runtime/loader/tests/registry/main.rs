//! Loads components from registries: the CNCF's own, with artifacts and signatures of oras and cosign (`real`), and one that
//! misbehaves (`unruly`). `deploy/dev/registry/build` builds the programs.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that can't go on should stop")]

mod proxied;
mod real;
mod scripted;
// The crate `pileus-dev` has it, but depends on a Kubernetes client.
#[path = "../../../../deploy/dev/src/registry.rs"]
pub mod stack;
mod unruly;

use std::time::Duration;

use pileus_loader::{
    CredentialSource, Loader, ProxyEnvironment, Reference, Registries, RegistrySettings, Store, Timeouts,
};

/// Short enough that a test of them is quick, and long enough for a busy machine.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(20),
    first_byte: Duration::from_mins(1),
    between_bytes: Duration::from_mins(1),
    whole: Duration::from_mins(2),
};

/// A component, as far as the loader looks at it.
fn component(version: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    bytes.extend(version.bytes().cycle().take(100_000));
    bytes
}

/// A loader with a new store, which goes with the folder.
struct Fixture {
    loader: Loader,
    registries: Registries,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(vec![], vec![], TIMEOUTS)
    }

    fn with(settings: Vec<RegistrySettings>, credentials: Vec<CredentialSource>, timeouts: Timeouts) -> Self {
        Self::behind(ProxyEnvironment::default(), settings, credentials, timeouts)
    }

    /// Reaches registries through these proxies.
    fn behind(
        proxies: ProxyEnvironment,
        settings: Vec<RegistrySettings>,
        credentials: Vec<CredentialSource>,
        timeouts: Timeouts,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registries = Registries::new(settings, credentials, timeouts, proxies).unwrap();
        let store = Store::open(&folder.path().join("store"), 1 << 30).unwrap();
        Self { loader: Loader::new(store, registries.clone()), registries, folder }
    }

    /// A loader with the same store, as after a restart.
    fn restarted(&self) -> Loader {
        let store = Store::open(&self.folder.path().join("store"), 1 << 30).unwrap();
        Loader::new(store, self.registries.clone())
    }
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}
