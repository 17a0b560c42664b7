//! A load balancer at Azure's own ceiling: 500 frontends, 1,500 rules and 5,000 members, 8.9 MB as the cloud sends it. 100
//! changes edit it with one write, within the memory that a call has by default. An allocator counts the memory.

#![expect(clippy::unwrap_used, unsafe_code, reason = "a test fails by panicking, and an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use pileus_guest::http::Raw;
use pileus_guest::operation::Status;
use pileus_guest::testing::{self, Host};
use pileus_guest::{
    Service, ServiceAction, ServiceCall, ServiceChange, ServiceProgress, SharedDocument, Steps, Task,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// The memory of a call by default.
const MEMORY: usize = 64 << 20;

struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it passes everything on to the system's allocator, and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The load balancer. Members that it doesn't know stay text, and so do rules that no change is about.
#[derive(Debug, Default)]
struct Balancer {
    rest: Raw,
    /// The rules by name.
    rules: BTreeMap<String, Raw>,
}

impl<'de> Deserialize<'de> for Balancer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut rest = Raw::deserialize(deserializer)?;
        // Only the cloud decides them.
        rest.remove("members");
        let rules: Vec<Raw> = rest.take("rules").map_err(D::Error::custom)?.unwrap_or_default();
        let named = |rule: Raw| Ok((rule.get("name").map_err(D::Error::custom)?.unwrap_or_default(), rule));
        Ok(Self { rest, rules: rules.into_iter().map(named).collect::<Result<_, D::Error>>()? })
    }
}

impl Serialize for Balancer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = self.rest.clone();
        let rules: Vec<_> = self.rules.values().collect();
        all.set("rules", &rules).map_err(serde::ser::Error::custom)?;
        all.serialize(serializer)
    }
}

impl SharedDocument<u16> for Balancer {
    fn status(&self) -> Status {
        Status::Succeeded
    }

    fn matches(&self, task: &Task<'_, u16>) -> bool {
        let rule = self.rules.get(task.uid());
        rule.and_then(|rule| rule.get("port").ok()?) == task.desired
    }

    fn apply(&mut self, task: &Task<'_, u16>) {
        let rule = self.rules.entry(task.uid().to_owned()).or_default();
        let set = rule.set("name", &task.uid()).and_then(|()| rule.set("port", &task.desired));
        assert_eq!(set, Ok(()));
    }
}

/// The document as it is written, and its members.
fn document() -> (Vec<u8>, Vec<u8>) {
    let id = |kind: &str, name: &str| {
        format!(
            "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/cluster/providers/Microsoft.Network/{kind}/{name}"
        )
    };
    let filler = |size: usize| "x".repeat(size);
    let frontends: Vec<_> = (0..500)
        .map(|number| json!({"id": id("frontends", &number.to_string()), "text": filler(2_200)}))
        .collect();
    let rules: Vec<_> = (0..1_500)
        .map(|number| json!({"name": format!("rule-{number}"), "port": 80, "id": id("rules", &number.to_string()), "text": filler(800), "unknown": {"to": ["this", "provider"]}}))
        .collect();
    let members: Vec<_> = (0..5_000)
        .map(|number| json!({"id": id("networkInterfaces", &number.to_string()), "text": filler(1_105)}))
        .collect();
    let written = json!({"name": "kubernetes", "etag": "\"1\"", "frontends": frontends, "rules": rules});
    (serde_json::to_vec(&written).unwrap(), serde_json::to_vec(&members).unwrap())
}

/// The document with the members that only the cloud decides.
fn with_members(document: &[u8], members: &[u8]) -> Vec<u8> {
    let (body, end) = document.split_at(document.len() - 1);
    [body, b",\"members\":", members, end].concat()
}

#[test]
fn a_hundred_changes_of_a_document_of_nine_megabytes_are_one_write_within_the_default_memory() {
    let url = "http://cloud.test/balancer";
    let change = |number: u32| {
        let service = Service { uid: format!("rule-{}", number * 5), ..Service::default() };
        ServiceChange::from(ServiceAction::Ensure(service))
    };
    let call = ServiceCall { changes: (0..100).map(change).collect(), ..ServiceCall::default() };
    let (mut document, members) = document();
    let size = with_members(&document, &members).len();
    assert!((8_800_000..9_000_000).contains(&size), "{size}");
    let host = Host::new().cloud(move |sent| {
        if sent.method == "PUT" {
            document.clone_from(&sent.body);
        }
        testing::get("").body(with_members(&document, &members)).header("etag", "\"1\"")
    });
    // What the cloud holds isn't the call's memory. Its responses are.
    let used = USED.load(Ordering::Relaxed);
    MOST.store(used, Ordering::Relaxed);
    let outcomes = host.run(async {
        let mut steps = Steps::new(&call, &["balancer"], |_| Ok(443));
        steps.document::<Balancer>("balancer", url, |_| true).await;
        steps.outcomes()
    });
    let most = MOST.load(Ordering::Relaxed) - used;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(ServiceProgress::gone())), "{outcomes:?}");
    let [_, write] = host.requests().try_into().unwrap();
    let written: Value = serde_json::from_slice(&write.body).unwrap();
    let ports = written["rules"].as_array().unwrap().iter().filter(|rule| rule["port"] == 443);
    assert_eq!((ports.count(), written["rules"][7]["unknown"]["to"][0].as_str()), (100, Some("this")));
    println!("{size} bytes were edited and {} written with {most} bytes of memory at most", write.body.len());
    assert!(most < MEMORY, "{most}");
}
