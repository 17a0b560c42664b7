//! Kubelets' heartbeats for thousands of Nodes, sent by KWOK in a child process: a Lease renewal each 10 s and a status
//! update each 5 min, as kubelets send them for Nodes that don't change. They are most of the traffic of a quiet cluster.

use std::process::Command;

use tempfile::TempDir;

use crate::{
    Error, Kubernetes, Process,
    kubernetes::{User, kwok},
};

/// The only stage: a ready Node's conditions are written again after a kubelet's `nodeStatusReportFrequency`, 5 min on
/// average. The delay is spread evenly from 0 to twice that: otherwise thousands of Nodes that start together would
/// always write together.
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

/// Running heartbeats, sent as [`User::Kubelets`]. They end when this is dropped.
#[must_use = "the heartbeats end when this is dropped"]
pub struct Heartbeats {
    _kwok: Process,
    _folder: TempDir,
}

impl Heartbeats {
    /// Starts heartbeats for all existing and future Nodes.
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
            // As kubelets do: 40 s, renewed four times within them.
            .args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"]);
        Ok(Self { _kwok: Process::start("kwok", &command)?, _folder: folder })
    }
}
