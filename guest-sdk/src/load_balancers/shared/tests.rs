#![expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::load_balancers::resource::tests::{Stage, TestResource, call, failed, resource, service, waits};
use crate::testing::{self, Exchange, Host};
use crate::{Ingress, ServiceAction};

const URL: &str = "http://cloud.test/shared";

/// A shared resource: the size of each part, and the status of the last operation.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Shared {
    sizes: BTreeMap<String, u32>,
    #[serde(default, skip_serializing)]
    is_running: bool,
    #[serde(default, skip_serializing)]
    has_failed: bool,
}

impl SharedResource<TestResource, u32> for Shared {
    fn status(&self, headers: &HeaderMap) -> Status {
        match (self.is_running, self.has_failed) {
            (true, _) => Stage::Running.status(headers),
            (_, true) => Stage::Failed.status(headers),
            _ => Status::Succeeded,
        }
    }

    fn has_part(&self, name: &str) -> bool {
        self.sizes.contains_key(name)
    }

    fn matches(&self, part: &Part<'_, TestResource, u32>) -> bool {
        self.sizes.get(part.name) == Some(part.desired)
    }

    fn add_part(&mut self, part: &Part<'_, TestResource, u32>) {
        assert_eq!(self.sizes.insert(part.name.to_owned(), part.resource.size), None);
    }

    fn remove_part(&mut self, name: &str) {
        self.sizes.remove(name);
    }

    fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }
}

fn there(exchange: Exchange, sizes: &[(&str, u32)], stage: Stage) -> Exchange {
    let sizes: BTreeMap<_, _> = sizes.iter().copied().collect();
    let (is_running, has_failed) = (stage == Stage::Running, stage == Stage::Failed);
    exchange
        .json(json!({"sizes": sizes, "is_running": is_running, "has_failed": has_failed}))
        .header("etag", "e")
}

fn read(sizes: &[(&str, u32)], stage: Stage) -> Exchange {
    there(testing::get(URL), sizes, stage)
}

fn put(sizes: &[(&str, u32)], stage: Stage) -> Exchange {
    there(testing::put(URL), sizes, stage).header("operation-location", "/7")
}

fn ensure(uid: &str) -> ServiceAction {
    ServiceAction::Ensure(service(uid))
}

fn remove(uid: &str) -> ServiceAction {
    ServiceAction::Delete(service(uid))
}

fn done(uid: &str) -> ServiceOutcome {
    Ok(ServiceProgress::done([Ingress::hostname(uid)]))
}

/// The outcomes of changes if each Service asks for size 2 and these resources are found.
fn reconcile(
    exchanges: Vec<Exchange>,
    changes: &[(ServiceAction, Option<&str>)],
    found: &[(&str, TestResource)],
) -> Vec<ServiceOutcome> {
    let host = exchanges.into_iter().fold(Host::new(), Host::exchange);
    let (call, found): (_, HashMap<_, _>) =
        (call(changes), found.iter().map(|(name, resource)| ((*name).to_owned(), Ok(*resource))).collect());
    let write = async |_: &str, size: &u32| Ok((resource(*size, Stage::Succeeded), HeaderMap::new()));
    host.run(async {
        let changes = call.resource_changes(&found, |_| Ok(2));
        let parts = update_parts(Document::<Shared>::read(URL).await.unwrap(), &changes).await;
        super::reconcile(&changes, parts, write, async |_: &str| Ok(Status::Succeeded)).await
    })
}

#[test]
fn the_own_resource_is_created_before_the_part() {
    let new = [(ensure("a"), None)];
    let resources = [None, Some(resource(1, Stage::Succeeded)), Some(resource(2, Stage::Running))];
    for resource in resources {
        let found: Vec<_> = resource.map(|resource| ("a", resource)).into_iter().collect();
        assert_eq!(
            reconcile(vec![read(&[], Stage::Succeeded)], &new, &found),
            [waits(WRITTEN)],
            "{resource:?}"
        );
    }
    let found = [("a", resource(2, Stage::Succeeded))];
    let other = Err(Error::conflict(format!(
        "{URL} isn't as it was written: others keep changing it, or the cloud changed what was written"
    )));
    let rows = [(Stage::Succeeded, done("a")), (Stage::Running, waits("shared /7")), (Stage::Failed, other)];
    for (becomes, expected) in rows {
        let exchanges = vec![read(&[("x", 1)], Stage::Succeeded), put(&[("x", 1), ("a", 2)], becomes)];
        assert_eq!(reconcile(exchanges, &new, &found), [expected], "{becomes:?}");
    }
}

