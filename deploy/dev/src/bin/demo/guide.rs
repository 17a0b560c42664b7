//! The end of the demo: how to go on, or how to explore what `KEEP=1` has left running.

use std::fs;
use std::path::Path;

use pileus_dev::kubernetes::User;
use pileus_dev::{Error, artifact};

use crate::page::{self, Cell, INDENT, Tone, WIDTH, row};
use crate::pileus::Pileus;
use crate::scenes::routes::CLUSTER_CIDR;
use crate::scenes::services::FILE;
use crate::stage::Stage;

/// A Node for the reader to register, as small as the API server accepts it.
const NODE: &str = "\
apiVersion: v1
kind: Node
metadata:
  name: node-6
spec:
  taints:
    - key: node.cloudprovider.kubernetes.io/uninitialized
      value: \"true\"
      effect: NoSchedule
";

/// The status that kube-controller-manager gives a Node whose kubelet is silent.
const SILENT: &str = "\
status:
  conditions:
    - type: Ready
      status: Unknown
";

/// A Service of a class that the running Pileus doesn't serve.
const INTERNAL: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: internal
spec:
  type: LoadBalancer
  loadBalancerClass: example.com/internal
  selector: {app: internal}
  ports:
    - {name: http, port: 80, targetPort: 8080}
";

/// The lines that make a document serve this class.
const CLASSES: &str = "  loadBalancerClasses:\n    - example.com/internal\n";

/// Prints how to go on after the demo.
pub(crate) fn go_on() -> Result<(), Error> {
    let [pileus, component] =
        [artifact::program("pileus")?, artifact::component("simulated-provider")?].map(|path| near(&path));
    page::heading("Everything that the demo has started is gone. How to go on:");
    page::table(&[
        command("make demo KEEP=1", "leaves it running, for kubectl and your browser"),
        command("make test", "runs all tests"),
        command("less providers/simulated/component/src/*.rs", "the provider that you have just seen"),
        command("less guest-sdk/README.md", "how to write your own, and how to test it:"),
    ]);
    page::table(&long_command(&format!("{pileus} provider test {component}")));
    Ok(())
}

/// Prints what runs where, and commands to try. They start from a Service that a changed document would serve, so that
/// `pileus plan` has a change to show.
pub(crate) async fn explore(stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    let folder = stage.folder().display();
    let node = stage.write("node-6.yaml", NODE)?;
    let silent = stage.write("silent.yaml", SILENT)?;
    let internal = stage.write("internal.yaml", INTERNAL)?;
    stage.kubectl(&["create", "-f", &internal]).await?;
    let next = next_document(stage)?;
    let program = artifact::program("pileus")?;
    let [kubectl, programs] =
        [stage.kubernetes.kubectl(), &program].map(|it| it.parent().unwrap_or(it).display());
    let kubeconfig = stage.kubernetes.kubeconfig(User::Admin);
    let machines = stage.cloud.http.url("/v1/machines");

    page::heading("It stays up until Ctrl-C");
    page::table(&[
        row("cloud", Tone::Plain, format!("{} (a page for your browser)", stage.cloud.http.url("/"))),
        row("pileus", Tone::Plain, format!("{} {}", pileus.http.url("/readyz"), pileus.http.url("/metrics"))),
        row("logs, documents", Tone::Plain, format!("{folder}/")),
    ]);
    page::heading("In another terminal, first");
    page::table(&[
        vec![Tone::Strong.cell(format!("export PATH={kubectl}:{programs}:$PATH"))],
        vec![Tone::Strong.cell(format!("export KUBECONFIG={}", kubeconfig.display()))],
    ]);
    page::heading("What would change in the cloud if Pileus served the class example.com/internal, too?");
    page::table(&long_command(&format!("pileus plan --provider {next} {CLUSTER_CIDR}")));
    page::heading("A node without an instance waits, until the instance is created");
    page::table(&[
        command(&format!("kubectl create -f {node}"), "a node without an instance"),
        command("kubectl describe node node-6 | tail -3", "its event says what is missing"),
        command(&format!("curl {machines} -d '{{\"name\":\"node-6\"}}'"), "creates the instance"),
        command("kubectl get node node-6 -o wide", "has its addresses some seconds later"),
    ]);
    page::heading("A Service gets an address, and is deleted");
    page::table(&[
        command(&format!("kubectl create -f {folder}/{FILE}"), "watch the cloud's page meanwhile"),
        command("kubectl get service web -w", "until it has an EXTERNAL-IP"),
        command("kubectl describe service web | tail -6", "its events"),
        command("kubectl delete service web", "returns when the load balancer is gone"),
    ]);
    page::heading("An instance is deleted, and its kubelet falls silent");
    page::table(&long_command(&format!("curl -X DELETE {machines}/m-000004")));
    page::table(&long_command(&format!(
        "kubectl patch node node-4 --subresource=status --patch-file {silent}"
    )));
    page::table(&[command("kubectl get node node-4", "not found, some seconds later")]);
    page::heading("For authors of providers: does this one keep the contract?");
    page::table(&long_command(&format!(
        "pileus provider test --provider {folder}/simulated.yaml --node node-1 --node node-2 --gone simulated://m-000003"
    )));
    Ok(())
}

/// Writes a document that also serves the class of [`INTERNAL`], and returns its path.
fn next_document(stage: &Stage) -> Result<String, Error> {
    let path = stage.folder().join("simulated.yaml");
    let text = fs::read_to_string(&path).map_err(|source| Error::File { path, source })?;
    stage.write("next.yaml", &(text + CLASSES))
}

/// A path relative to the current folder, if it is below that.
fn near(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let near = here.and_then(|here| path.strip_prefix(here).ok());
    near.unwrap_or(path).display().to_string()
}

/// A command, and what it is for.
fn command(text: &str, about: &str) -> Vec<Cell> {
    vec![Tone::Strong.cell(text), Tone::Quiet.cell(about)]
}

/// A command in as many lines as it needs, joined by backslashes.
fn long_command(text: &str) -> Vec<Vec<Cell>> {
    let lines = page::wrapped(text, WIDTH - INDENT - 2).join(" \\\n");
    lines.split('\n').map(|line| vec![Tone::Strong.cell(line)]).collect()
}
