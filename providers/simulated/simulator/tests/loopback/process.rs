//! The binary: its one line of output, its arguments, and its exit.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::Client;

async fn start(arguments: &[&str]) -> (Child, BufReader<ChildStdout>, Client) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulated-cloud"));
    let mut child = command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    let address =
        line.strip_prefix("simulated cloud on http://").and_then(|rest| rest.strip_suffix('\n')).unwrap();
    let client = Client::connect(address.parse().unwrap()).await;
    (child, stdout, client)
}

#[tokio::test]
async fn it_prints_its_address_in_one_line_and_exits_with_success_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut child, mut stdout, mut client) =
            start(&["--machines", "2", "--region", "moon", "--quotas", "azure"]).await;
        let answer = client.get("/v1/machines/m-000002").await;
        assert_eq!(answer.headers["x-ratelimit-remaining-reads"], "249");
        let machine = answer.body;
        assert_eq!((&machine["region"], &machine["zone"]), (&"moon".into(), &"moonb".into()));
        // The connection stays open meanwhile, and must not keep the process from exiting.
        kill_process(Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap(), signal).unwrap();
        assert!(child.wait().await.unwrap().success(), "{signal:?}");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "", "nothing but the one line");
    }
}

#[tokio::test]
async fn the_same_seed_leads_to_the_same_faults() {
    let mut runs = Vec::new();
    for seed in ["1", "1", "2"] {
        let (_child, _stdout, mut client) = start(&["--seed", seed, "--machines", "1"]).await;
        client.set_faults(r#"{"throttle":{"share":0.5}}"#).await;
        let mut statuses = Vec::new();
        for _ in 0..50 {
            statuses.push(client.get("/v1/machines/m-000001").await.status);
        }
        runs.push(statuses);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn credentials_come_from_a_file_and_an_error_does_not_quote_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials.json");
    let arguments = ["--machines", "1", "--credentials", path.to_str().unwrap()];
    for wrong in [None, Some(r#"{"secret":"hush"}"#)] {
        if let Some(wrong) = wrong {
            std::fs::write(&path, wrong).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_simulated-cloud"));
        let output = command.args(arguments).output().await.unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(message.contains("--credentials <FILE>") && !message.contains("hush"), "{message}");
    }
    std::fs::write(&path, r#"{"clientID":"pileus","secret":"hush"}"#).unwrap();
    let (_child, _stdout, mut client) = start(&arguments).await;
    assert_eq!(client.get("/v1/machines/m-000001").await.status, 401);
}

#[tokio::test]
async fn an_address_in_use_is_reported_as_an_error() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulated-cloud"));
    let output = command.args(["--listen", &address]).output().await.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.starts_with(&format!("simulated-cloud: can't listen on {address}: ")), "{message}");
}
