//! Compiles components in a child process, so that a compiler that crashes, hangs or runs out of memory costs no more than
//! one load. Its memory is freed with the process.
//!
//! The child is the same program in another mode, so the compiler that makes the code and the engine that runs it always
//! match. It gets the component on its standard input and nothing else: no environment variable of the host, which may hold
//! a secret, no file descriptor, no folder. It writes the code to its standard output.

pub(crate) mod child;
mod memory;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::config::config;
use crate::error::{CompilerFailure, Error};
use crate::limits::{COMPILE_THREADS, COMPILE_TIMEOUT, MAX_CODE_BYTES};
use crate::sanitize::sanitize_message;

/// How components are compiled.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// In a child process of this program, which protects the host and other providers.
    Child {
        /// The program; its `main` calls [`compiler_main`](crate::compiler_main).
        program: PathBuf,
        /// The arguments that make it do so.
        arguments: Vec<OsString>,
        /// How long it may take.
        timeout: Duration,
    },
    /// In this process, without any of that protection: for tests and benches, whose program has no such mode.
    InProcess,
}

/// The exit code of a child that refuses an invalid component. The reason is on its standard error.
const EXIT_INVALID: u8 = 65;

/// How many bytes of the child's standard error are kept: enough for the message of a panic.
const MAX_STDERR_BYTES: u64 = 1 << 10;

impl Compiler {
    /// This very program with these arguments. It is the program that runs, even where its file has been replaced since.
    pub fn this_program(arguments: &[&str]) -> Self {
        Self::Child {
            program: PathBuf::from("/proc/self/exe"),
            arguments: arguments.iter().map(OsString::from).collect(),
            timeout: COMPILE_TIMEOUT,
        }
    }

    /// Compiles a component for an engine with the settings of [`config`].
    ///
    /// # Errors
    /// [`Error::CompilerSpawn`], [`Error::CompilerFailed`], and [`Error::Invalid`] where the component is at fault.
    pub(crate) async fn compile(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        match self {
            Self::Child { program, arguments, timeout } => {
                let mut command = Command::new(program);
                command.args(arguments);
                compile_in_child(command, *timeout, &bytes).await
            }
            Self::InProcess => {
                let compiled = tokio::task::spawn_blocking(move || compile(&bytes)).await;
                compiled.map_err(|panic| Error::Invalid(format!("the compiler panicked: {panic}")))?
            }
        }
    }
}

fn compile(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let engine = wasmtime::Engine::new(&config()).map_err(|error| Error::engine(&error))?;
    engine
        .precompile_component(bytes)
        .map_err(|error| Error::Invalid(sanitize_message(&format!("{error:#}"))))
}

/// Makes a component of the compiler's code.
#[expect(unsafe_code, reason = "one of the two places where bytes become code that the process runs")]
pub(crate) fn deserialize(
    engine: &wasmtime::Engine,
    code: &[u8],
) -> wasmtime::Result<wasmtime::component::Component> {
    // SAFETY: wasmtime requires that the bytes are what its own compiler made, unchanged. They are: either they came through
    // a pipe whose other end only this program's compiler had, in a child process; or `CodeCache` wrote such bytes earlier
    // and has checked that they are whole, that they belong to this component, and that only this user could write them.
    // Wasmtime itself checks that the version and the settings are this engine's. One risk remains: the component takes over
    // the compiler and makes it answer with code of its choice. A compiler in this process would not even need to do that.
    unsafe { wasmtime::component::Component::deserialize(engine, code) }
}

/// As [`deserialize`], of the code that a file of `CodeCache` begins with. The file is mapped: its pages come into memory when
/// the code is run, the kernel may drop them again, and processes on one machine share them.
#[expect(unsafe_code, reason = "the other place where bytes become code that the process runs")]
pub(crate) fn deserialize_file(
    engine: &wasmtime::Engine,
    file: &File,
) -> wasmtime::Result<wasmtime::component::Component> {
    // The file that was checked, whichever file has its name by now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: as above; and the file must not change as long as the component exists. `CodeCache` only ever replaces or
    // unlinks its files, which leaves a mapped file as it is. Only this user may write them, and what this user writes there
    // is run at the next start anyway.
    unsafe { wasmtime::component::Component::deserialize_file(engine, path) }
}

/// Configures jemalloc in the child: without a background thread, so that the process has one thread while it confines
/// itself, and with little memory kept for later, since that counts against the memory limit too. Without these settings a
/// component takes a third more of that limit.
const CHILD_MALLOC_CONF: &str = "background_thread:false,narenas:1,retain:false";

async fn compile_in_child(mut command: Command, timeout: Duration, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    command
        .env_clear()
        .env("RAYON_NUM_THREADS", COMPILE_THREADS.to_string())
        .env("_RJEM_MALLOC_CONF", CHILD_MALLOC_CONF)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::CompilerSpawn)?;
    // Dropping the child kills it.
    match tokio::time::timeout(timeout, exchange(&mut child, bytes)).await {
        Ok(output) => output.map_err(Error::CompilerSpawn)?.code(),
        Err(_elapsed) => Err(Error::CompilerFailed(CompilerFailure::TimedOut { timeout })),
    }
}

/// All that a child returned.
struct ChildOutput {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Writes the component to a child, and reads its output until it ends.
async fn exchange(child: &mut Child, bytes: &[u8]) -> std::io::Result<ChildOutput> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut stdin) = stdin {
            // A child that ends before it has read everything reports the reason by its exit.
            let _reported_by_its_exit = stdin.write_all(bytes).await;
        }
    };
    let ((), stdout, stderr) =
        tokio::join!(send, read(stdout, MAX_CODE_BYTES), read(stderr, MAX_STDERR_BYTES));
    // `read` has closed the pipes, which ends a child that writes more than is read.
    let (stdout, stderr) = (stdout?, stderr?);
    Ok(ChildOutput { status: child.wait().await?, stdout, stderr })
}

async fn read(stream: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(limit).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl ChildOutput {
    fn code(self) -> Result<Vec<u8>, Error> {
        let Self { status, stdout, stderr } = self;
        if status.success() {
            return Ok(stdout);
        }
        let stderr = String::from_utf8_lossy(&stderr);
        // Rust's advice after a panic, which the operator can't follow.
        let lines = stderr.lines().filter(|line| !line.starts_with("note: run with `RUST_BACKTRACE"));
        let stderr = sanitize_message(lines.collect::<Vec<_>>().join(" ").trim());
        if status.code() == Some(i32::from(EXIT_INVALID)) {
            return Err(Error::Invalid(stderr));
        }
        Err(Error::CompilerFailed(CompilerFailure::Crashed { status, stderr }))
    }
}
