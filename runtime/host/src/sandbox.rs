//! One call's world: a store of its own in which nothing is granted but the gate, and all that it uses is counted.
//!
//! Three lifetimes keep providers apart: the engine lives as long as the process, a component as long as a version of
//! a provider is loaded, and a sandbox for one call. Nothing that a guest does outlives its sandbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::cpu::Cpu;
use crate::egress::Egress;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::guest_log::GuestLog;
use crate::limits::{CROSSING_CEILING, HANDLES, HEADER_BYTES, Limits, RANDOM_BYTES};
use crate::turns::Turn;

/// What a call brings and how long it may take; the guest reads some of it through `call`.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The configuration that the provider accepted; empty while it is being asked.
    pub(crate) configuration: Arc<str>,
    /// Past it the gate takes no new request.
    pub(crate) soft: Instant,
    /// Past it the call is over.
    pub(crate) hard: Instant,
}

/// The data of a call's store.
pub(crate) struct Sandbox {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    egress: Egress,
    meter: Meter,
    pub(crate) call: Call,
    pub(crate) log: GuestLog,
}

impl Sandbox {
    /// A store for one call: no argument, no variable, no file, no socket, and every limit set.
    pub(crate) fn store(engine: &Engine, limits: &Limits, call: Call, egress: Egress) -> Store<Self> {
        let log = GuestLog::default();
        let wasi = WasiCtx::builder()
            .max_random_size(RANDOM_BYTES)
            .stdout(log.output(false))
            .stderr(log.output(true))
            .build();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        let meter = Meter::new(limits, engine.turn());
        let sandbox = Self { wasi, http, table, egress, meter, call, log };

        let mut store = Store::new(engine.wasmtime(), sandbox);
        store.limiter(|sandbox| &mut sandbox.meter);
        store.set_hostcall_fuel(CROSSING_CEILING);
        store.set_max_component_handles(HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            let turn = context.data_mut().meter.tick()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(turn.next())))
        });
        store
    }

    /// The processor time of the call, for whoever polls it to count.
    pub(crate) fn cpu(&self) -> Cpu {
        self.meter.cpu.clone()
    }

    /// The most memory that the call had at once, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.meter.peak_memory
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

/// Counts what a call uses and says when it is too much.
struct Meter {
    memory_limit: usize,
    memory: usize,
    peak_memory: usize,
    table_limit: usize,
    table_elements: usize,
    cpu_limit: Duration,
    cpu: Cpu,
}

impl Meter {
    fn new(limits: &Limits, turn: Turn) -> Self {
        Self {
            memory_limit: limits.memory,
            memory: 0,
            peak_memory: 0,
            table_limit: limits.table_elements,
            table_elements: 0,
            cpu_limit: limits.cpu,
            cpu: Cpu::new(turn),
        }
    }

    /// The guest was running when the epoch moved on: the time to look how much it has computed, and whether others want
    /// to.
    fn tick(&self) -> Result<Turn, Fault> {
        if self.cpu.used() > self.cpu_limit {
            return Err(Fault::Cpu { limit: self.cpu_limit });
        }
        Ok(self.cpu.turn())
    }
}

/// An error instead of a `false`, so that growth ends the call with its own fault and not with whatever the guest's
/// allocator does when it gets no memory.
impl ResourceLimiter for Meter {
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
