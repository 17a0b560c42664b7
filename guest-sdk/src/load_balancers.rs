//! The capability `load-balancers`: load balancers for Services of type LoadBalancer. A call carries all changes that are
//! due. [`Steps`] takes them through the resources and documents that the cloud needs for a Service.

mod steps;

use std::time::Duration;

pub use steps::{Resource, SharedDocument, Steps, Task, Turn};

use crate::http::MemberSet;
use crate::{
    Cluster, Error, InProgress, Ingress, OwnedLoadBalancer, Provider, Service, Target, Targets, deadline,
    map_removals_first,
};

/// What to do for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAction {
    /// Make the load balancer match the Service.
    Ensure(Service),
    /// Update the targets: nothing else has changed since the last `Ensure`.
    UpdateTargets(Service),
    /// Remove everything that was created for the Service, which is given as last known.
    Delete(Service),
    /// Remove an object that was listed for a Service that is gone.
    RemoveOrphan(OwnedLoadBalancer),
}

/// An action, and the provider's note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceChange {
    /// What to do.
    pub action: ServiceAction,
    /// `resume` of the last [`ServiceProgress::InProgress`] about the same object. A hint that may be lost at any time.
    pub resume: Option<String>,
    /// See [`Extra`](crate::Extra).
    pub extra: crate::Extra,
}

impl ServiceChange {
    /// The Service that should have a load balancer. None if something is to be removed.
    pub const fn service(&self) -> Option<&Service> {
        match &self.action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => Some(service),
            ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => None,
        }
    }

    /// The UID of the Service that the change is about, or its beginning if the cloud stored no more. For an orphan without one
    /// it is the name that was listed.
    pub fn service_uid(&self) -> &str {
        match &self.action {
            ServiceAction::Ensure(service)
            | ServiceAction::UpdateTargets(service)
            | ServiceAction::Delete(service) => &service.uid,
            ServiceAction::RemoveOrphan(orphan) => orphan.service_uid.as_ref().unwrap_or(&orphan.name),
        }
    }

    /// Whether something is to be removed.
    pub const fn is_removal(&self) -> bool {
        self.service().is_none()
    }
}

impl From<ServiceAction> for ServiceChange {
    fn from(action: ServiceAction) -> Self {
        Self { action, resume: None, extra: crate::Extra::new() }
    }
}

/// One call of `load-balancers.change`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCall {
    /// The cluster.
    pub cluster: Cluster,
    /// The Nodes that may receive traffic at present.
    pub targets: Vec<Target>,
    /// The Services of the cluster that aren't being changed, if the provider asked for them.
    pub known: Vec<Service>,
    /// What to do.
    pub changes: Vec<ServiceChange>,
}

impl ServiceCall {
    /// Makes each change by itself, many concurrently: all removals, and then the rest. Once the soft deadline of the call
    /// has passed, it answers `in-progress` for the rest.
    pub async fn change_each(
        &self,
        change: impl AsyncFn(&ServiceChange) -> ServiceOutcome,
    ) -> Vec<ServiceOutcome> {
        let change = async |one: &ServiceChange| {
            if deadline::has_passed() {
                return Err(Error::deadline("a Service"));
            }
            change(one).await
        };
        map_removals_first(&self.changes, ServiceChange::is_removal, change).await
    }

    /// The targets of the call's Services as sets of members. `name` is the cloud's name of a target; targets without one
    /// are left out.
    pub fn members(&self, name: fn(&Target) -> Option<&str>) -> TargetMembers<'_> {
        let all = Targets::all(&self.targets).iter().filter_map(name).collect();
        TargetMembers { call: self, name, all }
    }

    /// The targets of one of the call's Services.
    pub fn targets_of<'a>(&'a self, service: &'a Service) -> Targets<'a> {
        Targets::new(&self.targets, &service.targets)
    }
}

/// The targets of a call's Services as sets of members, see [`ServiceCall::members`]. The set of all targets is built once
/// for all Services that have it.
pub struct TargetMembers<'a> {
    call: &'a ServiceCall,
    name: fn(&Target) -> Option<&str>,
    all: MemberSet,
}

