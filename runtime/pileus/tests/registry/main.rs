//! The commands for providers in registries, as a user runs them: against the CNCF's registry, with artifacts of oras and
//! signatures of cosign 3. `deploy/dev/registry/build` builds these programs.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that can't go on should stop")]

mod access;
mod inspect;
mod push;
mod terminal;
mod trust;
mod warm;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use pileus_dev::artifact;
use pileus_dev::registry::{Protection, RealRegistry, key_pair, oras, sign};
use serde_json::Value;
use tokio::process::Command;
use tokio::time;

/// How long a command may take that ends within seconds on a quiet machine.
const SOON: Duration = Duration::from_mins(3);

/// A registry, and a user with a home of their own.
struct Bench {
    registry: RealRegistry,
}

/// What a command wrote.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new() -> Self {
        Self::protected(&Protection::default())
    }

    fn protected(protection: &Protection<'_>) -> Self {
        let registry = RealRegistry::protected(protection);
        std::fs::copy(
            artifact::component("simulated-provider").unwrap(),
            registry.folder.path().join("p.wasm"),
        )
        .unwrap();
        Self { registry }
    }

    /// The folder in which commands run, which is also the user's home.
    fn folder(&self) -> &Path {
        self.registry.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// A reference to the registry.
    fn at(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.host)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pileus"));
        // Nothing of the developer's environment: no login, no folders.
        command.env_clear().env("HOME", self.folder()).current_dir(self.folder());
        command.env("PILEUS_COMPILED_CODE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn call(&self, arguments: &[&str]) -> Said {
        output(self.command(arguments)).await
    }

    /// Runs a command that succeeds without a word beside its output.
    async fn succeed(&self, arguments: &[&str]) -> String {
        let said = self.call(arguments).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}: {said:#?}");
        said.stdout
    }

    /// Runs a command that succeeds and prints a JSON object.
    async fn object(&self, arguments: &[&str]) -> Value {
        let with_json = [arguments, &["--json"]].concat();
        serde_json::from_str(&self.succeed(&with_json).await).unwrap()
    }

    /// Runs a command that fails with this code, and a message with these parts.
    async fn refusal(&self, arguments: &[&str], code: i32, parts: &[&str]) -> String {
        let said = self.call(arguments).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{arguments:?}: {said:#?}");
        for part in parts {
            assert!(said.stderr.contains(part), "{arguments:?}: {part:?} is not in {}", said.stderr);
        }
        said.stderr
    }

    /// Pushes the provider to a repository with a tag, and returns the digest.
    async fn push(&self, rest: &str) -> String {
        let pushed = self.object(&["push", "p.wasm", &self.at(rest)]).await;
        pushed["digest"].as_str().unwrap().to_owned()
    }

    fn oras(&self, arguments: &[&str]) -> String {
        oras(self.folder(), arguments)
    }

    /// Makes a key pair, of which NAME.pub is the public one, and returns the private one.
    fn key_pair(&self, name: &str) -> String {
        key_pair(self.folder(), name).0
    }

    fn sign(&self, key: &str, repository: &str, digest: &str, more: &[&str]) {
        sign(self.folder(), key, &self.at(&format!("{repository}@{digest}")), more);
    }
}

async fn output(mut command: Command) -> Said {
    let output = time::timeout(SOON, command.output());
    let Output { status, stdout, stderr } = output.await.expect("it ends").unwrap();
    let said = Said {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    for text in ["panicked", "Error {", "Error(", "Some("] {
        assert!(!said.stderr.contains(text) && !said.stdout.contains(text), "{text}: {said:#?}");
    }
    said
}
