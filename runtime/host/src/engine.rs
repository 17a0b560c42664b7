//! The one wasmtime engine of the process: what is switched on, and the pool that calls get their instances from.
//!
//! Proposals that no provider needs are off, because that is where the sandbox escapes of the last years were. The
//! pool makes a fresh instance cheap enough for every call to have its own.

use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::Mutex;
use wasmtime::component::Linker;
use wasmtime::{Config, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy};

use crate::bindings;
use crate::compiled::CompiledCode;
use crate::compiler::Compiler;
use crate::error::Error;
use crate::limits::{CORE_INSTANCES, MEMORIES, MEMORY_CEILING, SLOTS, TABLE_CEILING, TABLES, TICK};
use crate::sandbox::Sandbox;
use crate::slots::Slots;
use crate::turns::{Turn, Turns};

/// Compiles and runs components. Cheap to clone; all clones are one engine, one pool and one set of slots.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    wasmtime: wasmtime::Engine,
    linker: Linker<Sandbox>,
    slots: Slots,
    turns: Turns,
    compiled: Option<CompiledCode>,
    compiler: Compiler,
    /// Held by the load that compiles: the memory of several compilers is more than a host should have to spare.
    compiling: Mutex<()>,
}

impl Engine {
    /// Starts the engine and its clock. Compiled code is kept in `compiled`, where given; what isn't there is compiled by
    /// `compiler`.
    ///
    /// # Errors
    /// [`Error::Engine`] where the machine can't give the pool its address space (about 0.5 TB, none of it used until
    /// touched), as under a `ulimit -v`.
    pub fn start(compiled: Option<CompiledCode>, compiler: Compiler) -> Result<Self, Error> {
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        let wasmtime = wasmtime::Engine::new(&config).map_err(|error| Error::engine(&error))?;
        let linker = bindings::linker(&wasmtime).map_err(|error| Error::engine(&error))?;
        start_clock(&wasmtime)?;
        // As many as the runtime has, unless it was told otherwise.
        let turns = Turns::new(std::thread::available_parallelism().map_or(1, NonZero::get));
        let shared = Shared {
            wasmtime,
            linker,
            slots: Slots::new(),
            turns,
            compiled,
            compiler,
            compiling: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.shared.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<Sandbox> {
        &self.shared.linker
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.shared.slots
    }

    pub(crate) fn turn(&self) -> Turn {
        self.shared.turns.of_a_call()
    }

    pub(crate) fn compiled(&self) -> Option<&CompiledCode> {
        self.shared.compiled.as_ref()
    }

    /// Has the compiler make code of a component, one component at a time.
    pub(crate) async fn compile(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let _turn = self.shared.compiling.lock().await;
        self.shared.compiler.compile(bytes).await
    }
}

/// What code depends on, so that who compiles and who runs it agree. The pool isn't part of it.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .epoch_interruption(true)
        .async_stack_zeroing(true) // no provider's data on a stack that another gets
        .wasm_backtrace_max_frames(NonZero::new(20))
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable) // don't parse a stranger's DWARF
        .wasm_threads(false)
        .wasm_gc(false)
        .wasm_exceptions(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .wasm_function_references(true); // Go's components need them
    config
}

/// A slot holds one component: a provider's own module, and the small ones that adapt it. What a component may have is
/// what its slot has, so that no component takes what another's call was promised.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(SLOTS)
        .total_core_instances(SLOTS * CORE_INSTANCES)
        .total_memories(SLOTS * MEMORIES)
        .total_tables(SLOTS * TABLES)
        .total_stacks(SLOTS)
        .max_memory_size(MEMORY_CEILING)
        .table_elements(TABLE_CEILING)
        .max_memories_per_module(1)
        .max_tables_per_module(TABLES) // C#, Python and Go need more than one
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_core_instance_size(4 << 20)
        .max_component_instance_size(4 << 20)
        // Kept resident, so that a call doesn't start with page faults on what nearly every call touches.
        .linear_memory_keep_resident(512 << 10)
        .table_keep_resident(16 << 10)
        .max_unused_warm_slots(16);
    pool
}

/// A thread of its own, as a busy runtime must not slow the clock that stops its guests. It ends with the engine.
fn start_clock(engine: &wasmtime::Engine) -> Result<(), Error> {
    let weak = engine.weak();
    std::thread::Builder::new()
        .name("epoch".to_owned())
        .spawn(move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(TICK);
            }
        })
        .map(drop)
        .map_err(|error| Error::engine(&error.into()))
}
