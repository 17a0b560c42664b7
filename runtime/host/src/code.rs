//! Gets the native code of a component: from the code cache on disk, or else from the compiler.

use std::time::{Duration, Instant};

use pileus_loader::Digest;
use wasmtime::component::Component;

use crate::code_cache::CachedCode;
use crate::compiler::deserialize;
use crate::engine::Engine;
use crate::error::Error;
use crate::sanitize::sanitize_message;

/// Where a component's native code came from, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOrigin {
    /// The compiler made it.
    Compiled(Duration),
    /// The code cache had it from an earlier start.
    Cached(Duration),
}

/// The result of looking for a component in the code cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheResult {
    /// The cache had its code.
    Hit,
    /// The cache had nothing.
    Miss,
    /// The cache had something that can't be used.
    Invalid,
    /// No cache is configured.
    Disabled,
}

/// A component with its native code.
pub(crate) struct LoadedCode {
    pub(crate) component: Component,
    pub(crate) origin: CodeOrigin,
    pub(crate) cache_result: CacheResult,
}

/// Gets a component's native code.
///
/// # Errors
/// [`Error::CompilerSpawn`], [`Error::CompilerFailed`], [`Error::Invalid`].
pub(crate) async fn load_code(engine: &Engine, digest: Digest, bytes: Vec<u8>) -> Result<LoadedCode, Error> {
    let started = Instant::now();
    let of_engine = engine.clone();
    let cache_result = match blocking(move || read_cache(&of_engine, &digest)).await? {
        Some(CachedCode::Hit(component)) => {
            let origin = CodeOrigin::Cached(started.elapsed());
            return Ok(LoadedCode { component, origin, cache_result: CacheResult::Hit });
        }
        Some(CachedCode::Miss) => CacheResult::Miss,
        Some(CachedCode::Invalid) => CacheResult::Invalid,
        None => CacheResult::Disabled,
    };
    let code = engine.compile(bytes).await?;
    let engine = engine.clone();
    let component = blocking(move || accept(&engine, &digest, &code)).await??;
    Ok(LoadedCode { component, origin: CodeOrigin::Compiled(started.elapsed()), cache_result })
}

fn read_cache(engine: &Engine, digest: &Digest) -> Option<CachedCode> {
    Some(engine.code_cache()?.load(engine.wasmtime(), digest))
}

/// Accepts the compiler's code and stores it in the cache.
fn accept(engine: &Engine, digest: &Digest, code: &[u8]) -> Result<Component, Error> {
    // Only here does wasmtime compare what the component needs with what a slot of the pool has.
    let component = deserialize(engine.wasmtime(), code)
        .map_err(|error| Error::Invalid(sanitize_message(&format!("{error:#}"))))?;
    let Some(cache) = engine.code_cache() else { return Ok(component) };
    if let Err(error) = cache.store(engine.wasmtime(), digest, code) {
        tracing::warn!(%digest, %error, "compiled code not stored; the next start compiles again");
        return Ok(component);
    }
    // Mapped from its file, it takes less memory.
    match cache.load(engine.wasmtime(), digest) {
        CachedCode::Hit(mapped) => Ok(mapped),
        CachedCode::Miss | CachedCode::Invalid => Ok(component),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| Error::Invalid(format!("loading its code panicked: {panic}")))
}
