//! The sandbox of one call: a wasmtime store of its own, which grants nothing but requests through the gate, and limits
//! everything that the guest uses. It is dropped with the call, and all state of the guest with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::cpu::CpuMeter;
use crate::cpu::permit::CpuPermit;
use crate::egress::Egress;
use crate::fault::Fault;
use crate::guest_log::GuestLog;
use crate::limits::{Limits, MAX_HANDLES, MAX_HEADER_BYTES, MAX_RANDOM_BYTES};

/// What the guest can read through the contract's `call` interface, and when the call must end.
#[derive(Debug, Clone)]
pub(crate) struct CallContext {
    /// The configuration that the provider accepted; empty during calls of `info`.
    pub(crate) configuration: Arc<str>,
    /// The facts about the host's identity, by name; none during calls of `info`.
    pub(crate) identity: Arc<BTreeMap<String, String>>,
    /// After it, the gate takes no new request.
    pub(crate) soft_deadline: Instant,
    /// At it, the call is aborted.
    pub(crate) hard_deadline: Instant,
}

/// The data of a call's store.
pub(crate) struct Sandbox {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    pub(crate) egress: Egress,
    limiter: Limiter,
    pub(crate) context: CallContext,
    pub(crate) log: GuestLog,
}

impl Sandbox {
    /// Creates the store of one call: no argument, no variable, no file, no socket, and every limit set.
    pub(crate) fn store(
        engine: &wasmtime::Engine,
        cpu: CpuMeter,
        limits: &Limits,
        context: CallContext,
        egress: Egress,
    ) -> Store<Self> {
        let log = GuestLog::default();
        let wasi = WasiCtx::builder()
            .max_random_size(MAX_RANDOM_BYTES)
            .stdout(log.output(false))
            .stderr(log.output(true))
            .build();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        let limiter = Limiter::new(limits, cpu);
        let sandbox = Self { wasi, http, table, egress, limiter, context, log };

        let mut store = Store::new(engine, sandbox);
        store.limiter(|sandbox| &mut sandbox.limiter);
        store.set_max_component_handles(MAX_HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            let permit = context.data_mut().limiter.on_epoch_tick()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(permit.renew())))
        });
        store
    }

    /// The meter of the call's CPU time, with which the task that polls the call measures it.
    pub(crate) fn cpu(&self) -> CpuMeter {
        self.limiter.cpu.clone()
    }

    /// The most memory that the call had at once, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.limiter.peak_memory
    }
}

impl WasiView for Sandbox {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Sandbox {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.egress, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Counts the memory, tables and CPU time that a call uses, and ends the call when it exceeds a limit.
struct Limiter {
    memory_limit: usize,
    memory: usize,
    peak_memory: usize,
    table_limit: usize,
    table_elements: usize,
    cpu_limit: Duration,
    cpu: CpuMeter,
}

impl Limiter {
    fn new(limits: &Limits, cpu: CpuMeter) -> Self {
        Self {
            memory_limit: limits.memory,
            memory: 0,
            peak_memory: 0,
            table_limit: limits.table_elements,
            table_elements: 0,
            cpu_limit: limits.cpu,
            cpu,
        }
    }

    /// The guest was running when the epoch advanced: checks its CPU time, and has it renew its permit so that other
    /// guests can compute.
    fn on_epoch_tick(&self) -> Result<CpuPermit, Fault> {
        if self.cpu.used() > self.cpu_limit {
            return Err(Fault::Cpu { limit: self.cpu_limit });
        }
        Ok(self.cpu.permit())
    }
}

/// Refuses growth with an error instead of `false`. So the call ends with this fault, and not with what the guest's
/// allocator does when it gets no memory.
impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.memory + desired.saturating_sub(current);
        if wanted > self.memory_limit || maximum.is_some_and(|maximum| desired > maximum) {
            return Err(Fault::Memory { wanted, limit: self.memory_limit }.into());
        }
        self.memory = wanted;
        self.peak_memory = self.peak_memory.max(wanted);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.table_elements + desired.saturating_sub(current);
        if wanted > self.table_limit || maximum.is_some_and(|maximum| desired > maximum) {
            return Err(Fault::Table { wanted, limit: self.table_limit }.into());
        }
        self.table_elements = wanted;
        Ok(true)
    }
}
