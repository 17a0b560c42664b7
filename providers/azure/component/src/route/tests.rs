use std::time::Duration;

use pileus_guest::testing::{Exchange, Host, SentRequest, get, put};
use pileus_guest::{ErrorKind, InProgress};
use serde_json::{Value, json};

use super::*;
use crate::machine::MANAGED;
use crate::tests::with;

const TABLE: &str = "https://management.azure.com/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/routeTables/table\
                     ?api-version=2025-05-01";
const OPERATION: &str = "https://management.azure.com/subscriptions/sub/providers/Microsoft.Network/locations/eastus/operations/1?api-version=2025-05-01";
const UID: &str = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
const MARK: &str = "0a1b2c3d4e5f6789abcdef01";

fn cloud(more: &Value) -> Host {
    Host::new().configuration(with(more))
}

fn cluster() -> Cluster {
    Cluster { uid: Some(UID.to_owned()), ..Cluster::default() }
}

fn route(name: &str, prefix: &str, next_hop: &str) -> Value {
    let id = format!(
        "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/routeTables/table/routes/{name}"
    );
    json!({"name": name, "id": id, "etag": "W/\"1\"", "type": "Microsoft.Network/routeTables/routes", "properties": {
        "provisioningState": "Succeeded", "addressPrefix": prefix, "nextHopType": "VirtualAppliance",
        "nextHopIpAddress": next_hop, "hasBgpOverride": false,
    }})
}

/// A route of another owner, with members that this provider doesn't know.
fn foreign() -> Value {
    json!({"name": "to-firewall", "etag": "W/\"1\"", "id": "/x", "future": [1], "properties": {
        "provisioningState": "Succeeded", "addressPrefix": "0.0.0.0/0", "nextHopType": "VirtualNetworkGateway", "future": {"a": 1.50},
    }})
}

fn table(routes: &[Value], state: &str) -> Value {
    json!({
        "name": "table", "id": "/x", "type": "Microsoft.Network/routeTables", "etag": "W/\"7\"", "location": "eastus",
        "tags": {"owner": "net"}, "future": true,
        "properties": {
            "provisioningState": state, "resourceGuid": "guid", "disableBgpRoutePropagation": true, "routes": routes,
            "subnets": [{"id": "/subnet"}],
        },
    })
}

fn there(routes: &[Value]) -> Exchange {
    get(TABLE).json(table(routes, "Succeeded")).header("etag", "W/\"7\"")
}

fn written(routes: &[Value]) -> Exchange {
    put(TABLE).json(table(routes, "Succeeded"))
}

fn change(action: RouteAction) -> RouteChange {
    RouteChange { action, resume: None, extra: Vec::new() }
}

fn wanted(node: &str, destination: &str) -> Route {
    let number: u32 = node.rsplit('-').next().unwrap().parse().unwrap();
    let ips = [format!("10.0.0.{number}"), format!("fd00::{number}")];
    let addresses = ips.map(|ip| Address::new(AddressKind::InternalIp, ip)).to_vec();
    Route { node: node.to_owned(), addresses, destination: destination.to_owned(), ..Route::default() }
}

fn create(node: &str, destination: &str) -> RouteChange {
    change(RouteAction::Create(wanted(node, destination)))
}

fn delete(name: &str, destination: &str) -> RouteChange {
    let (name, destination) = (name.to_owned(), destination.to_owned());
    change(RouteAction::Delete(ListedRoute { name, destination, ..ListedRoute::default() }))
}

fn outcomes(host: &Host, changes: &[RouteChange]) -> Vec<Result<RouteProgress, ErrorKind>> {
    let outcomes = host.change_routes::<Azure>(&cluster(), changes).unwrap();
    outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind)).collect()
}

fn body(sent: &SentRequest) -> Value {
    serde_json::from_slice(&sent.body).unwrap()
}

const DONE: Result<RouteProgress, ErrorKind> = Ok(RouteProgress::Done);

const SOON: Result<RouteProgress, ErrorKind> = Ok(RouteProgress::InProgress(InProgress::soon()));

