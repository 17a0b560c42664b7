//! `pileus plan`: what Pileus would change in the cloud at this moment, and why, without changing anything.
//!
//! The controllers' own plans say what is due, and the provider says what that comes to, behind a gate that rehearses: it
//! reads as ever, and what it wants to write is written down instead. `world` is the cluster as the API server tells it,
//! `candidate` a provider and its rehearsing gate, `load_balancers` and `routes` hold the one against the other, and `apart`
//! tells what was wanted for which thing; `text` shows the [`Outlook`] to people, `json` to machines. Two candidates before
//! the same world have outlooks that can be compared: that is how a new version is held against the one that runs.

mod apart;
mod candidate;
mod json;
mod load_balancers;
mod outlook;
mod routes;
#[cfg(test)]
mod samples;
mod text;
mod world;

use std::io::Write as _;
use std::process::ExitCode;

use kube::Client;
use pileus_cloud::{Cluster, OwnedLoadBalancer};
use pileus_controllers::route;
use prometheus_client::registry::Registry;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::secrets::Secrets;
use crate::start::Metrics;
use crate::{cli, cluster, telemetry, terminal};
use candidate::Candidate;
use outlook::Outlook;
use world::World;

/// What the operator wants of the controllers.
pub(crate) struct Wishes {
    pub(crate) cluster: Cluster,
    /// None where no routes are kept.
    pub(crate) routes: Option<route::Settings>,
    /// The load balancer classes that are ours besides no class.
    pub(crate) classes: Vec<String>,
}

/// The exit code where something would be done.
const SOMETHING_TO_DO: u8 = 7;

/// Prints what would be changed. The code says whether there is anything.
pub(crate) async fn run(arguments: cli::Plan) -> Result<ExitCode, Error> {
    telemetry::start(cli::LogFormat::Text, &arguments.log_filter)?;
    let mut cluster = arguments.cluster();
    let cli::Plan { provider: path, kubeconfig, route_controller, json, verbose, compiled, .. } = arguments;
    let routes = route_controller.route(cluster.clone())?;
    let secrets = Secrets::default();
    let document = CloudProvider::read(&path, &secrets)?;
    let config = cluster::config(kubeconfig, "plan").await?;
    let client = Client::try_from(config.clone()).map_err(|error| Error::Kubeconfig(error.to_string()))?;
    secrets.open(client.clone(), &config.default_namespace);
    // Before anything that takes time, so that a wrong way to the API server is told at once.
    cluster.uid = world::cluster_uid(&client, &config.cluster_url).await?;
    let wishes = Wishes { cluster, routes, classes: document.classes.clone() };
    let metrics = Metrics::register(&mut Registry::default());
    let candidate = Candidate::load(document, compiled, cluster::addresses(&config), &metrics).await?;
    let owned = candidate.owned(&wishes.cluster).await;
    let listed = owned.as_deref().unwrap_or_default();
    let world = World::read(&client, &candidate.provider, listed, &metrics).await?;
    let outlook = rehearse(&candidate, &world, &wishes, owned).await;
    let text =
        if json { terminal::json(&json::object(&outlook, verbose)) } else { text::report(&outlook, verbose) };
    // A reader that has gone away (`pileus plan … | head -1`) is no failure.
    let _gone = std::io::stdout().write_all(text.as_bytes());
    end(&outlook)
}

/// Lets a candidate do all that is due in a world, as far as that goes without a write. `owned` is what the cloud has for
/// Services, listed before the world was read, or why that can't be told.
pub(crate) async fn rehearse(
    candidate: &Candidate,
    world: &World,
    wishes: &Wishes,
    owned: Result<Vec<OwnedLoadBalancer>, String>,
) -> Outlook {
    let Cluster { name, uid } = wishes.cluster.clone();
    Outlook {
        provider: candidate.identity.clone(),
        cluster: (name, uid),
        load_balancers: candidate.load_balancers(world, wishes, owned).await,
        routes: candidate.routes(world, wishes).await,
    }
}

/// How the command ends.
fn end(outlook: &Outlook) -> Result<ExitCode, Error> {
    match outlook.unseen() {
        problems if !problems.is_empty() => {
            Err(Error::Unplanned { provider: outlook.provider.name.clone(), problems })
        }
        _ if outlook.is_settled() => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(SOMETHING_TO_DO)),
    }
}

#[cfg(test)]
mod tests {
    use super::apart::Verdict;
    use super::outlook::{End, Findings, Part};
    use super::samples::{outlook, settled};
    use super::*;

    #[test]
    fn the_exit_code_says_whether_there_is_anything_to_do() {
        let code = |outlook: &Outlook| end(outlook).unwrap_or_else(|error| error.exit_code());
        let routes = |part| Outlook { routes: part, ..settled() };
        let ends = |end| {
            let outlook = outlook();
            let mut change = outlook.routes.findings().unwrap().changes[0].clone();
            change.end = end;
            routes(Part::Seen(Findings { changes: vec![change], ..Findings::default() }))
        };
        for (name, outlook, expected) in [
            ("settled", settled(), 0),
            ("something of each kind", outlook(), 7),
            ("the cloud is at it", ends(End::Told(Verdict::UnderWay)), 7),
            ("it fails", ends(End::Told(Verdict::Failed("no".to_owned()))), 7),
            ("refused", ends(End::Refused("no".to_owned())), 7),
            ("somebody else's", ends(End::Told(Verdict::Elsewhere)), 0),
            ("not looked at", routes(Part::Unseen("no".to_owned())), 6),
        ] {
            assert_eq!(code(&outlook), ExitCode::from(expected), "{name}");
        }
        let told = end(&routes(Part::Unseen("denied".to_owned()))).unwrap_err().to_string();
        assert!(told.contains("provider sim: not all could be looked at:\n  routes: denied"), "{told}");
    }
}
