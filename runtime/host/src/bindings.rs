//! The Rust types and functions that `bindgen!` generates from the contract in `wit/`.

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

pub(crate) use generated::exports::pileus::provider::{
    info, instances, load_balancers, local_instance, routes,
};
pub(crate) use generated::pileus::provider::{call, logging, types};