impl TargetMembers<'_> {
    /// All targets, for a cloud where all Services of a call have the same.
    pub fn all(&self) -> MemberSet {
        self.all.clone()
    }

    /// The targets of one Service.
    pub fn of(&self, service: &Service) -> MemberSet {
        let targets = self.call.targets_of(service);
        if targets.is_all() { self.all.clone() } else { targets.iter().filter_map(self.name).collect() }
    }
}

/// Something to tell the user of a Service. It becomes an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Why, as a CamelCase reason of at most 64 characters that alerts and runbooks of this cloud know.
    pub reason: String,
    /// One sentence for people, without a secret.
    pub message: String,
    /// Whether it is a Warning event. Otherwise it is a Normal event.
    pub is_warning: bool,
}

impl Notice {
    /// A Normal event.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), is_warning: false }
    }

    /// A Warning event, for example because the cloud lacks something that the Service asks for.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(reason, message) }
    }
}

/// What a Service is told about its load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// The ingress that works.
    pub status: Vec<Ingress>,
    /// What the user should know. The host tells each once, however often it comes.
    pub notices: Vec<Notice>,
    /// Annotations to set on the Service, or to remove with None. Their keys are those of the description's annotations that
    /// are [`written`](crate::Annotation::written).
    pub annotations: Vec<(String, Option<String>)>,
}

impl ServiceReport {
    /// A report of this ingress.
    pub fn new(status: impl IntoIterator<Item = Ingress>) -> Self {
        Self { status: status.into_iter().collect(), ..Self::default() }
    }

    /// Adds notices for the user: a list, or an `Option` of one.
    #[must_use]
    pub fn notices(mut self, notices: impl IntoIterator<Item = Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// Sets an annotation on the Service, or removes it with None.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: Option<String>) -> Self {
        self.annotations.push((key.into(), value));
        self
    }
}

/// How far a change has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceProgress {
    /// The change is complete. The report has the Service's ingress; it is empty after a deletion.
    Done(ServiceReport),
    /// The cloud has begun, or the provider could not begin before the soft deadline. The report has the ingress that works
    /// already. An empty one leaves the Service's status as it is.
    InProgress(InProgress, ServiceReport),
    /// Another controller serves the Service. The host leaves its status alone. Ask the cloud before this answer to a deletion,
    /// because the annotations may have changed: the host believes no deletion without an answer of the cloud.
    Elsewhere,
}

/// The outcome of a change: how far it has come, or why it failed.
pub type ServiceOutcome = Result<ServiceProgress, Error>;

impl ServiceProgress {
    /// The change is complete, and this is the Service's ingress.
    pub fn done(status: impl IntoIterator<Item = Ingress>) -> Self {
        Self::Done(ServiceReport::new(status))
    }

    /// What was to be removed is gone, and the cloud said so in this call.
    pub fn gone() -> Self {
        Self::Done(ServiceReport::default())
    }

    /// The change has begun. Asked again after this time, without a note.
    pub fn in_progress(after: Duration) -> Self {
        InProgress { after, resume: None }.into()
    }

    /// The change has begun. Asked again after this time, with this note.
    pub fn in_progress_with(after: Duration, note: &str) -> Self {
        InProgress { after, resume: Some(note.to_owned()) }.into()
    }
}

impl From<InProgress> for ServiceProgress {
    fn from(progress: InProgress) -> Self {
        Self::InProgress(progress, ServiceReport::default())
    }
}

/// A provider that manages load balancers.
///
/// A change may come again at any time, also after an answer was lost or the host was killed halfway. So a provider reads
/// what exists, goes on from there, and writes nothing if everything is as desired.
pub trait LoadBalancers: Provider {
    /// Makes changes: one outcome each, in the same order. Removals take effect before additions. Use [`Steps`] where the
    /// cloud's resources can be compared with what a Service asks for. Otherwise use [`ServiceCall::change_each`] with a
    /// function for each action.
    ///
    /// Ensuring what is so already and removing what is gone succeed. `UpdateTargets` may do everything that `Ensure` does.
    ///
    /// # Errors
    ///
    /// The outer error says that the provider could not consider any change.
    fn change_load_balancers(
        &self,
        call: &ServiceCall,
    ) -> impl Future<Output = Result<Vec<ServiceOutcome>, Error>>;

