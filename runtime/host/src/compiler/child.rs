//! The compiler's process: drops the privileges that it doesn't need, reads a component, writes its code, and ends.
//!
//! Only here do third-party bytes go through code as large as a compiler. This keeps a compiler that crashes, hangs or
//! takes too much memory from harming the host. It doesn't confine a compiler that was taken over: that has the rights of
//! its user, and the host runs its output.

use std::io::{self, Read as _, Write as _};
use std::os::fd::RawFd;
use std::process::ExitCode;

use pileus_loader::MAX_COMPONENT;
use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};

use super::{EXIT_INVALID, compile, memory};
use crate::error::Error;
use crate::limits::{COMPILE_CPU, COMPILE_MEMORY};

/// The compiler's nice value: where other processes want the CPU too, it gets a tenth of their share.
const NICENESS: i32 = 10;

/// The descriptors that it may open: its three streams, and the files in which the standard library looks up processors.
const DESCRIPTORS: u64 = 16;

/// The `main` of the compiler's process, which [`Compiler::Child`](crate::Compiler::Child) starts. The program must call it
/// first, before it starts threads. Reads a component from standard input and writes its code to standard output, or the
/// reason for a failure to standard error.
///
/// Not a command for users: only an engine of this very build accepts the code.
#[must_use]
pub fn compiler_main() -> ExitCode {
    let component = confine().and_then(|()| {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_COMPONENT).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let written = component.and_then(|bytes| match compile(&bytes) {
        Ok(code) => io::stdout().lock().write_all(&code).map(|()| ExitCode::SUCCESS),
        Err(Error::Invalid(reason)) => {
            // The exit code is what counts; the reason may be lost.
            let _best_effort = writeln!(io::stderr(), "{reason}");
            Ok(ExitCode::from(EXIT_INVALID))
        }
        Err(error) => Err(io::Error::other(error)),
    });
    written.unwrap_or_else(|error| {
        let _best_effort = writeln!(io::stderr(), "{error}");
        ExitCode::FAILURE
    })
}

/// Drops what a compiler doesn't need.
fn confine() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    close_inherited()?;
    // Neither of these two is worth a failure.
    let _priority = nice(NICENESS);
    // When the machine runs out of memory, the kernel kills the compiler first.
    let _oom_score = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits = [
        (Resource::As, COMPILE_MEMORY),
        (
            Resource::Data,
            memory::available().map_or(COMPILE_MEMORY, |available| available.min(COMPILE_MEMORY)),
        ),
        (Resource::Cpu, COMPILE_CPU.as_secs()),
        (Resource::Core, 0), // a core file would expose the component
        (Resource::Fsize, 0),
        (Resource::Nofile, DESCRIPTORS),
    ];
    for (resource, limit) in limits {
        // The parent may have set a lower limit.
        let allowed =
            rustix::process::getrlimit(resource).maximum.map_or(limit, |allowed| allowed.min(limit));
        setrlimit(resource, Rlimit { current: Some(allowed), maximum: Some(allowed) })?;
    }
    Ok(())
}

/// Closes all descriptors but the three streams. The process that started the host may have left some open.
fn close_inherited() -> io::Result<()> {
    let all = std::fs::read_dir("/proc/self/fd")?;
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let mut inherited: Vec<_> = numbers.filter(|number| *number > 2).collect();
    // Leaves out the descriptor of the listing itself, which is closed by now.
    inherited.retain(|number| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok());
    for number in inherited {
        close(number);
    }
    Ok(())
}

#[expect(unsafe_code, reason = "an inherited descriptor has no owner in this process that could drop it")]
fn close(number: RawFd) {
    // SAFETY: the process has just started and has one thread. It has opened no descriptor itself, so no code owns this one
    // or will use it.
    unsafe { rustix::io::close(number) }
}
