//! What the operator takes away while an older release still serves.

use http_body_util::BodyExt as _;
use pileus_gate::{Config, Credential, CredentialKind, Error, Grant, MissingGrant};

use crate::OK;
use crate::cloud::{Answers, Cloud, Watched, get, nothing, plenty};
use crate::credentials::{credential, file};

/// A grant with other paths.
fn of_paths(grant: &Grant, paths: &[&str]) -> Grant {
    Grant { paths: paths.iter().map(|path| path.parse().unwrap()).collect(), ..grant.clone() }
}

#[tokio::test]
async fn a_grant_that_the_present_document_lacks_lets_nothing_through_and_a_new_one_adds_nothing() {
    let cloud = Cloud::answering(OK).await;
    let all = cloud.grant();
    let config = Config { grants: vec![of_paths(&all, &["/a", "/b"])], ..nothing() };
    let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
    let fewer_addresses = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..all.clone() };
    for (row, present, allowed) in [
        ("more", vec![all.clone()], &["/a", "/b"][..]),
        ("one path", vec![of_paths(&all, &["/b", "/c"])], &["/b"]),
        ("other methods", vec![Grant { methods: vec!["PUT".parse().unwrap()], ..all.clone() }], &[]),
        ("other addresses", vec![fewer_addresses], &[]),
        ("nothing", Vec::new(), &[]),
        ("all again", vec![all.clone()], &["/a", "/b"]),
    ] {
        gate.gate.narrow(&present, &[]);
        for path in ["/a", "/b", "/c"] {
            let before = cloud.requests().len();
            // A clone that was made before, as the one of a call.
            let answer = gate.get(&cloud.uri(path)).await;
            let is_allowed = allowed.contains(&path);
            assert_eq!(answer.is_ok(), is_allowed, "{row} {path}: {answer:?}");
            assert_eq!(cloud.requests().len() - before, usize::from(is_allowed), "{row} {path}");
            if row == "other addresses" && path == "/a" {
                let expected =
                    matches!(&answer, Err(Error::Denied { missing: MissingGrant::Addresses { .. }, .. }));
                assert!(expected, "{answer:?}");
            }
            if let Ok(answer) = answer {
                answer.into_body().collect().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_credential_without_a_namesake_in_the_present_document_is_not_attached() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::answering(OK).await;
    let bearer = |content: &str| CredentialKind::Bearer { token: file(&folder, content, content) };
    let old = credential(bearer("old"));
    let gate = crate::credentials::gate(&cloud, vec![old.clone()]);
    let renamed = Credential { name: "other".to_owned(), ..old.clone() };
    let elsewhere = Credential { hosts: vec!["b.test".parse().unwrap()], ..old.clone() };
    let only_below = Credential { paths: vec!["/below".parse().unwrap()], ..old.clone() };
    for (row, present, is_sent) in [
        ("the same", vec![old.clone()], true),
        ("a new secret", vec![credential(bearer("new"))], true),
        ("none", Vec::new(), false),
        ("another name", vec![renamed], false),
        ("other hosts", vec![elsewhere], false),
        ("other paths", vec![only_below], false),
        ("the same again", vec![old.clone()], true),
    ] {
        gate.gate.narrow(&[cloud.grant()], &present);
        let before = cloud.requests().len();
        let answer = gate.gate.send(get(&cloud.uri("/a")), plenty()).await;
        assert_eq!(cloud.requests().len() - before, usize::from(is_sent), "{row}");
        match answer {
            Ok(_) => assert!(is_sent, "{row}"),
            Err(Error::Credential { credential, .. }) => {
                assert_eq!((credential.as_str(), is_sent), ("main", false));
            }
            Err(error) => panic!("{row}: {error}"),
        }
    }
    assert!(cloud.requests().iter().all(|request| request.contains("authorization: Bearer old")));
}
