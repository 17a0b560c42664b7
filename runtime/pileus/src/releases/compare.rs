//! The dry run of a candidate: what it answers about live nodes, and what it would change in the cloud, beside the active release.
//! Both work behind gates that carry reads and record writes, as in `pileus plan`. A difference is what only the candidate
//! says or wants.

use kube::Client;
use pileus_cloud::{Answer, Cluster, Error as CloudError, ErrorKind, InstanceState, Purpose};
use pileus_controllers::facts::node::NodeFacts;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::route;
use pileus_gate::{Gate, WantedWrite};
use pileus_host::swap::{Difference, Failure};

use super::access::has_other_access;
use super::candidate;
use super::prepare::Ready;
use crate::cli;
use crate::metrics::Metrics;
use crate::plan::{
    Action, ClusterSnapshot, DryRunProvider, Findings, Identity, NodeSnapshot, PlanSettings, Preview,
    PreviewedChange, Section, cluster_uid, preview_changes,
};

/// How many nodes are looked up by both releases.
const SAMPLE: usize = 100;

/// What a dry run compares against: the live cluster.
#[derive(Clone)]
pub(crate) struct Comparison {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    /// The URL of the API server, for messages.
    pub(crate) server: http::Uri,
    pub(crate) cluster: Cluster,
    /// `None` where routes are not managed.
    pub(crate) routes: Option<route::Settings>,
    pub(crate) controllers: cli::ControllerSelection,
}

impl Comparison {
    /// Compares a candidate with the active release.
    ///
    /// # Errors
    /// A failure that may pass: the cluster or the cloud doesn't answer.
    pub(super) async fn run(
        &self,
        candidate: &Ready,
        active: &Ready,
        metrics: &Metrics,
    ) -> Result<Vec<Difference>, Failure> {
        let found = Box::pin(self.once(candidate, active, metrics)).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        // The controllers go on meanwhile: what they are about to write when one release is asked may be done when the other
        // is. A difference of the releases themselves is there again.
        let again = Box::pin(self.once(candidate, active, metrics)).await?;
        Ok(confirmed(found, &again))
    }

    async fn once(
        &self,
        candidate: &Ready,
        active: &Ready,
        metrics: &Metrics,
    ) -> Result<Vec<Found>, Failure> {
        let settings = self.settings(candidate).await?;
        let dry_run =
            |ready| dry_run_provider(ready, &active.gate, metrics).with_controllers(&self.controllers);
        let [new, old] = [candidate, active].map(dry_run);
        let (new_owned, old_owned) = (new.owned(&settings.cluster).await, old.owned(&settings.cluster).await);
        let listed = old_owned.as_deref().unwrap_or_default();
        let read = async |provider: &DryRunProvider| {
            let provider = &provider.provider;
            let nodes = NodeSnapshot::kept(&self.nodes, provider)
                .ok_or_else(|| transient("the API server has not sent the list of Nodes yet"))?;
            let read = ClusterSnapshot::read(&self.client, nodes, provider, listed, metrics);
            Box::pin(read).await.map_err(|error| transient(&error.to_string()))
        };
        let snapshot = read(&new).await?;
        let may_fail = has_other_access(candidate, active);
        let mut differences = lookups(&snapshot, &new, (&old, may_fail)).await?;
        let downgrade = candidate::downgrade(candidate, active);
        differences.extend(downgrade.map(|words| Found::lookup("its version".to_owned(), words)));
        // The releases may read different facts of Services.
        let of_old = if candidate.reads_like(active) { None } else { Some(read(&old).await?) };
        let old_settings = PlanSettings {
            classes: active.document.classes.clone(),
            is_default: active.document.is_default,
            ..settings.clone()
        };
        // The active release first: what is written in between is settled for the candidate.
        let known =
            preview_changes(&old, of_old.as_ref().unwrap_or(&snapshot), &old_settings, old_owned).await;
        let wanted = preview_changes(&new, &snapshot, &settings, new_owned).await;
        differences.extend(writes(&wanted, (&known, may_fail))?);
        Ok(differences)
    }

