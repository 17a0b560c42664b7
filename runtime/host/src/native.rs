//! A component's native code: from disk where it was kept, else from the compiler.

use std::time::{Duration, Instant};

use wasmtime::component::Component;

use crate::compiled::Found;
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::Error;
use crate::wire::text;

/// Where a component's native code came from, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The compiler made it.
    Compiled(Duration),
    /// It was on disk from an earlier start.
    Cached(Duration),
}

/// What the folder for compiled code had of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its code.
    Hit,
    /// Nothing.
    Miss,
    /// Something that could not be used.
    Invalid,
    /// There is no folder.
    Off,
}

/// A component that can run.
pub(crate) struct Native {
    pub(crate) component: Component,
    pub(crate) code: Code,
    pub(crate) kept: Kept,
}

/// Gets a component's code.
///
/// # Errors
/// [`Error::Compiler`], [`Error::CompilerEnded`], [`Error::Invalid`].
pub(crate) async fn native(engine: &Engine, digest: Digest, bytes: Vec<u8>) -> Result<Native, Error> {
    let started = Instant::now();
    let of_engine = engine.clone();
    let kept = match blocking(move || look(&of_engine, &digest)).await? {
        Some(Found::Hit(component)) => {
            return Ok(Native { component, code: Code::Cached(started.elapsed()), kept: Kept::Hit });
        }
        Some(Found::Miss) => Kept::Miss,
        Some(Found::Invalid) => Kept::Invalid,
        None => Kept::Off,
    };
    let code = engine.compile(bytes).await?;
    let engine = engine.clone();
    let component = blocking(move || accept(&engine, &digest, &code)).await??;
    Ok(Native { component, code: Code::Compiled(started.elapsed()), kept })
}

fn look(engine: &Engine, digest: &Digest) -> Option<Found> {
    Some(engine.compiled()?.load(engine.wasmtime(), digest))
}

/// Takes the compiler's code, and keeps it.
fn accept(engine: &Engine, digest: &Digest, code: &[u8]) -> Result<Component, Error> {
    // Only here does wasmtime compare what the component needs with what a slot of the pool has.
    let component =
        deserialize(engine.wasmtime(), code).map_err(|error| Error::Invalid(text(&format!("{error:#}"))))?;
    if let Some(compiled) = engine.compiled()
        && let Err(error) = compiled.store(engine.wasmtime(), digest, code)
    {
        tracing::warn!(%digest, %error, "compiled code not kept; the next start compiles again");
    }
    Ok(component)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| Error::Invalid(format!("loading its code failed: {panic}")))
}

#[expect(unsafe_code, reason = "the one place where bytes become code that the process runs")]
pub(crate) fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: wasmtime asks that the bytes are what its own compiler made, unchanged. They are: either they came over a
    // pipe that only this program's compiler, in a child process, had the other end of; or `CompiledCode` wrote such
    // bytes earlier and has checked that they are whole, this component's, and that nobody but this user could have
    // touched them. That version and settings are this engine's wasmtime checks itself. What remains is that the
    // component takes over the compiler and has it answer with code of its choice; in this process it would need no code
    // for that.
    unsafe { Component::deserialize(engine, code) }
}
