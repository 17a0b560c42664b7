//! Who compiles, and how it is kept from hurting anybody: in a child process, whose memory goes with it, and whose crash,
//! hang or hunger costs no more than one load.
//!
//! The child is the same program in another mode, so that it is the same compiler that made the code and the same engine
//! that runs it. It gets the component on its standard input and nothing else: no variable of ours, which may hold
//! secrets, no descriptor, no folder. It answers with code on its standard output.

pub(crate) mod child;
mod memory;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::engine::config;
use crate::error::{CompilerEnd, Error};
use crate::limits::{CODE_CEILING, COMPILE_THREADS, COMPILE_TIME};
use crate::wire::text;

/// Who compiles components.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// A child process of this program, as it should be wherever others are to be protected from it.
    Child {
        /// The program; its `main` calls [`compile_child`](crate::compile_child).
        program: PathBuf,
        /// What tells it to.
        arguments: Vec<OsString>,
        /// How long it may take.
        limit: Duration,
    },
    /// This process itself, without any of that protection: for tests and benches, whose program is not ours to start.
    InProcess,
}

/// The exit code of a child that has compiled nothing as the component is not valid, and has said why.
const REFUSED: u8 = 65;

/// How much of what the child says at its end is kept, in bytes: the message of a panic.
const LAST_WORDS: u64 = 1 << 10;

impl Compiler {
    /// This very program, with these arguments: the one that runs, also where its file has been replaced since.
    pub fn this_program(arguments: &[&str]) -> Self {
        Self::Child {
            program: PathBuf::from("/proc/self/exe"),
            arguments: arguments.iter().map(OsString::from).collect(),
            limit: COMPILE_TIME,
        }
    }

    /// Makes code for [`config`]'s engine of a component.
    ///
    /// # Errors
    /// [`Error::Compiler`], [`Error::CompilerEnded`], and [`Error::Invalid`] where it is the component's fault.
    pub(crate) async fn compile(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        match self {
            Self::Child { program, arguments, limit } => {
                let mut command = Command::new(program);
                command.args(arguments);
                in_child(command, *limit, &bytes).await
            }
            Self::InProcess => {
                let compiled = tokio::task::spawn_blocking(move || compile(&bytes)).await;
                compiled.map_err(|panic| Error::Invalid(format!("the compiler failed: {panic}")))?
            }
        }
    }
}

fn compile(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let engine = wasmtime::Engine::new(&config()).map_err(|error| Error::engine(&error))?;
    engine.precompile_component(bytes).map_err(|error| Error::Invalid(text(&format!("{error:#}"))))
}

/// How the compiler's process sets its allocator up, where that is jemalloc: without a thread of its own before the process
/// has given up what it doesn't need, and so that what it keeps for later, which counts against the limit of memory too, is
/// little. Without these a component takes a third more of that limit.
const COMPILE_ALLOCATOR: &str = "background_thread:false,narenas:1,retain:false";

async fn in_child(mut command: Command, limit: Duration, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    command
        .env_clear()
        .env("RAYON_NUM_THREADS", COMPILE_THREADS.to_string())
        .env("_RJEM_MALLOC_CONF", COMPILE_ALLOCATOR)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::Compiler)?;
    // Dropping the child ends it.
    match tokio::time::timeout(limit, converse(&mut child, bytes)).await {
        Ok(said) => said.map_err(Error::Compiler)?.code(),
        Err(_elapsed) => Err(Error::CompilerEnded(CompilerEnd::OutOfTime { limit })),
    }
}

/// All that came of a child.
struct Said {
    status: ExitStatus,
    output: Vec<u8>,
    last_words: Vec<u8>,
}

async fn converse(child: &mut Child, bytes: &[u8]) -> std::io::Result<Said> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut input) = input {
            // A child that ends before it has read all says by its end why.
            let _its_end_tells = input.write_all(bytes).await;
        }
    };
    let ((), output, last_words) = tokio::join!(send, read(output, CODE_CEILING), read(errors, LAST_WORDS));
    // One that goes on talking past what is read ends when nobody listens any more.
    let (output, last_words) = (output?, last_words?);
    Ok(Said { status: child.wait().await?, output, last_words })
}

async fn read(stream: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl Said {
    fn code(self) -> Result<Vec<u8>, Error> {
        let Self { status, output, last_words } = self;
        if status.success() {
            return Ok(output);
        }
        let last_words = String::from_utf8_lossy(&last_words);
        // Rust's advice after a panic, which nobody here can follow.
        let told = last_words.lines().filter(|line| !line.starts_with("note: run with `RUST_BACKTRACE"));
        let last_words = text(told.collect::<Vec<_>>().join(" ").trim());
        if status.code() == Some(i32::from(REFUSED)) {
            return Err(Error::Invalid(last_words));
        }
        Err(Error::CompilerEnded(CompilerEnd::Crashed { status, last_words }))
    }
}