    async fn settings(&self, candidate: &Ready) -> Result<PlanSettings, Failure> {
        let mut cluster = self.cluster.clone();
        let uid = cluster_uid(&self.client, &self.server).await;
        cluster.uid = uid.map_err(|error| transient(&error.to_string()))?;
        let routes = self.routes.clone().map(|routes| route::Settings { cluster: cluster.clone(), ..routes });
        Ok(PlanSettings {
            cluster,
            routes,
            classes: candidate.document.classes.clone(),
            is_default: candidate.document.is_default,
        })
    }
}

fn transient(message: &str) -> Failure {
    Failure { message: format!("the dry run failed: {message}"), is_permanent: false }
}

/// A release in a dry run. A POST is a read only where the rules of the active release call it one, too: those of a candidate may
/// call anything a read.
fn dry_run_provider(ready: &Ready, active: &Gate, metrics: &Metrics) -> DryRunProvider {
    let identity = Identity::of(&ready.document, &ready.description, &ready.component);
    let gate = ready.gate.clone().with_reads_of(active);
    DryRunProvider::behind(gate, |gate| ready.guest(gate, metrics).provider(), identity)
}

/// A difference, and the object that it is about.
#[derive(Debug, PartialEq)]
struct Found {
    subject: String,
    difference: Difference,
}

impl Found {
    fn lookup(subject: String, words: String) -> Self {
        Self { subject, difference: Difference::Lookup(words) }
    }

    fn write(subject: String, words: String) -> Self {
        Self { subject, difference: Difference::Write(words) }
    }
}

/// The differences about objects that differ again. How they differ may be another way.
fn confirmed(found: Vec<Found>, again: &[Found]) -> Vec<Difference> {
    let is_again = |found: &Found| again.iter().any(|other| other.subject == found.subject);
    found.into_iter().filter(is_again).map(|found| found.difference).collect()
}

/// Looks up a sample of nodes by both releases.
async fn lookups(
    snapshot: &ClusterSnapshot,
    new: &DryRunProvider,
    (old, may_fail): (&DryRunProvider, bool),
) -> Result<Vec<Found>, Failure> {
    let (Some(asked_new), Some(asked_old)) = (&new.provider.instances, &old.provider.instances) else {
        return Ok(Vec::new());
    };
    let nodes: Vec<&NodeFacts> = sample(snapshot.nodes.readable.iter().map(|node| &**node), |node| {
        node.provider_id
            .as_ref()
            .is_some_and(|id| old.provider.schemes.iter().any(|scheme| scheme == id.scheme()))
    });
    let references = |provider: &DryRunProvider| {
        nodes.iter().map(|node| node.reference(&provider.provider.node_labels)).collect::<Vec<_>>()
    };
    let mut differences = Vec::new();
    let (of_new, of_old) = (references(new), references(old));
    new.dry_run.take();
    let largest = new.provider.largest_lookup_batch.min(old.provider.largest_lookup_batch).max(1);
    for (of_new, of_old) in of_new.chunks(largest).zip(of_old.chunks(largest)) {
        let known = match asked_old.lookup(Purpose::Refresh, of_old).await {
            Ok(known) => known,
            Err(error) if may_fail => of_old.iter().map(|_| Err(error.clone())).collect(),
            // The active release can't be compared with at present.
            Err(error) => return Err(transient(&error.message)),
        };
        let found = match asked_new.lookup(Purpose::Refresh, of_new).await {
            Ok(found) => found,
            Err(error) => of_new.iter().map(|_| Err(error.clone())).collect(),
        };
        for ((node, known), found) in of_old.iter().zip(known).zip(found) {
            let words = difference(&node.name, known, found)?;
            differences.extend(words.map(|words| Found::lookup(node.name.clone(), words)));
        }
    }
    differences.extend(new.dry_run.take().list.first().map(written_in_lookup));
    Ok(differences)
}

