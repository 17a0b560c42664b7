//! The resource manager itself: IDs, versions, groups, pages, etags, operations, locks, consistency.

use serde_json::{Value, json};

use super::super::*;
use super::fixture::{Fixture, GROUP, code, id, seconds};
use crate::seed::NewNodes;

fn table() -> Value {
    json!({"location": "eastus"})
}

#[test]
fn what_is_not_there_has_the_codes_of_azure() {
    let base = "/subscriptions/sub/resourceGroups";
    let rows = [
        ("routeTables/none", "404 ResourceNotFound", true),
        ("virtualMachines/none", "404 ResourceNotFound", true),
        ("virtualNetworks/none/subnets/a", "404 ResourceNotFound", true),
        ("virtualMachineScaleSets/none/virtualMachines", "404 ParentResourceNotFound", true),
        ("virtualMachineScaleSets/none/virtualMachines/0", "404 ParentResourceNotFound", true),
        ("virtualMachineScaleSets/none/virtualMachines/x", "400 InvalidParameter", false),
        ("routeTables/none?api-version=2015-01-01", "400 NoRegisteredProviderFound", true),
        ("routeTables/none?api-version=latest", "400 InvalidApiVersionParameter", true),
        ("routeTables/none?api-version=", "400 MissingApiVersionParameter", true),
        ("virtualMachineScaleSets/s/networkInterfaces", "400 NoRegisteredProviderFound", true),
        ("cats", "404 InvalidResourceType", true),
        (
            &format!("{base}/none/providers/Microsoft.Network/routeTables?api-version=2025-05-01"),
            "404 ResourceGroupNotFound",
            true,
        ),
        (
            &format!("{base}/nodes/providers/Microsoft.Cats/cats?api-version=2025-05-01"),
            "404 InvalidResourceNamespace",
            true,
        ),
        ("/subscriptions/other/resourceGroups/g?api-version=2021-04-01", "404 SubscriptionNotFound", false),
        (&format!("{base}/none?api-version=2021-04-01"), "404 ResourceGroupNotFound", true),
    ];
    for (path, expected, is_of_gateway) in rows {
        let response = Fixture::new().get(path);
        assert_eq!(code(&response), expected, "{path}");
        assert_eq!(response.header("x-ms-failure-cause").is_some(), is_of_gateway, "{path}");
    }
    let mut it = Fixture::new();
    it.network();
    let missing = it.get("virtualNetworks/v/subnets/none");
    assert_eq!((code(&missing).as_str(), missing.header("x-ms-failure-cause")), ("404 NotFound", None));
}

#[test]
fn ids_are_found_in_any_case_and_shown_as_they_were_written_first() {
    let mut it = Fixture::new();
    it.put("routeTables/Table", &table());
    let path = "/SUBSCRIPTIONS/SUB/resourcegroups/NODES/PROVIDERS/microsoft.network/ROUTETABLES/tABLE?API-VERSION=2025-05-01";
    let found = it.get(path);
    assert_eq!(found.status, 200);
    assert_eq!(found.body.unwrap()["id"], id("routeTables/Table"));
    let again = it.put("routeTables/TABLE", &table());
    assert_eq!((again.status, again.body.unwrap()["name"].as_str()), (200, Some("Table")));
}

#[test]
fn a_page_ends_at_the_size_and_names_the_next_one_in_either_spelling() {
    for spelling in ["%24skiptoken", "$skipToken"] {
        let (mut it, _) = Fixture::nodes(NewNodes { count: 7, ..NewNodes::default() });
        let behavior = Behavior { page_size: 3, skip_token: spelling.to_owned(), ..Behavior::default() };
        it.state.set_behavior(behavior).unwrap();
        let path = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines?$expand=instanceView";
        let first = it.get(path).body.unwrap();
        let link = first["nextLink"].as_str().unwrap();
        assert!(link.contains(spelling) && link.contains("%24expand=instanceView"), "{link}");
        let (all, pages) = it.list(path);
        assert_eq!((all.len(), pages), (7, 3));
        assert!(
            all.iter().all(|machine| machine["properties"]["instanceView"].is_object()),
            "the expansion is kept"
        );
        let (interfaces, pages) =
            it.list("virtualMachineScaleSets/aks-nodes0-vmss/networkInterfaces?api-version=2018-10-01");
        assert_eq!((interfaces.len(), pages), (7, 3));
    }
    assert_eq!(code(&Fixture::new().get("routeTables?$skiptoken=!")), "400 InvalidParameter");
}