/// Section 4: names, Nodes and next hops of all routes of the table; a missing table is empty.
#[test]
fn all_routes_of_the_table_are_listed() {
    let marked = format!("vm-2____fd0020264____{MARK}");
    let routes = [
        route("vm-1____102441024", "10.244.1.0/24", "10.0.0.1"),
        route(&marked, "fd00:20:2::/64", "fd00::2"),
        route("vm-3", "10.244.3.0/24", "10.0.0.3"),
        foreign(),
    ];
    let listed = cloud(&json!({})).exchange(there(&routes)).list_routes::<Azure>(&cluster()).unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|it| (&*it.name, it.node.as_deref(), &*it.destination, it.cluster_uid.as_deref()))
        .collect();
    let expected = [
        ("vm-1____102441024", Some("vm-1"), "10.244.1.0/24", None),
        (&*marked, Some("vm-2"), "fd00:20:2::/64", Some(MARK)),
        ("vm-3", Some("vm-3"), "10.244.3.0/24", None),
        ("to-firewall", None, "0.0.0.0/0", None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(listed[0].addresses, [Address::new(AddressKind::InternalIp, "10.0.0.1")]);
    let none = json!({"error": {"code": "ResourceNotFound", "message": "no"}});
    let host = cloud(&json!({"tags": "a=b"})).exchange(get(TABLE).status(404).json(none));
    assert_eq!(host.list_routes::<Azure>(&cluster()), Ok(vec![]), "bug 17 (CPA#8820): tags and no table");
    let host = cloud(&json!({"routeTableName": null}));
    assert_eq!(host.list_routes::<Azure>(&cluster()).unwrap_err().kind, ErrorKind::Invalid);
}

/// Section 4: all changes of a call are one write, of both families, deletions first; what others have put there stays.
#[test]
fn a_batch_is_one_write_that_keeps_what_others_put_there() {
    let before = [foreign(), route("vm-9____102449024", "10.244.9.0/24", "10.0.0.9")];
    let name = |node: &str, range: &str| format!("{node}____{range}____{MARK}");
    let made = [
        route(&name("vm-1", "102441024"), "10.244.1.0/24", "10.0.0.1"),
        route(&name("vm-1", "fd0020164"), "fd00:20:1::/64", "fd00::1"),
        route(&name("vm-2", "102449024"), "10.244.9.0/24", "10.0.0.2"),
    ];
    let after: Vec<_> = [foreign()].iter().chain(&made).cloned().collect();
    let host = cloud(&json!({})).exchange(there(&before)).exchange(written(&after));
    let changes = [
        create("vm-1", "10.244.1.0/24"),
        create("vm-1", "fd00:20:1::/64"),
        create("vm-2", "10.244.9.0/24"),
        delete("vm-9____102449024", "10.244.9.0/24"),
    ];
    assert_eq!(outcomes(&host, &changes), [DONE; 4]);
    let [_, write] = host.requests().try_into().unwrap();
    assert_eq!(write.header("if-match"), Some("W/\"7\""));
    let plain = |made: &Value| {
        let Value::Object(properties) = &made["properties"] else { panic!() };
        let kept = ["addressPrefix", "nextHopType", "nextHopIpAddress"]
            .map(|key| (key.to_owned(), properties[key].clone()));
        json!({"name": made["name"], "properties": kept.into_iter().collect::<serde_json::Map<_, _>>()})
    };
    let kept = json!({"name": "to-firewall", "future": [1], "properties": {
        "addressPrefix": "0.0.0.0/0", "nextHopType": "VirtualNetworkGateway", "future": {"a": 1.50},
    }});
    let all: Vec<_> = [kept].into_iter().chain(made.iter().map(plain)).collect();
    let expected = json!({
        "location": "eastus", "tags": {"owner": "net"}, "future": true,
        "properties": {"disableBgpRoutePropagation": true, "routes": all},
    });
    assert_eq!(body(&write), expected);
}

/// Takeover: what cloud-provider-azure made, in any naming style and spelling, is right without a write.
#[test]
fn routes_of_the_former_controller_are_right_as_they_are() {
    let routes = [
        route("vm-1____102441024", "10.244.1.0/24", "10.0.0.1"),
        route("VM-2", "10.244.2.0/24", "10.0.0.2"),
        route("vm-3____x", "FD00:20:3:0::/64", "fd00::3"),
    ];
    let changes = [
        create("vm-1", "10.244.1.0/24"),
        create("vm-2", "10.244.2.0/24"),
        create("vm-3", "fd00:20:3::/64"),
        delete("vm-4____102444024", "10.244.4.0/24"),
    ];
    assert_eq!(outcomes(&cloud(&json!({})).exchange(there(&routes)), &changes), [DONE; 4]);
}

/// D18: to delete the route of `vm-1` leaves those of `vm-10` and `vm-1x`, and one that was made anew for another range.
#[test]
fn exactly_one_route_is_deleted() {
    let others = [
        route("vm-10____102441024", "10.244.10.0/24", "10.0.0.10"),
        route("vm-1____1024410241", "10.244.100.0/24", "10.0.0.1"),
    ];
    let gone = route("vm-1____102441024", "10.244.1.0/24", "10.0.0.1");
    let host = cloud(&json!({}))
        .exchange(there(&[std::slice::from_ref(&gone), &others[..]].concat()))
        .exchange(written(&others));
    assert_eq!(outcomes(&host, &[delete("vm-1____102441024", "10.244.1.0/24")]), [DONE]);
    assert_eq!(body(&host.requests()[1])["properties"]["routes"].as_array().unwrap().len(), 2);
    let renewed = route("vm-1____102441024", "10.24.41.0/24", "10.0.0.1");
    let host = cloud(&json!({})).exchange(there(&[renewed]));
    assert_eq!(outcomes(&host, &[delete("vm-1____102441024", "10.244.1.0/24")]), [DONE]);
}

/// Bug 16 (CPA#8175): a Node's range changes, its address changes, and two ranges have the same digits.
#[test]
fn a_route_that_leads_elsewhere_is_changed_only_if_it_is_the_nodes_own() {
    let rows = [
        ("the Node's address changed", route("vm-1____102441024", "10.244.1.0/24", "10.0.0.77"), DONE),
        ("in the old style", route("vm-1", "10.244.1.0/24", "10.0.0.77"), DONE),
        (
            "the same digits",
            route(&format!("vm-1____102441024____{MARK}"), "10.24.41.0/24", "10.0.0.1"),
            DONE,
        ),
        (
            "of another Node",
            route("vm-10____102441024", "10.244.1.0/24", "10.0.0.10"),
            Err(ErrorKind::Conflict(None)),
        ),
        (
            "of another cluster",
            route("vm-1____102441024____ffffffffffffffffffffffff", "10.244.1.0/24", "10.0.0.77"),
            Err(ErrorKind::Conflict(None)),
        ),
        (
            "of another owner",
            json!({"name": "x", "properties": {"addressPrefix": "10.244.1.0/24", "nextHopType": "None"}}),
            Err(ErrorKind::Conflict(None)),
        ),
    ];
    for (row, before, expected) in rows {
        let name = before["name"].as_str().unwrap().to_owned();
        let host = cloud(&json!({})).exchange(there(&[before]));
        let is_written = expected.is_ok();
        let host = if is_written {
            host.exchange(written(&[route(&name, "10.244.1.0/24", "10.0.0.1")]))
        } else {
            host
        };
        assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [expected], "{row}");
        if is_written {
            let sent = &body(&host.requests()[1])["properties"]["routes"];
            assert_eq!(sent.as_array().unwrap().len(), 1, "{row}: {sent}");
            assert_eq!(
                (&sent[0]["name"], &sent[0]["properties"]["nextHopIpAddress"]),
                (&json!(name), &json!("10.0.0.1")),
                "{row}"
            );
        }
    }
}