/// A lookup may not write, so this is the provider's mistake, or worse.
fn written_in_lookup(WantedWrite { method, url, .. }: &WantedWrite) -> Found {
    let words = format!(
        "lookups send {method} {url}, which is no read by the rules of both releases, and was not carried"
    );
    Found::write("lookups".to_owned(), words)
}

/// A part of the nodes, spread over all of them.
fn sample<'a>(
    nodes: impl Iterator<Item = &'a NodeFacts>,
    is_meant: impl Fn(&NodeFacts) -> bool,
) -> Vec<&'a NodeFacts> {
    let all: Vec<_> = nodes.filter(|node| is_meant(node)).collect();
    let step = all.len().div_ceil(SAMPLE).max(1);
    all.into_iter().step_by(step).collect()
}

/// How the answers about a node differ, in words.
///
/// # Errors
/// Where the cloud doesn't answer the candidate at present.
fn difference(
    node: &str,
    known: Result<Answer, CloudError>,
    found: Result<Answer, CloudError>,
) -> Result<Option<String>, Failure> {
    let known = match known {
        Ok(Answer::Pending(_)) | Err(_) => return Ok(None),
        Ok(known) => known,
    };
    match found {
        Ok(found) if found == known => Ok(None),
        Ok(found) => Ok(Some(format!("node {node}: {} instead of {}", words(&found), words(&known)))),
        Err(CloudError { kind: ErrorKind::Throttled(_) | ErrorKind::Unavailable(_), message }) => {
            Err(transient(&format!("node {node}: {message}")))
        }
        Err(error) => Ok(Some(format!("node {node}: fails instead of {}: {}", words(&known), error.message))),
    }
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Found(instance) => {
            let state = match instance.state {
                InstanceState::Running => "running",
                InstanceState::Stopped => "stopped",
                InstanceState::Unknown => "in an unknown state",
            };
            let addresses: Vec<_> = instance.addresses.iter().map(|address| address.value.clone()).collect();
            let zone = instance.zone.as_deref().unwrap_or("no zone");
            let kind = instance.instance_type.as_deref().unwrap_or("no type");
            format!("{} ({state}, {kind}, {zone}, {})", instance.provider_id, addresses.join(" "))
        }
        Answer::Absent => "absent".to_owned(),
        Answer::Pending(_) => "no answer in time".to_owned(),
        Answer::Unmanaged(_) => "not managed".to_owned(),
    }
}

/// What only the candidate wants to write. `may_fail` says that the active release may be unable to read.
///
/// # Errors
/// Where the active release couldn't read what it needs either, or nothing could be compared.
fn writes(wanted: &Preview, (known, may_fail): (&Preview, bool)) -> Result<Vec<Found>, Failure> {
    let mut differences = Vec::new();
    for ((kind, wanted), (_, known)) in wanted.sections().into_iter().zip(known.sections()) {
        match (wanted, known) {
            (Section::Unknown(_), Section::Unknown(_)) if may_fail => {}
            (_, Section::Unknown(problem)) if !may_fail => {
                return Err(transient(&format!("{kind}s: {problem}")));
            }
            (Section::Unknown(problem), _) => {
                differences.push(Found::lookup(kind.to_owned(), format!("{kind}s can't be read: {problem}")));
            }
            (Section::NotApplicable(_), _) => {}
            (Section::Planned(wanted), known) => {
                let known = known.findings().map(|findings| findings.changes.as_slice()).unwrap_or_default();
                differences.extend(changes(kind, wanted, known));
            }
        }
    }
    Ok(differences)
}