#[test]
fn a_precondition_is_compared_with_the_etag_of_the_body() {
    let mut it = Fixture::new();
    let created = it.put("routeTables/t", &table());
    let etag = created.body.as_ref().unwrap()["etag"].as_str().unwrap().to_owned();
    assert_eq!(created.header("etag"), None, "the network provider has it only in the body of a PUT");
    assert_eq!(it.get("routeTables/t").header("etag"), Some(etag.as_str()));
    let rows = [
        ("if-match", "W/\"stale\"", "412 PreconditionFailed (PreconditionFailedEtagMismatch)"),
        ("if-none-match", "*", "412 PreconditionFailed (PreconditionFailedEtagMismatch)"),
        ("if-match", "*", "200"),
    ];
    for (name, value, expected) in rows {
        let response = it.call(Method::PUT, "routeTables/t", &[(name, value)], &table());
        assert_eq!(code(&response), expected, "{name}: {value}");
    }
    let current = it.get("routeTables/t").body.unwrap()["etag"].as_str().unwrap().to_owned();
    assert_ne!(current, etag);
    assert_eq!(it.call(Method::PUT, "routeTables/t", &[("if-match", &current)], &table()).status, 200);
    assert_eq!(it.call(Method::PUT, "routeTables/new", &[("if-match", &current)], &table()).status, 412);
    it.state.set_behavior(Behavior { ignore_if_none_match: true, ..Behavior::default() }).unwrap();
    assert_eq!(it.call(Method::PUT, "routeTables/t", &[("if-none-match", "*")], &table()).status, 200);

    let (mut it, _) = Fixture::nodes(NewNodes { count: 1, ..NewNodes::default() });
    let path = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0";
    let response = it.call(Method::PUT, path, &[("if-match", "\"7\"")], &json!({"tags": {}}));
    assert_eq!(code(&response), "412 PreconditionFailed");
    assert!(response.body.unwrap()["error"].get("details").is_none(), "the compute provider has no details");
    assert_eq!(it.call(Method::PUT, path, &[("if-match", "\"1\"")], &json!({"tags": {}})).status, 200);
}

#[test]
fn a_write_that_is_preempted_finds_another_etag() {
    let mut it = Fixture::new();
    it.put("routeTables/t", &table());
    let etag = it.get("routeTables/t").body.unwrap()["etag"].as_str().unwrap().to_owned();
    it.faults.is_preempted = true;
    assert_eq!(it.call(Method::PUT, "routeTables/t", &[("if-match", &etag)], &table()).status, 412);
    assert_ne!(it.get("routeTables/t").body.unwrap()["etag"], etag);
}

fn poll(it: &mut Fixture, url: &str) -> Response {
    it.get(url.strip_prefix("https://arm").unwrap())
}

