//! Prevents core dumps, because this process has credentials in its memory.
//!
//! Two settings are needed. The resource limit prevents dumps to files, but not to a program that the machine's
//! `core_pattern` names; for those the kernel checks whether the process is dumpable. A process that isn't dumpable
//! can't be read by other processes of the same user either: attaching a debugger takes `CAP_SYS_PTRACE`.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Makes this process leave no core dump. The programs that it starts inherit the limit, which only root can raise, but are
/// dumpable again.
///
/// # Errors
/// If the kernel refuses one of the settings.
pub(crate) fn forbid() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
