//! Each failure of the compiler's process is an error of one load that says what happened. Shell scripts play compilers that
//! fail. The real compiler is tested with the program that it is a part of, in `runtime/pileus/tests/compiler.rs`.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pileus_host::{CodeCache, CodeOrigin, Compiler, CompilerFailure, Component, Engine, Error};
use pileus_loader::Verified;

use crate::fixture::guest;

fn script(script: &str, timeout: Duration) -> Compiler {
    Compiler::Child {
        program: PathBuf::from("/bin/sh"),
        arguments: ["-c", script].map(Into::into).to_vec(),
        timeout,
    }
}

async fn load(compiler: Compiler) -> Result<Component, Error> {
    let engine = Engine::start(None, compiler).unwrap();
    Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test")).await
}

/// The error of a load whose compiler is this script.
async fn failure(play: &str) -> Error {
    let Err(error) = load(script(play, Duration::from_mins(1))).await else { panic!("{play}: loaded") };
    error
}

#[tokio::test]
async fn a_crash_reports_the_signal_or_the_exit_code_and_the_standard_error() {
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
        let error = failure(play).await;
        let text = error.to_string();
        let Error::CompilerFailed(CompilerFailure::Crashed { status, stderr }) = error else {
            panic!("{play}: {error:?}")
        };
        assert_eq!((status.signal(), status.code(), stderr.as_str()), (signal, code, words), "{play}");
        assert!(text.contains("does not compile") && text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_components_fault() {
    let error = failure("cat >/dev/null; echo unknown import >&2; exit 65").await;
    assert!(matches!(&error, Error::Invalid(why) if why == "unknown import"), "{error:?}");
}

#[tokio::test]
async fn output_that_is_not_code_is_not_run() {
    for play in ["cat >/dev/null; echo code", "cat", "exit 0"] {
        let error = failure(play).await;
        assert!(matches!(error, Error::Invalid(_)), "{play}: {error:?}");
    }
}

#[tokio::test]
async fn a_compiler_that_hangs_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let noted = folder.path().join("process");
    let hangs = format!("echo $$ > {}; exec sleep 600", noted.display());
    let timeout = Duration::from_secs(1);
    let Err(error) = load(script(&hangs, timeout)).await else { panic!("loaded") };
    assert!(
        matches!(error, Error::CompilerFailed(CompilerFailure::TimedOut { timeout: reported }) if reported == timeout),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("took longer than 1 s"), "{error}");
    let process = Path::new("/proc").join(std::fs::read_to_string(noted).unwrap().trim()).join("exe");
    let killed = Instant::now();
    // A zombie process has no program.
    while std::fs::read_link(&process).is_ok() {
        assert!(killed.elapsed() < Duration::from_secs(30), "it still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_of_the_host() {
    let compiler =
        Compiler::Child { program: PathBuf::from("/none"), arguments: Vec::new(), timeout: Duration::MAX };
    let Err(error) = load(compiler).await else { panic!("loaded") };
    assert!(matches!(error, Error::CompilerSpawn(_)), "{error:?}");
}

#[tokio::test]
async fn the_compiler_gets_no_environment_variable_of_the_host() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "this process has variables");
    let error = failure("export -p >&2; exit 1").await;
    let Error::CompilerFailed(CompilerFailure::Crashed { stderr, .. }) = error else { panic!("{error:?}") };
    let names = stderr.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    let inherited: Vec<_> =
        names.filter(|name| !["RAYON_NUM_THREADS", "_RJEM_MALLOC_CONF", "PWD"].contains(name)).collect();
    assert!(inherited.is_empty(), "{inherited:?}");
}

#[tokio::test]
async fn one_component_is_compiled_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone").display().to_string();
    let play = format!("mkdir {alone} || exit 1; sleep 0.2; rmdir {alone}; exit 65");
    let engine = Engine::start(None, script(&play, Duration::from_mins(1))).unwrap();
    let load = async || {
        Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test"))
            .await
            .err()
            .unwrap()
    };
    let ends: [Error; 3] = tokio::join!(load(), load(), load()).into();
    assert!(ends.iter().all(|end| matches!(end, Error::Invalid(_))), "{ends:?}");
}

#[tokio::test]
async fn cached_code_needs_no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = CodeCache::open(&folder.path().join("compiled")).unwrap();
    for compiler in [Compiler::InProcess, script("exit 1", Duration::from_mins(1))] {
        let engine = Engine::start(Some(compiled.clone()), compiler.clone()).unwrap();
        let component = Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test"))
            .await
            .unwrap();
        let is_cached = matches!(component.code_origin, CodeOrigin::Cached(_));
        assert_eq!(is_cached, !matches!(compiler, Compiler::InProcess));
    }
}
