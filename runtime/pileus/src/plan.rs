//! `pileus plan`: previews what Pileus would change in the cloud now, and why, without changing anything.
//!
//! The controllers' own planners say which changes are due. The provider makes them behind a gate in dry-run mode, which
//! sends reads and records writes instead of sending them. `snapshot` is the cluster, `dry_run` the provider with its gate;
//! `load_balancers` and `routes` bring the two together, and `attribution` finds out which write belongs to which object.
//! `text` and `json` print the resulting [`Preview`]. Previews of two versions of a provider can be compared.

mod attribution;
mod dry_run;
mod json;
mod load_balancers;
mod preview;
mod routes;
#[cfg(test)]
mod samples;
mod snapshot;
mod text;

use std::io::Write as _;
use std::process::ExitCode;

use pileus_cloud::{Cluster, OwnedLoadBalancer};
use pileus_controllers::route;
use pileus_gate::Fence;
use prometheus_client::registry::Registry;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::{cli, cluster, telemetry, terminal};
pub(crate) use dry_run::DryRunProvider;
pub(crate) use preview::{Action, Findings, Identity, Preview, PreviewedChange, Section};
pub(crate) use snapshot::{ClusterSnapshot, NodeSnapshot, cluster_uid};

/// The operator's settings of the controllers.
#[derive(Clone)]
pub(crate) struct PlanSettings {
    pub(crate) cluster: Cluster,
    /// None where routes are not managed.
    pub(crate) routes: Option<route::Settings>,
    /// The load balancer classes that the provider serves, besides Services without a class.
    pub(crate) classes: Vec<String>,
    /// Whether it serves Services without a class.
    pub(crate) is_default: bool,
}

/// The exit code where changes are pending.
const CHANGES_PENDING: u8 = 7;

/// Prints the preview. The exit code says whether changes are pending.
pub(crate) async fn run(arguments: cli::Plan) -> Result<ExitCode, Error> {
    telemetry::start(cli::LogFormat::Text, &arguments.log_filter)?;
    let mut cluster = arguments.cluster();
    let cli::Plan { provider: path, kubeconfig, controllers, route_controller, json, verbose, .. } =
        arguments;
    let folders = (arguments.compiled, arguments.stored);
    let mut routes = route_controller.route(cluster.clone(), &controllers)?;
    let secrets = Secrets::default();
    let document = CloudProvider::read(&path, &secrets)?;
    let config = cluster::config(kubeconfig, "plan").await?;
    let client = config.client(Fence::default())?;
    secrets.connect(client.clone(), &config.config.default_namespace);
    // Before anything that takes time, so that a wrong address of the API server is reported at once.
    cluster.uid = cluster_uid(&client, &config.config.cluster_url).await?;
    if let Some(routes) = &mut routes {
        routes.cluster.uid.clone_from(&cluster.uid);
    }
    let settings =
        PlanSettings { cluster, routes, classes: document.classes.clone(), is_default: document.is_default };
    let metrics = Metrics::register(&mut Registry::default());
    let provider = DryRunProvider::load(document, folders, cluster::addresses(&config), &metrics).await?;
    let provider = provider.with_controllers(&controllers);
    let owned = provider.owned(&settings.cluster).await;
    let listed = owned.as_deref().unwrap_or_default();
    let nodes = NodeSnapshot::read(&client, &provider.provider).await?;
    let snapshot =
        Box::pin(ClusterSnapshot::read(&client, nodes, &provider.provider, listed, &metrics)).await?;
    let preview = preview_changes(&provider, &snapshot, &settings, owned).await;
    let text =
        if json { terminal::json(&json::object(&preview, verbose)) } else { text::report(&preview, verbose) };
    // A reader that closes the pipe early (`pileus plan … | head -1`) isn't an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    exit_code(&preview)
}

/// Dry-runs all changes that are due for a snapshot. `owned` is what the cloud has for Services, listed before the snapshot
/// was read, or why it can't be listed.
pub(crate) async fn preview_changes(
    provider: &DryRunProvider,
    snapshot: &ClusterSnapshot,
    settings: &PlanSettings,
    owned: Result<Vec<OwnedLoadBalancer>, String>,
) -> Preview {
    let Cluster { name, uid } = settings.cluster.clone();
    Preview {
        provider: provider.identity.clone(),
        cluster: (name, uid),
        load_balancers: provider.load_balancers(snapshot, settings, owned).await,
        routes: provider.routes(snapshot, settings).await,
    }
}

/// The exit code, or the error where not everything could be read.
fn exit_code(preview: &Preview) -> Result<ExitCode, Error> {
    match preview.unknown() {
        problems if !problems.is_empty() => {
            Err(Error::Unplanned { provider: preview.provider.name.clone(), problems })
        }
        _ if preview.is_settled() => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(CHANGES_PENDING)),
    }
}

#[cfg(test)]
mod tests {
    use super::attribution::DryRunResult;
    use super::preview::{ChangeResult, Findings, Section};
    use super::samples::{preview, settled};
    use super::*;

    #[test]
    fn the_exit_code_says_whether_changes_are_pending() {
        let code = |preview: &Preview| exit_code(preview).unwrap_or_else(|error| error.exit_code());
        let routes = |section| Preview { routes: section, ..settled() };
        let with_result = |result| {
            let preview = preview();
            let mut change = preview.routes.findings().unwrap().changes[0].clone();
            change.result = result;
            routes(Section::Planned(Findings { changes: vec![change], ..Findings::default() }))
        };
        for (name, preview, expected) in [
            ("settled", settled(), 0),
            ("a change of each kind", preview(), 7),
            ("in progress", with_result(ChangeResult::DryRun(DryRunResult::InProgress)), 7),
            ("failed", with_result(ChangeResult::DryRun(DryRunResult::Failed("no".to_owned()))), 7),
            ("rejected", with_result(ChangeResult::Rejected("no".to_owned())), 7),
            ("served elsewhere", with_result(ChangeResult::DryRun(DryRunResult::Elsewhere)), 0),
            ("not read", routes(Section::Unknown("no".to_owned())), 6),
        ] {
            assert_eq!(code(&preview), ExitCode::from(expected), "{name}");
        }
        let message = exit_code(&routes(Section::Unknown("denied".to_owned()))).unwrap_err().to_string();
        assert!(
            message.contains("provider sim: not everything could be read:\n  routes: denied"),
            "{message}"
        );
    }
}