/// What one section of the candidate's preview has, and the active release's changes lack.
fn changes(kind: &str, wanted: &Findings, known: &[PreviewedChange]) -> Vec<Found> {
    let is_known = |change: &PreviewedChange| {
        known.iter().any(|other| (other.action, &other.object) == (change.action, &change.object))
    };
    let own = wanted.changes.iter().filter(|change| !is_known(change)).map(|change| {
        let subject = format!("{} {kind} {}", change.action.as_str(), change.object);
        let words = format!("{subject}: {}", change.reason);
        // Who wants to delete another object each time wants to delete.
        let subject = if change.action == Action::Delete { format!("delete {kind}") } else { subject };
        if change.is_write() { Found::write(subject, words) } else { Found::lookup(subject, words) }
    });
    let is_new = |items: &[String]| items.iter().any(|item| !known.iter().any(|other| other.object == *item));
    let shared = wanted.shared_writes.iter().filter(|write| is_new(&write.items)).map(|write| {
        let subject = format!("write for {kind}s {}", write.items.join(", "));
        Found::write(subject.clone(), subject)
    });
    own.chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Findings;

    #[test]
    fn an_active_release_whose_access_ended_is_not_waited_for() {
        let preview = |load_balancers| Preview {
            provider: Identity {
                name: "a".to_owned(),
                component: "a".to_owned(),
                version: "1.0.0".to_owned(),
                digest: "sha256:1".to_owned(),
            },
            cluster: ("c".to_owned(), None),
            load_balancers,
            routes: Section::NotApplicable("there are none".to_owned()),
        };
        let (unknown, planned) =
            (|| Section::Unknown("denied".to_owned()), || Section::Planned(Findings::default()));
        for (wanted, known, may_fail, expected) in [
            (unknown(), unknown(), true, Ok(0)),
            (planned(), unknown(), true, Ok(0)),
            (unknown(), planned(), true, Ok(1)),
            (unknown(), planned(), false, Ok(1)),
            (unknown(), unknown(), false, Err(())),
            (planned(), unknown(), false, Err(())),
        ] {
            let (wanted, known) = (preview(wanted), preview(known));
            let found = writes(&wanted, (&known, may_fail));
            let found = found.map(|differences| differences.len()).map_err(drop);
            assert_eq!(found, expected, "{:?} {:?}", wanted.load_balancers, known.load_balancers);
        }
    }

    #[test]
    fn a_difference_counts_if_the_object_differs_again() {
        let lookup = |node: &str, words: &str| Found::lookup(node.to_owned(), words.to_owned());
        let first =
            || vec![lookup("a", "10.0.0.1 instead of absent"), lookup("b", "absent instead of 10.0.0.2")];
        let a = || vec![Difference::Lookup("10.0.0.1 instead of absent".to_owned())];
        for (again, expected) in [
            (vec![], vec![]),
            (vec![lookup("c", "absent")], vec![]),
            (vec![lookup("a", "10.0.0.1 instead of absent")], a()),
            (vec![lookup("a", "10.0.0.9 instead of absent"), lookup("c", "absent")], a()),
        ] {
            assert_eq!(confirmed(first(), &again), expected, "{again:?}");
        }
    }

    #[test]
    fn only_what_the_candidate_alone_says_is_a_difference() {
        let unavailable = || Err(CloudError::new(ErrorKind::Unavailable(None), "the cloud is away"));
        let broken = || Err(CloudError::new(ErrorKind::Broken, "it trapped"));
        let pending = || Ok(Answer::Pending(Duration::from_secs(1)));
        for (known, found, expected) in [
            (Ok(Answer::Absent), Ok(Answer::Absent), Ok(None)),
            (Ok(Answer::Absent), pending(), Ok(Some("node a: no answer in time instead of absent"))),
            (Ok(Answer::Absent), broken(), Ok(Some("node a: fails instead of absent: it trapped"))),
            (Ok(Answer::Absent), unavailable(), Err(())),
            (pending(), Ok(Answer::Absent), Ok(None)),
            (broken(), broken(), Ok(None)),
            (unavailable(), Ok(Answer::Absent), Ok(None)),
        ] {
            let found = difference("a", known, found).map_err(drop);
            assert_eq!(found.as_ref().map(Option::as_deref), expected.as_ref().map(Option::as_deref));
        }
    }
}