#[test]
fn an_operation_is_in_progress_until_its_end() {
    let mut it = Fixture::new();
    it.faults.takes = seconds(10);
    let created = it.put("routeTables/t", &table());
    assert_eq!((created.status, created.header("retry-after")), (201, Some("1")));
    assert_eq!(created.body.as_ref().unwrap()["properties"]["provisioningState"], "Updating");
    let url = created.header("azure-asyncoperation").unwrap().to_owned();
    let running = poll(&mut it, &url);
    assert_eq!(
        (running.body.as_ref().unwrap()["status"].as_str(), running.header("retry-after")),
        (Some("InProgress"), Some("1"))
    );
    let result = url.replace("/operations/", "/operationResults/");
    assert_eq!(poll(&mut it, &result).status, 202);
    it.now = seconds(10);
    assert_eq!(poll(&mut it, &url).body.unwrap(), json!({"status": "Succeeded"}));
    assert_eq!(poll(&mut it, &result).body.unwrap()["name"], "t");
    assert_eq!(it.get("routeTables/t").body.unwrap()["properties"]["provisioningState"], "Succeeded");
    let unsigned = url.split('&').next().unwrap().to_owned();
    assert_eq!(poll(&mut it, &unsigned).status, 400, "the signature of the address is needed");
}

#[test]
fn an_operation_that_fails_or_is_canceled_says_so_and_leaves_its_state() {
    for (cancel, status, state) in [(false, "Failed", "Failed"), (true, "Canceled", "Canceled")] {
        let mut it = Fixture::new();
        let operations = Operations { cancel, ..Operations::default() };
        it.state.set_behavior(Behavior { operations, ..Behavior::default() }).unwrap();
        it.faults.fails = true;
        let created = it.put("routeTables/t", &table());
        let ended = poll(&mut it, created.header("azure-asyncoperation").unwrap()).body.unwrap();
        assert_eq!(ended["status"], status);
        assert!(ended["error"]["code"].is_string(), "{ended}");
        assert_eq!(it.get("routeTables/t").body.unwrap()["properties"]["provisioningState"], state);
    }
}

#[test]
fn a_load_balancer_says_succeeded_and_names_an_operation() {
    let mut it = Fixture::new();
    it.faults.takes = seconds(10);
    let created = it.put("loadBalancers/b", &json!({"location": "eastus", "sku": {"name": "Standard"}}));
    assert_eq!(created.body.as_ref().unwrap()["properties"]["provisioningState"], "Succeeded");
    let url = created.header("azure-asyncoperation").unwrap().to_owned();
    assert_eq!(poll(&mut it, &url).body.unwrap()["status"], "InProgress");
}

#[test]
fn a_deletion_has_an_operation_of_both_kinds_and_may_say_200() {
    for (with_ok, status) in [(false, 202), (true, 200)] {
        let mut it = Fixture::new();
        let operations = Operations { delete_with_ok: with_ok, ..Operations::default() };
        it.state.set_behavior(Behavior { operations, ..Behavior::default() }).unwrap();
        it.put("routeTables/t", &table());
        it.faults.takes = seconds(10);
        let deleted = it.delete("routeTables/t");
        assert_eq!(deleted.status, status);
        assert_eq!(it.get("routeTables/t").body.unwrap()["properties"]["provisioningState"], "Deleting");
        let location = deleted.header("location").unwrap().to_owned();
        assert_eq!(poll(&mut it, &location).status, 202);
        it.now = seconds(10);
        assert_eq!(poll(&mut it, &location).status, 204);
        assert_eq!(
            poll(&mut it, deleted.header("azure-asyncoperation").unwrap()).body.unwrap()["status"],
            "Succeeded"
        );
        assert_eq!(it.get("routeTables/t").status, 404);
        assert_eq!(it.delete("routeTables/t").status, 204);
    }
}

#[test]
fn only_a_location_can_name_an_operation() {
    let mut it = Fixture::new();
    let operations = Operations { style: Style::Location, ..Operations::default() };
    it.state.set_behavior(Behavior { operations, ..Behavior::default() }).unwrap();
    it.faults.takes = seconds(10);
    let created = it.put("routeTables/t", &table());
    assert_eq!((created.status, created.header("azure-asyncoperation"), &created.body), (202, None, &None));
    let location = created.header("location").unwrap().to_owned();
    assert_eq!(poll(&mut it, &location).status, 202);
    it.now = seconds(10);
    let ended = poll(&mut it, &location);
    assert_eq!((ended.status, ended.body.unwrap()["name"].as_str()), (200, Some("t")));
}

