//! How to look around in what the demo has left running.

use std::fs;

use pileus_dev::Error;
use pileus_dev::kubernetes::User;

use crate::page::{self, Tone, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::story::command;

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

/// Says what runs where, and which commands are worth trying.
pub(crate) fn show(stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    let folder = stage.folder().display();
    let node = stage.folder().join("node-6.yaml");
    fs::write(&node, NODE).map_err(|source| Error::File { path: node.clone(), source })?;
    let programs = stage.kubernetes.kubectl().parent().unwrap_or(stage.folder());
    let kubeconfig = stage.kubernetes.kubeconfig(User::Admin);

    page::heading("It stays up until Ctrl-C");
    page::table(&[
        row("cloud", Tone::Plain, format!("{} (a page for the browser)", stage.cloud.web.url("/"))),
        row("pileus", Tone::Plain, format!("{} {}", pileus.web.url("/readyz"), pileus.web.url("/metrics"))),
        row("logs, documents", Tone::Plain, format!("{folder}/")),
    ]);
    page::heading("In another terminal");
    let lines = [
        format!("export PATH={}:$PATH", programs.display()),
        format!("export KUBECONFIG={}", kubeconfig.display()),
    ];
    page::table(&lines.map(|line| vec![Tone::Strong.cell(line)]));
    page::heading("Then");
    let cloud = stage.cloud.web.url("/v1/machines");
    page::table(&[
        command("kubectl get nodes -o wide | head -6", "addresses that the cloud knows"),
        command("kubectl describe node node-4 | tail -6", "its events say what it went through"),
        command(&format!("kubectl create -f {}", node.display()), "a node without a machine"),
        command("kubectl describe node node-6 | tail -3", "waits: no such machine"),
        command(&format!("curl {cloud} -d '{{\"name\":\"node-6\"}}'"), "creates the machine"),
        command("kubectl get node node-6 -o wide", "some seconds later"),
        command(&format!("tail -f {}", stage.log("simulated").display()), "what pileus says"),
    ]);
    Ok(())
}
