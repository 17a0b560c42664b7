//! One call to a component: a slot, a fresh store, an instance, the function, and what became of it.
//!
//! Three clocks watch it, because none stops everything: epochs stop a guest that computes, the hard deadline stops one
//! that waits, and the gate stops what a request of it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span, error_span};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::component::Component;
use crate::egress::{Denial, Egress};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::sandbox::{Call, Sandbox};
use pileus_gate::{Gate, Urgency};

/// Who calls what, and within which bounds.
pub(crate) struct Terms {
    pub(crate) provider: Arc<str>,
    pub(crate) function: &'static str,
    pub(crate) configuration: Arc<str>,
    /// None where the function has no business with the network.
    pub(crate) gate: Option<Gate>,
    /// Where the first denied request is noted.
    pub(crate) denial: Denial,
    pub(crate) limits: Limits,
    pub(crate) urgency: Urgency,
    /// How long it may wait for a slot. Its own time begins after that.
    pub(crate) patience: Duration,
    pub(crate) soft: Duration,
    pub(crate) hard: Duration,
    pub(crate) metrics: Metrics,
}

/// The span of a call, which its log lines and its requests to the cloud are in. Its target is that of the guest's own
/// lines, and its level the highest, so that it is there whichever of them are kept: they say of which call they are, and
/// nothing but.
fn span(provider: &str, function: &'static str) -> Span {
    /// Tells the calls of a process apart.
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    error_span!(target: "provider", "call", provider, function, number)
}

/// Calls a function of the component in a fresh instance, in a span of its own.
pub(crate) async fn call<T, F>(component: &Component, terms: Terms, function: F) -> Result<T, Fault>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a mut Store<Sandbox>, Instance) -> BoxFuture<'a, wasmtime::Result<T>>
        + Send
        + 'static,
{
    let span = span(&terms.provider, terms.function);
    call_in_span(component, terms, function).instrument(span).await
}

/// The call runs in a task of its own, so that a guest that computes doesn't hold up the caller's other work and a
/// panic in a host function stays with the call. Dropping the future ends the call.
async fn call_in_span<T, F>(component: &Component, terms: Terms, function: F) -> Result<T, Fault>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a mut Store<Sandbox>, Instance) -> BoxFuture<'a, wasmtime::Result<T>>
        + Send
        + 'static,
{
    let slot = component.engine.slots().take(terms.urgency, terms.patience).await?;
    let now = Instant::now();
    let call = Call { configuration: terms.configuration, soft: now + terms.soft, hard: now + terms.hard };
    let egress = Egress::new(terms.gate, terms.denial, terms.function, &call);
    let store = Sandbox::store(&component.engine, &terms.limits, call, egress);
    let pre = component.pre.clone();
    let (limit, metrics) = (terms.hard, terms.metrics);
    let (provider, name) = (terms.provider, terms.function);
    let in_flight = metrics.call_begins(&provider, name);
    let task = async move {
        let _in_flight = in_flight;
        let mut store = store;
        let cpu = store.data().cpu();
        let run = async {
            let instance = pre.instantiate_async(&mut store).await?;
            function(&mut store, instance).await
        };
        let done = tokio::time::timeout_at(now + limit, cpu.count(run)).await;
        let sandbox = store.data();
        metrics.call_used(&provider, name, sandbox.peak_memory(), sandbox.log.dropped());
        // The store goes before the slot: the pool must have room for whoever gets the slot next.
        let result = match done {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Fault::of(&error, sandbox.log.last_words())),
            Err(_elapsed) => Err(Fault::Deadline { limit }),
        };
        drop(store);
        drop(slot);
        result
    };
    let task = tokio::spawn(task.in_current_span());
    AbortOnDropHandle::new(task).await.unwrap_or_else(|error| Err(Fault::Host(error.to_string())))
}
