//! A component, from bytes to something that can be called: recognised, compiled, checked against the contract.
//!
//! Whatever is wrong with it is found here, before it gets anywhere near a cluster, and said so that its author knows
//! what to do.

use std::fmt;
use std::path::Path;

use tokio::io::AsyncReadExt as _;
use wasmtime::component::InstancePre;

use crate::bindings::{info, instances, load_balancers, routes};
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::{Error, some_of};
use crate::limits::COMPONENT_CEILING;
use crate::native::{Code, Kept, Native, native};
use crate::sandbox::Sandbox;
use crate::wire::text;

/// The versions of the contract that this host accepts.
pub const CONTRACT: &str = "0.1";

/// What a provider can do: the interfaces of the contract besides `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// It knows machines.
    Instances,
    /// It knows the machine that it runs on.
    LocalInstance,
    /// It balances load.
    LoadBalancers,
    /// It programs routes.
    Routes,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Instances, Self::LocalInstance, Self::LoadBalancers, Self::Routes];

    /// Its interface's name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LocalInstance => "local-instance",
            Self::LoadBalancers => "load-balancers",
            Self::Routes => "routes",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A component that fits the contract. It has not been called yet.
pub struct Component {
    pub(crate) engine: Engine,
    pub(crate) pre: InstancePre<Sandbox>,
    pub(crate) info: info::GuestIndices,
    pub(crate) instances: Option<instances::GuestIndices>,
    pub(crate) load_balancers: Option<load_balancers::GuestIndices>,
    pub(crate) routes: Option<routes::GuestIndices>,
    /// What the folder for compiled code had of it.
    pub(crate) kept: Kept,
    /// What it is called.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: usize,
    /// The version of the contract that it speaks, as in `0.1.0`.
    pub contract: String,
    /// The interfaces that it imports, sorted.
    pub imports: Vec<String>,
    /// The interfaces that it exports, sorted.
    pub exports: Vec<String>,
    /// What it can do, which follows from its exports.
    pub capabilities: Vec<Capability>,
    /// Where its code came from.
    pub code: Code,
}

/// Reads a component file.
///
/// # Errors
/// [`Error::Unreadable`], [`Error::TooLarge`].
pub async fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let size = file.metadata().await.map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    if size <= COMPONENT_CEILING {
        // A pipe or a device has no size, and a file may grow.
        file.take(COMPONENT_CEILING + 1).read_to_end(&mut bytes).await.map_err(unreadable)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > COMPONENT_CEILING {
        return Err(Error::TooLarge { size, limit: COMPONENT_CEILING });
    }
    Ok(bytes)
}

impl Component {
    /// Makes a component of bytes: takes its code from disk if the engine keeps code and has it, else has it compiled,
    /// which takes up to a second for each megabyte. Dropping the future ends the compiler.
    ///
    /// # Errors
    /// Everything in [`Error`] that is about bytes, exports and imports.
    pub async fn load(engine: &Engine, bytes: Vec<u8>) -> Result<Self, Error> {
        recognise(&bytes)?;
        let size = bytes.len();
        let digest = Digest::of(&bytes);
        let native = native(engine, digest, bytes).await?;
        Self::check(engine.clone(), digest, size, native)
    }

    fn check(engine: Engine, digest: Digest, size: usize, native: Native) -> Result<Self, Error> {
        let Native { component, code, kept } = native;
        let kind = component.component_type();
        // Not every name is made of letters: `url=<…>` may hold anything.
        let imports = sorted(kind.imports(engine.wasmtime()).map(|(name, _)| text(name)));
        let exports = sorted(kind.exports(engine.wasmtime()).map(|(name, _)| text(name)));
        let contract = contract_version(&exports, &imports)?;
        let capabilities = capabilities(&exports)?;
        let unknown: Vec<_> = imports.iter().filter(|name| !is_offered(name)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Error::UnknownImports(unknown));
        }