/// Section 4: a missing table is created with the region and the tags; the tags of the cluster's table follow with a change.
#[test]
fn a_missing_table_is_created_with_tags() {
    let none =
        || get(TABLE).status(404).json(json!({"error": {"code": "ResourceNotFound", "message": "no"}}));
    let made = route(&format!("vm-1____102441024____{MARK}"), "10.244.1.0/24", "10.0.0.1");
    let host = cloud(&json!({"tags": "a=b"})).exchange(none()).exchange(written(std::slice::from_ref(&made)));
    assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [DONE]);
    let write = &host.requests()[1];
    assert_eq!(write.header("if-none-match"), Some("*"));
    assert_eq!((&body(write)["location"], &body(write)["tags"]), (&json!("eastus"), &json!({"a": "b"})));
    let host = cloud(&json!({"tags": "a=b", "location": null})).exchange(none());
    assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [Err(ErrorKind::Invalid)]);
    assert_eq!(outcomes(&cloud(&json!({})).exchange(none()), &[delete("x", "10.244.1.0/24")]), [DONE]);
    // An existing one keeps its tags until something is written, and a table of another group keeps them for good.
    for (more, expected) in [
        (json!({"tags": "a=b"}), json!({"a": "b", "owner": "net"})),
        (json!({"tags": "a=b", "routeTableResourceGroup": "net"}), json!({"owner": "net"})),
    ] {
        let at = |url: &str| {
            if more["routeTableResourceGroup"].is_null() {
                url.to_owned()
            } else {
                url.replace("/group/", "/net/")
            }
        };
        let read = get(at(TABLE)).json(table(&[], "Succeeded"));
        let host = cloud(&more)
            .exchange(read)
            .exchange(put(at(TABLE)).json(table(std::slice::from_ref(&made), "Succeeded")));
        assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [DONE]);
        assert_eq!(body(&host.requests()[1])["tags"], expected);
    }
}

