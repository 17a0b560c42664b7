//! The environment of a test: an API server with the shipped role, a cloud, and any number of Pileus processes.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, api::ListParams};
use pileus_dev::kubernetes::{Options, User};
use pileus_dev::nodes::{self, Kubelet};
use pileus_dev::{Kubernetes, Process, artifact};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time;

use crate::SOON;
use crate::cloud::Cloud;
use crate::history::History;
use crate::proxy::Proxy;
use crate::web::{Answer, Web};

/// A cluster and a cloud.
pub(crate) struct World {
    pub(crate) kubernetes: Kubernetes,
    pub(crate) cloud: Cloud,
    /// A client with all rights.
    pub(crate) client: Client,
    /// Flags of each Pileus that is started from now on, beside those that it can't do without.
    pub(crate) flags: Vec<&'static str>,
    /// Environment variables of each Pileus that is started from now on.
    pub(crate) variables: Vec<(&'static str, String)>,
    folder: TempDir,
}

/// A running Pileus. Killed when dropped; a test that fails meanwhile shows its log.
pub(crate) struct Run {
    /// There for as long as it isn't being ended.
    process: Option<Process>,
    web: Web,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let (kubernetes, cloud) = tokio::join!(Kubernetes::start_with(options), Cloud::start());
        let kubernetes = kubernetes.unwrap();
        kubernetes.apply_role().await.unwrap();
        let client = kubernetes.admin();
        Self {
            kubernetes,
            cloud,
            client,
            flags: Vec::new(),
            variables: Vec::new(),
            folder: TempDir::new().unwrap(),
        }
    }

    /// Starts Pileus with the simulated provider and all that it asks for, and waits until it is ready.
    pub(crate) async fn start(&self) -> Run {
        let run = self.start_with(&self.simulated(self.cloud.port)).await;
        run.ready().await;
        run
    }

    /// Starts Pileus with this document, and waits until its admin server listens.
    pub(crate) async fn start_with(&self, document: &Value) -> Run {
        self.start_by(document, &self.kubernetes.kubeconfig(User::Pileus)).await
    }

    /// As [`World::start`], with this way to the API server.
    pub(crate) async fn start_through(&self, proxy: &Proxy) -> Run {
        let server = format!("https://127.0.0.1:{}", proxy.port);
        let run = self.start_at(&self.simulated(self.cloud.port), &server).await;
        run.ready().await;
        run
    }

    /// As [`World::start_with`], with the API server at this place.
    pub(crate) async fn start_at(&self, document: &Value, server: &str) -> Run {
        self.start_by(document, &self.kubeconfig_at(server)).await
    }

    /// The kubeconfig of Pileus, with the API server at this place.
    fn kubeconfig_at(&self, server: &str) -> PathBuf {
        let direct = std::fs::read_to_string(self.kubernetes.kubeconfig(User::Pileus)).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&direct).unwrap();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        let path = self.folder.path().join(format!("{}.kubeconfig", server.rsplit(':').next().unwrap()));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    /// As [`World::start_with`], with this kubeconfig.
    pub(crate) async fn start_by(&self, document: &Value, kubeconfig: &Path) -> Run {
        let path = self.replace_document(document);
        Run::start("run", Some(&path), kubeconfig, &self.flags, &self.variables).await
    }

