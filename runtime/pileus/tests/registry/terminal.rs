//! Progress, which is shown on a terminal only. `script`, of util-linux, gives a command a terminal.

use super::{Bench, output};

#[tokio::test]
async fn progress_is_shown_on_a_terminal() {
    let bench = Bench::new();
    let at = bench.at("p:1");
    let program = env!("CARGO_BIN_EXE_pileus");
    for (arguments, expected) in [
        (
            format!("push p.wasm {at} --compiled-code code"),
            ["compiling the component …", "pushing the component: 100% of "],
        ),
        (format!("pull {at} --insecure"), ["fetching the component: 100% of ", "\r\u{1b}[K"]),
    ] {
        let mut command = tokio::process::Command::new("script");
        let line = format!("{program} {arguments}");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.current_dir(bench.folder()).env("HOME", bench.folder()).stdin(std::process::Stdio::null());
        let said = output(command).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        for part in expected {
            assert!(said.stdout.contains(part), "{part}: {said:?}");
        }
        // What stays is the result.
        let last = said.stdout.rsplit("\r\u{1b}[K").next().unwrap();
        assert!(last.starts_with(&at), "{said:?}");
    }
}
