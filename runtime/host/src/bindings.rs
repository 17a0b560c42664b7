//! What `bindgen!` makes of the contract, and the linker that offers it. Nothing else, and only `wire`, `imports` and
//! `guest` look inside.

#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated from wit/, documented there"
)]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "provider",
        imports: { default: trappable },
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "wasi:io": wasmtime_wasi::p2::bindings::io,
            "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
            "wasi:random": wasmtime_wasi::p2::bindings::random,
            "wasi:http": wasmtime_wasi_http::p2::bindings::http,
        },
    });
}

pub(crate) use generated::exports::pileus::provider::{info, instances, load_balancers, routes};
pub(crate) use generated::pileus::provider::{call, logging, types};

use wasmtime::component::{HasSelf, Linker};

use crate::sandbox::Sandbox;

/// All that a component may import.
///
/// The command line, the file system and sockets are linked because the libraries of most languages import them
/// whether they use them or not; the sandbox grants nothing in them.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    types::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    logging::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    call::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    Ok(linker)
}
