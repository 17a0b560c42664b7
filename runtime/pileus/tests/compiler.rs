//! The compiler as a child process: its code runs, it closes inherited files and credentials, and if it lacks memory
//! only the load fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pileus_dev::artifact;
use pileus_host::{
    CodeCache, CodeOrigin, Compiler, CompilerFailure, Component, Engine, Error, Limits, Metrics,
};
use pileus_loader::Verified;
use prometheus_client::registry::Registry;

const LIMIT: Duration = Duration::from_mins(2);

/// This program, in its mode for compiling.
fn child() -> Compiler {
    Compiler::Child {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pileus")),
        arguments: vec![pileus::cli::COMPILE.into()],
        timeout: LIMIT,
    }
}

/// The same, after a shell has done this.
fn child_after(preparation: &str) -> Compiler {
    let [program, mode] = [env!("CARGO_BIN_EXE_pileus"), pileus::cli::COMPILE];
    let script = format!("{preparation}; exec {program} {mode}");
    Compiler::Child {
        program: PathBuf::from("/bin/sh"),
        arguments: vec!["-c".into(), script.into()],
        timeout: LIMIT,
    }
}

fn component() -> Vec<u8> {
    fs::read(artifact::component("simulated-provider").unwrap()).unwrap()
}

#[tokio::test]
async fn what_it_makes_runs_and_is_kept_for_an_engine_that_would_make_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = CodeCache::open(&folder.path().join("compiled")).unwrap();
    let engine = Engine::start(Some(compiled.clone()), child()).unwrap();
    let loaded = Component::load(&engine, Verified::from_operator(component(), "test")).await.unwrap();
    assert!(matches!(loaded.code_origin, CodeOrigin::Compiled(_)));
    let metrics = Metrics::register(&mut Registry::default());
    let description = loaded.describe(&Limits::default(), &metrics).await.unwrap();
    assert_eq!(description.name, "simulated");

    let engine = Engine::start(Some(compiled), Compiler::InProcess).unwrap();
    let loaded = Component::load(&engine, Verified::from_operator(component(), "test")).await.unwrap();
    assert!(matches!(loaded.code_origin, CodeOrigin::Cached(_)));
}

#[tokio::test]
async fn a_component_that_is_not_valid_is_refused_in_the_compilers_words() {
    let engine = Engine::start(None, child()).unwrap();
    let mut half = component();
    half.truncate(half.len() / 2);
    let Err(error) = Component::load(&engine, Verified::from_operator(half, "test")).await else {
        panic!("loaded")
    };
    let Error::Invalid(why) = error else { panic!("{error:?}") };
    assert!(why.contains("out of bounds"), "{why}");
}

#[tokio::test]
async fn where_it_gets_no_memory_the_load_fails_and_says_so() {
    let engine = Engine::start(None, child_after("ulimit -v 131072")).unwrap();
    let Err(error) = Component::load(&engine, Verified::from_operator(component(), "test")).await else {
        panic!("loaded")
    };
    assert!(matches!(error, Error::CompilerFailed(CompilerFailure::Crashed { .. })), "{error:?}");
    assert!(
        error.to_string().contains("4 GiB of memory where the machine and the container's limit allow it"),
        "{error}"
    );
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn before_it_reads_a_component_it_has_given_up_what_it_needs_not() {
    // It inherits an open file, and waits for a component that never comes.
    let script =
        format!("exec 7</etc/hostname; exec {} {}", env!("CARGO_BIN_EXE_pileus"), pileus::cli::COMPILE);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
    let process = Running(command.spawn().unwrap());
    let of_it = Path::new("/proc").join(process.0.id().to_string());
    let read = |file: &str| fs::read_to_string(of_it.join(file)).unwrap();

    // The limit on descriptors is the last thing that it sets.
    let started = Instant::now();
    while limit(&read("limits"), "Max open files") != "16" {
        assert!(started.elapsed() < Duration::from_mins(1), "{}", read("limits"));
        std::thread::sleep(Duration::from_millis(5));
    }
    for (name, expected) in [
        ("Max address space", "4294967296"),
        ("Max cpu time", "360"),
        ("Max core file size", "0"),
        ("Max file size", "0"),
    ] {
        assert_eq!(limit(&read("limits"), name), expected, "{name}");
    }
    // Less where the tests run in a container that has a limit.
    assert!(limit(&read("limits"), "Max data size").parse::<u64>().unwrap() <= 4 << 30);
    let mut open: Vec<_> =
        fs::read_dir(of_it.join("fd")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    open.sort();
    assert_eq!(open, ["0", "1", "2"]);
    assert_eq!(read("oom_score_adj").trim(), "1000");
    let own: i32 = niceness(&fs::read_to_string("/proc/self/stat").unwrap());
    assert_eq!(niceness(&read("stat")), (own + 10).min(19));
}

/// The soft limit of this name.
fn limit<'a>(limits: &'a str, name: &str) -> &'a str {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap()
}

/// The 19th field; the second is in parentheses, and may hold blanks.
fn niceness(stat: &str) -> i32 {
    let rest = stat.rsplit(')').next().unwrap();
    rest.split_whitespace().nth(16).unwrap().parse().unwrap()
}
