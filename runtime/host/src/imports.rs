//! What a component may import: WASI 0.2, and the contract's own interfaces `logging` and `call`, which are implemented here.
//! `heads` counts what a guest builds of requests.

mod heads;

use tokio::time::Instant;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::{call, logging, types};
use crate::guest_log::GuestLog;
use crate::sandbox::Sandbox;

/// A linker that offers all that a component may import.
///
/// The command line, the file system and sockets are linked because the libraries of most languages import them whether
/// they use them or not. The sandbox grants nothing in them.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    heads::count(&mut linker)?;
    types::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    logging::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    call::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    Ok(linker)
}

impl types::Host for Sandbox {}

impl logging::Host for Sandbox {
    fn enabled(&mut self, level: logging::Level) -> wasmtime::Result<bool> {
        Ok(GuestLog::is_enabled(level))
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
        Ok(self.context.configuration.to_string())
    }

    fn remaining(&mut self) -> wasmtime::Result<u64> {
        let remaining = self.context.soft_deadline.saturating_duration_since(Instant::now());
        Ok(u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX))
    }

    fn identity(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(self.context.identity.get(&name).cloned())
    }
}
