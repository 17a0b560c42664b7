//! The demo shows what it should, also without a terminal, and cleans up, also after Ctrl-C.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use pileus_dev::{Error, Process};
use rustix::process::Signal;
use tempfile::TempDir;

/// How long the demo may take: a minute and a half, since Nodes must be a minute old before they are deleted, and longer
/// beside other tests.
const SOON: Duration = Duration::from_mins(10);
/// The maximum width of a line, in characters.
const WIDTH: usize = 100;

/// Starts the demo with its own folder for temporary files, whose path also identifies its child processes.
fn demo(folder: &TempDir) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("TMPDIR", folder.path());
    for variable in ["CLICOLOR_FORCE", "FORCE_COLOR", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    Process::start("demo", &command).unwrap()
}

/// Waits until the demo has ended. Returns its output, standard error included, and its status.
async fn end(mut demo: Process) -> (Vec<String>, ExitStatus) {
    demo.await_line(|_| false, SOON).await.unwrap_err();
    let lines = demo.log();
    // The output may be closed a moment before the process ends.
    let mut status = demo.ended();
    while status.is_none() {
        tokio::task::yield_now().await;
        status = demo.ended();
    }
    (lines, status.unwrap())
}

/// Files and processes that the demo has left behind.
fn left_behind(folder: &TempDir) -> Vec<String> {
    let path = folder.path().display().to_string();
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    let has_path = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&path)
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let processes = processes.filter(|process| has_path(process));
    let command = |process: PathBuf| fs::read_to_string(process.join("cmdline")).unwrap_or_default();
    files.chain(processes.map(command)).collect()
}

#[tokio::test]
async fn the_demo_prints_plain_text_without_a_terminal_and_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let (lines, status) = end(demo(&folder)).await;
    let text = lines.join("\n");
    assert_eq!(status.code(), Some(0), "{text}");

    let promises = [
        "create nodes: no",
        "simulated://m-000003",
        "leads, this replica stands by",
        "all 100 nodes initialized",
        "blocked ✓ ",
        "lookup of node node-4 stopped after 2000 ms of CPU time",
        r#"result="trap"}"#,
        "[NOT GRANTED]",
        "http://169.254.169.254/metadata/identity/oauth2/token/node-4",
        "the metadata service did not receive it",
        "users' changes after",
        "node-2 node.kubernetes.io/instance-type: large-8 → huge-64",
        "node-5 10.244.5.0/24 to m-000005 False, RouteCreated",
        "5 writes to the cloud",
        "$ kubectl get service web NAME TYPE CLUSTER-IP EXTERNAL-IP",
        "EnsuredLoadBalancer:",
        "everywhere 192.0.2.0/24",
        "canary: answers half of the lookups",
        "active: answers all calls",
        "NAME REFERENCE VERSION DIGEST READY AGE",
        "held: 53 lookups differ, and 6 writes are wanted",
        "$ kubectl describe cloudprovider simulated",
        "DeletingNode: Deleting node node-3",
        "to 10.244.3.0/24 deleted",
        "instances, without m-000003",
        "DeletedLoadBalancer:",
        "0 load balancers after",
        "NotReady True, DeletionHeld 52: worker-1,",
        "node worker-1: released",
        "Ready none 103: node-1, node-2, node-4,",
        "Shown in ",
        "0 requests reached the cloud",
        "their nodes were held, none was deleted",
        "the 51 others stay, and none is held",
        "20 late nodes",
        "How to go on:",
        "pileus provider test",
    ];
    // Regardless of where lines are broken.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for promise in promises {
        assert!(words.contains(promise), "{promise:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "escape codes in\n{text}");
    let too_long: Vec<_> = lines.iter().filter(|line| line.chars().count() > WIDTH).collect();
    assert!(too_long.is_empty(), "{too_long:?}");
    assert_eq!(left_behind(&folder), [""; 0]);
}

#[tokio::test]
async fn an_interrupted_demo_prints_its_summary_and_leaves_nothing_behind() -> Result<(), Error> {
    let folder = TempDir::new().unwrap();
    let demo = demo(&folder);
    demo.await_line(|line| line.contains("A provider never returns"), SOON).await?;
    assert!(left_behind(&folder).len() >= 4, "cluster, cloud and folders exist");
    demo.signal(Signal::INT)?;
    let (lines, status) = end(demo).await;
    assert_eq!(status.code(), Some(130), "{lines:?}");
    let summary = lines.iter().skip_while(|line| !line.starts_with("Shown so far, in ")).skip(1);
    let names: Vec<_> = summary.filter_map(|line| line.strip_prefix("   ")?.split("  ").next()).collect();
    assert_eq!(names, ["3 nodes", "2 replicas"], "the completed scenes only: {lines:?}");
    assert_eq!(left_behind(&folder), [""; 0]);
    Ok(())
}
