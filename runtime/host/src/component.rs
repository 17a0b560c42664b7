//! Loads a component: compiles its bytes and checks its imports and exports against the contract.
//!
//! Each problem with a component is found here, before the component gets near a cluster, and reported so that its author
//! knows what to do.

use std::fmt;
use std::sync::atomic::AtomicBool;

use pileus_loader::{Digest, Verified};
use wasmtime::component::InstancePre;

use crate::bindings::{info, instances, load_balancers, local_instance, routes};
use crate::code::{CacheResult, CodeOrigin, LoadedCode, load_code};
use crate::engine::Engine;
use crate::error::{Error, first_of};
use crate::sandbox::Sandbox;
use crate::sanitize::sanitize_message;

/// The versions of the contract that this host accepts.
pub const CONTRACT_VERSION: &str = "0.2";

/// What a provider can do: the interfaces of the contract besides `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// It looks up instances.
    Instances,
    /// It describes the instance that it runs on.
    LocalInstance,
    /// It manages load balancers.
    LoadBalancers,
    /// It manages routes.
    Routes,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 4] = [Self::Instances, Self::LocalInstance, Self::LoadBalancers, Self::Routes];

    /// The name of its interface in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LocalInstance => "local-instance",
            Self::LoadBalancers => "load-balancers",
            Self::Routes => "routes",
        }
    }
}

