//! Load balancers where all Services of a cluster share one: a frontend in that for each, under the Service's UID, and an
//! address of the same name. The shared one is named by the cluster's UID, and written once for all changes of a call. An
//! address comes before its frontend and goes after it. All frontends have the same machines, those that any Service may
//! have: health checks find out which of them have an endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pileus_guest::http::{self, Document, Edit};
use pileus_guest::operation::State;
use pileus_guest::{
    Error, Ingress, Service, ServiceCall, ServiceChange, ServiceProgress, Targets, removals_first,
};
use serde::{Deserialize, Serialize};

use crate::Simulated;
use crate::load_balancer::{AGAIN, DELETED, HOSTNAME, Rules, Stage, machines};

/// The note of a change that waits for the shared load balancer, and of one that waits for its address.
const FRONTEND: &str = "frontend";
const ADDRESS: &str = "address";

#[derive(Debug, Default, Deserialize, Serialize)]
struct Shared {
    #[serde(flatten, skip_serializing)]
    stage: Stage,
    machines: BTreeSet<String>,
    frontends: Vec<Frontend>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Frontend {
    name: String,
    address: String,
    #[serde(flatten)]
    rules: Rules,
}

#[derive(Deserialize)]
struct Address {
    name: String,
    value: IpAddr,
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    stage: Stage,
}

#[derive(Serialize)]
struct NewAddress<'a> {
    family: String,
    value: Option<IpAddr>,
    labels: &'a BTreeMap<String, String>,
}

/// What is to become of one Service's part.
struct Wish<'a> {
    change: &'a ServiceChange,
    /// What the Service wants, none where it should go; or why nothing can be done.
    goal: Result<Option<Goal<'a>>, Error>,
    address: Option<Address>,
}

struct Goal<'a> {
    service: &'a Service,
    requested: Option<IpAddr>,
    rules: Rules,
}

impl Simulated {
    /// Makes all changes of a call with one write of the shared load balancer, and one for each address.
    pub(crate) async fn change_shared(
        &self,
        call: &ServiceCall,
    ) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
        let unknown =
            || Error::unavailable("the shared load balancer has no name while the cluster's UID is unknown");
        let cluster = call.cluster.uid.as_deref().ok_or_else(unknown)?;
        let document: Document<Shared> = Document::read(self.url("shared-load-balancers", cluster)).await?;
        // While it is being written, those that wait for it need nothing else.
        let operation = document.value.as_ref().map(|shared| shared.stage.operation(FRONTEND));
        if let Some(State::Running(progress)) = operation
            && call.changes.iter().all(|change| change.resume.as_deref() == Some(FRONTEND))
        {
            return Ok(call.changes.iter().map(|_| Ok(progress.clone().into())).collect());
        }
        let mut addresses = self.found("addresses", &call.changes, |it: &Address| &it.name).await?;
        let wish = |change| Wish::new(call, change, addresses.remove(change.name()));
        let wishes: Vec<_> = call.changes.iter().map(wish).collect();
        let machines = machines(Targets::all(&call.targets)).0.into_iter().map(str::to_owned).collect();
        let told = document.edit(&wishes, |shared, wishes| edit(shared, wishes, &machines)).await;
        let steps: Vec<_> = wishes.iter().zip(told).collect();
        let address =
            async |(wish, told): &(&Wish<'_>, Result<Option<ServiceProgress>, Error>)| match told.clone()? {
                Some(progress) => Ok(progress),
                None => self.address(wish).await,
            };
        Ok(removals_first(&steps, |(wish, _)| wish.change.is_removal(), address).await)
    }

    /// Sees to the address of a Service that has no frontend yet, or no more.
    async fn address(&self, wish: &Wish<'_>) -> Result<ServiceProgress, Error> {
        let found = wish.address.as_ref().map(|address| &address.stage);
        let Some(Goal { service, requested, rules }) = wish.goal.as_ref().map_err(Error::clone)? else {
            return self.remove("addresses", wish.change, found).await;
        };
        let resume = wish.change.resume.as_deref();
        if let Some(progress) = found.map(|stage| stage.answer(ADDRESS, resume)).transpose()?.flatten() {
            return Ok(progress);
        }
        let family = service.families.first().map(|family| family.as_str().to_ascii_lowercase());
        let new = NewAddress { family: family.unwrap_or_default(), value: *requested, labels: &rules.labels };
        let written = http::put(self.url("addresses", &service.uid)).json(&new).send().await?;
        written.json::<Address>()?.stage.answer(ADDRESS, Some(ADDRESS))?;
        // Its frontend comes next.
        Ok(ServiceProgress::in_progress_with(AGAIN, ADDRESS))
    }
}

