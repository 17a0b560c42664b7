//! The longest bodies of requests on real sockets.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use pileus_gate::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cloud::{Cloud, Watched, text, within};

/// What the contract promises: 8 MiB.
const LONGEST: usize = 8 << 20;

/// A cloud that answers each request with the length of its body and the sum of its bytes.
async fn measuring() -> Cloud {
    Cloud::serving(|mut stream, _| async move {
        let mut received = Vec::new();
        while stream.read_buf(&mut received).await.is_ok_and(|length| length > 0) {
            let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let mut body = received.split_off(end + 4);
            let head = String::from_utf8_lossy(&received);
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let length: usize = length.unwrap();
            body.reserve(length);
            while body.len() < length && stream.read_buf(&mut body).await.is_ok_and(|read| read > 0) {}
            let sum: u64 = body.iter().copied().map(u64::from).sum();
            let answer = format!("{} {sum}", body.len());
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            received.clear();
        }
    })
    .await
}

#[tokio::test]
async fn a_body_of_8_mib_arrives_whole_and_a_longer_one_is_refused_before_it_is_sent() {
    let cloud = measuring().await;
    let gate = Watched::new(vec![cloud.grant()]);
    let send = async |length: usize| {
        let body: Vec<u8> = (0..length).map(|place| u8::try_from(place % 251).unwrap()).collect();
        let sum: u64 = body.iter().copied().map(u64::from).sum();
        let request = http::Request::put(cloud.uri("/a")).body(Full::new(Bytes::from(body))).unwrap();
        let response = gate.gate.send(request, within(Duration::from_mins(1))).await?;
        Ok((text(response).await?, format!("{length} {sum}")))
    };
    let (found, expected) = send(LONGEST).await.unwrap();
    assert_eq!(found, expected);
    let refused: Result<_, Error> = send(LONGEST + 1).await;
    assert!(matches!(&refused, Err(Error::BodyTooLarge { limit }) if limit == "8 MiB"), "{refused:?}");
    assert_eq!(cloud.connections(), 1);
}
