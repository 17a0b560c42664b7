//! Clouds that show what they were sent: the provider reads nothing of its credential.

use std::time::Duration;

use pileus_gate::{CredentialKind, Error};
use tokio::io::AsyncWriteExt;

use crate::cloud::{Cloud, get, plenty, text};
use crate::credentials::{credential, file, gate};

const SECRET: &str = "planted-hunter2/0123456789+abcdef=";

/// A cloud that repeats the head of each request in the body of its response, in pieces of this size, or in a header if there
/// is no size.
async fn repeating(piece: usize) -> Cloud {
    Cloud::serving(move |mut stream, seen| async move {
        while let Some(request) = seen.request(&mut stream).await {
            if piece == 0 {
                let head = request.replace("\r\n", " ");
                let answer = format!("HTTP/1.1 403 No\r\ncontent-length: 0\r\nx-got: {head}\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                continue;
            }
            stream.write_all(b"HTTP/1.1 403 No\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
            for piece in request.as_bytes().chunks(piece) {
                let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                if stream.write_all(&chunk).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn a_response_that_shows_the_credential_is_an_error_and_no_part_of_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str| file(&folder, name, SECRET);
    let kinds = || {
        let aws = CredentialKind::AwsSigV4 {
            region: "r".into(),
            service: "s".into(),
            access_key_id: file(&folder, "id", "AKID"),
            secret_access_key: file(&folder, "key", "key"),
            session_token: Some(secret("session")),
        };
        let key = CredentialKind::Header { name: "x-key".parse().unwrap(), value: secret("header") };
        [aws, key, CredentialKind::Bearer { token: secret("bearer") }]
    };
    for piece in [0, 1, 7, 10_000] {
        for kind in kinds() {
            let label = format!("{} in pieces of {piece}", kind.label());
            let cloud = repeating(piece).await;
            let gate = gate(&cloud, vec![credential(kind)]);
            let shown = match gate.gate.send(get(&cloud.uri("/debug")), plenty()).await {
                Ok(answer) => text(answer).await,
                Err(error) => Err(error),
            };
            assert!(cloud.requests().concat().contains(SECRET), "{label}");
            assert!(matches!(shown, Err(Error::CredentialEchoed { .. })), "{label}: {shown:?}");
            let (metrics, recent) = (gate.metrics(), gate.gate.recent());
            assert!(metrics.contains(r#"result="credential_shown"} 1"#), "{label}: {metrics}");
            assert!(!format!("{metrics} {recent:?} {shown:?}").contains("hunter2"), "{label}");
        }
    }
}

#[tokio::test]
async fn data_that_only_begins_like_the_credential_is_passed_on_and_compression_is_not_requested() {
    let folder = tempfile::tempdir().unwrap();
    let body = format!("{} {}", &SECRET[..20], &SECRET[..30]);
    let cloud =
        Cloud::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    let kind = CredentialKind::Bearer { token: file(&folder, "bearer", SECRET) };
    let gate = gate(&cloud, vec![credential(kind)]);
    for _ in 0..2 {
        let mut request = get(&cloud.uri("/"));
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        assert_eq!(text(gate.gate.send(request, plenty()).await.unwrap()).await.unwrap(), body);
    }
    assert_eq!(cloud.connections(), 1, "the end of the answer was seen");
    assert!(!cloud.requests().concat().contains("accept-encoding"));
}
