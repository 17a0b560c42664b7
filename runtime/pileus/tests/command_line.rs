//! The program with valid and invalid arguments: every message names the object and the next step, exit codes are as
//! documented, and standard output has only what scripts read.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that can't go on should stop")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use pileus_dev::artifact;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time;

/// A component that is fine, as far as this host offers what it imports.
const IMPORTER: &str = r#"(component
    (import "pileus:provider/secrets@0.2.0" (instance))
    (import "wasi:http/types@0.3.0" (instance))
    (instance $i)
    (export "pileus:provider/info@0.2.0" (instance $i))
    (export "pileus:provider/instances@0.2.0" (instance $i)))"#;

/// A component that exports one interface, with nothing in it.
fn exporter(interface: &str) -> String {
    format!(r#"(component (instance $i) (export "{interface}" (instance $i)))"#)
}

/// How long a call may take that ends within seconds on a quiet machine.
const SOON: Duration = Duration::from_mins(3);

/// A folder with all that a run needs, to change one thing in.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: TempDir::new().unwrap() };
        bench.write("provider.yaml", document("simulated-provider", &simulated()));
        // No API server listens there, which isn't a usage error.
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": {"token": "none"}}],
        });
        bench.write("kubeconfig", kubeconfig.to_string());
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pileus"));
        // Nothing of the developer's environment: no kubeconfig, no log filter, no cluster.
        command.env_clear().env("HOME", self.folder.path()).current_dir(self.folder.path());
        command.env("PILEUS_COMPILED_CODE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn call(&self, arguments: &[&str]) -> Said {
        self.output(self.command(arguments)).await
    }

    async fn output(&self, mut command: Command) -> Said {
        let output = time::timeout(SOON, command.output());
        let Output { status, stdout, stderr } = output.await.expect("it ends").unwrap();
        let said = Said {
            code: status.code(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        };
        for text in ["panicked", "Error {", "Error(", "Some(", "\u{1b}"] {
            assert!(!said.stderr.contains(text) && !said.stdout.contains(text), "{text}: {said:#?}");
        }
        said
    }

    /// Calls it with arguments that can't do, and returns its message.
    async fn refusal(&self, arguments: &[&str], code: i32, parts: &[&str]) -> String {
        let said = self.call(arguments).await;
        said.refuses(&format!("{arguments:?}"), code, parts);
        said.stderr
    }
}

/// A document for the component of a package, with a grant for the host that [`simulated`] names.
fn document(package: &str, configuration: &Value) -> String {
    document_for(&artifact::component(package).unwrap(), configuration)
}

fn document_for(component: &Path, configuration: &Value) -> String {
    let grant = json!({"host": "cloud.example", "tls": false, "port": 8080, "methods": ["GET"]});
    json!({
        "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "mine"},
        "spec": {"source": {"file": component}, "configuration": configuration, "grants": [grant]},
    })
    .to_string()
}

#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    /// Ended with this code and a message with these parts, and left standard output alone.
    fn refuses(&self, case: &str, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{case}: {self:#?}");
        let message = self.stderr.split("pileus: ").last().unwrap();
        for part in parts {
            assert!(message.contains(part), "{case}: {part:?} is not in {message}");
        }
    }
}

fn simulated() -> Value {
    json!({"endpoint": "http://cloud.example:8080"})
}

/// A document with a credential and a limit.
fn with_credentials() -> Value {
    let mut document: Value = serde_json::from_str(&document("simulated-provider", &simulated())).unwrap();
    document["spec"]["limits"] = json!({"reads": {"burst": 5, "perSecond": 1.5}});
    document["spec"]["credentials"] = json!([{
        "name": "main", "hosts": ["cloud.example"], "plain": true, "bearer": {"token": {"file": "token"}},
    }]);
    document
}

const RUN: [&str; 7] =
    ["run", "--provider", "provider.yaml", "--kubeconfig", "kubeconfig", "--admin-address", "127.0.0.1:0"];

