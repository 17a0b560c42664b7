//! How to go on after the demo, and how to look around in what it has left running.

use std::fs;
use std::path::Path;

use pileus_dev::kubernetes::User;
use pileus_dev::{Error, artifact};

use crate::page::{self, Cell, Tone, row};
use crate::pileus::Pileus;
use crate::scenes::routes::RANGES;
use crate::scenes::services::FILE;
use crate::stage::Stage;

/// A Node for the reader to register, as little as the API server takes.
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

/// How kube-controller-manager marks a Node whose kubelet is silent.
const SILENT: &str = "\
status:
  conditions:
    - type: Ready
      status: Unknown
";

/// Says how to go on when nothing is left of the demo.
pub(crate) fn next() -> Result<(), Error> {
    let [pileus, component] =
        [artifact::program("pileus")?, artifact::component("simulated-provider")?].map(|path| near(&path));
    page::heading("What next");
    page::table(&[
        command("make demo KEEP=1", "it stays up for you, kubectl and a browser"),
        command("make test", "all that every change must pass"),
        command("less providers/simulated/component/src/*.rs", "the provider that you have just seen"),
        command("less guest-sdk/README.md", "how to write your own, and to test it:"),
    ]);
    page::table(&[only(format!("{pileus} provider test \\")), only(component)]);
    Ok(())
}

/// Says what runs where, and which commands are worth trying.
pub(crate) fn look_around(stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    let folder = stage.folder().display();
    let node = write(stage, "node-6.yaml", NODE)?;
    let silent = write(stage, "silent.yaml", SILENT)?;
    let program = artifact::program("pileus")?;
    let [kubectl, programs] =
        [stage.kubernetes.kubectl(), &program].map(|it| it.parent().unwrap_or(it).display());
    let kubeconfig = stage.kubernetes.kubeconfig(User::Admin);

    page::heading("It stays up until Ctrl-C");
    page::table(&[
        row("cloud", Tone::Plain, format!("{} (a page for the browser)", stage.cloud.web.url("/"))),
        row("pileus", Tone::Plain, format!("{} {}", pileus.web.url("/readyz"), pileus.web.url("/metrics"))),
        row("logs, documents", Tone::Plain, format!("{folder}/")),
    ]);
    page::heading("In another terminal");
    page::table(&[
        only(format!("export PATH={kubectl}:{programs}:$PATH")),
        only(format!("export KUBECONFIG={}", kubeconfig.display())),
    ]);
    page::heading("Then");
    let cloud = stage.cloud.web.url("/v1/machines");
    page::table(&[
        command("kubectl get nodes -o wide | head -6", "addresses that the cloud knows"),
        command("kubectl describe node node-4 | tail -6", "its events tell its story"),
        command(&format!("kubectl create -f {node}"), "a node without a machine"),
        command("kubectl describe node node-6 | tail -3", "waits: no such machine"),
        command(&format!("curl {cloud} -d '{{\"name\":\"node-6\"}}'"), "creates the machine"),
        command("kubectl get node node-6 -o wide", "some seconds later"),
        command(&format!("tail -f {}", stage.log("simulated").display()), "what pileus says"),
    ]);
    page::heading("A service comes, gets an address, and goes");
    page::table(&[
        command(&format!("kubectl create -f {folder}/{FILE}"), "beside the page of the cloud"),
        command("kubectl get service web -w", "until it has an EXTERNAL-IP"),
        command("kubectl describe service web | tail -6", "its events tell its story"),
        command("kubectl delete service web", "ends when the cloud is empty"),
    ]);
    page::heading("A machine goes, and its kubelet with it");
    page::table(&[
        only(format!("curl -X DELETE {cloud}/m-000004")),
        only(format!("kubectl patch node node-4 --subresource=status --patch-file {silent}")),
        only("kubectl get node node-4"),
    ]);
    page::heading("What would Pileus change in the cloud now? Try it with a service before and after");
    page::table(&[only(format!("pileus plan --provider {folder}/simulated.yaml {RANGES}"))]);
    page::heading("For authors of providers: which promises does this one keep?");
    page::table(&[
        only(format!("pileus provider test --provider {folder}/simulated.yaml \\")),
        only("--node node-1 --node node-2 --gone simulated://m-000003"),
    ]);
    Ok(())
}

fn write(stage: &Stage, name: &str, text: &str) -> Result<String, Error> {
    let path = stage.folder().join(name);
    fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
    Ok(path.display().to_string())
}

/// A path as somebody would type it who is where the demo was started.
fn near(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let near = here.and_then(|here| path.strip_prefix(here).ok());
    near.unwrap_or(path).display().to_string()
}

fn command(text: &str, about: &str) -> Vec<Cell> {
    vec![Tone::Strong.cell(text), Tone::Quiet.cell(about)]
}

/// A command that needs the whole line. One that is too long for it goes on behind a backslash.
fn only(text: impl Into<String>) -> Vec<Cell> {
    vec![Tone::Strong.cell(text)]
}
