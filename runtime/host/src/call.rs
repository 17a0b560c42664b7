//! One call to a component: takes a slot, creates a fresh store and instance, runs the function, and reports its result or
//! its [`Fault`].
//!
//! Three clocks bound a call, because none of them covers every case: epochs interrupt a guest that computes, the hard
//! deadline ends a guest that waits, and the gate ends the requests that a guest waits for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use pileus_gate::{CpuAccount, Gate, MemoryBudget, MemoryCharge, Replies, Urgency};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span, error_span};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::component::Component;
use crate::cpu::CpuMeter;
use crate::egress::{Denials, Egress};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::limits::{self, Limits};
use crate::metrics::Metrics;
use crate::sandbox::{CallContext, Sandbox};

/// Which function of which provider is called, and the bounds of the call.
pub(crate) struct CallOptions {
    pub(crate) provider: Arc<str>,
    pub(crate) function: &'static str,
    pub(crate) configuration: Arc<str>,
    pub(crate) identity: Arc<BTreeMap<String, String>>,
    /// `None` for a function that must not use the network.
    pub(crate) gate: Option<Gate>,
    /// Records the first request that is denied.
    pub(crate) denials: Denials,
    /// Records how the requests were answered.
    pub(crate) replies: Replies,
    pub(crate) limits: Limits,
    /// The memory that the host holds for all calls of the provider.
    pub(crate) budget: MemoryBudget,
    /// How many items the call is about, which bounds the answer.
    pub(crate) items: usize,
    pub(crate) urgency: Urgency,
    /// How long the call may wait for a slot. The deadlines count from the moment it has one.
    pub(crate) slot_timeout: Duration,
    pub(crate) soft: Duration,
    pub(crate) hard: Duration,
    pub(crate) metrics: Metrics,
}

/// The answers of `info` are about as large as those about this many items: 2 MiB, of which the host may keep half.
const INFO_ITEMS: usize = 1;

impl CallOptions {
    /// For a function of `info`: it computes for a moment, without a configuration and without the network.
    pub(crate) fn for_info(function: &'static str, limits: &Limits, metrics: &Metrics) -> Self {
        Self {
            provider: Arc::from("(loading)"),
            function,
            configuration: Arc::from(""),
            identity: Arc::default(),
            gate: None,
            denials: Denials::default(),
            replies: Replies::default(),
            limits: limits.clone(),
            budget: MemoryBudget::new(limits.host_memory),
            items: INFO_ITEMS,
            // A start or a swap waits for it.
            urgency: Urgency::Initialise,
            slot_timeout: limits.info,
            soft: limits.info,
            hard: limits.info,
            metrics: metrics.clone(),
        }
    }
}

/// The span of a call, which contains its log lines and its requests to the cloud. It has the target of the guest's own
/// lines and the highest level, so that it is enabled whenever any of them is, and each line names its call.
fn span(provider: &str, function: &'static str) -> Span {
    /// Numbers the calls of this process.
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    error_span!(target: "provider", "call", provider, function, number)
}

/// Calls a function of the component in a fresh instance, in a span of its own.
///
/// # Errors
/// A [`Fault`] where the call brings no answer.
pub(crate) async fn call<T, F>(component: &Component, options: CallOptions, function: F) -> Result<T, Fault>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a mut Store<Sandbox>, Instance) -> BoxFuture<'a, wasmtime::Result<T>>
        + Send
        + 'static,
{
    let span = span(&options.provider, options.function);
    call_in_span(component, options, function).instrument(span).await
}

/// What a call runs in, and what bounds it beside its time.
struct Prepared {
    store: Store<Sandbox>,
    /// Holds the memory of the answer for as long as the call runs.
    answer: MemoryCharge,
    budget: MemoryBudget,
    account: CpuAccount,
}

/// Builds the store of a call that begins now.
fn prepare(engine: &Engine, options: &CallOptions, now: Instant) -> Result<Prepared, Fault> {
    let context = CallContext {
        configuration: Arc::clone(&options.configuration),
        identity: Arc::clone(&options.identity),
        soft_deadline: now + options.soft,
        hard_deadline: now + options.hard,
    };
    let deadlines = [context.soft_deadline, context.hard_deadline];
    let budget = options.budget.split(options.limits.host_memory);
    let answer_bytes = limits::answer_bytes(options.items);
    let answer = budget.charge(answer_bytes).map_err(Fault::from)?;
    let gate = options.gate.clone();
    let gate = gate.map(|gate| gate.with_replies(options.replies.clone()).with_budget(budget.clone()));
    let heads = budget.charge(0).map_err(Fault::from)?;
    let account = CpuAccount::new(options.limits.cpu);
    let meter = CpuMeter::new(account.clone(), engine.cpu_permit());
    let records = (options.denials.clone(), options.replies.clone());
    let egress = Egress::new(gate, records, heads, options.function, deadlines, account.clone());
    let mut store = Sandbox::store(engine.wasmtime(), meter, &options.limits, context, egress);
    store.set_hostcall_fuel(answer_bytes);
    Ok(Prepared { store, answer, budget, account })
}

/// Runs the call in a task of its own, so that a guest that computes doesn't block the caller's other work, and a panic in
/// a host function stays with the call. Dropping the future aborts the call.
async fn call_in_span<T, F>(component: &Component, options: CallOptions, function: F) -> Result<T, Fault>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a mut Store<Sandbox>, Instance) -> BoxFuture<'a, wasmtime::Result<T>>
        + Send
        + 'static,
{
    let engine = &component.engine;
    let slot = engine.slots().acquire(options.urgency, options.slot_timeout).await?;
    let now = Instant::now();
    let Prepared { store, answer, budget, account } = prepare(engine, &options, now)?;
    let unanswered = options.denials.unanswered.clone();
    let pre = component.pre.clone();
    let (limit, cpu_limit, metrics) = (options.hard, options.limits.cpu, options.metrics);
    let (provider, name) = (options.provider, options.function);
    let in_flight = metrics.call_started(&provider, name);
    let task = async move {
        let _in_flight = in_flight;
        let (mut store, _answer) = (store, answer);
        let cpu = store.data().cpu();
        let run = async {
            let instance = pre.instantiate_async(&mut store).await?;
            function(&mut store, instance).await
        };
        let done = tokio::select! {
            biased;
            done = tokio::time::timeout_at(now + limit, cpu.measure(run)) => done,
            excess = budget.exceeded() => Ok(Err(Fault::from(excess).into())),
            // The host's work for a guest that waits.
            () = account.exceeded() => Ok(Err(Fault::Cpu { limit: cpu_limit }.into())),
        };
        let sandbox = store.data();
        metrics.record_usage(&provider, name, sandbox.peak_memory(), sandbox.log.dropped_lines());
        let result = match done {
            // A guest that was refused memory may have caught the error.
            Ok(_) if let Some(excess) = budget.excess() => Err(excess.into()),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Fault::from_wasmtime(&error, sandbox.log.stderr_tail())),
            Err(_elapsed) => Err(Fault::Deadline { limit, unanswered: unanswered.explain() }),
        };
        // The store is dropped before the slot, so that the pool has room for the call that gets the slot next.
        drop(store);
        drop(slot);
        result
    };
    let task = tokio::spawn(task.in_current_span());
    AbortOnDropHandle::new(task).await.unwrap_or_else(|error| Err(Fault::Host(error.to_string())))
}
