//! Kubelets' heartbeats for thousands of Nodes, by KWOK as a child process: a Lease renewed every 10 s, and a status
//! written every 5 min, as kubelets do whose Node doesn't change. They are what a quiet cluster consists of.

use std::process::Command;

use tempfile::TempDir;

use crate::{
    Error, Kubernetes, Process,
    kubernetes::{User, kwok},
};

/// The whole life of a Node here: each ready one writes its conditions again after a kubelet's
/// `nodeStatusReportFrequency`, 5 min on average. Evenly spread from nothing to twice that, as thousands that start at the
/// same time here would else write at the same time for ever.
const STAGE: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: heartbeat
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
      - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["True"]}
  delay:
    durationMilliseconds: 0
    jitterDurationMilliseconds: 600000
  next:
    statusTemplate: |
      conditions:
      {{ range .status.conditions }}
      - type: {{ .type | Quote }}
        status: {{ .status | Quote }}
        reason: {{ .reason | Quote }}
        message: {{ .message | Quote }}
        lastTransitionTime: {{ .lastTransitionTime | Quote }}
        lastHeartbeatTime: {{ Now | Quote }}
      {{ end }}
"#;

/// Running heartbeats, by [`User::Kubelets`]. They end when this is dropped.
#[must_use = "the heartbeats end when this is dropped"]
pub struct Heartbeats {
    _kwok: Process,
    _folder: TempDir,
}

impl Heartbeats {
    /// Starts the heartbeats of all Nodes, those that are there and those to come.
    pub async fn start(kubernetes: &Kubernetes) -> Result<Self, Error> {
        let folder = TempDir::with_prefix("pileus-kwok-").map_err(Error::file("a temporary folder"))?;
        let stage = folder.path().join("stage.yaml");
        std::fs::write(&stage, STAGE).map_err(Error::file(&stage))?;
        let mut command = Command::new(kwok().await?);
        command
            .arg("--kubeconfig")
            .arg(kubernetes.kubeconfig(User::Kubelets))
            .arg("--config")
            .arg(stage)
            // A kubelet's own 40 s; renewed four times in that.
            .args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"]);
        Ok(Self { _kwok: Process::start("kwok", &command)?, _folder: folder })
    }
}
