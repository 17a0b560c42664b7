//! The folders that starts on one machine share: compiled code, and components from registries. Their defaults are in the
//! user's cache folder.

use std::path::PathBuf;

use pileus_host::CodeCache;
use pileus_loader::Store;

use crate::cli;
use crate::error::Error;

/// How many bytes of components the store keeps, besides those that run or can be rolled back to. Providers have a few
/// megabytes at most, so it holds hundreds of versions.
const STORE_BUDGET: u64 = 1 << 30;

/// The folder for compiled code, if one can be used.
pub(crate) fn compiled_code(compiled: cli::Compiled) -> Option<CodeCache> {
    open_compiled_code(compiled)
        .inspect_err(|error| tracing::warn!(%error, "each start compiles the component"))
        .ok()
}

/// The folder for compiled code.
///
/// # Errors
/// [`Error::Folder`].
pub(crate) fn open_compiled_code(compiled: cli::Compiled) -> Result<CodeCache, Error> {
    let folder = compiled.compiled_code.or_else(|| cached("compiled"));
    let folder = folder.ok_or_else(|| missing("compiled-code"))?;
    CodeCache::open(&folder).map_err(|error| Error::Folder {
        flag: "compiled-code",
        cause: format!("{}: {error}", folder.display()),
    })
}

/// The store of components.
///
/// # Errors
/// [`Error::Folder`] if there is no default, [`Error::Source`] if it can't be used.
pub(crate) fn store(folder: cli::StoreFolder) -> Result<Store, Error> {
    let folder = folder.store.or_else(|| cached("store")).ok_or_else(|| missing("store"))?;
    Ok(Store::open(&folder, STORE_BUDGET)?)
}

fn missing(flag: &'static str) -> Error {
    let cause = format!("there is no cache folder of the user, since HOME isn't set; pass --{flag} FOLDER");
    Error::Folder { flag, cause }
}

/// A folder in the user's cache folder. A relative or empty `XDG_CACHE_HOME` is ignored, as its specification says.
fn cached(name: &str) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("pileus").join(name))
}
