//! Whatever becomes of the compiler's process is an error of one load, and says what happened. The real one is tested
//! with the program that it is a part of; these are programs that do in its place what a compiler shouldn't.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pileus_host::{Code, CompiledCode, Compiler, CompilerEnd, Component, Engine, Error};

use crate::fixture::guest;

fn script(script: &str, limit: Duration) -> Compiler {
    Compiler::Child {
        program: PathBuf::from("/bin/sh"),
        arguments: ["-c", script].map(Into::into).to_vec(),
        limit,
    }
}

async fn load(compiler: Compiler) -> Result<Component, Error> {
    let engine = Engine::start(None, compiler).unwrap();
    Component::load(&engine, guest("hostile_provider")).await
}

/// How a compiler ended that this script plays.
async fn end(play: &str) -> Error {
    let Err(error) = load(script(play, Duration::from_mins(1))).await else { panic!("{play}: loaded") };
    error
}

#[tokio::test]
async fn a_crash_names_the_signal_or_the_exit_code_and_the_last_words() {
    for (play, signal, code, words) in [
        ("kill -SEGV $$", Some(11), None, ""),
        (
            "cat >/dev/null; echo memory allocation failed >&2; kill -ABRT $$",
            Some(6),
            None,
            "memory allocation failed",
        ),
        ("echo thread panicked >&2; exit 101", None, Some(101), "thread panicked"),
        ("exit 1", None, Some(1), ""),
    ] {
        let error = end(play).await;
        let text = error.to_string();
        let Error::CompilerEnded(CompilerEnd::Crashed { status, last_words }) = error else {
            panic!("{play}: {error:?}")
        };
        assert_eq!((status.signal(), status.code(), last_words.as_str()), (signal, code, words), "{play}");
        assert!(text.contains("does not compile") && text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_components_fault() {
    let error = end("cat >/dev/null; echo unknown import >&2; exit 65").await;
    assert!(matches!(&error, Error::Invalid(why) if why == "unknown import"), "{error:?}");
}

#[tokio::test]
async fn what_is_no_code_is_not_run() {
    for play in ["cat >/dev/null; echo code", "cat", "exit 0"] {
        let error = end(play).await;
        assert!(matches!(error, Error::Invalid(_)), "{play}: {error:?}");
    }
}

#[tokio::test]
async fn a_compiler_that_hangs_is_stopped_and_gone() {
    let folder = tempfile::tempdir().unwrap();
    let noted = folder.path().join("process");
    let hangs = format!("echo $$ > {}; exec sleep 600", noted.display());
    let limit = Duration::from_secs(1);
    let Err(error) = load(script(&hangs, limit)).await else { panic!("loaded") };
    assert!(
        matches!(error, Error::CompilerEnded(CompilerEnd::OutOfTime { limit: stopped }) if stopped == limit),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("took longer than 1 s"), "{error}");
    let process = Path::new("/proc").join(std::fs::read_to_string(noted).unwrap().trim()).join("exe");
    let killed = Instant::now();
    // A process that waits to be reaped has no program any more.
    while std::fs::read_link(&process).is_ok() {
        assert!(killed.elapsed() < Duration::from_secs(30), "it still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_this_machines_fault() {
    let compiler =
        Compiler::Child { program: PathBuf::from("/none"), arguments: Vec::new(), limit: Duration::MAX };
    let Err(error) = load(compiler).await else { panic!("loaded") };
    assert!(matches!(error, Error::Compiler(_)), "{error:?}");
}

#[tokio::test]
async fn the_compiler_is_told_no_variable_of_ours() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "this process has some");
    let error = end("export -p >&2; exit 1").await;
    let Error::CompilerEnded(CompilerEnd::Crashed { last_words, .. }) = error else { panic!("{error:?}") };
    let names = last_words.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    let foreign: Vec<_> =
        names.filter(|name| !["RAYON_NUM_THREADS", "_RJEM_MALLOC_CONF", "PWD"].contains(name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test]
async fn one_component_is_compiled_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone").display().to_string();
    let play = format!("mkdir {alone} || exit 1; sleep 0.2; rmdir {alone}; exit 65");
    let engine = Engine::start(None, script(&play, Duration::from_mins(1))).unwrap();
    let load = async || Component::load(&engine, guest("hostile_provider")).await.err().unwrap();
    let ends: [Error; 3] = tokio::join!(load(), load(), load()).into();
    assert!(ends.iter().all(|end| matches!(end, Error::Invalid(_))), "{ends:?}");
}

#[tokio::test]
async fn code_on_disk_needs_no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = CompiledCode::open(&folder.path().join("compiled")).unwrap();
    for compiler in [Compiler::InProcess, script("exit 1", Duration::from_mins(1))] {
        let engine = Engine::start(Some(compiled.clone()), compiler.clone()).unwrap();
        let component = Component::load(&engine, guest("hostile_provider")).await.unwrap();
        let is_cached = matches!(component.code, Code::Cached(_));
        assert_eq!(is_cached, !matches!(compiler, Compiler::InProcess));
    }
}
