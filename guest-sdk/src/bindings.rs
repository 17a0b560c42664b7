//! The code that `wit-bindgen` generates from the contract. `wire` converts it into the types that authors see. The module
//! is public because the export macro expands in the author's crate. The WASI interfaces come from the crate `wasip2`,
//! which `wstd` uses too, so a component imports each of them once.
//!
//! A world can't make an export optional. So there is one world for what every provider exports, and one for each
//! capability. The macro adds the exports of the capabilities that the author names.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, reason = "generated code")]

wit_bindgen::generate!({
    path: "../wit",
    inline: "
        package pileus:sdk;
        world provider {
            include pileus:provider/host@0.2.0;
            export pileus:provider/info@0.2.0;
        }
    ",
    world: "pileus:sdk/provider",
    pub_export_macro: true,
    default_bindings_module: "pileus_guest::bindings",
    generate_all,
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

/// The export of `instances`.
pub mod instances {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pileus:sdk;
            world instances {
                export pileus:provider/instances@0.2.0;
            }
        ",
        world: "pileus:sdk/instances",
        pub_export_macro: true,
        export_macro_name: "export_instances",
        default_bindings_module: "pileus_guest::bindings::instances",
        with: { "pileus:provider/types@0.2.0": crate::bindings::pileus::provider::types },
    });
}

/// The export of `local-instance`.
pub mod local_instance {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pileus:sdk;
            world local-instance {
                export pileus:provider/local-instance@0.2.0;
            }
        ",
        world: "pileus:sdk/local-instance",
        pub_export_macro: true,
        export_macro_name: "export_local_instance",
        default_bindings_module: "pileus_guest::bindings::local_instance",
        with: { "pileus:provider/types@0.2.0": crate::bindings::pileus::provider::types },
    });
}

/// The export of `load-balancers`.
pub mod load_balancers {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pileus:sdk;
            world load-balancers {
                export pileus:provider/load-balancers@0.2.0;
            }
        ",
        world: "pileus:sdk/load-balancers",
        pub_export_macro: true,
        export_macro_name: "export_load_balancers",
        default_bindings_module: "pileus_guest::bindings::load_balancers",
        with: { "pileus:provider/types@0.2.0": crate::bindings::pileus::provider::types },
    });
}

/// The export of `routes`.
pub mod routes {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pileus:sdk;
            world routes {
                export pileus:provider/routes@0.2.0;
            }
        ",
        world: "pileus:sdk/routes",
        pub_export_macro: true,
        export_macro_name: "export_routes",
        default_bindings_module: "pileus_guest::bindings::routes",
        with: { "pileus:provider/types@0.2.0": crate::bindings::pileus::provider::types },
    });
}
