//! Routes: what the route controller wants to change, and which writes the provider wants for that.

use pileus_cloud::{Error as CloudError, RouteAction, RouteChange, RouteProgress};
use pileus_controllers::route::preview::{Inputs, PlannedChange, Preview, preview};

use super::PlanSettings;
use super::attribution::ItemOutcome;
use super::dry_run::DryRunProvider;
use super::preview::{Action, ChangeResult, Findings, PreviewedChange, Section, names};
use super::snapshot::ClusterSnapshot;

impl DryRunProvider {
    /// Dry-runs all changes of routes.
    pub(super) async fn routes(&self, snapshot: &ClusterSnapshot, settings: &PlanSettings) -> Section {
        let Some(settings) = &settings.routes else {
            return Section::NotApplicable(
                "routes are managed only with --cluster-cidr, and not where --controllers leaves out the route controller"
                    .to_owned(),
            );
        };
        let Some(routes) = &self.provider.routes else {
            return Section::NotApplicable("the provider manages no routes".to_owned());
        };
        let listed = match self.read(routes.list(&settings.cluster)).await {
            Ok(listed) => listed,
            Err(problem) => return Section::Unknown(format!("can't list the cloud's routes: {problem}")),
        };
        let inputs = Inputs {
            nodes: &snapshot.nodes.readable,
            unreadable_ranges: &snapshot.nodes.left_alone,
            provider: &self.provider.name,
            node_labels: &self.provider.node_labels,
            cluster_uid: settings.cluster.uid.as_deref(),
            cluster_ranges: &settings.cluster_ranges,
            nodes_wait: settings.nodes_wait,
        };
        let preview = preview(inputs, listed);
        let mut findings =
            Findings { settled: preview.settled, notes: notes(snapshot, &preview), ..Findings::default() };
        let (following, first): (Vec<_>, Vec<_>) =
            preview.changes.into_iter().partition(|change| change.is_next);
        let is_delete = |expected: &PlannedChange| matches!(expected.action, RouteAction::Delete(_));
        let (deletes, creates): (Vec<_>, Vec<_>) = first.into_iter().partition(is_delete);
        for expected in [deletes, creates] {
            let (previewed, changes): (Vec<_>, Vec<_>) = expected.into_iter().map(previewed).unzip();
            let call = async |changes: Vec<RouteChange>| {
                let outcomes = routes.change(&settings.cluster, &changes).await?;
                Ok(outcomes.into_iter().map(outcome).collect())
            };
            let attributed = self.attribute(&changes, self.provider.largest_route_batch, call).await;
            findings.add(previewed, attributed);
        }
        findings.changes.extend(following.into_iter().map(|expected| previewed(expected).0));
        Section::Planned(findings)
    }
}

/// A change as the preview shows it, and as the provider gets it.
fn previewed(expected: PlannedChange) -> (PreviewedChange, RouteChange) {
    let PlannedChange { action, reason, is_next: _ } = expected;
    let (action_kind, object) = match &action {
        RouteAction::Delete(route) => (Action::Delete, format!("{} ({})", route.destination, route.name)),
        RouteAction::Create(route) => (Action::Create, route.destination.to_string()),
    };
    let result = ChangeResult::Follows;
    let change = PreviewedChange { action: action_kind, object, reason: reason.to_string(), result };
    (change, RouteChange { action, resume: None })
}

fn outcome(outcome: Result<RouteProgress, CloudError>) -> ItemOutcome {
    match outcome {
        Ok(RouteProgress::Done | RouteProgress::Elsewhere) => ItemOutcome::Done,
        Ok(RouteProgress::InProgress { .. }) => ItemOutcome::InProgress,
        Err(error) => ItemOutcome::Failed(error),
    }
}

fn notes(snapshot: &ClusterSnapshot, preview: &Preview) -> Vec<String> {
    let contested = preview
        .conflicts
        .iter()
        .map(|(range, node, why)| format!("node {node} gets no route for {range}: {why}"));
    let waiting = &preview.waiting;
    let waiting = (!waiting.is_empty()).then(|| {
        format!(
            "{} nodes get no routes yet because they are not initialised: {}",
            waiting.len(),
            names(waiting)
        )
    });
    let unreadable =
        snapshot.nodes.unreadable.iter().map(|problem| format!("{problem}; its routes stay as they are"));
    contested.chain(waiting).chain(unreadable).collect()
}