/// Edits the shared load balancer for Services. Of each it tells how far it is, or none where its address has its turn.
fn edit(
    shared: &mut Option<Shared>,
    wishes: &[Wish<'_>],
    machines: &BTreeSet<String>,
) -> Vec<Edit<Option<ServiceProgress>>> {
    let now = shared.get_or_insert_default();
    let is_stale = now.machines != *machines;
    let mut has_targets = false;
    let edits = wishes.iter().map(|wish| match &wish.goal {
        Err(error) => Edit::Kept(Err(error.clone())),
        Ok(None) => now.remove(wish),
        Ok(Some(goal)) => {
            let edit = now.serve(wish, goal, is_stale);
            has_targets |= edit == Edit::Changed;
            edit
        }
    });
    let edits = edits.collect();
    if has_targets {
        now.machines.clone_from(machines);
    }
    shared.take_if(|shared| shared.frontends.is_empty());
    edits
}

impl Shared {
    fn serve(&mut self, wish: &Wish<'_>, goal: &Goal<'_>, is_stale: bool) -> Edit<Option<ServiceProgress>> {
        let Some(address) = wish.address.as_ref().filter(|address| address.is(goal)) else {
            return Edit::Kept(Ok(None));
        };
        let name = wish.change.name().to_owned();
        let frontend = Frontend { address: name.clone(), name, rules: goal.rules.clone() };
        let place = self.frontends.iter_mut().find(|found| found.name == frontend.name);
        match (self.stage.answer(FRONTEND, wish.note(place.is_some())), place) {
            (Ok(None), Some(found)) if *found == frontend && !is_stale && self.stage.is_active() => {
                return Edit::Kept(Ok(Some(goal.done(address))));
            }
            (Ok(None), Some(found)) => *found = frontend,
            (Ok(None), None) => self.frontends.push(frontend),
            (told, _) => return Edit::Kept(told),
        }
        Edit::Changed
    }

    fn remove(&mut self, wish: &Wish<'_>) -> Edit<Option<ServiceProgress>> {
        let has_it = self.frontends.iter().any(|frontend| frontend.name == wish.change.name());
        // What was written may not hold yet, or may have failed. An address that is being deleted is past that, whatever
        // is written for others.
        let is_leaving = wish.address.is_none() || wish.change.resume.as_deref() == Some(DELETED);
        if !has_it && (is_leaving || self.stage.is_active()) {
            return Edit::Kept(Ok(None));
        }
        match self.stage.answer(FRONTEND, wish.note(!has_it)) {
            Ok(None) => {
                self.frontends.retain(|frontend| frontend.name != wish.change.name());
                Edit::Changed
            }
            told => Edit::Kept(told),
        }
    }
}

impl<'a> Wish<'a> {
    fn new(call: &ServiceCall, change: &'a ServiceChange, address: Option<Result<Address, Error>>) -> Self {
        let goal = change.service().map(|service| Goal::new(call, service)).transpose();
        match address.transpose() {
            Ok(address) => Self { change, goal, address },
            Err(error) => Self { change, goal: Err(error), address: None },
        }
    }

    /// The note of the last call, if that waited for a write that is seen in the shared load balancer.
    fn note(&self, is_seen: bool) -> Option<&str> {
        self.change.resume.as_deref().filter(|note| is_seen && *note == FRONTEND)
    }
}

impl Address {
    fn is(&self, goal: &Goal<'_>) -> bool {
        let has_value = goal.requested.is_none_or(|value| value == self.value);
        has_value && self.labels == goal.rules.labels && self.stage.is_active()
    }
}

impl<'a> Goal<'a> {
    fn new(call: &ServiceCall, service: &'a Service) -> Result<Self, Error> {
        Ok(Self {
            service,
            requested: service.requested_address()?,
            rules: Rules::new(&call.cluster, service)?,
        })
    }

    fn done(&self, address: &Address) -> ServiceProgress {
        let only = |what: &str| format!("a shared load balancer gives a Service one address and {what}");
        let lacks = [
            (self.service.families.len() > 1, only("none of a second family")),
            (self.service.annotation(HOSTNAME) == Some("true"), only("no host name")),
        ];
        ServiceProgress::Done {
            status: vec![Ingress::ip(address.value.to_string())],
            warnings: lacks.into_iter().filter_map(|(lacks, warning)| lacks.then_some(warning)).collect(),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]
mod tests {
    use pileus_guest::testing::{Exchange, Host, Sent, delete, get, put};
    use pileus_guest::{Cluster, ErrorKind, Family, Owned, Protocol, ServiceAction, ServicePort};
    use serde_json::{Value, json};

    use super::*;
    use crate::load_balancer::tests::{call, changed, labels, outcomes, service, with_note};

    const SHARED: &str = "http://cloud.test/v1/shared-load-balancers/c";
    const ADDRESSES: &str = "http://cloud.test/v1/addresses";

    type Outcome = Result<ServiceProgress, ErrorKind>;

    fn cloud() -> Host {
        Host::new().configuration(json!({"endpoint": "http://cloud.test", "loadBalancers": "shared"}))
    }

    fn value(uid: &str, change: &Value) -> Value {
        let number = uid.bytes().map(u32::from).sum::<u32>();
        let value = format!("198.51.100.{number}");
        let there = json!({"name": uid, "state": "active", "etag": "e1", "family": "ipv4", "value": value, "labels": labels(uid)});
        changed(&there, change)
    }

    fn address(uid: &str, change: &Value) -> Exchange {
        get(format!("{ADDRESSES}/{uid}")).json(value(uid, change))
    }

    fn no_address(uid: &str) -> Exchange {
        get(format!("{ADDRESSES}/{uid}")).status(404)
    }

    fn addresses(uids: &[&str]) -> Exchange {
        let all: Vec<_> = uids.iter().map(|uid| value(uid, &json!({}))).collect();
        get(format!("{ADDRESSES}?limit=1000")).json(json!({"addresses": all}))
    }

    fn frontend(uid: &str) -> Value {
        json!({"name": uid, "address": uid, "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}], "sourceRanges": [], "healthCheckPort": null, "stickySeconds": null, "labels": labels(uid)})
    }

    fn shown(uids: &[&str], change: &Value) -> Value {
        let frontends: Vec<_> = uids.iter().map(|uid| frontend(uid)).collect();
        let there = json!({"name": "c", "state": "active", "etag": "e1", "machines": ["m-1", "m-2"], "frontends": frontends});
        changed(&there, change)
    }

    fn read(uids: &[&str], change: &Value) -> Exchange {
        get(SHARED).json(shown(uids, change)).header("etag", "\"e1\"")
    }

    fn written(uids: &[&str], change: &Value) -> Exchange {
        put(SHARED).json(shown(uids, change)).header("etag", "\"e2\"")
    }

    fn ensure(uids: &[&str]) -> ServiceCall {
        call(uids.iter().map(|uid| ServiceAction::Ensure(service(uid))).collect())
    }

    fn remove(uids: &[&str]) -> ServiceCall {
        call(uids.iter().map(|uid| ServiceAction::Delete(service(uid))).collect())
    }

    fn done(uid: &str) -> Outcome {
        let Value::String(address) = &value(uid, &json!({}))["value"] else { panic!() };
        Ok(ServiceProgress::done([Ingress::ip(&**address)]))
    }

    fn under_way(note: &str) -> Outcome {
        Ok(ServiceProgress::in_progress_with(AGAIN, note))
    }

    fn body(sent: &Sent) -> Value {
        serde_json::from_slice(&sent.body).unwrap()
    }

    #[test]
    fn an_address_comes_before_its_frontend() {
        let busy = json!({"state": "creating"});
        let made = put(format!("{ADDRESSES}/a")).json(value("a", &busy));
        let host = cloud().exchange(get(SHARED).status(404)).exchange(no_address("a")).exchange(made);
        assert_eq!(outcomes(&host, &ensure(&["a"])), [under_way(ADDRESS)]);
        assert_eq!(
            body(&host.requests()[2]),
            json!({"family": "ipv4", "value": null, "labels": labels("a")})
        );
        let host = cloud().exchange(get(SHARED).status(404)).exchange(address("a", &busy));
        assert_eq!(outcomes(&host, &ensure(&["a"])), [under_way(ADDRESS)]);
        let at_once = put(format!("{ADDRESSES}/a")).json(value("a", &json!({})));
        let host = cloud().exchange(get(SHARED).status(404)).exchange(no_address("a")).exchange(at_once);
        assert_eq!(outcomes(&host, &ensure(&["a"])), [under_way(ADDRESS)]);
    }

    #[test]
    fn the_frontends_of_a_call_are_one_write() {
        let uids = ["a", "b", "c", "d"];
        let host = cloud()
            .exchange(read(&["x"], &json!({})))
            .exchange(addresses(&["a", "b", "c", "d", "x"]))
            .exchange(written(&["x", "a", "b", "c", "d"], &json!({"state": "updating"})));
        assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(|_| under_way(FRONTEND)));
        let write = &host.requests()[2];
        assert_eq!(write.header("if-match"), Some("\"e1\""));
        let frontends = ["x", "a", "b", "c", "d"].map(frontend);
        assert_eq!(body(write), json!({"machines": ["m-1", "m-2"], "frontends": frontends}));
        let host = cloud()
            .exchange(get(SHARED).status(404))
            .exchange(addresses(&uids))
            .exchange(written(&uids, &json!({})));
        assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(done));
        assert_eq!(host.requests()[2].header("if-none-match"), Some("*"));
    }

    #[test]
    fn nothing_is_written_where_all_is_so_and_little_is_read_while_it_is_written() {
        let uids = ["a", "b", "c", "d"];
        let host = cloud().exchange(read(&uids, &json!({}))).exchange(addresses(&uids));
        assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(done));
        let host = cloud().exchange(read(&uids, &json!({"state": "updating"})));
        assert_eq!(outcomes(&host, &with_note(ensure(&uids), FRONTEND)), uids.map(|_| under_way(FRONTEND)));
    }

    #[test]
    fn a_node_that_joins_is_one_write_for_all_services() {
        let uids = ["a", "b", "c", "d"];
        let host = cloud()
            .exchange(read(&uids, &json!({"machines": ["m-1"]})))
            .exchange(addresses(&uids))
            .exchange(written(&uids, &json!({})));
        let actions = uids.map(|uid| ServiceAction::UpdateTargets(service(uid)));
        assert_eq!(outcomes(&host, &call(actions.to_vec())), uids.map(done));
        assert_eq!(body(&host.requests()[2])["machines"], json!(["m-1", "m-2"]));
    }

    #[test]
    fn where_somebody_else_was_faster_their_frontends_are_kept() {
        let host = cloud()
            .exchange(read(&[], &json!({})))
            .exchange(address("a", &json!({})))
            .exchange(put(SHARED).status(412))
            .exchange(read(&["b"], &json!({})))
            .exchange(written(&["b", "a"], &json!({})));
        assert_eq!(outcomes(&host, &ensure(&["a"])), [done("a")]);
        assert_eq!(body(&host.requests()[4])["frontends"], json!([frontend("b"), frontend("a")]));
    }

    #[test]
    fn a_service_that_cannot_be_served_costs_the_others_nothing() {
        let mut mixed = service("b");
        mixed.ports.push(ServicePort { protocol: Protocol::Sctp, ..ServicePort::default() });
        let call = call(vec![ServiceAction::Ensure(service("a")), ServiceAction::Ensure(mixed)]);
        let host = cloud()
            .exchange(get(SHARED).status(404))
            .exchange(address("a", &json!({})))
            .exchange(no_address("b"))
            .exchange(written(&["a"], &json!({})));
        assert_eq!(outcomes(&host, &call), [done("a"), Err(ErrorKind::Invalid)]);
    }

    #[test]
    fn what_the_cloud_refuses_for_one_service_costs_the_others_nothing() {
        let host = cloud()
            .exchange(read(&["x"], &json!({})).times(3))
            .exchange(address("a", &json!({})))
            .exchange(address("b", &json!({})))
            .exchange(put(SHARED).status(400).times(2))
            .exchange(written(&["x", "b"], &json!({"state": "updating"})));
        assert_eq!(outcomes(&host, &ensure(&["a", "b"])), [Err(ErrorKind::Invalid), under_way(FRONTEND)]);
        let last = host.requests().pop().unwrap();
        assert_eq!(body(&last)["frontends"], json!([frontend("x"), frontend("b")]));
    }

    #[test]
    fn an_address_that_could_not_be_read_is_left_as_it_is_and_so_is_its_frontend() {
        let call = call(vec![
            ServiceAction::Ensure(service("a")),
            ServiceAction::Delete(service("b")),
            ServiceAction::Ensure(service("c")),
        ]);
        let host = cloud()
            .exchange(read(&["a", "b", "c"], &json!({})))
            .exchange(get(format!("{ADDRESSES}/a")).status(503))
            .exchange(get(format!("{ADDRESSES}/b")).status(403))
            .exchange(address("c", &json!({})));
        let expected = [Err(ErrorKind::Unavailable), Err(ErrorKind::Denied), done("c")];
        assert_eq!(outcomes(&host, &call), expected);
    }

    #[test]
    fn a_frontend_goes_before_its_address() {
        let host = cloud()
            .exchange(read(&["a", "b"], &json!({})))
            .exchange(address("a", &json!({})))
            .exchange(written(&["b"], &json!({"state": "updating"})));
        assert_eq!(outcomes(&host, &remove(&["a"])), [under_way(FRONTEND)]);
        assert_eq!(body(&host.requests()[2])["frontends"], json!([frontend("b")]));
        let there = || address("a", &json!({}));
        let host = cloud().exchange(read(&["b"], &json!({"state": "updating"}))).exchange(there());
        assert_eq!(outcomes(&host, &remove(&["a"])), [under_way(FRONTEND)], "the write may yet fail");
        let orphan = Owned { name: "a".to_owned(), ..Owned::default() };
        for action in [ServiceAction::Delete(service("a")), ServiceAction::RemoveOrphan(orphan)] {
            let deleted = delete(format!("{ADDRESSES}/a")).status(202);
            let host = cloud().exchange(read(&["b"], &json!({}))).exchange(there()).exchange(deleted);
            assert_eq!(outcomes(&host, &call(vec![action])), [under_way(DELETED)]);
        }
        let host = cloud().exchange(read(&["b"], &json!({}))).exchange(no_address("a"));
        assert_eq!(outcomes(&host, &with_note(remove(&["a"]), DELETED)), [Ok(ServiceProgress::gone())]);
    }

    #[test]
    fn an_address_that_is_being_deleted_waits_for_no_write_for_others() {
        let busy = json!({"state": "updating"});
        let deleting = address("a", &json!({"state": "deleting"}));
        for (found, expected) in
            [(deleting, under_way(DELETED)), (no_address("a"), Ok(ServiceProgress::gone()))]
        {
            let host = cloud().exchange(read(&["b"], &busy)).exchange(found);
            assert_eq!(outcomes(&host, &with_note(remove(&["a"]), DELETED)), [expected]);
        }
    }

    #[test]
    fn the_shared_load_balancer_goes_with_its_last_frontend() {
        let deleting = shown(&["a"], &json!({"state": "deleting"}));
        let host = cloud()
            .exchange(read(&["a"], &json!({})))
            .exchange(address("a", &json!({})))
            .exchange(delete(SHARED).status(202).json(deleting).header("etag", "\"e2\""));
        assert_eq!(outcomes(&host, &remove(&["a"])), [under_way(FRONTEND)]);
        assert_eq!(host.requests()[2].header("if-match"), Some("\"e1\""));
        let host = cloud()
            .exchange(read(&["a"], &json!({})))
            .exchange(address("a", &json!({})))
            .exchange(delete(SHARED).status(204))
            .exchange(get(SHARED).status(404))
            .exchange(delete(format!("{ADDRESSES}/a")).status(204));
        assert_eq!(outcomes(&host, &remove(&["a"])), [Ok(ServiceProgress::gone())]);
    }

    #[test]
    fn a_write_that_fails_late_is_told_to_those_that_wait_for_it_and_made_again() {
        let failed = json!({"state": "failed", "error": "late"});
        let there = || address("a", &json!({}));
        for change in [ensure(&["a"]), remove(&["b"])] {
            let address = if change.changes[0].is_removal() { address("b", &json!({})) } else { there() };
            let host = cloud().exchange(read(&["a"], &failed)).exchange(address.clone());
            let told = outcomes(&host, &with_note(change.clone(), FRONTEND));
            assert_eq!(told, [Err(ErrorKind::Unavailable)]);
            let again = written(&["a"], &json!({"state": "updating"}));
            let host = cloud().exchange(read(&["a"], &failed)).exchange(address).exchange(again);
            assert_eq!(outcomes(&host, &change), [under_way(FRONTEND)]);
        }
        let host = cloud().exchange(get(SHARED).status(404)).exchange(address("a", &failed));
        assert_eq!(outcomes(&host, &with_note(ensure(&["a"]), ADDRESS)), [Err(ErrorKind::Unavailable)]);
        let again = put(format!("{ADDRESSES}/a")).json(value("a", &json!({"state": "updating"})));
        let host = cloud().exchange(get(SHARED).status(404)).exchange(address("a", &failed)).exchange(again);
        assert_eq!(outcomes(&host, &ensure(&["a"])), [under_way(ADDRESS)]);
    }

    #[test]
    fn an_address_that_is_not_the_one_asked_for_is_for_the_cloud_to_refuse() {
        let asks = Service { requested_ip: Some("203.0.113.1".to_owned()), ..service("a") };
        let refused = put(format!("{ADDRESSES}/a")).status(409);
        let host =
            cloud().exchange(read(&["a"], &json!({}))).exchange(address("a", &json!({}))).exchange(refused);
        let told = outcomes(&host, &call(vec![ServiceAction::Ensure(asks)]));
        assert_eq!(told, [Err(ErrorKind::Conflict)]);
        assert_eq!(body(&host.requests()[2])["value"], "203.0.113.1");
    }

    #[test]
    fn what_a_shared_load_balancer_cannot_give_is_a_warning() {
        let wants = Service {
            families: vec![Family::Ipv4, Family::Ipv6],
            annotations: vec![(HOSTNAME.to_owned(), "true".to_owned())],
            ..service("a")
        };
        let host = cloud().exchange(read(&["a"], &json!({}))).exchange(address("a", &json!({})));
        let told = outcomes(&host, &call(vec![ServiceAction::Ensure(wants)]));
        let [Ok(ServiceProgress::Done { warnings, .. })] = &told[..] else { panic!("{told:?}") };
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }

    #[test]
    fn addresses_tell_what_is_owned_and_without_a_name_nothing_is_made() {
        let host = cloud().exchange(addresses(&["a"]));
        assert_eq!(host.list_owned::<Simulated>(&ensure(&[]).cluster).unwrap()[0].name, "a");
        let nameless = ServiceCall { cluster: Cluster::default(), ..ensure(&["a"]) };
        assert_eq!(
            cloud().change_load_balancers::<Simulated>(&nameless).unwrap_err().kind,
            ErrorKind::Unavailable
        );
    }
}