        let mismatch = |error: wasmtime::Error| Error::Mismatch(text(&format!("{error:#}")));
        let pre = engine.linker().instantiate_pre(&component).map_err(mismatch)?;
        let info = info::GuestIndices::new(&pre).map_err(mismatch)?;
        let [instances, load_balancers, routes] =
            [Capability::Instances, Capability::LoadBalancers, Capability::Routes]
                .map(|capability| capabilities.contains(&capability));
        let instances =
            instances.then(|| instances::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        let load_balancers =
            load_balancers.then(|| load_balancers::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        let routes = routes.then(|| routes::GuestIndices::new(&pre)).transpose().map_err(mismatch)?;
        Ok(Self {
            engine,
            pre,
            info,
            instances,
            load_balancers,
            routes,
            kept,
            digest,
            size,
            contract,
            imports,
            exports,
            capabilities,
            code,
        })
    }
}

/// Says early and plainly what the bytes are, where they aren't a component.
fn recognise(bytes: &[u8]) -> Result<(), Error> {
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

/// An interface of the contract, split into its name and its version.
fn of_contract(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("pileus:provider/")?.split_once('@')
}

fn contract_version(exports: &[String], imports: &[String]) -> Result<String, Error> {
    let versions =
        || exports.iter().chain(imports).filter_map(|name| of_contract(name)).map(|(_, version)| version);
    let accepted = |version: &str| version.strip_prefix(CONTRACT).is_some_and(|rest| rest.starts_with('.'));
    if let Some(other) = versions().find(|version| !accepted(version)) {
        return Err(Error::Version { found: other.to_owned(), accepted: "0.1.x" });
    }
    let info = exports.iter().filter_map(|name| of_contract(name)).find(|(name, _)| *name == "info");
    match info {
        Some((_, version)) => Ok(version.to_owned()),
        None => Err(Error::NoProvider {
            exports: if exports.is_empty() { "nothing".to_owned() } else { some_of(exports) },
        }),
    }
}

fn capabilities(exports: &[String]) -> Result<Vec<Capability>, Error> {
    let exported = |capability: &Capability| {
        exports.iter().filter_map(|name| of_contract(name)).any(|(name, _)| name == capability.as_str())
    };
    let found: Vec<_> = Capability::ALL.into_iter().filter(exported).collect();
    if found.is_empty() { Err(Error::NoCapability) } else { Ok(found) }
}

/// Whether the host offers an interface; its functions are compared when it is linked.
fn is_offered(import: &str) -> bool {
    const WASI: [&str; 7] = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];
    if let Some((name, _)) = of_contract(import) {
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
    fn bytes_that_are_no_component_are_recognised() {
        let error = |bytes: &[u8]| recognise(bytes).unwrap_err().to_string();
        assert!(error(b"").contains("nothing: it is empty"));
        assert!(error(b"#!/bin/sh\n").contains("#!/bin/s"));
        assert!(error(b"\0asm\x01\0\0\0rest").contains("core WebAssembly module"));
        assert!(recognise(b"\0asm\x0d\0\x01\0rest").is_ok());
    }

    #[test]
    fn the_contract_version_must_be_one_that_the_host_speaks() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let of = |exports: &[&str], imports: &[&str]| contract_version(&names(exports), &names(imports));
        assert_eq!(of(&["pileus:provider/info@0.1.0"], &[]).unwrap(), "0.1.0");
        assert_eq!(of(&["pileus:provider/info@0.1.7"], &[]).unwrap(), "0.1.7");
        for (exports, imports) in [
            (&["pileus:provider/info@0.2.0"][..], &[][..]),
            (&["pileus:provider/info@0.10.0"], &[]),
            (&["pileus:provider/info@1.0.0"], &[]),
            (&["pileus:provider/info@0.1.0"], &["pileus:provider/call@0.2.0"]),
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
            ("pileus:provider/call@0.1.0", true),
            ("pileus:provider/secrets@0.1.0", false),
            ("acme:backdoor/door", false),
        ] {
            assert_eq!(is_offered(import), offered, "{import}");
        }
    }
}