/// Section 5.3 and the answers that are easy to get wrong: 201 `Succeeded` that names an operation isn't the end of it.
#[test]
fn a_write_has_ended_when_its_operation_has() {
    let made = [route(&format!("vm-1____102441024____{MARK}"), "10.244.1.0/24", "10.0.0.1")];
    let begun =
        written(&made).status(201).header("azure-asyncoperation", OPERATION).header("retry-after", "10");
    let host = cloud(&json!({})).exchange(there(&[])).exchange(begun);
    let waits = InProgress { after: Duration::from_secs(10), resume: Some(OPERATION.to_owned()) };
    assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [Ok(waits.into())]);
    // Changes that wait for one operation ask for it once.
    let resumed = |number: u32| {
        let mut change = create(&format!("vm-{number}"), &format!("10.244.{number}.0/24"));
        change.resume = Some(OPERATION.to_owned());
        change
    };
    let poll =
        |status: &str| get(OPERATION).json(json!({"status": status, "error": {"code": "C", "message": "m"}}));
    let running = InProgress { after: Duration::from_secs(5), resume: Some(OPERATION.to_owned()) };
    let changes = [resumed(1), resumed(2)];
    let host = cloud(&json!({})).exchange(poll("InProgress"));
    assert_eq!(outcomes(&host, &changes), [Ok(running.clone().into()), Ok(running.into())]);
    for status in ["Failed", "Canceled"] {
        let host = cloud(&json!({})).exchange(poll(status));
        assert_eq!(
            outcomes(&host, &changes),
            [Err(ErrorKind::Unavailable(None)), Err(ErrorKind::Unavailable(None))]
        );
    }
    let host = cloud(&json!({})).exchange(poll("Succeeded")).exchange(there(&made));
    assert_eq!(outcomes(&host, &changes[..1]), [DONE]);
}

/// A write in the middle of an operation would cancel it; a table that failed is written again.
#[test]
fn a_busy_table_is_waited_for_and_a_failed_one_is_written_again() {
    let made = [route("vm-1____102441024", "10.244.1.0/24", "10.0.0.1")];
    let busy = || get(TABLE).json(table(&made, "Updating"));
    let changes = [
        create("vm-1", "10.244.1.0/24"),
        create("vm-2", "10.244.2.0/24"),
        delete("vm-1____102441024", "10.244.1.0/24"),
    ];
    assert_eq!(outcomes(&cloud(&json!({})).exchange(busy()), &changes[..2]), [SOON, SOON]);
    assert_eq!(outcomes(&cloud(&json!({})).exchange(busy()), &changes[2..]), [SOON]);
    for state in ["Failed", "Canceled"] {
        let host = cloud(&json!({})).exchange(get(TABLE).json(table(&made, state))).exchange(written(&made));
        assert_eq!(outcomes(&host, &changes[..1]), [DONE], "{state}");
    }
}