#[tokio::test]
async fn help_has_examples_and_exit_codes_and_the_version_is_one_line() {
    let bench = Bench::new();
    let commands = [
        "run",
        "plan",
        "inspect",
        "status",
        "swap",
        "rollback",
        "pause",
        "push",
        "pull",
        "verify",
        "warm",
        "completion",
    ];
    let commands = commands.iter().map(|command| vec![*command, "--help"]);
    for arguments in commands.chain([
        vec!["--help"],
        vec!["provider", "new", "--help"],
        vec!["provider", "test", "--help"],
    ]) {
        let arguments = arguments.as_slice();
        let Said { code, stdout, stderr } = bench.call(arguments).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.contains("Exit codes:") && stdout.contains("Usage: pileus"), "{stdout}");
    }
    let run = bench.call(&["run", "--help"]).await.stdout;
    for part in [
        "--provider <FILE.yaml>",
        "--kubeconfig <FILE>",
        "in KUBECONFIG",
        "[default: 127.0.0.1:10258]",
        "--debug-address <LOOPBACK:PORT>",
    ] {
        assert!(run.contains(part), "{part}: {run}");
    }
    let version = bench.call(&["--version"]).await;
    assert_eq!(version.stdout, concat!("pileus ", env!("CARGO_PKG_VERSION"), "\n"));
    let test = bench.call(&["provider", "test", "--help"]).await.stdout;
    for part in [
        "Example, ",
        "--node <NAME[=PROVIDER-ID]>",
        "--gone <PROVIDER-ID>",
        "--config <FILE|JSON>",
        "--require-all",
        "the last line says that the test is not complete",
    ] {
        assert!(test.contains(part), "{part}: {test}");
    }
    let plan = bench.call(&["plan", "--help"]).await.stdout;
    for part in ["pileus plan --provider next.yaml", "--cluster-cidr <CIDR[,CIDR]>", "--json", "  7  plan: "]
    {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    for arguments in [&[][..], &["plan"], &["inspect"], &["fly"], &["run", "--provider", "a", "--speed", "9"]]
    {
        bench.refusal(arguments, 2, &["Usage: pileus"]).await;
    }
    let upstream = [&RUN[..], &["--cloud-provider=azure", "--secure-port=10258"]].concat();
    let parts = [
        "--cloud-provider: use --provider FILE.yaml",
        "--secure-port: use --admin-address",
        "pileus run --help",
    ];
    bench.refusal(&upstream, 2, &parts).await;
}

#[tokio::test]
async fn a_new_provider_is_written_once_and_never_over_something() {
    let bench = Bench::new();
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest-sdk");
    let new = ["provider", "new", "tiny-sky", "--load-balancers", "--sdk", sdk];
    let Said { code, stdout, stderr } = bench.call(&new).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for part in ["tiny-sky", "cargo test", "README.md"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let manifest = std::fs::read_to_string(bench.path("tiny-sky/Cargo.toml")).unwrap();
    assert!(manifest.contains("/guest-sdk\" }\n") && !manifest.contains("crates.io"), "{manifest}");
    bench.refusal(&new, 2, &["--folder \"tiny-sky\"", "choose another"]).await;
    bench.refusal(&["provider", "new", "Tiny Sky", "--sdk", sdk], 2, &["'Tiny Sky'", "try tiny-sky"]).await;
    bench.refusal(&["provider", "new", "other", "--sdk", "."], 2, &["--sdk \".\"", "guest-sdk of a"]).await;
    bench
        .refusal(&["provider", "new", "other", "--sdk", sdk, "--folder", "a/b"], 1, &["a/b", "No such file"])
        .await;
    bench.refusal(&["provider", "new", "other"], 2, &["--sdk <FOLDER>"]).await;
}

#[tokio::test]
async fn mistakes_in_trust_flags_are_named() {
    let bench = Bench::new();
    let key = "-----BEGIN PUBLIC KEY-----\n\
               MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    bench.write("a.pub", key);
    bench.write("b.pub", key);
    bench.write("a.key", key.replace("PUBLIC", "PRIVATE"));
    let at = "localhost:1/p:1";
    for (flags, parts) in [
        (&["--threshold", "2"][..], &["--key"][..]),
        (&["--signature-layout", "tag"], &["--key"]),
        (&["--signature-layout", "both", "--key", "a.pub"], &["possible values: bundle, tag"]),
        (&["--insecure", "--key", "a.pub"], &["cannot be used with"]),
        (&["--insecure", "--digest", "sha256:0"], &["a digest is"]),
        (&["--plain-http", "--ca-bundle", "a.pub"], &["cannot be used with"]),
        (&["--key", "none.pub"], &["--key \"none.pub\": can't read the key: No such file"]),
        (&["--key", "release=a.key"], &["it is a private key"]),
        (&["--key", "a.pub", "--key", "b.pub"], &["keys \"a\" and \"b\" are the same key"]),
        (&["--key", "a.pub", "--threshold", "2"], &["a threshold of 2 can't be met with 1 keys"]),
        (&["--key", "a.pub", "--ca-bundle", "a.pub"], &["can't use the certificates in a.pub"]),
    ] {
        for command in ["verify", "pull", "inspect", "warm"] {
            bench.refusal(&[&[command, at], flags].concat(), 2, parts).await;
        }
    }
    for command in ["verify", "pull", "push", "warm", "completion"] {
        bench.refusal(&[command], 2, &["Usage: pileus"]).await;
    }
    for (reference, part) in [
        ("provider:1", "docker.io/NAME:TAG"),
        ("ghcr.io/a/p", "it has no version"),
        ("https://ghcr.io/a/p:1", "only oci:// and file:"),
    ] {
        bench.refusal(&["verify", reference, "--insecure"], 2, &[part]).await;
    }
}

#[tokio::test]
async fn completion_scripts_have_the_commands_and_flags_of_each_shell() {
    let bench = Bench::new();
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef pileus"), ("fish", "complete -c pileus")]
    {
        let Said { code, stdout, stderr } = bench.call(&["completion", shell]).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shell}");
        for part in [part, "verify", "signature-layout", "release-deletion"] {
            assert!(stdout.contains(part), "{shell}: {part}");
        }
        assert!(!stdout.contains("compile-component"), "{shell}: it completes the hidden command");
    }
    // The script as bash runs it, for a word that is being typed.
    let script = bench.call(&["completion", "bash"]).await.stdout;
    let complete = "COMP_WORDS=(pileus verify --sig); COMP_CWORD=2; _pileus pileus --sig verify; echo \"${COMPREPLY[*]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{script}\n{complete}")]);
    assert_eq!(bench.output(bash).await.stdout, "--signature-layout\n");
    bench.refusal(&["completion", "csh"], 2, &["possible values: bash, zsh, fish"]).await;
}

