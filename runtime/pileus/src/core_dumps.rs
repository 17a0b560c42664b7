//! Credentials are in this process's memory, so nothing of that memory may end up in a file. Both locks are needed: no
//! limit keeps the kernel from handing a dump to a program, where the machine's `core_pattern` names one, but then it asks
//! whether the process may be dumped. That second lock also keeps others of the same user from reading the memory with a
//! debugger; whoever wants to attach one needs `CAP_SYS_PTRACE`.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Lets this process leave no core dump, whatever ends it. A program that it starts may be dumped again, as long as
/// nobody raises the limit, which only root can.
pub(crate) fn forbid() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
