//! `pileus plan`: what Pileus would change in the cloud at this moment, and why, without changing anything.
//!
//! The controllers' own plans say what is due, and the provider says what that comes to, behind a gate that rehearses: it
//! reads as ever, and what it wants to write is written down instead. `world` is the cluster as the API server tells it,
//! `candidate` a provider and its rehearsing gate, `rehearsal` holds the one against the other, `apart` tells what was
//! wanted for which thing; `text` shows the [`Outlook`] to people, `json` to machines. Two candidates before the same world
//! have outlooks that can be compared: that is how a new version is held against the one that runs.

mod apart;
mod candidate;
mod json;
mod outlook;
mod rehearsal;
#[cfg(test)]
mod samples;
mod text;
mod world;

use std::io::Write as _;
use std::process::ExitCode;

use kube::Client;
use prometheus_client::registry::Registry;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::secrets::Secrets;
use crate::start::Metrics;
use crate::{cli, cluster, telemetry, terminal};
use candidate::Candidate;
use outlook::Outlook;
use rehearsal::Wishes;
use world::World;

/// The exit code where something would be done.
const SOMETHING_TO_DO: u8 = 7;

/// Prints what would be changed. The code says whether there is anything.
pub(crate) async fn run(arguments: cli::Plan) -> Result<ExitCode, Error> {
    telemetry::start(cli::LogFormat::Text, &arguments.log_filter)?;
    let mut cluster = arguments.cluster();
    let cli::Plan { provider: path, kubeconfig, route_controller, json, verbose, compiled, .. } = arguments;
    let secrets = Secrets::default();
    let document = CloudProvider::read(&path, &secrets)?;
    let config = cluster::config(kubeconfig, "plan").await?;
    let client = Client::try_from(config.clone()).map_err(|error| Error::Kubeconfig(error.to_string()))?;
    secrets.open(client.clone(), &config.default_namespace);
    // Before anything that takes time, so that a wrong way to the API server is told at once.
    cluster.uid = world::cluster_uid(&client).await?;
    let wishes = Wishes {
        routes: route_controller.route(cluster.clone())?,
        classes: document.classes.clone(),
        cluster,
    };
    let metrics = Metrics::register(&mut Registry::default());
    let candidate = Candidate::load(document, compiled, cluster::addresses(&config), &metrics).await?;
    let owned = candidate.owned(&wishes.cluster).await;
    let listed = owned.as_deref().unwrap_or_default();
    let world = World::read(&client, &candidate.provider, listed, &metrics).await?;
    let outlook = candidate.rehearse(&world, &wishes, owned).await;
    let text =
        if json { terminal::json(&json::object(&outlook, verbose)) } else { text::report(&outlook, verbose) };
    // A reader that has gone away (`pileus plan … | head -1`) is no failure.
    let _gone = std::io::stdout().write_all(text.as_bytes());
    end(&outlook)
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
    use super::outlook::{End, Findings, Part};
    use super::samples::{outlook, settled};
    use super::*;
    use crate::plan::apart::Verdict;

    #[test]
    fn the_exit_code_says_whether_there_is_anything_to_do() {
        let code = |outlook: &Outlook| end(outlook).map_or_else(|error| error.exit_code(), |code| code);
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
