//! What stands between the contract's functions and an author's trait: the glue that [`export_provider!`] puts in place,
//! one function for each of the contract's. A call starts with nothing, so each reads the configuration, makes the
//! provider, runs, and is done.
//!
//! [`export_provider!`]: crate::export_provider

use crate::bindings::exports::pileus::provider::{info, instances};
use crate::bindings::pileus::provider::types;
use crate::error::AFTER_DEADLINE;
use crate::{
    Answer, Capability, Error, Instances, NodeReference, Provider, Purpose, configuration, host, log, wire,
};

/// Exports a provider with the capabilities that it implements.
///
/// ```ignore
/// pileus_guest::export_provider!(Simulated, instances);
/// ```
///
/// Outside of a component it only checks that the traits are there.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty, instances $(,)?) => {
        const _: () = {
            const fn implements<P: $crate::Instances>() {}
            implements::<$provider>();
        };

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::pileus::provider::{info, instances};
            use $crate::bindings::pileus::provider::types;

            struct Exported;

            impl info::Guest for Exported {
                fn describe() -> info::Description {
                    $crate::export::describe::<$provider>(&[$crate::Capability::Instances])
                }

                fn configure(document: String) -> Result<info::Settings, Vec<info::Problem>> {
                    $crate::export::configure::<$provider>(&document)
                }
            }

            impl instances::Guest for Exported {
                fn lookup(
                    purpose: instances::Purpose,
                    nodes: Vec<types::NodeReference>,
                ) -> Result<Vec<instances::Answer>, types::Error> {
                    $crate::export::lookup::<$provider>(purpose, nodes)
                }
            }

    $crate::bindings::export!(Exported with_types_in $crate::bindings);
        };
    };
}

/// `info.describe`.
pub fn describe<P: Provider>(capabilities: &[Capability]) -> info::Description {
    log::install();
    wire::description(P::describe(), configuration::schema::<P>(), capabilities)
}

/// `info.configure`.
pub fn configure<P: Provider>(document: &str) -> Result<info::Settings, Vec<info::Problem>> {
    log::install();
    match configuration::read::<P>(document) {
        Ok(provider) => Ok(wire::settings(provider.settings())),
        Err(problems) => Err(problems.into_iter().map(wire::problem).collect()),
    }
}

/// `instances.lookup`.
pub fn lookup<P: Instances>(
    purpose: instances::Purpose,
    nodes: Vec<types::NodeReference>,
) -> Result<Vec<instances::Answer>, types::Error> {
    log::install();
    let nodes: Vec<NodeReference> = nodes.into_iter().map(wire::node_reference).collect();
    match host::block_on(answer::<P>(wire::purpose(purpose), &nodes)) {
        Ok(answers) => Ok(answers.into_iter().map(wire::answer).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// A lookup in the SDK's own words. What the soft deadline cut short is not known yet.
pub(crate) async fn answer<P: Instances>(
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Result<Vec<Result<Answer, Error>>, Error> {
    let provider: P =
        configuration::read(&host::configuration()).map_err(|problems| configuration::rejected(&problems))?;
    let unknown_yet = || Ok(Answer::Pending(AFTER_DEADLINE));
    match provider.lookup_many(purpose, nodes).await {
        Ok(answers) => Ok(answers
            .into_iter()
            .map(|answer| match answer {
                Err(error) if error.is_deadline() => unknown_yet(),
                answer => answer,
            })
            .collect()),
        Err(error) if error.is_deadline() => Ok(nodes.iter().map(|_| unknown_yet()).collect()),
        Err(error) => Err(error),
    }
}
