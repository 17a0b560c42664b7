//! The demo keeps its promises to whoever has it read by a program or stops it halfway.
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

/// It takes a minute and a half, as Nodes must be a minute old before they may go; beside other tests on a busy machine
/// it may need longer.
const SOON: Duration = Duration::from_mins(10);
/// The widest line that the demo may print, in characters.
const WIDTH: usize = 100;

/// The demo, with a folder for its temporary files that its children can be told by.
fn demo(folder: &TempDir) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("TMPDIR", folder.path());
    for variable in ["CLICOLOR_FORCE", "FORCE_COLOR", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    Process::start("demo", &command).unwrap()
}

/// Waits until the demo has ended: its output, with what it wrote to standard error, and its status.
async fn end(mut demo: Process) -> (Vec<String>, ExitStatus) {
    demo.await_line(|_| false, SOON).await.unwrap_err();
    let lines = demo.log();
    // Its output is closed when it is gone, or a moment before.
    let mut status = demo.ended();
    while status.is_none() {
        tokio::task::yield_now().await;
        status = demo.ended();
    }
    (lines, status.unwrap())
}

/// What the demo has left behind: files, and processes that still have its environment.
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
async fn it_shows_what_it_promises_in_plain_text_and_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let (lines, status) = end(demo(&folder)).await;
    let text = lines.join("\n");
    assert_eq!(status.code(), Some(0), "{text}");

    let promises = [
        "create nodes: no",
        "simulated://m-000003",
        "leads, this replica stands by",
        "none of 100 nodes was left out",
        "lookup of node node-4 stopped after 2000 ms of processor time",
        r#"result="trap"}"#,
        "[NOT GRANTED]",
        "http://169.254.169.254/metadata/identity/oauth2/token/node-4",
        "the metadata service was not asked",
        "users' work after",
        "node-2 node.kubernetes.io/instance-type: large-8, and",
        "node-5 10.244.5.0/24 to m-000005 False, RouteCreated",
        "5 writes to the cloud",
        "$ kubectl get service web NAME TYPE CLUSTER-IP EXTERNAL-IP",
        "EnsuredLoadBalancer:",
        "from everywhere 192.0.2.0/24",
        "DeletingNode: Deleting node node-3",
        "to 10.244.3.0/24 gone",
        "machines without m-000003",
        "DeletedLoadBalancer:",
        "0 load balancers,",
        "NotReady True, DeletionHeld 52: worker-1,",
        "node worker-1: released",
        "Ready none 103: node-1, node-2, node-4,",
        "Shown in ",
        "0 requests reached the cloud",
        "their nodes were held, none was deleted",
        "the 51 others stay, and none is held",
        "20 late nodes",
        "What next",
        "pileus provider test",
    ];
    // Wherever a line was broken.
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
async fn an_interrupted_one_ends_everything_and_sums_up_what_it_has_shown() -> Result<(), Error> {
    let folder = TempDir::new().unwrap();
    let demo = demo(&folder);
    demo.await_line(|line| line.contains("A provider that never returns"), SOON).await?;
    assert!(left_behind(&folder).len() >= 4, "cluster, cloud and folders are there");
    demo.signal(Signal::INT)?;
    let (lines, status) = end(demo).await;
    assert_eq!(status.code(), Some(130), "{lines:?}");
    let summary = lines.iter().skip_while(|line| !line.starts_with("Shown so far, in ")).skip(1);
    let names: Vec<_> = summary.filter_map(|line| line.strip_prefix("   ")?.split("  ").next()).collect();
    assert_eq!(names, ["3 nodes", "2 replicas"], "what was shown, and nothing else: {lines:?}");
    assert_eq!(left_behind(&folder), [""; 0]);
    Ok(())
}
