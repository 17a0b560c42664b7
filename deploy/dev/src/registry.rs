//! The real registry as a child process, and the tools of users. `deploy/dev/registry/build` builds the programs.
//!
//! It panics where a program is missing or fails, with its output: only tests and the demo use it. Tests of crates that must
//! not depend on this one, whose dependencies include a Kubernetes client, include the file by its path.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on should stop"
)]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/dev/registry/build");

static REGISTRY: LazyLock<PathBuf> = LazyLock::new(|| find("registry"));
static ORAS: LazyLock<PathBuf> = LazyLock::new(|| find("oras"));
static COSIGN: LazyLock<PathBuf> = LazyLock::new(|| find("cosign"));

/// The path of a program.
fn find(program: &str) -> PathBuf {
    let output = Command::new(BUILD).args(["--find", program]).output().unwrap();
    let (path, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "run deploy/dev/registry/build: {error}");
    PathBuf::from(path.trim_end())
}

/// A registry on loopback. It ends with this value, and with the test's process.
pub struct RealRegistry {
    child: Child,
    /// Host and port.
    pub host: String,
    /// Its data and settings. Tests keep their own files beside them.
    pub folder: tempfile::TempDir,
}

/// How a registry is protected.
#[derive(Default)]
pub struct Protection<'a> {
    /// Certificate and key in PEM form.
    pub tls: Option<(&'a str, &'a str)>,
    /// A line of htpasswd.
    pub login: Option<&'a str>,
}

impl RealRegistry {
    /// Starts a registry on a free port that everyone may read and write, and waits until it listens.
    pub fn start() -> Self {
        Self::protected(&Protection::default())
    }

    /// Starts a protected registry. Its certificate is in the file `certificate` of its folder.
    pub fn protected(protection: &Protection<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\n",
            path("data").display()
        );
        if let Some(line) = protection.login {
            std::fs::write(path("htpasswd"), line).unwrap();
            writeln!(config, "auth: {{htpasswd: {{realm: test, path: {}}}}}", path("htpasswd").display())
                .unwrap();
        }
        config += "http:\n  addr: 127.0.0.1:0\n  secret: test\n";
        if let Some((certificate, key)) = protection.tls {
            std::fs::write(path("certificate"), certificate).unwrap();
            std::fs::write(path("key"), key).unwrap();
            let (certificate, key) = (path("certificate"), path("key"));
            writeln!(config, "  tls: {{certificate: {}, key: {}}}", certificate.display(), key.display())
                .unwrap();
        }
        std::fs::write(path("config.yml"), config).unwrap();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&*REGISTRY)
            .arg("serve")
            .arg(path("config.yml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = String::new();
        let port = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the registry has ended: {log}") };
            if let Some((_, rest)) = line.split_once("listening on 127.0.0.1:") {
                break rest.chars().take_while(char::is_ascii_digit).collect::<String>();
            }
            log += &line;
            log.push('\n');
        };
        // A full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, host: format!("127.0.0.1:{port}"), folder }
    }

    /// Ends it, and leaves its data.
    pub fn stop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for RealRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs oras in a folder, and returns its output.
pub fn oras(folder: &Path, arguments: &[&str]) -> String {
    run(&ORAS, folder, arguments)
}

/// Runs cosign in a folder with an empty password.
pub fn cosign(folder: &Path, arguments: &[&str]) -> String {
    run(&COSIGN, folder, arguments)
}

/// Makes a key pair of cosign, and returns the path of the private key and the text of the public one.
pub fn key_pair(folder: &Path, name: &str) -> (String, String) {
    cosign(folder, &["generate-key-pair", "--output-key-prefix", name]);
    let public = std::fs::read_to_string(folder.join(format!("{name}.pub"))).unwrap();
    (folder.join(format!("{name}.key")).to_str().unwrap().to_owned(), public)
}

/// Signs as a user does who has no access to Sigstore's public services.
pub fn sign(folder: &Path, key: &str, image: &str, more: &[&str]) {
    let mut arguments =
        vec!["sign", "--yes", "--key", key, "--use-signing-config=false", "--tlog-upload=false"];
    arguments.extend(["--allow-insecure-registry", image]);
    arguments.extend(more);
    cosign(folder, &arguments);
}

fn run(program: &Path, folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("COSIGN_PASSWORD", "")
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} {arguments:?}: {out}{err}", program.display());
    out.into_owned()
}