    /// Starts the node manager of a Node with this document and kubeconfig, and waits until its admin server listens.
    pub(crate) async fn start_node_manager(
        &self,
        node: &str,
        document: &Value,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Run {
        let path = self.folder.path().join(format!("node-manager-{node}.yaml"));
        std::fs::write(&path, document.to_string()).unwrap();
        let variables = [("NODE_NAME", node.to_owned())];
        Run::start("node-manager", Some(&path), kubeconfig, flags, &variables).await
    }

    /// A file of this name in the folder of the test.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Starts Pileus with the CloudProvider resources of the cluster, and waits until its admin server listens. It has a store
    /// of this name.
    pub(crate) async fn start_with_resources(&self, store: &str) -> Run {
        self.start_with_resources_by(store, &self.kubernetes.kubeconfig(User::Pileus)).await
    }

    /// As [`World::start_with_resources`], with the API server at this place.
    pub(crate) async fn start_with_resources_at(&self, store: &str, server: &str) -> Run {
        self.start_with_resources_by(store, &self.kubeconfig_at(server)).await
    }

    async fn start_with_resources_by(&self, store: &str, kubeconfig: &Path) -> Run {
        let store = self.folder.path().join(store).display().to_string();
        let variables: Vec<_> = self.variables.iter().cloned().chain([("PILEUS_STORE", store)]).collect();
        // Registry and cloud are on loopback.
        let flags = [&self.flags[..], &["--provider-node-access"]].concat();
        Run::start("run", None, kubeconfig, &flags, &variables).await
    }

    /// Gives the replicas another document.
    pub(crate) fn replace_document(&self, document: &Value) -> PathBuf {
        let [path, new] = ["provider.yaml", "new.yaml"].map(|name| self.folder.path().join(name));
        // Every JSON document is YAML. A replica may be about to read it.
        std::fs::write(&new, document.to_string()).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    /// The port of the API server.
    pub(crate) fn api_server_port(&self) -> u16 {
        let kubeconfig = std::fs::read_to_string(self.kubernetes.kubeconfig(User::Pileus)).unwrap();
        let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
        server.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// The entries of the audit log, which [`Options::audit`] has to be set for, about what Pileus wrote or wanted to
    /// write, in the order in which the API server heard of it. The election's own, and events, are left out.
    ///
    /// An entry is there before its request is answered, and may come after others have seen what was written.
    pub(crate) fn writes(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.kubernetes.audit_log()).unwrap();
        // The last line may be in the writing.
        let log = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let is_write = |entry: &Value| {
            entry["user"]["username"] == "system:serviceaccount:kube-system:pileus"
                && !["get", "list", "watch"].contains(&entry["verb"].as_str().unwrap())
                && !["events", "leases"].contains(&entry["objectRef"]["resource"].as_str().unwrap())
        };
        let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut writes: Vec<_> = entries.filter(is_write).collect();
        writes.sort_by_key(|entry| entry["requestReceivedTimestamp"].as_str().unwrap().to_owned());
        writes
    }

    /// As [`World::writes`], those that the API server has heard of since a moment.
    pub(crate) fn writes_since(&self, moment: Timestamp) -> Vec<Value> {
        let heard = |entry: &Value| -> Timestamp {
            entry["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap()
        };
        self.writes().into_iter().filter(|entry| heard(entry) > moment).collect()
    }

    /// Asserts that no replica wrote to Nodes after another had begun. The audit log has their user agents.
    pub(crate) fn wrote_one_at_a_time(&self) {
        let agent = |entry: &Value| entry["userAgent"].as_str().unwrap().to_owned();
        let mut turns: Vec<_> = self.writes().iter().map(agent).collect();
        turns.dedup();
        let writers: std::collections::BTreeSet<_> = turns.iter().collect();
        assert_eq!(writers.len(), turns.len(), "two wrote at the same time: {turns:#?}");
    }

    /// The document for the simulated provider, with a grant for this port of this machine.
    pub(crate) fn simulated(&self, granted: u16) -> Value {
        let endpoint = format!("http://127.0.0.1:{}", self.cloud.port);
        let grant = json!({"host": "127.0.0.1", "port": granted, "tls": false, "addresses": ["127.0.0.1"]});
        document("simulated-provider", &json!({"endpoint": endpoint}), &json!([grant]))
    }

    pub(crate) async fn register(&self, nodes: impl IntoIterator<Item = Kubelet>) -> Vec<Node> {
        nodes::register(&self.client, nodes).await.unwrap()
    }

    pub(crate) async fn history(&self) -> History {
        History::begin(&self.client).await
    }

    /// All Nodes as they are now.
    pub(crate) async fn nodes(&self) -> Vec<Node> {
        Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await.unwrap().items
    }

    /// All events about a Node or a Service.
    pub(crate) async fn events(&self, node: &str) -> Vec<Event> {
        let about = ListParams::default().fields(&format!("involvedObject.name={node}"));
        Api::<Event>::all(self.client.clone()).list(&about).await.unwrap().items
    }

    /// Waits for an event about a Node or a Service, already there or to come.
    pub(crate) async fn event(&self, node: &str, reason: &str) -> Event {
        self.event_that(&format!("reason={reason},involvedObject.name={node}"), |_| true).await
    }

    /// Waits for such an event that has come again, and counts how often.
    pub(crate) async fn repeated_event(&self, node: &str, reason: &str) -> Event {
        let is_repeated = |event: &Event| event.series.is_some();
        self.event_that(&format!("reason={reason},involvedObject.name={node}"), is_repeated).await
    }

    /// Waits for an event about the Lease that says this, already there or to come.
    pub(crate) async fn lease_event(&self, note: &str) -> Event {
        let says_it = |event: &Event| event.message.as_deref() == Some(note);
        let about = "reason=LeaderElection,involvedObject.kind=Lease,involvedObject.namespace=kube-system";
        self.event_that(about, says_it).await
    }

    async fn event_that(&self, fields: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let config = watcher::Config::default().fields(fields);
        let events = watcher(Api::<Event>::all(self.client.clone()), config).default_backoff();
        let mut events = std::pin::pin!(events.applied_objects());
        let search = async {
            loop {
                if let Some(Ok(event)) = events.next().await
                    && wanted(&event)
                {
                    return event;
                }
            }
        };
        time::timeout(SOON, search).await.expect("the event comes")
    }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Runs a command that ends within this time.
    pub(crate) async fn by(mut command: tokio::process::Command, within: Duration) -> Self {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = time::timeout(within, output).await.expect("it ends").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Calls `pileus release-deletion` as an operator.
pub(crate) async fn release(world: &World, arguments: &[&str]) -> Said {
    let kubeconfig = world.kubernetes.kubeconfig(User::Admin);
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
    command.arg("release-deletion").args(arguments).arg("--kubeconfig").arg(kubeconfig);
    Said::by(command, SOON).await
}

/// A CloudProvider document.
pub(crate) fn document(package: &str, configuration: &Value, grants: &Value) -> Value {
    json!({
        "apiVersion": "pileus.dev/v1alpha1",
        "kind": "CloudProvider",
        "metadata": {"name": package.trim_end_matches("-provider")},
        "spec": {
            "source": {"file": artifact::component(package).unwrap()},
            "configuration": configuration,
            "grants": grants,
        },
    })
}

impl Run {
    async fn start(
        subcommand: &str,
        document: Option<&Path>,
        kubeconfig: &Path,
        flags: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        // One for all tests, so that the same component isn't compiled again and again.
        let compiled = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pileus"));
        command.arg(subcommand).arg("--kubeconfig").arg(kubeconfig);
        command.args(document.iter().flat_map(|file| [std::ffi::OsStr::new("--provider"), file.as_os_str()]));
        command.args(["--admin-address", "127.0.0.1:0"]).arg("--compiled-code").arg(compiled);
        command.args(flags).env_remove("PILEUS_LOG");
        command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let process = Process::start("pileus", &command).unwrap();
        let line = process.await_line(|line| line.contains("serving /livez"), SOON).await.unwrap();
        let address = line.rsplit("address=").next().unwrap();
        Self { web: Web::new(&format!("http://{address}")), process: Some(process) }
    }

    /// Its name in the election.
    pub(crate) async fn identity(&self) -> String {
        let line = self.logged(&["ready to lead", "identity="]).await;
        let identity = line.split("identity=").nth(1).unwrap().split(' ').next().unwrap();
        identity.trim_matches('"').to_owned()
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self) {
        self.logged(&["became leader"]).await;
    }

    /// Waits until it says that this one leads and it stands by, and is ready nevertheless.
    pub(crate) async fn stands_by(&self, leader: &str) {
        let said = format!("[+]leader-election ok: {leader} leads, this replica stands by");
        let wanted = |answer: &Answer| answer.status == 200 && answer.body.contains(&said);
        self.web.until("/readyz", wanted).await;
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn ready(&self) {
        self.web.until("/readyz", |answer| answer.status == 200).await;
    }

    /// Waits until it says that it is not ready, and returns what it says.
    pub(crate) async fn unready(&self, because: &str) -> String {
        let wanted = |answer: &Answer| answer.status == 503 && answer.body.contains(because);
        self.web.until("/readyz", wanted).await.body
    }

    /// A page of its admin server.
    pub(crate) async fn page(&self, path: &str) -> Answer {
        self.web.get(path).await
    }

    /// Waits for a line of `/readyz` that starts and goes on like this, and for its status.
    pub(crate) async fn shows(&self, status: u16, line: &str, part: &str) {
        let is_shown = |found: &str| found.starts_with(line) && found.contains(part);
        let wanted = |answer: &Answer| answer.status == status && answer.body.lines().any(is_shown);
        self.web.until("/readyz", wanted).await;
    }

    /// The lines of its log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.as_ref().unwrap().log()
    }

    pub(crate) async fn is_alive(&self) -> bool {
        self.web.get("/livez").await.status == 200
    }

    /// Whether it says that it is alive and ready.
    pub(crate) async fn is_well(&self) -> bool {
        self.is_alive().await && self.web.get("/readyz").await.status == 200
    }

    /// The sum of the values of a metric over all series whose labels hold all these texts; 0 if there are none.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        value(&self.web.get("/metrics").await.body, name, labels)
    }

    /// Waits until the value of a metric is above 0.
    pub(crate) async fn counted(&self, name: &str, labels: &[&str]) {
        self.web.until("/metrics", |answer| value(&answer.body, name, labels) > 0).await;
    }

    /// Waits until the value of a metric is so high.
    pub(crate) async fn reaches(&self, name: &str, least: u64) {
        self.reaches_of(name, &[], least).await;
    }

    /// As [`Run::reaches`], for the series whose labels hold all these texts.
    pub(crate) async fn reaches_of(&self, name: &str, labels: &[&str], least: u64) {
        self.web.until("/metrics", |answer| value(&answer.body, name, labels) >= least).await;
    }

    /// Waits until the value of a metric is 0.
    pub(crate) async fn reaches_zero(&self, name: &str) {
        self.reaches_zero_of(name, &[]).await;
    }

    /// As [`Run::reaches_zero`], for the series whose labels hold all these texts.
    pub(crate) async fn reaches_zero_of(&self, name: &str, labels: &[&str]) {
        self.web.until("/metrics", |answer| value(&answer.body, name, labels) == 0).await;
    }

    /// Waits for a line of its log with all these texts.
    pub(crate) async fn logged(&self, parts: &[&str]) -> String {
        let wanted = |line: &str| parts.iter().all(|part| line.contains(part));
        self.process.as_ref().unwrap().await_line(wanted, SOON).await.unwrap()
    }

    /// As [`Run::logged`], for a line that isn't among these.
    pub(crate) async fn logged_besides(&self, known: &[String], parts: &[&str]) -> String {
        let wanted = |line: &str| {
            parts.iter().all(|part| line.contains(part)) && !known.iter().any(|known| known == line)
        };
        self.process.as_ref().unwrap().await_line(wanted, SOON).await.unwrap()
    }

    /// Asks it to stop, waits until it says that it has, and returns how it ended.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.process.as_ref().unwrap().signal(Signal::TERM).unwrap();
        self.logged(&["stopping once the writes in flight have been answered", "SIGTERM"]).await;
        self.logged(&["INFO", ": stopped"]).await;
        self.process.take().unwrap().stop(SOON).await.unwrap()
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Whether it has ended by itself, with the code of a lease that was lost; a panic or a signal has another one.
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(status) = self.process.as_mut().unwrap().ended() else { return false };
        assert_eq!(status.code(), Some(1), "{status}");
        self.process = None; // the process has ended, so there is nothing to kill
        true
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.as_ref().unwrap().signal(signal).unwrap();
    }

    /// Waits until it has ended by itself, and returns how.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        let search = async {
            loop {
                match process.ended() {
                    Some(status) => return status,
                    None => time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let ended = time::timeout(SOON, search).await;
        ended.unwrap_or_else(|_| panic!("{}", process.failed("has not ended by itself")))
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        drop(self.process.take());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(process) = self.process.as_ref().filter(|_| std::thread::panicking()) {
            eprintln!("{}", process.failed("is still there"));
        }
    }
}

fn value(metrics: &str, name: &str, labels: &[&str]) -> u64 {
    let is_series = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    metrics
        .lines()
        .filter(is_series)
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}