#[test]
fn a_write_meets_a_running_operation_as_it_is_set() {
    let rows = [
        (Concurrent::Conflict, "409 AnotherOperationInProgress", None),
        (Concurrent::Busy, "429 AnotherOperationInProgress", Some("10")),
        (Concurrent::Retryable, "429 RetryableError (RetryableErrorDueToAnotherOperation)", Some("10")),
        (Concurrent::Supersede, "200", Some("1")),
    ];
    for (concurrent, expected, retry_after) in rows {
        let mut it = Fixture::new();
        it.state.set_behavior(Behavior { concurrent, ..Behavior::default() }).unwrap();
        it.faults.takes = seconds(10);
        let first = it.put("routeTables/t", &table());
        let second = it.put("routeTables/t", &table());
        assert_eq!(code(&second), expected);
        assert_eq!(second.header("retry-after"), retry_after, "{expected}");
        if concurrent == Concurrent::Supersede {
            let ended = poll(&mut it, first.header("azure-asyncoperation").unwrap()).body.unwrap();
            assert_eq!(ended["status"], "Canceled");
            assert_eq!(ended["error"]["code"], "CanceledAndSupersededDueToAnotherOperation");
        }
    }
    let (mut it, _) = Fixture::nodes(NewNodes { count: 1, ..NewNodes::default() });
    it.faults.takes = seconds(10);
    let path = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0";
    it.put(path, &json!({}));
    assert_eq!(code(&it.put(path, &json!({}))), "409 Conflict");
}

#[test]
fn a_lock_hinders_writes_or_deletions_of_all_below_its_scope() {
    let lock = format!("{GROUP}/providers/Microsoft.Authorization/locks/l?api-version=2016-09-01");
    for (level, put, delete) in
        [("CanNotDelete", "200", "409 ScopeLocked"), ("ReadOnly", "409 ScopeLocked", "409 ScopeLocked")]
    {
        let mut it = Fixture::new();
        it.put("routeTables/t", &table());
        assert_eq!(it.put(&lock, &json!({"properties": {"level": level}})).status, 201);
        assert_eq!(code(&it.put("routeTables/t", &table())), put, "{level}");
        assert_eq!(code(&it.delete("routeTables/t")), delete, "{level}");
        assert_eq!(code(&it.delete(&format!("{GROUP}?api-version=2021-04-01"))), "409 ScopeLocked");
        assert_eq!(it.delete(&lock).status, 200);
        assert_eq!(it.delete("routeTables/t").status, 202);
    }
}

#[test]
fn eventual_consistency_shows_former_states_until_the_lag_is_over() {
    for lists_only in [false, true] {
        let mut it = Fixture::new();
        it.state
            .set_behavior(Behavior { lag_ms: 5_000, lag_lists_only: lists_only, ..Behavior::default() })
            .unwrap();
        it.now = seconds(100);
        it.put("routeTables/t", &table());
        let seen = |it: &mut Fixture| (it.get("routeTables/t").status, it.list("routeTables").0.len());
        assert_eq!(seen(&mut it), (if lists_only { 200 } else { 404 }, 0), "lists only: {lists_only}");
        it.now = seconds(105);
        assert_eq!(seen(&mut it), (200, 1));
        it.delete("routeTables/t");
        assert_eq!(seen(&mut it), (if lists_only { 404 } else { 200 }, 1), "lists only: {lists_only}");
        it.now = seconds(111);
        assert_eq!(seen(&mut it), (404, 0));
    }
}

#[test]
fn a_reference_to_what_is_not_visible_yet_is_refused_as_if_it_did_not_exist() {
    let mut it = Fixture::new();
    it.state.set_behavior(Behavior { lag_ms: 5_000, ..Behavior::default() }).unwrap();
    it.now = seconds(100);
    let subnet = it.network();
    let body = json!({"location": "eastus", "properties": {"ipConfigurations": [{"name": "i", "properties": {"subnet": {"id": subnet}}}]}});
    assert_eq!(code(&it.put("networkInterfaces/n", &body)), "400 InvalidResourceReference");
    it.now = seconds(105);
    assert_eq!(code(&it.put("networkInterfaces/n", &body)), "201");
}