#[tokio::test]
async fn invalid_components_are_rejected_with_advice() {
    let bench = Bench::new();
    let whole = std::fs::read(artifact::component("simulated-provider").unwrap()).unwrap();
    let component = |text: &str| wat::parse_str(text).unwrap();
    let cases: [(&str, Vec<u8>, &[&str]); 9] = [
        (
            "empty",
            Vec::new(),
            &["this is not WebAssembly", "it is empty", "cargo build --target wasm32-wasip2"],
        ),
        ("script", b"#!/bin/sh\n".to_vec(), &["this is not WebAssembly", "#!/bin/s"]),
        ("module", component("(module)"), &["core WebAssembly module", "wasm-tools component new"]),
        ("truncated", whole[..whole.len() / 2].to_vec(), &["the component does not compile"]),
        ("garbled", [&whole[..8], b"garbage"].concat(), &["the component does not compile"]),
        (
            "version",
            component(&exporter("pileus:provider/info@0.1.0")),
            &["pileus:provider@0.1.0", "accepts 0.2.x", "rebuild it"],
        ),
        ("capability", component(&exporter("pileus:provider/info@0.2.0")), &["no capability", "instances"]),
        ("other", component(&exporter("acme:tool/tool@1.0.0")), &["not a provider", "acme:tool/tool@1.0.0"]),
        (
            "importer",
            component(IMPORTER),
            &["pileus:provider/secrets@0.2.0", "wasi:http/types@0.3.0", "WASI 0.2"],
        ),
    ];
    for (name, bytes, parts) in cases {
        let file = bench.write(&format!("{name}.wasm"), bytes);
        let message = bench.refusal(&["inspect", file.to_str().unwrap()], 3, parts).await;
        assert!(message.contains(&format!("{name}.wasm")), "{message}");
        // The same in a run, which says which provider it is about.
        bench.write("provider.yaml", document_for(&file, &json!({})));
        bench.refusal(&RUN, 3, &[parts, &["provider mine"]].concat()).await;
    }
}

