//! Asks a credential helper of Docker: a program that reads a server's name and prints its credential.

use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use zeroize::Zeroizing;

use crate::credential::CredentialKind;

/// The most that a helper may print.
const MAX_OUTPUT: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Output {
    username: String,
    secret: String,
}

/// Runs `docker-credential-NAME get`. `None` if it doesn't have a credential for the server. Dropping the future ends the
/// program. The error holds nothing of its output.
pub(super) async fn ask(name: &str, server: &str) -> Result<Option<CredentialKind>, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err("its name has other characters than letters, digits, `-`, `_` and `.`".to_owned());
    }
    let mut child = Command::new(format!("docker-credential-{name}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it can't be run: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A helper that doesn't read its input says by its output what is wrong.
        let _ignored = input.write_all(server.as_bytes()).await;
    }
    let mut bytes = Zeroizing::new(Vec::new());
    if let Some(output) = child.stdout.take() {
        output.take(MAX_OUTPUT).read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        // The protocol has no other sign for this.
        let missing = String::from_utf8_lossy(&bytes).contains("credentials not found");
        return if missing { Ok(None) } else { Err(format!("it ended with {status}")) };
    }
    let Output { username, secret } =
        serde_json::from_slice(&bytes).map_err(|_| "its output is not a credential".to_owned())?;
    let secret = Zeroizing::new(secret);
    Ok(Some(if username == "<token>" {
        CredentialKind::Identity(secret)
    } else {
        CredentialKind::Basic { username, password: secret }
    }))
}
