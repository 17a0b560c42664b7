//! The capability `load-balancers`: what the cloud has for Services of type LoadBalancer. All changes of a call come together.
//! Where each Service has an object of its own, `wish` says what to do for each; where many share one, `shared` has it written
//! once.

pub mod shared;
mod wish;

use std::collections::HashMap;
use std::time::Duration;

pub use wish::{Object, Wish};

use crate::http::MemberList;
use crate::{
    Cluster, Error, InProgress, Ingress, Outcome, Outcomes, Owned, Provider, Service, Target, Targets,
    deadline, removals_first,
};

/// What to do for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAction {
    /// See to it that its load balancer is as the Service wants.
    Ensure(Service),
    /// Only its targets have changed since the last `Ensure`.
    UpdateTargets(Service),
    /// Remove all that was created for it, as it was last known.
    Delete(Service),
    /// Remove what was listed for a Service that is gone.
    RemoveOrphan(Owned),
}

/// One change, and the provider's own note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceChange {
    /// What to do.
    pub action: ServiceAction,
    /// `resume` of the last [`ServiceProgress::InProgress`] about it: a hint, which may be lost at any time.
    pub resume: Option<String>,
    /// See [`Extra`](crate::Extra).
    pub extra: crate::Extra,
}

impl ServiceChange {
    /// The Service that is to be served; none where something is to be removed.
    pub const fn service(&self) -> Option<&Service> {
        match &self.action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => Some(service),
            ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => None,
        }
    }

    /// What the cloud's thing is called where it is named by the UID of its Service: that, or the name that was listed.
    pub const fn name(&self) -> &str {
        match &self.action {
            ServiceAction::Ensure(Service { uid: name, .. })
            | ServiceAction::UpdateTargets(Service { uid: name, .. })
            | ServiceAction::Delete(Service { uid: name, .. })
            | ServiceAction::RemoveOrphan(Owned { name, .. }) => name.as_str(),
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
    /// The Nodes that may receive traffic, as they are at this moment.
    pub targets: Vec<Target>,
    /// The Services of the cluster that aren't being changed, where the provider asked for them.
    pub known: Vec<Service>,
    /// What to do.
    pub changes: Vec<ServiceChange>,
}

impl ServiceCall {
    /// Makes each change by itself, many at the same time: all removals, and then the rest. Once the soft deadline of the
    /// call has passed, what is left is answered as under way.
    pub async fn one_by_one(
        &self,
        change: impl AsyncFn(&ServiceChange) -> Outcome<ServiceProgress>,
    ) -> Outcomes<ServiceProgress> {
        let change = async |one: &ServiceChange| {
            if deadline::has_passed() {
                return Err(Error::deadline("a Service"));
            }
            change(one).await
        };
        removals_first(&self.changes, ServiceChange::is_removal, change).await
    }

    /// What the cloud's things for its changes are called, see [`ServiceChange::name`].
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.changes.iter().map(ServiceChange::name)
    }

    /// What each of its changes wishes for, with what was found under its name, and what a Service wants.
    pub fn wishes<'a, T: Object<G>, G>(
        &'a self,
        found: &'a HashMap<String, Result<T, Error>>,
        goal: impl Fn(&'a Service) -> Result<G, Error>,
    ) -> Vec<Wish<'a, T, G>> {
        let wish = |change: &'a ServiceChange| Wish::new(change, found.get(change.name()), &goal);
        self.changes.iter().map(wish).collect()
    }

    /// The targets of its Services as lists of members, by what the cloud calls each; without those that have no such name.
    pub fn members(&self, name: fn(&Target) -> Option<&str>) -> TargetMembers<'_> {
        let all = Targets::all(&self.targets).iter().filter_map(name).collect();
        TargetMembers { call: self, name, all }
    }

    /// The targets of one of its Services.
    pub fn targets_of<'a>(&'a self, service: &'a Service) -> Targets<'a> {
        Targets::new(&self.targets, &service.targets)
    }
}

/// The targets of the Services of a call as lists of members, see [`ServiceCall::members`]. The list of Services that have
/// all targets is made once.
pub struct TargetMembers<'a> {
    call: &'a ServiceCall,
    name: fn(&Target) -> Option<&str>,
    all: MemberList,
}

impl TargetMembers<'_> {
    /// Those that any Service may have, for a cloud where all of a call have the same.
    pub fn all(&self) -> MemberList {
        self.all.clone()
    }

    /// Those of one Service.
    pub fn of(&self, service: &Service) -> MemberList {
        let targets = self.call.targets_of(service);
        if targets.is_all() { self.all.clone() } else { targets.iter().filter_map(self.name).collect() }
    }
}

/// How far a change has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceProgress {
    /// It is so.
    Done {
        /// The Service's way in, empty after a deletion.
        status: Vec<Ingress>,
        /// Sentences for the user, which become Warning events on the Service.
        warnings: Vec<String>,
    },
    /// It has begun, or could not begin before the soft deadline.
    InProgress(InProgress),
    /// The Service is somebody else's to serve; the host leaves its status alone.
    Elsewhere,
}