impl From<info::Capability> for Capability {
    fn from(capability: info::Capability) -> Self {
        match capability {
            info::Capability::Instances => Self::Instances,
            info::Capability::LocalInstance => Self::LocalInstance,
            info::Capability::LoadBalancers => Self::LoadBalancers,
            info::Capability::Routes => Self::Routes,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A component that fits the contract.
pub struct Component {
    pub(crate) engine: Engine,
    pub(crate) pre: InstancePre<Sandbox>,
    pub(crate) info: info::GuestIndices,
    pub(crate) instances: Option<instances::GuestIndices>,
    pub(crate) local_instance: Option<local_instance::GuestIndices>,
    pub(crate) load_balancers: Option<load_balancers::GuestIndices>,
    pub(crate) routes: Option<routes::GuestIndices>,
    /// What the code cache had of it.
    pub(crate) cache_result: CacheResult,
    /// Whether a metric has counted that.
    pub(crate) is_counted: AtomicBool,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: usize,
    /// The version of the contract that it was built for, as in `0.2.0`.
    pub contract: String,
    /// The interfaces that it imports, sorted.
    pub imports: Vec<String>,
    /// The interfaces that it exports, sorted.
    pub exports: Vec<String>,
    /// What it can do, which follows from its exports.
    pub capabilities: Vec<Capability>,
    /// Where its native code came from.
    pub code_origin: CodeOrigin,
}

impl Component {
    /// Loads a component whose bytes are trusted. Takes its code from the engine's code cache, or else compiles it, which takes up to
    /// a second for each megabyte. Dropping the future stops the compiler.
    ///
    /// # Errors
    /// Each [`Error`] that is about bytes, exports and imports.
    pub async fn load(engine: &Engine, verified: Verified) -> Result<Self, Error> {
        let bytes = verified.into_bytes();
        check_header(&bytes)?;
        let size = bytes.len();
        let digest = Digest::of(&bytes);
        let loaded = load_code(engine, digest, bytes).await?;
        Self::check(engine.clone(), digest, size, loaded)
    }

    /// Checks the imports and exports of a component against the contract.
    fn check(engine: Engine, digest: Digest, size: usize, loaded: LoadedCode) -> Result<Self, Error> {
        let LoadedCode { component, origin, cache_result } = loaded;
        let kind = component.component_type();
        // Sanitized, because a name such as `url=<…>` may hold any character.
        let imports = sorted(kind.imports(engine.wasmtime()).map(|(name, _)| sanitize_message(name)));
        let exports = sorted(kind.exports(engine.wasmtime()).map(|(name, _)| sanitize_message(name)));
        let contract = contract_version(&exports, &imports)?;
        let capabilities = capabilities(&exports)?;
        let unknown: Vec<_> = imports.iter().filter(|name| !is_offered(name)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Error::UnknownImports(unknown));
        }

        let mismatch = |error: wasmtime::Error| Error::Mismatch(sanitize_message(&format!("{error:#}")));
        let pre = engine.linker().instantiate_pre(&component).map_err(mismatch)?;
        let info = info::GuestIndices::new(&pre).map_err(mismatch)?;
        let [instances, local_instance, load_balancers, routes] =
            Capability::ALL.map(|capability| capabilities.contains(&capability));
        let instances =
            instances.then(|| instances::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        let local_instance =
            local_instance.then(|| local_instance::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        let load_balancers =
            load_balancers.then(|| load_balancers::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        let routes = routes.then(|| routes::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        Ok(Self {
            engine,
            pre,
            info,
            instances,
            local_instance,
            load_balancers,
            routes,
            cache_result,
            is_counted: AtomicBool::new(false),
            digest,
            size,
            contract,
            imports,
            exports,
            capabilities,
            code_origin: origin,
        })
    }
}

/// Refuses bytes that aren't a component by their header, with an error that says what they are.
fn check_header(bytes: &[u8]) -> Result<(), Error> {
    match bytes.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => Ok(()),
        Some(b"\0asm\x01\0\0\0") => Err(Error::CoreModule),
        _ => {
            let start = bytes.iter().take(8).flat_map(|byte| byte.escape_ascii()).map(char::from);
            let start: String = start.collect();
            Err(Error::NotWasm {
                start: if start.is_empty() { "nothing: it is empty".to_owned() } else { start },
            })
        }
    }
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Splits the name of an interface of the contract into name and version.
fn contract_interface(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("pileus:provider/")?.split_once('@')
}

fn contract_version(exports: &[String], imports: &[String]) -> Result<String, Error> {
    let versions = || {
        exports.iter().chain(imports).filter_map(|name| contract_interface(name)).map(|(_, version)| version)
    };
    let accepted =
        |version: &str| version.strip_prefix(CONTRACT_VERSION).is_some_and(|rest| rest.starts_with('.'));
    if let Some(other) = versions().find(|version| !accepted(version)) {
        return Err(Error::Version { found: other.to_owned(), accepted: "0.2.x" });
    }
    let info = exports.iter().filter_map(|name| contract_interface(name)).find(|(name, _)| *name == "info");
    match info {
        Some((_, version)) => Ok(version.to_owned()),
        None => Err(Error::NoProvider {
            exports: if exports.is_empty() { "nothing".to_owned() } else { first_of(exports) },
        }),
    }
}

fn capabilities(exports: &[String]) -> Result<Vec<Capability>, Error> {
    let exported = |capability: &Capability| {
        exports
            .iter()
            .filter_map(|name| contract_interface(name))
            .any(|(name, _)| name == capability.as_str())
    };
    let found: Vec<_> = Capability::ALL.into_iter().filter(exported).collect();
    if found.is_empty() { Err(Error::NoCapability) } else { Ok(found) }
}

/// Whether the host offers an interface. Its functions are compared later, when the component is linked.
fn is_offered(import: &str) -> bool {
    const WASI: [&str; 7] = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];
    if let Some((name, _)) = contract_interface(import) {
        return matches!(name, "types" | "logging" | "call");
    }
    import.strip_prefix("wasi:").and_then(|rest| rest.split_once('/')).is_some_and(|(package, rest)| {
        WASI.contains(&package)
            && rest.split_once('@').is_some_and(|(_, version)| version.starts_with("0.2."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_a_component_are_told_apart() {
        let error = |bytes: &[u8]| check_header(bytes).unwrap_err().to_string();
        assert!(error(b"").contains("nothing: it is empty"));
        assert!(error(b"#!/bin/sh\n").contains("#!/bin/s"));
        assert!(error(b"\0asm\x01\0\0\0rest").contains("core WebAssembly module"));
        assert!(check_header(b"\0asm\x0d\0\x01\0rest").is_ok());
    }

    #[test]
    fn the_contract_version_must_be_one_that_the_host_accepts() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let of = |exports: &[&str], imports: &[&str]| contract_version(&names(exports), &names(imports));
        assert_eq!(of(&["pileus:provider/info@0.2.0"], &[]).unwrap(), "0.2.0");
        assert_eq!(of(&["pileus:provider/info@0.2.7"], &[]).unwrap(), "0.2.7");
        for (exports, imports) in [
            (&["pileus:provider/info@0.1.0"][..], &[][..]),
            (&["pileus:provider/info@0.20.0"], &[]),
            (&["pileus:provider/info@1.0.0"], &[]),
            (&["pileus:provider/info@0.2.0"], &["pileus:provider/call@0.1.0"]),
        ] {
            assert!(matches!(of(exports, imports), Err(Error::Version { .. })), "{exports:?} {imports:?}");
        }
        assert!(matches!(of(&["wasi:cli/run@0.2.6"], &[]), Err(Error::NoProvider { .. })));
    }

    #[test]
    fn only_wasi_and_the_contract_are_offered() {
        for (import, offered) in [
            ("wasi:http/outgoing-handler@0.2.12", true),
            ("wasi:sockets/tcp@0.2.0", true),
            ("wasi:io/streams@0.3.0", false),
            ("wasi:keyvalue/store@0.2.0", false),
            ("pileus:provider/call@0.2.0", true),
            ("pileus:provider/secrets@0.2.0", false),
            ("acme:backdoor/door", false),
        ] {
            assert_eq!(is_offered(import), offered, "{import}");
        }
    }
}