#[test]
fn groups_are_created_and_deleted_with_all_that_is_in_them() {
    let mut it = Fixture::new();
    let path = "/subscriptions/sub/resourcegroups/Other?api-version=2021-04-01";
    assert_eq!(it.put(path, &json!({"location": "eastus"})).status, 201);
    assert_eq!(it.put(path, &json!({"location": "eastus"})).status, 200);
    assert_eq!(code(&it.put(path, &json!({"location": "westeurope"}))), "409 InvalidResourceGroupLocation");
    assert_eq!(code(&it.put(path, &json!({}))), "400 LocationRequired");
    let table_path = "/subscriptions/sub/resourceGroups/other/providers/Microsoft.Network/routeTables/t?api-version=2025-05-01";
    assert_eq!(it.put(table_path, &table()).status, 201);
    it.faults.takes = seconds(10);
    let deleted = it.delete(path);
    assert_eq!(deleted.status, 202);
    assert_eq!(code(&it.put(table_path, &table())), "409 ResourceGroupBeingDeleted");
    let location = deleted.header("location").unwrap().to_owned();
    assert_eq!(poll(&mut it, &location).status, 202);
    it.now = seconds(10);
    assert_eq!(poll(&mut it, &location).status, 200);
    assert_eq!(code(&it.get(table_path)), "404 ResourceGroupNotFound");
}

#[test]
fn bodies_are_checked_before_anything_else_of_their_type() {
    let rows = [
        ("routeTables/t", json!({}), "400 LocationRequired"),
        ("routeTables/t", json!({"location": "moon"}), "400 LocationNotAvailableForResourceType"),
        ("routeTables/t", json!([]), "400 InvalidRequestContent"),
        ("routeTables/-t", table(), "400 InvalidResourceName"),
        ("routeTables/known", json!({"location": "westeurope"}), "409 InvalidResourceLocation"),
        ("routeTables/known", json!({"location": "East US"}), "200"),
        ("routeTables", table(), "405 MethodNotAllowed"),
        ("virtualNetworks/none/subnets/a", json!({}), "404 ParentResourceNotFound"),
    ];
    for (path, body, expected) in rows {
        let mut it = Fixture::new();
        it.put("routeTables/known", &table());
        assert_eq!(code(&it.put(path, &body)), expected, "{path} {body}");
    }
}

#[test]
fn a_script_answers_the_next_matching_requests() {
    let mut it = Fixture::new();
    let scripts = json!([{
        "method": "PUT", "path": "routetables/", "skip": 1, "times": 2, "status": 429, "code": "RetryableError", "headers": {"Retry-After": "7"},
    }]);
    it.state.set_scripts(serde_json::from_value(scripts).unwrap());
    let seen: Vec<_> = (0..4).map(|_| code(&it.put("routeTables/t", &table()))).collect();
    assert_eq!(seen, ["201", "429 RetryableError", "429 RetryableError", "200"]);
    assert_eq!(
        it.state.journal(1).filter(|entry| entry.code.as_deref() == Some("RetryableError")).count(),
        2
    );
}

#[test]
fn the_providers_name_zones_and_versions() {
    let mut it = Fixture::new();
    let body = it.get("/subscriptions/sub/providers/Microsoft.Compute?api-version=2021-04-01").body.unwrap();
    let machines = body["resourceTypes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["resourceType"] == "virtualMachines")
        .unwrap();
    assert_eq!(machines["zoneMappings"][0], json!({"location": "East US", "zones": ["1", "2", "3"]}));
    let subscriptions = it.get("/subscriptions?api-version=2021-04-01").body.unwrap();
    assert_eq!(subscriptions["value"][0]["tenantId"], "tenant");
}