impl ServiceProgress {
    /// It is so, and this is the way in.
    pub fn done(status: impl IntoIterator<Item = Ingress>) -> Self {
        Self::Done { status: status.into_iter().collect(), warnings: Vec::new() }
    }

    /// The same with a sentence for the user, where something of what the Service wants isn't given although all is done.
    #[must_use]
    pub fn warn_if(mut self, lacks: bool, sentence: &str) -> Self {
        if let (Self::Done { warnings, .. }, true) = (&mut self, lacks) {
            warnings.push(sentence.to_owned());
        }
        self
    }

    /// What was to be removed is gone.
    pub const fn gone() -> Self {
        Self::Done { status: Vec::new(), warnings: Vec::new() }
    }

    /// It has begun; asked again after this time, without a note.
    pub const fn in_progress(after: Duration) -> Self {
        Self::InProgress(InProgress { after, resume: None })
    }

    /// It has begun; asked again after this time, with this note.
    pub fn in_progress_with(after: Duration, note: &str) -> Self {
        Self::InProgress(InProgress { after, resume: Some(note.to_owned()) })
    }
}

impl From<InProgress> for ServiceProgress {
    fn from(progress: InProgress) -> Self {
        Self::InProgress(progress)
    }
}

/// A provider that balances load.
///
/// A Service may be brought again at any time, also after an answer was lost or the host was killed half way: a provider
/// looks at what is there and goes on from that. It writes nothing where all is so.
pub trait LoadBalancers: Provider {
    /// Makes changes: one outcome each, in the same order, what removes something before what adds. Where each Service has an
    /// object of its own in the cloud, [`Wish::settle`] does that; where many share one, see [`shared`]. What fits neither is
    /// [`ServiceCall::one_by_one`] with a function for each action.
    ///
    /// Ensuring what is so already and removing what is gone succeed. To bring the targets up to date, doing all of
    /// `Ensure` will do.
    ///
    /// # Errors
    ///
    /// The outer error says that no change could be considered at all.
    fn change_load_balancers(
        &self,
        call: &ServiceCall,
    ) -> impl Future<Output = Result<Outcomes<ServiceProgress>, Error>>;

    /// Lists what exists in the cloud for Services of this cluster, and of no cluster that can be told, from a complete
    /// read: an error rather than a part.
    fn list_owned(&self, cluster: &Cluster) -> impl Future<Output = Result<Vec<Owned>, Error>>;
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::testing::{Host, delete, get, put};
    use crate::{Description, Problem, Selection, Settings, http};

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    /// Writes one object for each Service.
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
            Settings::default()
        }
    }

    impl LoadBalancers for Writer {
        async fn change_load_balancers(
            &self,
            call: &ServiceCall,
        ) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
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
                | ServiceAction::RemoveOrphan(Owned { name, .. }) => {
                    http::delete(url(name)).send().await?.or_absent()?;
                    Ok(ServiceProgress::gone())
                }
            };
            Ok(call.one_by_one(change).await)
        }

        async fn list_owned(&self, _: &Cluster) -> Result<Vec<Owned>, Error> {
            http::get(url("")).send().await?.error_for_status()?;
            Ok(vec![Owned { name: "a".to_owned(), ..Owned::default() }])
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
    fn removals_come_before_the_rest_and_each_outcome_is_in_its_place() {
        let orphan = Owned { name: "c".to_owned(), ..Owned::default() };
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
    fn a_service_sees_the_targets_that_are_selected_for_it_and_no_row_that_is_not_there() {
        let few = Service { targets: Selection::Rows(vec![1, 7]), ..service("few") };
        let call = call(vec![ServiceAction::Ensure(service("all")), ServiceAction::Ensure(few)]);
        let host = Host::new().exchange(put(url("all"))).exchange(put(url("few")));
        host.change_load_balancers::<Writer>(&call).unwrap();
        let [all, few] = host.requests().try_into().unwrap();
        assert_eq!((all.body, few.body), (b"[\"n0\",\"n1\",\"n2\"]".to_vec(), b"[\"n1\"]".to_vec()));
    }

    #[test]
    fn what_the_deadline_leaves_is_under_way_with_its_note() {
        let mut call = call(vec![ServiceAction::Ensure(service("a")), ServiceAction::Delete(service("b"))]);
        call.changes[0].resume = Some("note".to_owned());
        let host = Host::new().exchange(delete(url("b")).taking(Duration::from_secs(11)));
        let outcomes = host.change_load_balancers::<Writer>(&call).unwrap();
        let later = ServiceProgress::in_progress_with(Duration::from_secs(1), "note");
        assert_eq!(outcomes, [Ok(later), Ok(ServiceProgress::gone())]);
    }

    #[test]
    fn what_the_gate_holds_back_for_the_deadline_has_not_begun_and_what_the_cloud_refuses_has_failed() {
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
    fn a_list_that_fails_says_why() {
        let host = Host::new().exchange(get(url("")).status(503));
        assert!(host.list_owned::<Writer>(&Cluster::default()).is_err());
        let host = Host::new().exchange(get(url("")));
        assert_eq!(host.list_owned::<Writer>(&Cluster::default()).unwrap()[0].name, "a");
    }
}