/// D18, section 5.5: a failed write is the outcome of its changes, a 412 reads again at once, and a lock is a conflict.
#[test]
fn a_refused_write_has_its_kind_and_a_lost_race_is_run_again() {
    let error = |code: &str| json!({"error": {"code": code, "message": "no"}});
    let rows = [
        (409, error("AnotherOperationInProgress"), ErrorKind::Conflict(None)),
        (
            429,
            json!({"error": {"code": "RetryableError", "details": [{"code": "ReferencedResourceNotProvisioned"}]}}),
            ErrorKind::Conflict(None),
        ),
        (409, error("ScopeLocked"), ErrorKind::Denied),
        (429, error("TooManyRequests"), ErrorKind::Throttled(None)),
        (403, error("AuthorizationFailed"), ErrorKind::Denied),
        (400, error("InvalidRequestFormat"), ErrorKind::Invalid),
        (500, error("InternalServerError"), ErrorKind::Unavailable(None)),
    ];
    for (status, refusal, expected) in rows {
        let host = cloud(&json!({})).exchange(there(&[])).exchange(put(TABLE).status(status).json(refusal));
        assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [Err(expected)], "{status}");
    }
    let other = route("vm-5____102445024", "10.244.5.0/24", "10.0.0.5");
    let made = route(&format!("vm-1____102441024____{MARK}"), "10.244.1.0/24", "10.0.0.1");
    let host = cloud(&json!({}))
        .exchange(there(&[]))
        .exchange(put(TABLE).status(412).json(error("PreconditionFailed")))
        .exchange(there(std::slice::from_ref(&other)))
        .exchange(written(&[other, made]));
    assert_eq!(outcomes(&host, &[create("vm-1", "10.244.1.0/24")]), [DONE]);
    assert_eq!(
        body(&host.requests()[3])["properties"]["routes"].as_array().unwrap().len(),
        2,
        "the other's route stays"
    );
}

/// Section 4: a table has at most 400 routes. What doesn't fit is refused by itself, and the rest is written.
#[test]
fn routes_that_do_not_fit_are_refused_and_the_others_are_made() {
    let full: Vec<_> = (0..399)
        .map(|n| route(&format!("x{n}"), &format!("10.1.{}.{}/32", n / 250, n % 250), "10.0.0.9"))
        .collect();
    let made = route(&format!("vm-1____102441024____{MARK}"), "10.244.1.0/24", "10.0.0.1");
    let after: Vec<_> = full.iter().cloned().chain([made]).collect();
    let host = cloud(&json!({})).exchange(there(&full)).exchange(written(&after));
    let changes = [create("vm-1", "10.244.1.0/24"), create("vm-2", "10.244.2.0/24")];
    assert_eq!(outcomes(&host, &changes), [DONE, Err(ErrorKind::Invalid)]);
    let host = cloud(&json!({"maximumRouteCount": 1000})).exchange(there(&after));
    assert_eq!(outcomes(&host, &changes[..1]), [DONE]);
}

/// Section 4, A5: an unmanaged Node needs no route, and one without an address of the family waits for it.
#[test]
fn unmanaged_nodes_need_no_route() {
    let mut unmanaged = wanted("vm-1", "10.244.1.0/24");
    unmanaged.labels = vec![(MANAGED.to_owned(), "false".to_owned())];
    let mut half = wanted("vm-2", "10.244.2.0/24");
    half.addresses.remove(0);
    let changes = [unmanaged, half].map(|route| change(RouteAction::Create(route)));
    assert_eq!(
        outcomes(&cloud(&json!({})), &changes),
        [Ok(RouteProgress::Elsewhere), Err(ErrorKind::Unavailable(None))]
    );
}

/// A name that would be too long has no mark, and without a known UID no name has one.
#[test]
fn a_mark_is_left_out_where_it_does_not_fit() {
    let long = format!("{}-1", "n".repeat(40));
    for (node, cluster, expected) in [
        (&*long, cluster(), format!("{long}____102441024")),
        ("vm-1", Cluster::default(), "vm-1____102441024".to_owned()),
    ] {
        let host = cloud(&json!({})).exchange(there(&[])).exchange(written(&[route(
            &expected,
            "10.244.1.0/24",
            "10.0.0.1",
        )]));
        let outcomes = host.change_routes::<Azure>(&cluster, &[create(node, "10.244.1.0/24")]).unwrap();
        assert_eq!(outcomes, [Ok(RouteProgress::Done)]);
        assert_eq!(body(&host.requests()[1])["properties"]["routes"][0]["name"], expected);
    }
}
