//! What the host offers to a guest beyond WASI: `logging` and `call`.

use tokio::time::Instant;

use crate::bindings::{call, logging, types};
use crate::guest_log::GuestLog;
use crate::sandbox::Sandbox;

impl types::Host for Sandbox {}

impl logging::Host for Sandbox {
    fn enabled(&mut self, level: logging::Level) -> wasmtime::Result<bool> {
        Ok(GuestLog::enabled(level))
    }

    fn write(
        &mut self,
        level: logging::Level,
        target: String,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        self.log.write(level, &target, &message, &fields);
        Ok(())
    }
}

impl call::Host for Sandbox {
    fn configuration(&mut self) -> wasmtime::Result<String> {
        Ok(self.call.configuration.to_string())
    }

    fn remaining(&mut self) -> wasmtime::Result<u64> {
        let left = self.call.soft.saturating_duration_since(Instant::now());
        Ok(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    fn identity(&mut self, _name: String) -> wasmtime::Result<Option<String>> {
        // No credential is configured yet, so nothing is known about whom the host acts as.
        Ok(None)
    }
}
