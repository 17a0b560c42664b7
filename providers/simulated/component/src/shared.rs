//! Load balancers where all Services of a cluster share one: a frontend in that for each, under the Service's UID, and an
//! address of the same name. The shared one is named by the cluster's UID, and written once for all changes of a call. An
//! address comes before its frontend and goes after it. All frontends have the same machines, those that any Service may
//! have: health checks find out which of them have an endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pileus_guest::http::{HeaderMap, MemberList};
use pileus_guest::operation::State;
use pileus_guest::shared::{self, Part, Parts};
use pileus_guest::{Error, Family, Ingress, Object, Outcomes, Service, ServiceCall, ServiceProgress};
use serde::{Deserialize, Serialize};

use crate::load_balancer::{Goal, HOSTNAME, Rules, Stage};
use crate::{Simulated, machine_of};

#[derive(Debug, Default, Deserialize, Serialize)]
struct Shared {
    #[serde(flatten, skip_serializing)]
    stage: Stage,
    machines: MemberList,
    frontends: Vec<Frontend>,
}

#[derive(Debug, Deserialize, Serialize)]
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
    family: Option<&'a Family>,
    value: Option<IpAddr>,
    labels: &'a BTreeMap<String, String>,
}

impl Simulated {
    /// Makes all changes of a call with one write of the shared load balancer, and one for each address.
    pub(crate) async fn change_shared(&self, call: &ServiceCall) -> Result<Outcomes<ServiceProgress>, Error> {
        let cluster = call.cluster.known_uid()?;
        let document = self.things::<Shared>("shared-load-balancers").document(cluster).await?;
        if let Some(waiting) = call.under_way(document.value.as_ref().map(|shared| shared.stage.state())) {
            return Ok(waiting);
        }
        let addresses = self.things::<Address>("addresses");
        let found = addresses.named(call.names(), |address| &address.name).await?;
        let machines = call.members(|target| machine_of(&target.provider_id).ok());
        let wishes = call.wishes(&found, |service| Goal::new(call, service, machines.all()));
        let told = shared::edit(document, &wishes).await;
        let put = async |name: &str, goal: &Goal<'_>| {
            let (family, labels) = (goal.families.first(), &goal.rules.labels);
            addresses.put(name, &NewAddress { family, value: goal.address, labels }).await
        };
        Ok(shared::settle(&wishes, told, put, async |name: &str| addresses.delete(name).await).await)
    }
}

impl Object<Goal<'_>> for Address {
    fn state(&self, _: &HeaderMap) -> State {
        self.stage.state()
    }

    fn is_as(&self, goal: &Goal<'_>) -> bool {
        goal.address.is_none_or(|value| value == self.value) && self.labels == goal.rules.labels
    }

    fn done(&self, service: &Service) -> ServiceProgress {
        let second = "a shared load balancer gives a Service one address and none of a second family";
        let name = "a shared load balancer gives a Service one address and no host name";
        ServiceProgress::done([Ingress::ip(self.value.to_string())])
            .warn_if(service.families.len() > 1, second)
            .warn_if(service.annotation(HOSTNAME) == Some("true"), name)
    }
}

impl Parts<Address, Goal<'_>> for Shared {
    fn state(&self, _: &HeaderMap) -> State {
        self.stage.state()
    }

    fn has(&self, name: &str) -> bool {
        self.frontends.iter().any(|frontend| frontend.name == name)
    }

    fn is_as(&self, part: &Part<'_, Address, Goal<'_>>) -> bool {
        let has_rules = |frontend: &Frontend| frontend.name == part.name && frontend.rules == part.goal.rules;
        self.machines == part.goal.machines && self.frontends.iter().any(has_rules)
    }

    fn put(&mut self, part: &Part<'_, Address, Goal<'_>>) {
        self.machines = part.goal.machines.clone();
        let (name, address, rules) = (part.name.to_owned(), part.name.to_owned(), part.goal.rules.clone());
        self.frontends.push(Frontend { name, address, rules });
    }

    fn take(&mut self, name: &str) {
        self.frontends.retain(|frontend| frontend.name != name);
    }

    fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }
}

#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]
mod tests {
    use pileus_guest::operation::{DELETED, SHARED as FRONTEND, WRITTEN as ADDRESS};
    use pileus_guest::testing::{Exchange, Host, Sent, delete, get, put};
    use pileus_guest::{Cluster, ErrorKind, Owned, Protocol, Selection, ServiceAction, ServicePort};
    use serde_json::{Value, json};

    use super::*;
    use crate::load_balancer::tests::{
        Outcome, call, changed, in_progress_with as under_way, labels, outcomes, service, with_note,
    };

    const SHARED: &str = "http://cloud.test/v1/shared-load-balancers/c";
    const ADDRESSES: &str = "http://cloud.test/v1/addresses";

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
    fn a_service_with_some_of_the_nodes_takes_none_from_the_others() {
        let host = cloud().exchange(read(&["a"], &json!({}))).exchange(address("a", &json!({})));
        let few = Service { targets: Selection::Rows(vec![0]), ..service("a") };
        assert_eq!(outcomes(&host, &call(vec![ServiceAction::UpdateTargets(few)])), [done("a")]);
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
