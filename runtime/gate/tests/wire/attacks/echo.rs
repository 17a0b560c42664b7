//! Clouds that show what they were sent: the provider reads nothing of its credential.

use std::time::Duration;

use http_body_util::BodyExt;
use pileus_gate::{CredentialKind, Error};
use tokio::io::AsyncWriteExt;

use crate::cloud::{Cloud, get, plenty, text};
use crate::credentials::{answering, credential, file, gate, json};

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
async fn row_22_a_response_that_shows_the_credential_is_an_error_and_no_part_of_it_is_read() {
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
async fn row_22_no_part_and_no_compressed_form_of_a_response_to_a_credential_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let bearer = || credential(CredentialKind::Bearer { token: file(&folder, "bearer", SECRET) });
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-encoding: identity\r\n\r\nok";
    let cloud = Cloud::answering(whole).await;
    let gate = gate(&cloud, vec![bearer()]);
    let mut request = get(&cloud.uri("/"));
    for (name, value) in [
        ("accept-encoding", "gzip"),
        ("range", "bytes=0-9"),
        ("if_range", "x"),
        ("x-ms-range", "bytes=0-9"),
        ("want-digest", "md5"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(text(gate.gate.send(request, plenty()).await.unwrap()).await.unwrap(), "ok");
    let arrived = cloud.requests().concat();
    assert!(arrived.contains("accept-encoding: identity\r\n"), "{arrived}");
    assert!(!["range", "digest", "gzip"].iter().any(|word| arrived.contains(word)), "{arrived}");

    for head in [
        "206 Partial Content\r\ncontent-length: 2",
        "200 OK\r\ncontent-range: bytes 0-1/9\r\ncontent-length: 2",
        "200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2",
        "200 OK\r\ncontent-encoding: identity, BR\r\ncontent-length: 2",
        "200 OK\r\ntransfer-encoding: gzip, chunked",
    ] {
        let cloud = Cloud::answering(format!("HTTP/1.1 {head}\r\n\r\n2\r\nok\r\n0\r\n\r\n")).await;
        let gate = crate::credentials::gate(&cloud, vec![bearer()]);
        let refused = gate.gate.send(get(&cloud.uri("/")), plenty()).await;
        assert!(matches!(refused, Err(Error::Unsearchable { .. })), "{head}: {refused:?}");
        let bare = crate::credentials::gate(&cloud, Vec::new());
        assert!(bare.gate.send(get(&cloud.uri("/")), plenty()).await.is_ok(), "{head}");
    }
}

/// A cloud that repeats the path of each request in the body of its response, in several parts.
async fn repeating_the_path() -> Cloud {
    Cloud::serving(move |mut stream, seen| async move {
        while let Some(request) = seen.request(&mut stream).await {
            let path = request.split(' ').nth(1).unwrap_or_default();
            let body = format!("{path}{}no {path}", "-".repeat(40_000));
            let head = format!("HTTP/1.1 404 No\r\ncontent-length: {}\r\n\r\n", body.len());
            let (first, rest) = body.as_bytes().split_at(20);
            for part in [head.as_bytes(), first, rest] {
                if stream.write_all(part).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn row_21_every_wrong_guess_of_the_credential_is_answered_alike() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "planted-hunter2.0123456789-abcdef_x";
    let cloud = repeating_the_path().await;
    let kind = CredentialKind::Bearer { token: file(&folder, "bearer", secret) };
    let gate = gate(&cloud, vec![credential(kind)]);
    let pieces = async |guess: &str| {
        let mut body = gate.gate.send(get(&cloud.uri(&format!("/{guess}"))), plenty()).await?.into_body();
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            sizes.push(frame?.into_data().unwrap().len());
        }
        Ok::<_, Error>(sizes)
    };
    let mut seen = Vec::new();
    for shared in 0..secret.len() {
        seen.push(pieces(&format!("{:~<1$}", &secret[..shared], secret.len())).await.unwrap());
    }
    assert_eq!(seen[0].iter().sum::<usize>(), 40_000 + 3 + 2 * (1 + secret.len()));
    assert!(seen.iter().all(|sizes| *sizes == seen[0]), "{seen:?}");
    let shown = pieces(secret).await;
    assert!(matches!(shown, Err(Error::CredentialEchoed { .. })), "{shown:?}");
}

#[tokio::test]
async fn row_22_a_password_in_clear_and_a_credential_before_its_renewal_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = answering(|number, _| {
        let shown = json(403, &format!("{{\"refused\": \"{}\"}}", SECRET.replace('/', "\\/")));
        if number == 1 { json(401, "{}") } else { shown }
    })
    .await;
    let basic = CredentialKind::Basic { username: "user".into(), password: file(&folder, "basic", SECRET) };
    let gate = gate(&cloud, vec![credential(basic)]);
    for _ in 0..2 {
        let shown = match gate.gate.send(get(&cloud.uri("/")), plenty()).await {
            Ok(answer) if answer.status() == 401 => continue,
            Ok(answer) => text(answer).await,
            Err(error) => Err(error),
        };
        assert!(matches!(shown, Err(Error::CredentialEchoed { .. })), "{shown:?}");
    }
    // The cloud refuses the value that the operator replaced, and still shows it.
    let renewed = answering(|_, request| {
        let is_new = request.contains("another-value");
        if is_new { json(403, &format!("not {SECRET}")) } else { json(401, "{}") }
    })
    .await;
    let source = file(&folder, "header", SECRET);
    let header = CredentialKind::Header { name: "x-key".parse().unwrap(), value: source };
    let gate = crate::credentials::gate(&renewed, vec![credential(header)]);
    let shown = loop {
        match gate.gate.send(get(&renewed.uri("/")), plenty()).await.map(text) {
            Ok(answer) => match answer.await {
                Ok(_) => {}
                shown => break shown,
            },
            Err(error) => break Err(error),
        }
        // The gate reads the file again once the cloud has refused a value that is older than a second.
        file(&folder, "header", "another-value-0123456789");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(matches!(shown, Err(Error::CredentialEchoed { .. })), "{shown:?}");
    assert!(renewed.requests().concat().contains("another-value"));
}

#[tokio::test]
async fn data_that_only_begins_like_the_credential_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let body = format!("{} {}", &SECRET[..20], &SECRET[..30]);
    let cloud =
        Cloud::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    let kind = CredentialKind::Bearer { token: file(&folder, "bearer", SECRET) };
    let gate = gate(&cloud, vec![credential(kind)]);
    for _ in 0..2 {
        assert_eq!(text(gate.gate.send(get(&cloud.uri("/")), plenty()).await.unwrap()).await.unwrap(), body);
    }
    assert_eq!(cloud.connections(), 1, "the end of the answer was seen");
}
