//! The operator's orders about swaps: `pileus swap`, `rollback`, `pause` and `resume`. An order is an annotation of the
//! CloudProvider with a number that grows, so that the leader carries each out once, also after a restart.

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use pileus_gate::Fence;
use pileus_host::swap::{Order, OrderKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli;
use crate::cluster;
use crate::error::Error;
use crate::order_annotation::{self, ORDER};
use crate::providers::api_resource;
use crate::status;

/// How long to wait for the leader.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the status is read meanwhile.
const PERIOD: Duration = Duration::from_millis(300);

/// Gives an order, and waits until the leader has carried it out.
pub(crate) async fn run(arguments: cli::Order, kind: OrderKind) -> Result<(), Error> {
    let cli::Order { provider, access } = arguments;
    let config = cluster::operator_config(access, "order").await?;
    let api: Api<DynamicObject> = Api::all_with(config.client(Fence::default())?, &api_resource());
    let failed =
        |what: &str, error: kube::Error| Error::Cluster { what: what.to_owned(), source: error.into() };
    let deadline = Instant::now() + PATIENCE;
    let (name, number) = loop {
        let listed = api.list(&ListParams::default()).await;
        let providers = listed.map_err(|error| failed("list cloudproviders", error))?.items;
        let chosen = status::choose(&providers, provider.as_deref())?;
        let (name, number) = (chosen.name_any(), next_number(chosen));
        // With the version, so that two orders don't get one number.
        let patch = json!({"metadata": {
            "resourceVersion": chosen.metadata.resource_version,
            "annotations": {ORDER: order_annotation::write(order(number, kind, chosen))},
        }});
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => break (name, number),
            // The leader has written meanwhile.
            Err(kube::Error::Api(status)) if status.is_conflict() && Instant::now() < deadline => {}
            Err(error) => return Err(failed(&format!("annotate cloudprovider {name}"), error)),
        }
    };
    loop {
        let found = api.get(&name).await.map_err(|error| failed("read the cloudprovider", error))?;
        if last_order(&found) >= number {
            println!("{}", outcome(&found, kind)?);
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::NotCarriedOut {
                provider: name,
                why: format!(
                    "no leader has carried out the order within {} s; see `pileus status`, and whether Pileus runs without \
                     --provider. The order stays until a leader reads it",
                    PATIENCE.as_secs()
                ),
            });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// An order to swap names the candidate, whose differences the operator has seen.
fn order(number: u64, kind: OrderKind, provider: &DynamicObject) -> Order {
    let candidate = provider.data.pointer("/status/candidate/release/component").and_then(Value::as_str);
    let seen = candidate.filter(|_| kind == OrderKind::SwapNow);
    Order { number, kind, seen: seen.and_then(|digest| digest.parse().ok()) }
}

fn last_order(provider: &DynamicObject) -> u64 {
    provider.data.pointer("/status/lastOrder").and_then(Value::as_u64).unwrap_or_default()
}

/// The number of the next order.
fn next_number(provider: &DynamicObject) -> u64 {
    let given = order_annotation::given(provider.annotations());
    last_order(provider).max(given.map_or(0, |order| order.number)) + 1
}

/// What the order came to, in words.
///
/// # Errors
/// [`Error::NotCarriedOut`] where a rollback had nothing to return to.
fn outcome(provider: &DynamicObject, kind: OrderKind) -> Result<String, Error> {
    let name = provider.name_any();
    let text = |pointer: &str| provider.data.pointer(pointer).and_then(Value::as_str);
    let active = status::release_words(provider.data.pointer("/status/active"));
    Ok(match kind {
        OrderKind::Pause => format!("provider {name}: swaps are paused; {active} stays active"),
        OrderKind::Resume => format!("provider {name}: swaps go on"),
        OrderKind::SwapNow => {
            format!("provider {name}: the swap was ordered; follow it by `pileus status {name}`")
        }
        OrderKind::Rollback => match text("/status/lastError/message") {
            Some(why) if why.starts_with("can't roll back") => {
                return Err(Error::NotCarriedOut { provider: name, why: why.to_owned() });
            }
            _ => format!("provider {name}: {active} is active"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(order: &str, status: &Value) -> DynamicObject {
        let mut provider = DynamicObject::new("a", &api_resource()).data(json!({"status": status}));
        provider.annotations_mut().insert(ORDER.to_owned(), order.to_owned());
        provider
    }

    #[test]
    fn the_next_order_has_a_higher_number_than_any_before() {
        for (order, last, next) in [("", 0, 1), ("7 pause", 3, 8), ("2 swap", 9, 10), ("broken", 4, 5)] {
            assert_eq!(next_number(&provider(order, &json!({"lastOrder": last}))), next, "{order}");
        }
    }

    #[test]
    fn a_rollback_without_a_release_before_is_an_error() {
        let why = "can't roll back: there is no previous release";
        let failed = provider("1 rollback", &json!({"lastError": {"message": why}}));
        assert!(outcome(&failed, OrderKind::Rollback).unwrap_err().to_string().contains(why));
        assert!(outcome(&failed, OrderKind::Pause).is_ok());
        assert!(outcome(&provider("1 rollback", &json!({})), OrderKind::Rollback).is_ok());
    }
}
