//! The one wasmtime engine of the process, and the pool that calls get their instances from. The pool makes a fresh
//! instance cheap enough for every call to have its own.

use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::Mutex;
use wasmtime::component::Linker;
use wasmtime::{InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::code_cache::CodeCache;
use crate::compiler::Compiler;
use crate::config::config;
use crate::cpu::permit::{CpuPermit, CpuPermits};
use crate::error::Error;
use crate::imports;
use crate::limits::{CORE_INSTANCES, EPOCH_TICK, MAX_MEMORY, MAX_TABLE_ELEMENTS, MEMORIES, SLOTS, TABLES};
use crate::sandbox::Sandbox;
use crate::slots::Slots;

/// Compiles and runs components. Cheap to clone; all clones share one wasmtime engine, one pool and one set of slots.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<EngineInner>,
}

struct EngineInner {
    wasmtime: wasmtime::Engine,
    linker: Linker<Sandbox>,
    slots: Slots,
    cpu_permits: CpuPermits,
    code_cache: Option<CodeCache>,
    compiler: Compiler,
    /// Held while a component is compiled: several compilers at a time may need more memory than the host can spare.
    compile_lock: Mutex<()>,
}

impl Engine {
    /// Starts the engine and its epoch clock. Native code is read from `code_cache` where given; code that isn't there is
    /// made by `compiler`.
    ///
    /// # Errors
    /// [`Error::Engine`] where this machine can't give the pool its address space (about 0.5 TB, none of it used until
    /// touched), as under a `ulimit -v`.
    pub fn start(code_cache: Option<CodeCache>, compiler: Compiler) -> Result<Self, Error> {
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        let wasmtime = wasmtime::Engine::new(&config).map_err(|error| Error::engine(&error))?;
        let linker = imports::linker(&wasmtime).map_err(|error| Error::engine(&error))?;
        start_epoch_clock(&wasmtime)?;
        // The number of threads that the tokio runtime has by default.
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let inner = EngineInner {
            wasmtime,
            linker,
            slots: Slots::new(),
            cpu_permits: CpuPermits::new(threads),
            code_cache,
            compiler,
            compile_lock: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<Sandbox> {
        &self.inner.linker
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.inner.slots
    }

    /// A CPU permit for one call, which the call doesn't hold yet.
    pub(crate) fn cpu_permit(&self) -> CpuPermit {
        self.inner.cpu_permits.for_call()
    }

    pub(crate) fn code_cache(&self) -> Option<&CodeCache> {
        self.inner.code_cache.as_ref()
    }

    /// Compiles a component, one component at a time.
    pub(crate) async fn compile(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let _guard = self.inner.compile_lock.lock().await;
        self.inner.compiler.compile(bytes).await
    }
}

/// Sizes the pool. A slot holds one component: a provider's own module, and the small ones that adapt it. A component may
/// have no more than its slot has, so that no component takes what is reserved for another call.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(SLOTS)
        .total_core_instances(SLOTS * CORE_INSTANCES)
        .total_memories(SLOTS * MEMORIES)
        .total_tables(SLOTS * TABLES)
        .total_stacks(SLOTS)
        .max_memory_size(MAX_MEMORY)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_memories_per_module(1)
        .max_tables_per_module(TABLES) // C#, Python and Go need more than one
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_core_instance_size(4 << 20)
        .max_component_instance_size(4 << 20)
        // Kept resident, so that a call doesn't start with page faults in memory that nearly every call touches.
        .linear_memory_keep_resident(512 << 10)
        .table_keep_resident(16 << 10)
        .max_unused_warm_slots(16);
    pool
}

/// Advances the epoch on a thread of its own, because a busy runtime must not slow the clock that stops its guests. The
/// thread ends with the engine.
fn start_epoch_clock(engine: &wasmtime::Engine) -> Result<(), Error> {
    let weak = engine.weak();
    std::thread::Builder::new()
        .name("epoch".to_owned())
        .spawn(move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(EPOCH_TICK);
            }
        })
        .map(drop)
        .map_err(|error| Error::engine(&error.into()))
}
