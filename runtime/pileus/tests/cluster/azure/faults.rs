//! The faults that the resource manager has, with its own codes: Pileus recovers from each by itself, and no Node is lost.

use http::Method;
use pileus_dev::nodes::{await_absence, node};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::cloud::Cloud;
use super::nodes::AGE;
use super::{give_range, has_routes, initialised, passes, range, start, world};
use crate::SOON;
use crate::node::set_ready;
use crate::world::{Run, World};

const TABLE: &str = "Microsoft.Network/routeTables/";
const MACHINES: &str = "Microsoft.Compute/";

/// An answer to the next requests of a method to a path.
fn script(method: &str, path: &str, times: u32, status: u16, code: &str) -> Value {
    json!({"method": method, "path": path, "times": times, "status": status, "code": code, "message": "by the test"})
}

/// Whether a request to a path was answered so.
fn is(request: &Value, method: &str, path: &str, code: &str) -> bool {
    let is_there = request["path"].as_str().unwrap().contains(path);
    is_there && request["method"] == method && request["code"] == code
}

fn at(request: &Value) -> u64 {
    request["atMs"].as_u64().unwrap()
}

/// Gives the Node of this number its range, and waits until its route is there and it says so.
async fn gets_route(world: &World, cloud: &Cloud, names: &[String], number: usize) {
    give_range(world, &names[number], number).await;
    has_routes(world, &names[number]).await;
    let ranges: Vec<_> = (0..=number).map(range).collect();
    cloud.routes_are(&ranges).await;
}

/// Meets each fault of writes with a Node of its own. Returns how many Nodes that were.
async fn writes_meet_faults(world: &World, cloud: &Cloud, names: &[String]) -> usize {
    let mut number = 0;
    let mut next = async || {
        gets_route(world, cloud, names, number).await;
        number += 1;
    };
    next().await;

    // Refusals, each met by one write or two.
    let mut throttled = script("PUT", TABLE, 1, 429, "SubscriptionRequestsThrottled");
    throttled["headers"] = json!({"retry-after": "3"});
    let mut locked = script("PUT", TABLE, 1, 429, "RetryableError");
    locked["headers"] = json!({"retry-after": "2"});
    let refusals = [
        throttled,
        locked,
        script("PUT", TABLE, 2, 409, "AnotherOperationInProgress"),
        script("PUT", TABLE, 2, 412, "PreconditionFailed"),
        script("PUT", TABLE, 1, 500, "InternalServerError"),
    ];
    for refusal in refusals {
        let before = cloud.now().await;
        let code = refusal["code"].as_str().unwrap().to_owned();
        cloud.script(&json!([refusal])).await;
        next().await;
        let journal = cloud.journal(before).await;
        let refused = journal.iter().find(|request| is(request, "PUT", TABLE, &code)).unwrap();
        let done =
            journal.iter().find(|request| request["method"] == "PUT" && request["status"] == 200).unwrap();
        let least =
            refusal["headers"]["retry-after"].as_str().map_or(0, |text| text.parse::<u64>().unwrap() * 1_000);
        assert!(at(done) >= at(refused) + least, "{code}: {journal:#?}");
    }

    // The table changes between each read and write.
    cloud.set_faults(&json!({"preconditions": {"next": 2}})).await;
    let before = cloud.now().await;
    next().await;
    let lost_races = cloud.writes(before).await.iter().filter(|write| write["status"] == 412).count();
    assert_eq!(lost_races, 2);

    // Operations that don't succeed. Azure names the reason only to those who ask for the operation.
    for is_canceled in [false, true] {
        let operations = json!({"cancel": is_canceled, "failure": ["InternalServerError", "by the test"]});
        cloud.admin(Method::PUT, "behavior", &json!({"operations": operations})).await;
        cloud.set_faults(&json!({"operations": {"takesMs": 300, "lateFailures": {"next": 1}}})).await;
        let before = cloud.now().await;
        next().await;
        assert_eq!(cloud.writes(before).await.len(), 2, "canceled: {is_canceled}");
    }

    // Answers that come late, and one that never comes.
    cloud.set_faults(&json!({"latency": {"fixedMs": 2_000}})).await;
    next().await;
    cloud.set_faults(&json!({"lost": {"next": 1}})).await;
    next().await;
    cloud.set_faults(&json!({})).await;
    number
}