/// Names of imports may hold anything, and there may be a million.
#[tokio::test]
async fn control_characters_in_a_component_do_not_reach_the_terminal() {
    let bench = Bench::new();
    let bell = r#"(import "url=<\1b]0;owned\07\c2\9b31m\e2\80\ae>" (func))"#;
    let many =
        (0..1000).map(|number| format!(r#"(import "url=<{number}>" (func))"#)).collect::<Vec<_>>().concat();
    let long = format!(r#"(import "url=<{}>" (func))"#, "long ".repeat(10_000));
    for (name, imports) in [("bell", bell), ("many", &many), ("long", &long)] {
        let provider = exporter("pileus:provider/info@0.2.0").replacen(
            "(component",
            &format!("(component {imports}"),
            1,
        );
        let provider = provider.replacen(
            "(export",
            r#"(export "pileus:provider/instances@0.2.0" (instance $i)) (export"#,
            1,
        );
        let file = bench.write(&format!("{name}.wasm"), wat::parse_str(provider).unwrap());
        let message = bench.refusal(&["inspect", file.to_str().unwrap()], 3, &["url=<"]).await;
        let is_shown = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(message.chars().all(is_shown), "{message:?}");
        assert!(message.len() < 4_000, "{}", message.len());
    }
}

/// What the compiler says is read up to a length, and what it says after that breaks nothing.
#[tokio::test]
async fn a_long_name_in_a_compile_error_breaks_nothing() {
    let bench = Bench::new();
    for length in [10, 20_000] {
        let name = "a".repeat(length);
        let twice = format!(r#"(component (import "{name}" (func)) (import "{name}" (func)))"#);
        let file = bench.write("twice.wasm", wat::parse_str(twice).unwrap());
        let parts = ["the component does not compile: ", "aaa"];
        let message = bench.refusal(&["inspect", file.to_str().unwrap()], 3, &parts).await;
        assert!(!message.contains("the compiler ended"), "{length}: {message}");
    }
}

#[tokio::test]
async fn unreadable_files_are_named() {
    let bench = Bench::new();
    let folder = bench.folder.path().to_str().unwrap();
    bench
        .refusal(&["inspect", "none.wasm"], 2, &["can't read the component none.wasm", "No such file"])
        .await;
    bench.refusal(&["inspect", folder], 2, &["can't read the component", folder, "directory"]).await;
    for (document, cause) in [("none.yaml", "No such file"), (folder, "directory")] {
        let named = ["can't read the CloudProvider document", document, cause];
        bench.refusal(&["run", "--provider", document, "--kubeconfig", "kubeconfig"], 2, &named).await;
        let component = artifact::component("simulated-provider").unwrap();
        bench.refusal(&["inspect", component.to_str().unwrap(), "--provider", document], 2, &named).await;
    }
    bench.write("provider.yaml", document_for(Path::new("beside.wasm"), &json!({})));
    bench.refusal(&RUN, 2, &["can't read the component", "beside.wasm", "No such file"]).await;
}

#[tokio::test]
async fn all_problems_of_a_document_are_reported_at_once() {
    let bench = Bench::new();
    bench.write(
        "provider.yaml",
        "apiVersion: pileus.dev/v2\nkind: CloudProvider\nmetadata: {name: My Cloud}\nspec:\n  source: {}\n  \
         grants:\n    - host: a.example\n      port: 70000\n      hots: 1\n  \
         limits: {reads: {burst: 0, perSecond: 1}}\n  credentials:\n    - name: main\n      hosts: [a.example]\n      \
         bearer: {token: hunter2}\n  connection: {proxy: {url: 'https://proxy.example'}}\n",
    );
    let told = bench
        .refusal(
            &RUN,
            2,
            &[
                "the CloudProvider document provider.yaml is invalid:\n",
                "\n  apiVersion: unknown value \"pileus.dev/v2\"; expected \"pileus.dev/v1alpha1\"",
                "\n  metadata.name: invalid name \"My Cloud\"",
                "\n  spec.source: a provider needs a source; add image or file",
                "\n  spec.grants[0].port: expected a port from 1 to 65535, found 70000",
                "\n  spec.grants[0].hots: unknown field; known fields are ",
                "\n  spec.limits.reads.burst: expected a whole number from 1 to 1000000, found 0",
                "\n  spec.credentials[0].bearer.token: expected a reference to the value, never the value itself",
                "\n  spec.connection.proxy.url: proxy \"https://proxy.example\" isn't valid",
            ],
        )
        .await;
    assert!(!told.contains("hunter2"), "a secret is repeated: {told}");
    bench.write("provider.yaml", "a: [");
    bench.refusal(&RUN, 2, &["provider.yaml is invalid", "invalid YAML"]).await;
}

/// What a document says about a provider can be judged only beside what that provider says.
#[tokio::test]
async fn all_mismatches_between_a_document_and_its_provider_are_reported() {
    let bench = Bench::new();
    let component = artifact::component("simulated-provider").unwrap();
    let inspect = ["inspect", component.to_str().unwrap(), "--provider", "provider.yaml"];
    let mut document: Value = serde_json::from_str(&document("simulated-provider", &simulated())).unwrap();
    let limit = json!({"burst": 1, "perSecond": 1});
    document["spec"]["limits"] = json!({"raeds": limit, "reads": limit, "wirtes": limit});
    bench.write("provider.yaml", document.to_string());
    let parts = [
        "\n  spec.limits.raeds: the provider has no such limit; its rules have the keys ",
        "\n  spec.limits.wirtes: the provider has no such limit",
    ];
    for command in [&RUN[..], &inspect] {
        let told = bench.refusal(command, 2, &parts).await;
        assert!(!told.contains("spec.limits.reads"), "{told}");
    }
    document["spec"].as_object_mut().unwrap().remove("limits");
    document["spec"]["connection"] = json!({"caBundle": "none.pem"});
    bench.write("provider.yaml", document.to_string());
    bench.refusal(&RUN, 2, &["none.pem"]).await;
}

#[tokio::test]
async fn problems_of_a_providers_settings_are_reported_up_to_a_limit() {
    let bench = Bench::new();
    bench.write("provider.yaml", document("hostile-provider", &json!({"behaviour": "wrong-settings"})));
    let parts = [
        "provider mine: the provider's settings are invalid:\n",
        "\n  settings.endpoints[0].host: host \"a b\" isn't valid",
        "\n  settings.rules[0].host: host \"https://cloud\" isn't valid",
        "\n  settings.rules[0].path: path pattern \"machines\" isn't valid",
        "\n  settings.rules[1].host: ",
        "\n  settings.rules[1].cache-scope: key \"{1}\" isn't valid",
    ];
    let told = bench.refusal(&RUN, 4, &parts).await;
    let problems = told.lines().filter(|line| line.starts_with("  settings.")).count();
    assert!(problems == 50 && told.contains("\n  and 154 more"), "{told}");
}

#[tokio::test]
async fn a_rejected_configuration_is_reported_with_paths() {
    let bench = Bench::new();
    let cases: [(Value, &[&str]); 3] = [
        (json!({}), &["does not accept its configuration", "endpoint"]),
        (json!({"endpoint": "ftp://cloud.example"}), &["does not accept its configuration", "endpoint: "]),
        (
            json!({"endpoint": "http://cloud.example:8080", "end-point": 1}),
            &[
                "end-point: unknown field `end-point`, expected one of `endpoint`, `metadata`, `loadBalancers`, `reads`, `writes`",
            ],
        ),
    ];
    for (configuration, parts) in cases {
        bench.write("provider.yaml", document("simulated-provider", &configuration));
        bench.refusal(&RUN, 4, &[parts, &["provider mine: "]].concat()).await;
        let component = artifact::component("simulated-provider").unwrap();
        bench
            .refusal(&["inspect", component.to_str().unwrap(), "--provider", "provider.yaml"], 4, parts)
            .await;
    }
}

#[tokio::test]
async fn a_provider_that_loops_in_configure_fails_the_start() {
    let bench = Bench::new();
    let document = document("hostile-provider", &json!({"behaviour": "loop-in-configure"}));
    bench.write("provider.yaml", document);
    // After 2 s of processor time, or after 5 s on a machine that is too busy to give it that.
    bench.refusal(&RUN, 4, &["provider mine: the provider's configure stopped a"]).await;
}

#[tokio::test]
async fn sigterm_during_the_load_of_a_provider_stops_at_once() {
    let bench = Bench::new();
    let document = document("hostile-provider", &json!({"behaviour": "loop-in-configure"}));
    bench.write("provider.yaml", document);
    let mut command = bench.command(&RUN);
    // Else what is compiled may be there already, and this would be about the loop alone.
    command.env("PILEUS_COMPILED_CODE", bench.path("compiled"));
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(run.stderr.take().unwrap()).lines();
    let wait = async {
        while !log.next_line().await.unwrap().unwrap().contains("serving /livez") {}
        rustix::process::kill_process(pid(&run), rustix::process::Signal::TERM).unwrap();
        run.wait().await.unwrap()
    };
    let status = time::timeout(SOON, wait).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

/// A program with no rights but its user's. Root's may look into every process, unless it has given up its capabilities.
fn without_capabilities(program: &str) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", program]);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Whether another process of the same user may look into the memory of this one.
async fn may_be_looked_into(process: &Child) -> bool {
    let program = format!("/proc/{}/exe", process.id().unwrap());
    let look = without_capabilities("readlink").arg(program).stdout(Stdio::null()).status().await;
    look.unwrap().success()
}

#[tokio::test]
async fn a_run_leaves_no_core_dump_and_other_processes_cannot_read_its_memory() {
    let bench = Bench::new();
    let mut command = without_capabilities(env!("CARGO_BIN_EXE_pileus"));
    // Empty, so that the compiler's process has to start.
    command.env("PILEUS_COMPILED_CODE", bench.path("compiled"));
    let mut run = command.args(RUN).current_dir(bench.folder.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(run.stderr.take().unwrap()).lines();
    let started = time::timeout(SOON, async {
        while !log.next_line().await.unwrap().unwrap().contains("serving /livez") {}
    });
    started.await.unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", run.id().unwrap())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<_> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
    assert!(!may_be_looked_into(&run).await);
    let other = without_capabilities("sleep").arg("60").spawn().unwrap();
    let looked = async {
        // At first it is setpriv still.
        while !may_be_looked_into(&other).await {}
    };
    time::timeout(SOON, looked).await.expect("others may be looked into");
    // The compiler's process starts all the same.
    let loaded = async { while !log.next_line().await.unwrap().unwrap().contains("ready to lead") {} };
    time::timeout(SOON, loaded).await.unwrap();
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap()
}

#[tokio::test]
async fn invalid_flags_are_named_with_their_value() {
    let bench = Bench::new();
    bench
        .refusal(&[&RUN[..], &["--log-filter", "info,=,="]].concat(), 2, &["--log-filter \"info,=,=\": "])
        .await;
    let format =
        bench.refusal(&[&RUN[..], &["--log-format", "xml"]].concat(), 2, &["xml", "text, json"]).await;
    assert!(format.contains("--log-format"), "{format}");
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = here.local_addr().unwrap().to_string();
    let run = ["run", "--provider", "provider.yaml", "--kubeconfig", "kubeconfig", "--admin-address", &taken];
    bench.refusal(&run, 1, &[&taken, "in use", "choose another --admin-address"]).await;
    bench
        .refusal(&["run", "--provider", "a", "--admin-address", "here"], 2, &["--admin-address", "here"])
        .await;
    let run = [&RUN[..], &["--debug-address", &taken]].concat();
    bench.refusal(&run, 1, &[&taken, "in use", "choose another --debug-address"]).await;
    for address in ["0.0.0.0:10259", "[::]:10259", "10.0.0.1:10259", "[::ffff:10.0.0.1]:10259", "localhost"] {
        let run = ["run", "--provider", "a", "--debug-address", address];
        bench.refusal(&run, 2, &["--debug-address", address, "127.0.0.1:10259"]).await;
    }
}

#[tokio::test]
async fn without_a_usable_kubeconfig_the_error_says_how_to_pass_one() {
    let bench = Bench::new();
    let run = ["run", "--provider", "provider.yaml", "--admin-address", "127.0.0.1:0"];
    let advice = "pass --kubeconfig FILE, or run in a Pod with a service account";
    bench.refusal(&run, 2, &["not in a Pod and no kubeconfig given", advice]).await;
    for (kubeconfig, content) in [
        ("garbage", Some("a: [")),
        ("empty", Some("")),
        ("no-context", Some(r#"{"apiVersion": "v1", "kind": "Config", "current-context": "b"}"#)),
        ("missing", None),
    ] {
        if let Some(content) = content {
            bench.write(kubeconfig, content);
        }
        let with_flag = [&run[..], &["--kubeconfig", kubeconfig]].concat();
        bench.refusal(&with_flag, 2, &["can't use the kubeconfig", kubeconfig, advice]).await;
    }
    let mut with_variable = bench.command(&run);
    with_variable.env("KUBECONFIG", bench.path("garbage"));
    let said = bench.output(with_variable).await;
    said.refuses("KUBECONFIG", 2, &["can't use the kubeconfig in KUBECONFIG (", advice]);
}

#[tokio::test]
async fn a_plan_without_its_inputs_fails_with_advice() {
    let bench = Bench::new();
    let plan = ["plan", "--provider", "provider.yaml", "--kubeconfig", "kubeconfig"];
    bench
        .refusal(
            &plan,
            6,
            &[
                "can't read namespace kube-system at https://127.0.0.1:1/",
                "the API server does not answer: client error",
                "check that it is running",
            ],
        )
        .await;
    let ranges = [&plan[..], &["--cluster-cidr", "10.0.0.0/8,10.0.0.0/9"]].concat();
    bench.refusal(&ranges, 2, &["--cluster-cidr", "must be of different address families"]).await;
    bench
        .refusal(
            &["plan", "--provider", "none.yaml"],
            2,
            &["can't read the CloudProvider document none.yaml"],
        )
        .await;
    let advice = "pass --kubeconfig FILE";
    bench.refusal(&["plan", "--provider", "provider.yaml"], 2, &[advice]).await;
}

#[tokio::test]
async fn inspect_shows_a_component_and_the_hosts_that_it_requests() {
    let bench = Bench::new();
    let component = artifact::component("simulated-provider").unwrap();
    let component = component.to_str().unwrap();
    let Said { code, stdout, stderr } = bench.call(&["inspect", component]).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for part in [
        "sha256:",
        "pileus:provider@0.2.0 (this host accepts 0.2.x)",
        "instances: up to ",
        "pileus:provider/info@0.2.0",
        "pileus:provider/instances@0.2.0",
        "wasi:http/outgoing-handler@0.2",
        "simulated://…",
        "endpoint (string, required)",
        "pass one with --provider FILE.yaml",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }

    let inspect = ["inspect", component, "--provider", "provider.yaml"];
    let granted = bench.call(&inspect).await;
    assert_eq!(granted.code, Some(0), "{granted:#?}");
    let wish = "http://cloud.example:8080 [granted by http://cloud.example:8080, no credential]: to read the instances of Nodes";
    assert!(granted.stdout.contains(wish), "{granted:#?}");

    bench.write("provider.yaml", with_credentials().to_string());
    let compared = bench.call(&inspect).await;
    for part in [
        "[granted by http://cloud.example:8080, credential main]: ",
        "credentials         main: bearer, for cloud.example, also without TLS",
        "your limits         reads: burst 5, 90 per minute (the provider declares ",
    ] {
        assert!(compared.stdout.contains(part), "{part}: {}", compared.stdout);
    }

    let elsewhere = json!({"endpoint": "https://elsewhere.example"});
    bench.write("provider.yaml", document("simulated-provider", &elsewhere));
    let refused = bench.call(&inspect).await;
    assert_eq!(refused.code, Some(0), "{refused:#?}");
    assert!(refused.stdout.contains("https://elsewhere.example:443 [NOT GRANTED]: "), "{refused:#?}");
}

#[tokio::test]
async fn inspect_has_the_same_values_in_text_and_json() {
    let bench = Bench::new();
    let component = artifact::component("simulated-provider").unwrap();
    let component = component.to_str().unwrap();
    for document in [&[][..], &["--provider", "provider.yaml"]] {
        let inspect = [&["inspect", component][..], document].concat();
        let text = bench.call(&inspect).await.stdout;
        let said = bench.call(&[&inspect[..], &["--json"]].concat()).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:#?}");
        let json: Value = serde_json::from_str(&said.stdout).unwrap();
        let told = |value: &Value| text.contains(value.as_str().unwrap());
        assert!(told(&json["file"]) && told(&json["digest"]) && json["digest"] != "", "{text} {json:#}");
        let size = json["sizeBytes"].as_u64().unwrap();
        assert_eq!(size, std::fs::metadata(component).unwrap().len());
        assert!(text.contains(&format!("{} kB", size.div_ceil(1000))), "{text}");
        assert!(["compiler", "cache"].contains(&json["code"]["from"].as_str().unwrap()), "{json:#}");
        assert_eq!(json["contract"], json!({"version": "0.2.0", "accepted": "0.2.x"}));
        let list = |name: &str| json[name].as_array().unwrap().clone();
        assert!(list("exports").iter().all(told) && list("exports").len() == 5, "{text} {json:#}");
        for import in list("imports") {
            let provides = import["provides"].as_str().unwrap_or("linked, provides nothing");
            assert!(
                text.contains(&format!("{}: {provides}", import["interface"].as_str().unwrap())),
                "{import}"
            );
        }
        assert!(
            list("imports").iter().any(|import| import["provides"].is_null()),
            "a standard library is in it"
        );
        assert_eq!(
            json["capabilities"],
            json!([
                {
                    "name": "instances", "controllers": ["cloud-node", "cloud-node-lifecycle"],
                    "largestBatch": 5000, "sideBySide": true,
                },
                {"name": "local-instance", "controllers": ["node-manager"], "largestBatch": 1, "sideBySide": false},
                {"name": "load-balancers", "controllers": ["service-lb"], "largestBatch": 1000, "sideBySide": true},
                {"name": "routes", "controllers": ["node-route"], "largestBatch": 1000, "sideBySide": false},
            ])
        );
        assert!(
            text.contains(
                "instances: up to 5000 items per call, concurrent calls, used by cloud-node, cloud-node-lifecycle"
            ),
            "{text}"
        );
        assert!(
            text.contains("routes: up to 1000 items per call, one call at a time, used by node-route"),
            "{text}"
        );
        let memory = &json["memory"];
        let bytes = memory["initialBytes"].as_u64().unwrap();
        assert!(bytes >= 64 << 10 && bytes < memory["limitBytes"].as_u64().unwrap(), "{memory}");
        assert!(text.contains(&format!("{} KiB initially, at most 64 MiB per call", bytes >> 10)), "{text}");
        let elements = json["tables"]["initialElements"].as_u64().unwrap();
        assert!(elements > 0 && text.contains(&format!("{elements} elements initially")), "{text}");
        let tool = |producer: &Value| {
            format!("{} {} ", producer["field"].as_str().unwrap(), producer["name"].as_str().unwrap())
        };
        let tools: Vec<_> = list("producers").iter().map(tool).collect();
        assert!(tools.iter().all(|tool| text.contains(tool)), "{text} {json:#}");
        assert!(tools.contains(&"processed-by wit-component ".to_owned()), "{tools:?}");
        let provider = &json["provider"];
        assert_eq!((&provider["name"], &provider["nodeLabels"]), (&json!("simulated"), &json!([])));
        assert_eq!(provider["configurationSchema"]["required"], json!(["endpoint"]));
        let settings = &json["settings"];
        if document.is_empty() {
            assert_eq!(*settings, Value::Null);
        } else {
            let wish = &settings["requestedHosts"][0];
            assert_eq!(wish["endpoint"], "http://cloud.example:8080");
            assert_eq!(wish["grantedBy"], json!(["http://cloud.example:8080"]));
            assert!(told(&wish["reason"]), "{settings}");
            assert_eq!((&settings["rules"], &settings["listsInPages"]), (&json!(18), &json!(5)));
            assert!(text.contains("18 request rules, 5 for paged lists"), "{text}");
            shows_the_rules(&text, settings);
        }
    }

    let inspect = ["inspect", component, "--provider", "provider.yaml", "--json"];
    let told = async |document: String| -> Value {
        bench.write("provider.yaml", document);
        serde_json::from_str::<Value>(&bench.call(&inspect).await.stdout).unwrap()["settings"].take()
    };
    let elsewhere = json!({"endpoint": "https://elsewhere.example"});
    let settings = told(document("simulated-provider", &elsewhere)).await;
    let given = |field: &str| settings["requestedHosts"][0][field].clone();
    assert_eq!((given("grantedBy"), given("credentials")), (json!([]), json!([])));
    assert_eq!(settings["operatorLimits"], json!([]));
    let settings = told(with_credentials().to_string()).await;
    assert_eq!(settings["requestedHosts"][0]["credentials"], json!(["main"]));
    assert_eq!(
        settings["operatorLimits"],
        json!([{"key": "reads", "burst": 5.0, "perSecond": 1.5, "requests": null}])
    );
    let credential = json!({
        "name": "main", "kind": "bearer", "hosts": ["cloud.example"], "paths": [], "auxiliary": [], "plain": true,
    });
    assert_eq!(settings["credentials"], json!([credential]));
}

/// The table of a text says of each rule what the object says.
fn shows_the_rules(text: &str, settings: &Value) {
    let table = settings["ruleTable"].as_array().unwrap();
    for rule in table {
        let [method, effect, path] = ["method", "effect", "path"].map(|field| rule[field].as_str().unwrap());
        let limits = rule["limits"][0].as_str().unwrap();
        let page = rule["page"].as_object().map_or("", |_| "query cursor");
        let words = [method, effect, path, limits, rule["cacheScope"].as_str().unwrap(), page];
        let is_it =
            |line: &str| line.split_whitespace().eq(words.iter().flat_map(|it| it.split_whitespace()));
        assert!(rule["host"] == "cloud.example" && text.lines().any(is_it), "{text} {rule}");
    }
    let (_, below) = text.split_once("\n    cloud.example\n").unwrap();
    assert_eq!((table.len(), below.lines().count()), (18, 19), "{text}");
    assert!(below.lines().all(|line| line.len() <= 100), "{text}");
}

#[tokio::test]
async fn errors_are_text_also_with_json() {
    let bench = Bench::new();
    let file = bench.write("script.wasm", "#!/bin/sh");
    bench.refusal(&["inspect", file.to_str().unwrap(), "--json"], 3, &["this is not WebAssembly"]).await;
    bench.write("provider.yaml", document("simulated-provider", &json!({})));
    let component = artifact::component("simulated-provider").unwrap();
    let inspect = ["inspect", component.to_str().unwrap(), "--provider", "provider.yaml", "--json"];
    bench.refusal(&inspect, 4, &["does not accept its configuration", "endpoint"]).await;
}

#[tokio::test]
async fn a_closed_pipe_is_not_an_error() {
    let bench = Bench::new();
    let component = artifact::component("simulated-provider").unwrap();
    for arguments in [&["inspect", component.to_str().unwrap()][..], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = bench.command(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{output:?}");
    }
}

/// Every line on standard error is a JSON object, for each end of the process; numbers are numbers.
#[tokio::test]
async fn json_logs_are_json_to_the_last_line() {
    let bench = Bench::new();
    bench.write("broken.yaml", "{");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let run = ["run", "--provider", "provider.yaml", "--kubeconfig", "kubeconfig", "--log-format", "json"];
    let with = |more: &[&'static str]| [run.as_slice(), more].concat();
    let taken_address = [run.as_slice(), &["--admin-address", &taken]].concat();
    let rows: [(&[&str], i32); 7] = [
        (&["run", "--log-format=json", "--speed"], 2),
        (&with(&["--nonsense"]), 2),
        (&with(&["--cloud-provider=azure"]), 2),
        (&with(&["--log-filter", "a=b=c"]), 2),
        (&with(&["--cluster-cidr", "nonsense"]), 2),
        (&["run", "--log-format", "json", "--provider", "broken.yaml"], 2),
        (&taken_address, 1),
    ];
    for (arguments, code) in rows {
        let said = bench.call(arguments).await;
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:#?}");
        let lines: Vec<Value> = said.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!((&last["level"], &last["exit_code"]), (&json!("ERROR"), &json!(code)), "{last}");
        assert!(last["error"].as_str().is_some_and(|error| error.len() > 10), "{last}");
        assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_string()));
    }
    let help = bench.call(&["run", "--log-format", "json", "--help"]).await;
    assert!(help.code == Some(0) && help.stdout.contains("Usage") && help.stderr.is_empty(), "{help:?}");
}
