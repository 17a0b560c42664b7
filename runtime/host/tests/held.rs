//! What the host holds for a guest beside the guest's own memory: every way to make it hold more ends in a fault, and the
//! memory of the process stays bounded. The test is a program of its own because it measures its own memory.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the tests of the gate, which use all of it")]
#[path = "../../gate/tests/wire/cloud.rs"]
mod cloud;
#[expect(dead_code, reason = "shared with the tests of the sandbox, which use all of it")]
#[path = "sandbox/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cloud::{Answers, Cloud, NAME, Watched, rule};
use fixture::{configured, engine, guest, metrics, node};
use pileus_cloud::{Answer, Purpose};
use pileus_gate::{Effect, Fence};
use pileus_host::{Component, Error, Fault, Guest, Limits};
use pileus_loader::Verified;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// One test at a time, since all memory of the process is measured.
static MEASURING: Mutex<()> = Mutex::const_new(());

/// The memory of a call: what the host may hold, rounded up by the allocator, and the guest's own.
const OF_A_CALL: u64 = 160 << 20;

fn limits() -> Limits {
    let lookup = Duration::from_mins(1);
    Limits { cpu: Duration::from_secs(20), lookup_soft: lookup, lookup_hard: lookup, ..Limits::default() }
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Measures the most memory that this process has while the future runs, beyond what it had before.
async fn growth<T>(future: impl Future<Output = T>) -> (T, u64) {
    let before = resident();
    let (peak, is_over) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
    let sampler = {
        let (peak, is_over) = (Arc::clone(&peak), Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    };
    let result = future.await;
    is_over.store(true, Ordering::Relaxed);
    sampler.join().unwrap();
    (result, peak.load(Ordering::Relaxed).saturating_sub(before))
}

/// A cloud that reads nothing and never answers.
async fn silent() -> Cloud {
    Cloud::serving(|stream, _| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await
}

async fn hoarding(behaviour: &str, limits: Limits, cloud: &Cloud) -> Arc<Guest> {
    let attempt = json!({"method": "POST", "authority": format!("{NAME}:{}", cloud.port)});
    let configuration = json!({"behaviour": behaviour, "attempts": [attempt]}).to_string();
    // A lookup may send a POST that a rule calls a read.
    let (loopback, rules) = (Answers::new(&[&["127.0.0.1"]]), vec![rule("POST", "/**", Effect::Read)]);
    let gate = Watched::with(vec![cloud.grant()], loopback, rules, Fence::default()).gate;
    configured(&engine(), &configuration, gate, limits, &metrics()).await
}

async fn fault(guest: &Guest) -> Fault {
    guest.lookup_once(Purpose::Initialise, &[node("a")]).await.expect_err("the call is ended")
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_guest_makes_the_host_hold_ends_its_call_within_bounds() {
    let _alone = MEASURING.lock().await;
    let cloud = silent().await;
    for behaviour in ["heads", "field-sets", "field-copies", "unsent-bodies", "many-bodies"] {
        let guest = hoarding(behaviour, limits(), &cloud).await;
        let (fault, growth) = growth(fault(&guest)).await;
        println!("{behaviour}: {} MiB, {fault}", growth >> 20);
        let limit = limits().host_memory;
        assert!(
            matches!(fault, Fault::HostMemory { limit: found, wanted } if found == limit && wanted > limit),
            "{behaviour}: {fault:?}"
        );
        assert!(growth < OF_A_CALL, "{behaviour}: {} MiB", growth >> 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_calls_of_a_provider_together_are_bounded_too() {
    let _alone = MEASURING.lock().await;
    let cloud = silent().await;
    let whole = 96 << 20;
    let guest = hoarding("heads", Limits { provider_host_memory: whole, ..limits() }, &cloud).await;
    let calls = async {
        let mut calls = JoinSet::new();
        for _ in 0..8 {
            let guest = Arc::clone(&guest);
            calls.spawn(async move { fault(&guest).await });
        }
        calls.join_all().await
    };
    let (faults, growth) = growth(calls).await;
    println!("8 calls: {} MiB", growth >> 20);
    let is_of_whole = |fault: &&Fault| matches!(fault, Fault::HostMemory { limit, .. } if *limit == whole);
    assert!(faults.iter().any(|fault| is_of_whole(&fault)), "{faults:?}");
    assert!(faults.iter().all(|fault| matches!(fault, Fault::HostMemory { .. })), "{faults:?}");
    assert!(growth < 2 * whole as u64 + (64 << 20), "{} MiB", growth >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ended_holds_nothing_and_the_next_one_has_all() {
    let _alone = MEASURING.lock().await;
    let cloud = silent().await;
    let engine = engine();
    for limit in [None, Some(4 << 20)] {
        let limits = Limits {
            provider_host_memory: limit.unwrap_or(Limits::default().provider_host_memory),
            ..limits()
        };
        let configuration = json!({"behaviour": "heads", "only": "b"}).to_string();
        let gate = Watched::new(vec![cloud.grant()]).gate;
        let guest = configured(&engine, &configuration, gate, limits, &metrics()).await;
        for _ in 0..3 {
            let fault = guest.lookup_once(Purpose::Initialise, &[node("b")]).await.unwrap_err();
            assert!(matches!(fault, Fault::HostMemory { .. }), "{fault:?}");
            let answers = guest.lookup_once(Purpose::Initialise, &[node("a")]).await.unwrap().unwrap();
            assert!(matches!(answers.as_slice(), [Ok(Answer::Found(_))]), "{answers:?}");
        }
    }
}

/// The hostile provider whose `describe` does this, in five letters.
async fn describing(what: &str) -> Component {
    let mut bytes = guest("hostile_provider");
    let (text, wanted) = (b"hostile provider describes:quiet", what.as_bytes());
    let places: Vec<_> = bytes.windows(text.len()).enumerate().filter(|(_, part)| part == text).collect();
    let [(place, _)] = places[..] else { panic!("{} places", places.len()) };
    let word = bytes.get_mut(place + text.len() - wanted.len()..place + text.len()).unwrap();
    word.copy_from_slice(wanted);
    Component::load(&engine(), Verified::from_operator(bytes, "test")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_of_describe_and_configure_is_bounded() {
    let _alone = MEASURING.lock().await;
    for (what, is_expected) in [
        ("texts", (|fault| matches!(fault, Fault::Retained { .. })) as fn(&Fault) -> bool),
        ("items", |fault| matches!(fault, Fault::Retained { .. })),
        ("flood", |fault| matches!(fault, Fault::Exhausted(_))),
    ] {
        let component = describing(what).await;
        let (metrics, limits) = (metrics(), limits());
        let (described, growth) = growth(component.describe(&limits, &metrics)).await;
        let Err(Error::Info { function: "describe", fault }) = described else { panic!("{described:?}") };
        assert!(is_expected(&fault), "{what}: {fault:?}");
        println!("{what}: {} MiB, {fault}", growth >> 20);
        assert!(growth < OF_A_CALL, "{what}: {} MiB", growth >> 20);
    }
    let component = describing("quiet").await;
    assert!(component.describe(&limits(), &metrics()).await.is_ok());
    for behaviour in ["huge-settings", "huge-problems"] {
        let document = json!({"behaviour": behaviour}).to_string();
        let configured = component.configure(&document, &limits(), &metrics()).await;
        let Err(Error::Info { function: "configure", fault }) = configured else { panic!("{behaviour}") };
        assert!(matches!(fault, Fault::Retained { .. }), "{behaviour}: {fault:?}");
    }
}
