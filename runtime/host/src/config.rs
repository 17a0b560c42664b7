//! The wasmtime settings that native code depends on. The compiler and the engine share them: code that was compiled with
//! other settings doesn't run.
//!
//! Proposals that no provider needs are off, because the sandbox escapes of recent years were in such features.

use std::num::NonZero;

use wasmtime::{Config, OptLevel, Strategy};

/// The settings of both the compiler and the engine. The instance pool isn't part of them.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .epoch_interruption(true)
        .async_stack_zeroing(true) // no provider's data stays on a stack that another provider gets
        .wasm_backtrace_max_frames(NonZero::new(20))
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable) // don't parse third-party DWARF
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
