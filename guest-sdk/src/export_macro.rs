//! The macro by which a provider exports its capabilities. It implements the functions of the contract with those of
//! [`export`](crate::export).

/// Exports a provider with the capabilities that it implements: `instances`, `local_instance`, `load_balancers`, `routes`, or
/// several.
///
/// ```ignore
/// pileus_guest::export_provider!(Simulated, instances, load_balancers, routes);
/// ```
///
/// In a native build it only checks that the traits are implemented.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty, $($capability:ident),+ $(,)?) => {
        const _: () = {
            $($crate::export_provider!(@implements $capability $provider);)+
        };

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::pileus::provider::info;

            struct Exported;

            impl info::Guest for Exported {
                fn describe() -> info::Description {
                    $crate::export::describe::<$provider>(&[$($crate::export_provider!(@named $capability)),+])
                }

                fn configure(document: String) -> Result<info::Settings, Vec<info::Problem>> {
                    $crate::export::configure::<$provider>(&document)
                }
            }

            $crate::bindings::export!(Exported with_types_in $crate::bindings);

            $($crate::export_provider!(@exported $capability Exported $provider);)+
        };
    };

    (@implements instances $provider:ty) => {
        const _: () = {
            const fn implements<P: $crate::Instances>() {}
            implements::<$provider>();
        };
    };
    (@implements local_instance $provider:ty) => {
        const _: () = {
            const fn implements<P: $crate::LocalInstance>() {}
            implements::<$provider>();
        };
    };
    (@implements load_balancers $provider:ty) => {
        const _: () = {
            const fn implements<P: $crate::LoadBalancers>() {}
            implements::<$provider>();
        };
    };
    (@implements routes $provider:ty) => {
        const _: () = {
            const fn implements<P: $crate::Routes>() {}
            implements::<$provider>();
        };
    };

    (@named instances) => { $crate::Capability::Instances };
    (@named local_instance) => { $crate::Capability::LocalInstance };
    (@named load_balancers) => { $crate::Capability::LoadBalancers };
    (@named routes) => { $crate::Capability::Routes };

    (@exported instances $exported:ident $provider:ty) => {
        const _: () = {
            use $crate::bindings::instances::exports::pileus::provider::instances;
            use $crate::bindings::pileus::provider::types;

            impl instances::Guest for $exported {
                fn lookup(
                    purpose: instances::Purpose,
                    nodes: Vec<types::NodeReference>,
                ) -> Result<Vec<instances::Answer>, types::Error> {
                    $crate::export::lookup::<$provider>(purpose, nodes)
                }
            }

            $crate::bindings::instances::export_instances!($exported with_types_in $crate::bindings::instances);
        };
    };
    (@exported local_instance $exported:ident $provider:ty) => {
        const _: () = {
            use $crate::bindings::local_instance::exports::pileus::provider::local_instance;
            use $crate::bindings::pileus::provider::types;

            impl local_instance::Guest for $exported {
                fn describe(
                    node: types::NodeReference,
                ) -> Result<local_instance::LocalAnswer, types::Error> {
                    $crate::export::describe_local_instance::<$provider>(node)
                }
            }

            $crate::bindings::local_instance::export_local_instance!(
                $exported with_types_in $crate::bindings::local_instance
            );
        };
    };
    (@exported load_balancers $exported:ident $provider:ty) => {
        const _: () = {
            use $crate::bindings::load_balancers::exports::pileus::provider::load_balancers;
            use $crate::bindings::pileus::provider::types;

            impl load_balancers::Guest for $exported {
                fn change(
                    cluster: types::Cluster,
                    targets: Vec<load_balancers::Target>,
                    known: Vec<load_balancers::Service>,
                    changes: Vec<load_balancers::ServiceChange>,
                ) -> Result<Vec<load_balancers::Outcome>, types::Error> {
                    $crate::export::change_load_balancers::<$provider>(cluster, targets, known, changes)
                }

                fn list_owned(cluster: types::Cluster) -> Result<Vec<load_balancers::Owned>, types::Error> {
                    $crate::export::list_owned::<$provider>(cluster)
                }
            }

            $crate::bindings::load_balancers::export_load_balancers!(
                $exported with_types_in $crate::bindings::load_balancers
            );
        };
    };
    (@exported routes $exported:ident $provider:ty) => {
        const _: () = {
            use $crate::bindings::pileus::provider::types;
            use $crate::bindings::routes::exports::pileus::provider::routes;

            impl routes::Guest for $exported {
                fn list(cluster: types::Cluster) -> Result<Vec<routes::Listed>, types::Error> {
                    $crate::export::list_routes::<$provider>(cluster)
                }

                fn change(
                    cluster: types::Cluster,
                    changes: Vec<routes::RouteChange>,
                ) -> Result<Vec<routes::Outcome>, types::Error> {
                    $crate::export::change_routes::<$provider>(cluster, changes)
                }
            }

            $crate::bindings::routes::export_routes!($exported with_types_in $crate::bindings::routes);
        };
    };
}
