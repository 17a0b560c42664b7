//! The contract as `wit-bindgen` generates it, and nothing else: `wire` turns it into the types that authors see. Public
//! only because the export macro expands in the author's crate. The interfaces of WASI are those of the crate `wasip2`,
//! which `wstd` uses as well, so that a component imports each of them once.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, reason = "generated code")]

wit_bindgen::generate!({
    path: "../wit",
    world: "provides-instances",
    pub_export_macro: true,
    default_bindings_module: "pileus_guest::bindings",
    with: {
        "wasi:clocks/monotonic-clock@0.2.12": wasip2::clocks::monotonic_clock,
        "wasi:clocks/wall-clock@0.2.12": wasip2::clocks::wall_clock,
        "wasi:http/outgoing-handler@0.2.12": wasip2::http::outgoing_handler,
        "wasi:http/types@0.2.12": wasip2::http::types,
        "wasi:io/error@0.2.12": wasip2::io::error,
        "wasi:io/poll@0.2.12": wasip2::io::poll,
        "wasi:io/streams@0.2.12": wasip2::io::streams,
        "wasi:random/insecure-seed@0.2.12": wasip2::random::insecure_seed,
        "wasi:random/random@0.2.12": wasip2::random::random,
    },
});