    /// Lists what the cloud has for Services of this cluster, and for Services whose cluster can't be told. The list must
    /// come from a complete read; return an error instead of a part.
    fn list_owned(&self, cluster: &Cluster) -> impl Future<Output = Result<Vec<OwnedLoadBalancer>, Error>>;
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::http::Meaning;
    use crate::testing::{Exchange, Host, delete, get, put};
    use crate::{Description, Problem, Settings, TargetSelection, http};

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    /// Writes one resource for each Service.
    struct Writer;

    impl Provider for Writer {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("writer", "0.1.0")
        }

        fn configure(Nothing {}: Nothing) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn settings(&self) -> Settings {
            let base = http::BaseUrl::parse("http://cloud.test").unwrap();
            let codes = base.codes(http::CodePlace::Json("code".to_owned()));
            let codes = codes.code(400, "Busy*", Meaning::Throttled).code(400, "NoSuch*", Meaning::Absent);
            Settings::default().codes(codes)
        }
    }

    impl LoadBalancers for Writer {
        async fn change_load_balancers(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
            let change = async |change: &ServiceChange| match &change.action {
                ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                    let nodes: Vec<_> = call.targets_of(service).iter().map(|target| &target.node).collect();
                    http::put(url(&service.uid)).json(&nodes).send().await?.error_for_status()?;
                    Ok(match &change.resume {
                        Some(address) => ServiceProgress::done([Ingress::ip(address)]),
                        None => ServiceProgress::in_progress_with(Duration::from_secs(5), "192.0.2.1"),
                    })
                }
                ServiceAction::Delete(Service { uid: name, .. })
                | ServiceAction::RemoveOrphan(OwnedLoadBalancer { name, .. }) => {
                    http::delete(url(name)).send().await?.or_absent()?;
                    Ok(ServiceProgress::gone())
                }
            };
            Ok(call.change_each(change).await)
        }

        async fn list_owned(&self, _: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
            http::get(url("")).send().await?.error_for_status()?;
            Ok(vec![OwnedLoadBalancer { name: "a".to_owned(), ..OwnedLoadBalancer::default() }])
        }
    }

    fn url(name: &str) -> String {
        format!("http://cloud.test/{name}")
    }

    fn service(uid: &str) -> Service {
        Service { uid: uid.to_owned(), ..Service::default() }
    }

    fn call(actions: Vec<ServiceAction>) -> ServiceCall {
        let target = |node: &str| Target { node: node.to_owned(), ..Target::default() };
        ServiceCall {
            targets: ["n0", "n1", "n2"].map(target).to_vec(),
            changes: actions.into_iter().map(ServiceChange::from).collect(),
            ..ServiceCall::default()
        }
    }

    #[test]
    fn removals_come_first_and_outcomes_are_in_order() {
        let orphan = OwnedLoadBalancer { name: "c".to_owned(), ..OwnedLoadBalancer::default() };
        let mut call = call(vec![
            ServiceAction::Ensure(service("a")),
            ServiceAction::Delete(service("b")),
            ServiceAction::RemoveOrphan(orphan),
            ServiceAction::UpdateTargets(service("d")),
        ]);
        call.changes[3].resume = Some("192.0.2.1".to_owned());
        let host = Host::new()
            .exchange(put(url("a")))
            .exchange(delete(url("b")).status(404))
            .exchange(delete(url("c")).status(403))
            .exchange(put(url("d")));
        let outcomes = host.change_load_balancers::<Writer>(&call).unwrap();
        assert_eq!(outcomes[0], Ok(ServiceProgress::in_progress_with(Duration::from_secs(5), "192.0.2.1")));
        assert_eq!(outcomes[1], Ok(ServiceProgress::gone()));
        assert_eq!(outcomes[2].as_ref().unwrap_err().kind, crate::ErrorKind::Denied);
        assert_eq!(outcomes[3], Ok(ServiceProgress::done([Ingress::ip("192.0.2.1")])));
        let methods: Vec<_> = host.requests().into_iter().map(|sent| sent.method).collect();
        assert_eq!(methods, ["DELETE", "DELETE", "PUT", "PUT"]);
    }

    #[test]
    fn a_service_gets_its_selected_targets_and_missing_rows_are_ignored() {
        let few = Service { targets: TargetSelection::Rows(vec![1, 7]), ..service("few") };
        let call = call(vec![ServiceAction::Ensure(service("all")), ServiceAction::Ensure(few)]);
        let host = Host::new().exchange(put(url("all"))).exchange(put(url("few")));
        host.change_load_balancers::<Writer>(&call).unwrap();
        let [all, few] = host.requests().try_into().unwrap();
        assert_eq!((all.body, few.body), (b"[\"n0\",\"n1\",\"n2\"]".to_vec(), b"[\"n1\"]".to_vec()));
    }

    #[test]
    fn changes_after_the_deadline_are_in_progress_with_their_notes() {
        let mut call = call(vec![ServiceAction::Ensure(service("a")), ServiceAction::Delete(service("b"))]);
        call.changes[0].resume = Some("note".to_owned());
        let host = Host::new().exchange(delete(url("b")).delay(Duration::from_secs(11)));
        let outcomes = host.change_load_balancers::<Writer>(&call).unwrap();
        let later = ServiceProgress::in_progress_with(Duration::from_secs(1), "note");
        assert_eq!(outcomes, [Ok(later), Ok(ServiceProgress::gone())]);
    }

    #[test]
    fn requests_held_back_for_the_deadline_are_in_progress_and_refused_ones_fail() {
        let uids = ["late", "closed", "refused"];
        let call = call(uids.map(|uid| ServiceAction::Ensure(service(uid))).to_vec());
        let held_back =
            |uid, why| put(url(uid)).status(429).header("retry-after", "7").header("pileus-gate", why);
        let host = Host::new()
            .exchange(held_back("late", r#"reason=rate; limit="writes""#))
            .exchange(held_back("closed", r#"reason=closed; limit="writes""#))
            .exchange(put(url("refused")).status(429).header("retry-after", "7"));
        let [late, closed, refused] =
            host.change_load_balancers::<Writer>(&call).unwrap().try_into().unwrap();
        assert_eq!(late, Ok(ServiceProgress::in_progress(Duration::from_secs(1))));
        for failed in [closed, refused] {
            let throttled = crate::ErrorKind::Throttled(Some(Duration::from_secs(7)));
            assert_eq!(failed.unwrap_err().kind, throttled);
        }
    }

    #[test]
    fn the_codes_of_the_settings_apply_to_all_responses_of_a_call() {
        let actions = vec![ServiceAction::Ensure(service("a")), ServiceAction::Delete(service("b"))];
        let coded = |exchange: Exchange, code| exchange.status(400).json(serde_json::json!({"code": code}));
        let host = Host::new()
            .exchange(coded(put(url("a")), "BusyCloud").header("retry-after", "7"))
            .exchange(coded(delete(url("b")), "NoSuchBalancer"));
        let outcomes = host.change_load_balancers::<Writer>(&call(actions)).unwrap();
        let throttled = crate::ErrorKind::Throttled(Some(Duration::from_secs(7)));
        assert_eq!(outcomes[0].as_ref().unwrap_err().kind, throttled);
        assert_eq!(outcomes[1], Ok(ServiceProgress::gone()));
    }

    #[test]
    fn a_failed_list_returns_its_error() {
        let host = Host::new().exchange(get(url("")).status(503));
        assert!(host.list_owned::<Writer>(&Cluster::default()).is_err());
        let host = Host::new().exchange(get(url("")));
        assert_eq!(host.list_owned::<Writer>(&Cluster::default()).unwrap()[0].name, "a");
    }
}