#[test]
fn all_parts_of_a_call_are_one_write_and_matching_ones_are_done() {
    let changes = ["a", "b", "c"].map(|uid| (ensure(uid), None));
    let found = ["a", "b", "c"].map(|uid| (uid, resource(2, Stage::Succeeded)));
    let before = read(&[("a", 2), ("b", 1)], Stage::Succeeded);
    let exchanges = vec![before, put(&[("a", 2), ("b", 2), ("c", 2)], Stage::Running)];
    let outcomes = reconcile(exchanges, &changes, &found);
    assert_eq!(outcomes, [done("a"), waits("shared /7"), waits("shared /7")]);
}

#[test]
fn the_own_resource_is_deleted_after_the_part() {
    let (running, succeeded, gone) = (Stage::Running, Stage::Succeeded, || Ok(ServiceProgress::gone()));
    let found = [("a", resource(2, succeeded))];
    let has_part = || read(&[("a", 2), ("x", 1)], succeeded);
    let rows = [
        ("the part goes", None, vec![has_part(), put(&[("x", 1)], running)], waits("shared /7")),
        ("both go at once", None, vec![has_part(), put(&[("x", 1)], succeeded)], gone()),
        ("the write is in progress", Some("shared /7"), vec![read(&[("x", 1)], running)], waits("shared /7")),
        ("the write has succeeded", Some("shared"), vec![read(&[("x", 1)], succeeded)], gone()),
        ("the write has failed", Some("shared"), vec![read(&[("x", 1)], Stage::Failed)], failed(URL)),
        (
            "a note of another version is ignored",
            Some("frontend"),
            vec![read(&[("x", 1)], Stage::Failed), put(&[("x", 1)], running)],
            waits("shared /7"),
        ),
        ("it doesn't wait for a write for others", Some("deleted"), vec![read(&[("x", 1)], running)], gone()),
    ];
    for (name, note, exchanges, expected) in rows {
        assert_eq!(reconcile(exchanges, &[(remove("a"), note)], &found), [expected], "{name}");
    }
    let last =
        vec![read(&[("a", 2)], succeeded), testing::delete(URL).status(204), testing::get(URL).status(404)];
    assert_eq!(reconcile(last, &[(remove("a"), None)], &found), [gone()]);
}

#[test]
fn a_failure_is_reported_to_the_change_that_waited_and_the_write_retried_for_others() {
    let found = [("a", resource(2, Stage::Succeeded)), ("b", resource(2, Stage::Succeeded))];
    let changes = [(ensure("a"), Some("shared /7")), (ensure("b"), Some("shared"))];
    let before = read(&[("a", 2)], Stage::Failed);
    let outcomes = reconcile(vec![before, put(&[("a", 2), ("b", 2)], Stage::Running)], &changes, &found);
    assert_eq!(outcomes, [failed(URL), waits("shared /7")], "what b waited for is not seen");
}

#[test]
fn a_call_whose_changes_all_wait_for_the_document_ends_early() {
    let waiting = |notes: [Option<&str>; 2], status| {
        let [a, b] = notes;
        call(&[(ensure("a"), a), (remove("b"), b)]).waiting_outcomes(status)
    };
    let running = || Some(Status::running());
    let both = [Some("shared /7"), Some("shared")];
    assert_eq!(waiting(both, running()), Some(vec![waits("shared /7"), waits("shared")]));
    for (notes, status) in [
        (both, Some(Status::Succeeded)),
        (both, None),
        ([Some("shared"), Some("written")], running()),
        ([None, Some("shared")], running()),
    ] {
        assert_eq!(waiting(notes, status), None, "{notes:?}");
    }
}