/// Another client holds the table while Pileus wants to write it, and refuses in each way that Azure has.
async fn writes_wait_for_others(world: &World, cloud: &Cloud, names: &[String], first: usize) {
    let mut ranges: Vec<_> = (0..first).map(range).collect();
    for (number, concurrent) in (first..).zip(["conflict", "busy", "retryable", "supersede"]) {
        cloud.admin(Method::PUT, "behavior", &json!({"concurrent": concurrent})).await;
        cloud.set_faults(&json!({"operations": {"takesMs": 2_000}})).await;
        let foreign = format!("192.168.{number}.0/24");
        cloud.put_route(&format!("firewall-{number}"), &foreign, "10.9.0.4").await;
        give_range(world, &names[number], number).await;
        has_routes(world, &names[number]).await;
        ranges.extend([range(number), foreign]);
        cloud.routes_are(&ranges).await;
    }
    cloud.admin(Method::DELETE, "behavior", &Value::Null).await;
    cloud.set_faults(&json!({})).await;
}

/// Meets each fault of reads while all Nodes are not ready, so that all are looked up each second.
async fn reads_meet_faults(cloud: &Cloud, run: &Run) {
    let mut throttled = script("GET", MACHINES, 1, 429, "SubscriptionRequestsThrottled");
    throttled["headers"] = json!({"retry-after": "2"});
    let empty = json!({"method": "GET", "path": "/virtualMachines", "times": 4, "status": 200, "body": {"value": []}});
    let answers = [
        throttled,
        script("GET", MACHINES, 3, 404, "ResourceGroupNotFound"),
        script("GET", MACHINES, 3, 500, "InternalServerError"),
        script("GET", MACHINES, 3, 503, "ServerTimeout"),
        json!({"method": "GET", "path": MACHINES, "times": 3, "status": 200}),
        // Lists without any machine. A read of a machine by itself contradicts them.
        empty,
    ];
    for answer in answers {
        let is_throttled = answer["status"] == 429;
        let before = cloud.now().await;
        cloud.script(&json!([answer])).await;
        cloud.scripts_end().await;
        passes(run, 2).await;
        if is_throttled {
            let journal = cloud.journal(before).await;
            let refused = journal.iter().find(|request| request["status"] == 429).unwrap();
            // One refusal pauses what was refused alone.
            let early = |request: &&Value| {
                request["path"] == refused["path"]
                    && at(request) > at(refused)
                    && at(request) < at(refused) + 2_000
            };
            assert_eq!(journal.iter().find(early), None, "{journal:#?}");
        }
    }
    for faults in [
        json!({"latency": {"fixedMs": 3_000, "kinds": ["list", "get"]}}),
        json!({"cut": {"next": 2, "kinds": ["list", "get"]}}),
        json!({"lost": {"next": 2, "kinds": ["list", "get"]}}),
    ] {
        cloud.set_faults(&faults).await;
        passes(run, 2).await;
    }
    cloud.set_faults(&json!({})).await;
}

#[tokio::test]
async fn pileus_recovers_from_each_fault_and_no_node_is_lost() {
    let (world, cloud) = tokio::join!(world(), Cloud::start());
    let mut names = cloud.create("uniform", 16, "pool").await;
    names.extend(cloud.create("standalone", 1, "alone").await);
    let run = start(&world, &cloud.document()).await;
    world.register(names.iter().map(|name| node(name))).await;
    for name in &names {
        initialised(&world, name).await;
    }
    let registered = Instant::now();
    let number = writes_meet_faults(&world, &cloud, &names).await;
    writes_wait_for_others(&world, &cloud, &names, number).await;
    time::sleep_until(registered + AGE).await;

    // The last one keeps apart, because a Node whose list was wrong isn't looked up for a minute.
    for name in names.iter().filter(|name| *name != &names[15]) {
        set_ready(&world.client, name, "False").await;
    }
    passes(&run, 2).await;
    reads_meet_faults(&cloud, &run).await;
    assert_eq!(world.nodes().await.len(), names.len());

    // A new machine isn't shown for some seconds, to lists and to reads.
    let new = cloud.create("flexible", 1, "new").await.remove(0);
    cloud.admin(Method::PUT, "behavior", &json!({"lagMs": 3_000})).await;
    world.register([node(&new)]).await;
    initialised(&world, &new).await;
    cloud.admin(Method::DELETE, "behavior", &Value::Null).await;
    // And a machine that goes takes its Node along, as before.
    cloud.act(&names[15], "delete").await;
    set_ready(&world.client, &names[15], "False").await;
    await_absence(&world.client, &names[15], SOON).await.unwrap();
    assert_eq!(world.nodes().await.len(), names.len(), "one came and one went");
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
