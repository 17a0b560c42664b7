//! The compiler's process, from its first instruction: it gives up what it doesn't need, reads a component, writes code,
//! ends.
//!
//! It is the only place where a stranger's bytes go through something as large as a compiler. This keeps a compiler that
//! crashes, hangs or eats memory from hurting the host. It is no cage for one that was taken over: that has the rights of
//! its user, and its answer is run.

use std::io::{self, Read as _, Write as _};
use std::os::fd::RawFd;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};

use super::{REFUSED, compile, memory};
use crate::error::Error;
use crate::limits::{COMPILE_CPU, COMPILE_MEMORY, COMPONENT_CEILING};

/// How much the compiler gives way: where others want the processor too, it gets a tenth of what they get.
const NICENESS: i32 = 10;

/// Descriptors that it may open: its three streams, and what the standard library looks up about processors.
const DESCRIPTORS: u64 = 16;

/// The whole life of a compiler's process: what a program calls that [`Compiler::Child`](crate::Compiler::Child) starts,
/// first thing and before it starts threads. Reads a component from standard input and writes its code to standard output,
/// or to standard error why there is none.
///
/// Not for people to call: the code is only good for the engine of this very build.
#[must_use]
pub fn compile_child() -> ExitCode {
    let answer = confine().and_then(|()| {
        let mut bytes = Vec::new();
        io::stdin().lock().take(COMPONENT_CEILING).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let written = answer.and_then(|bytes| match compile(&bytes) {
        Ok(code) => io::stdout().lock().write_all(&code).map(|()| ExitCode::SUCCESS),
        Err(Error::Invalid(why)) => {
            // The exit code tells what matters, so whether anybody hears the rest decides nothing.
            let _heard = writeln!(io::stderr(), "{why}");
            Ok(ExitCode::from(REFUSED))
        }
        Err(error) => Err(io::Error::other(error)),
    });
    written.unwrap_or_else(|error| {
        let _heard = writeln!(io::stderr(), "{error}");
        ExitCode::FAILURE
    })
}

/// Gives up what a compiler doesn't need.
fn confine() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    close_inherited()?;
    // Neither is worth failing for.
    let _priority = nice(NICENESS);
    // Where memory is short for the machine, it is the compiler that the kernel ends.
    let _victim = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits = [
        (Resource::As, COMPILE_MEMORY),
        (Resource::Data, memory::left().map_or(COMPILE_MEMORY, |left| left.min(COMPILE_MEMORY))),
        (Resource::Cpu, COMPILE_CPU.as_secs()),
        (Resource::Core, 0), // a core file would show the component to whoever finds it
        (Resource::Fsize, 0),
        (Resource::Nofile, DESCRIPTORS),
    ];
    for (resource, limit) in limits {
        // Whoever started us may have set less.
        let allowed =
            rustix::process::getrlimit(resource).maximum.map_or(limit, |allowed| allowed.min(limit));
        setrlimit(resource, Rlimit { current: Some(allowed), maximum: Some(allowed) })?;
    }
    Ok(())
}

/// Closes what whoever started our parent may have left open, besides the three streams.
fn close_inherited() -> io::Result<()> {
    let all = std::fs::read_dir("/proc/self/fd")?;
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let mut inherited: Vec<_> = numbers.filter(|number| *number > 2).collect();
    // The list had a descriptor of its own.
    inherited.retain(|number| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok());
    for number in inherited {
        close(number);
    }
    Ok(())
}

#[expect(unsafe_code, reason = "descriptors that nobody in this process knows of have no owner to drop")]
fn close(number: RawFd) {
    // SAFETY: the process has just begun and has one thread. Nothing in it has opened a descriptor, so nothing holds this
    // one and nothing will use it.
    unsafe { rustix::io::close(number) }
}
