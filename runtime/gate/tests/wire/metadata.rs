//! Credentials for the metadata service of this machine, on real sockets: which header goes where, and what no grant opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use pileus_gate::{
    Config, Connection, Credential, CredentialKind, Error, Grant, MetadataFlavor, MissingGrant,
};

use crate::OK;
use crate::cloud::{Answers, Cloud, Watched, get, nothing, plenty, text, within};
use crate::credentials::{answering, credential, json, pass, state, until};
use crate::proxy::{opening, proxy};

/// A credential for the only address that stands for this machine's link here.
fn of_flavor(flavor: MetadataFlavor) -> Credential {
    Credential {
        hosts: vec!["127.0.0.1".parse().unwrap()],
        plain: false,
        addresses: Vec::new(),
        ..credential(CredentialKind::Metadata { flavor })
    }
}

fn granted(service: &Cloud) -> Grant {
    let addresses = vec!["127.0.0.1/32".parse().unwrap()];
    Grant { host: "127.0.0.1".parse().unwrap(), addresses, ..service.grant() }
}

fn gate(service: &Cloud, flavor: MetadataFlavor) -> Watched {
    let config = Config { grants: vec![granted(service)], credentials: vec![of_flavor(flavor)], ..nothing() };
    Watched::of(config, Answers::new(&[]))
}

fn uri(service: &Cloud, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", service.port)
}

#[tokio::test]
async fn a_constant_header_takes_the_place_of_what_the_provider_sends() {
    for (flavor, expected) in [
        (MetadataFlavor::Azure, "\r\nmetadata: true\r\n"),
        (MetadataFlavor::Google, "\r\nmetadata-flavor: Google\r\n"),
    ] {
        let service = Cloud::answering(OK).await;
        let gate = gate(&service, flavor);
        let request = http::Request::get(uri(&service, "/metadata/instance?api-version=2021-02-01"))
            .header("metadata", "own")
            .header("metadata-flavor", "own")
            .header("metadata_flavor", "own")
            .header("x-forwarded-for", "10.0.0.1");
        let answer = gate.gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap();
        assert_eq!(text(answer).await.unwrap(), "ok");
        let arrived = service.requests().concat();
        assert!(
            arrived.contains(expected) && !arrived.contains("own") && !arrived.contains("10.0.0.1"),
            "{arrived}"
        );
    }
}

/// A service like AWS's, which issues `aws-token-1` and so on and takes only the one with this number.
async fn aws(taken: Arc<AtomicUsize>) -> Cloud {
    let issued = AtomicUsize::new(0);
    answering(move |_, request| {
        if request.starts_with("PUT /latest/api/token HTTP/1.1\r\n") {
            assert!(request.contains("\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"), "{request}");
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            let token = format!("aws-token-{number}");
            let lines = "x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n";
            return format!("HTTP/1.1 200 OK\r\n{lines}content-length: {}\r\n\r\n{token}", token.len());
        }
        let wanted = format!("\r\nx-aws-ec2-metadata-token: aws-token-{}\r\n", taken.load(Ordering::SeqCst));
        if !request.contains(&wanted) {
            return json(401, "");
        }
        let shows = request.starts_with("GET /latest/meta-data/shows ");
        if shows { json(200, &request.replace("\r\n", " ")) } else { OK.to_owned() }
    })
    .await
}

#[tokio::test]
async fn a_token_of_aws_is_asked_for_once_kept_dropped_after_a_401_and_never_shown() {
    let taken = Arc::new(AtomicUsize::new(1));
    let service = aws(Arc::clone(&taken)).await;
    let gate = gate(&service, MetadataFlavor::Aws);
    let issued = || service.requests().iter().filter(|request| request.starts_with("PUT ")).count();
    let read = async |path: &str| gate.get(&uri(&service, path)).await;
    for _ in 0..5 {
        assert_eq!(read("/latest/meta-data/instance-id").await.unwrap().status(), 200);
    }
    assert_eq!((issued(), state(&gate).kind), (1, "metadata"));
    let shown = text(read("/latest/meta-data/shows").await.unwrap()).await;
    assert!(matches!(shown, Err(Error::CredentialEchoed { .. })), "{shown:?}");
    pass(Duration::from_secs(31)).await;
    taken.store(2, Ordering::SeqCst);
    assert_eq!(read("/latest/meta-data/instance-id").await.unwrap().status(), 200);
    assert_eq!(issued(), 2);
    let first = state(&gate).until.unwrap();
    pass(Duration::from_hours(6)).await;
    taken.store(3, Ordering::SeqCst);
    until(&gate, |state| state.is_ready && state.until.unwrap() > first).await;
    assert_eq!(read("/latest/meta-data/instance-id").await.unwrap().status(), 200, "before the first read");
    assert_eq!(issued(), 3);
}

#[tokio::test]
async fn a_service_that_refuses_a_token_or_issues_none_is_reported() {
    for (answer, expected) in [
        (json(403, "planted"), "answered 403"),
        (json(200, "two words"), "is not a token"),
        (json(200, ""), "is not a token"),
    ] {
        let service = Cloud::answering(answer).await;
        let gate = gate(&service, MetadataFlavor::Aws);
        until(&gate, |state| state.failing.is_some()).await;
        let cause = state(&gate).failing.unwrap().cause;
        assert!(cause.contains(expected) && !cause.contains("planted"), "{cause}");
        let refused = gate.gate.send(get(&uri(&service, "/a")), within(Duration::from_millis(100))).await;
        assert!(matches!(refused, Err(Error::Credential { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn no_grant_opens_an_identity_of_this_machine_in_any_spelling() {
    for flavor in [MetadataFlavor::Azure, MetadataFlavor::Google, MetadataFlavor::Aws] {
        let service = aws(Arc::new(AtomicUsize::new(1))).await;
        let gate = gate(&service, flavor);
        for path in [
            "/metadata/identity/oauth2/token?resource=https://management.azure.com/",
            "/metadata/Identity/info",
            "/metadata/%69dentity/info",
            "/metadata/%2569dentity/info",
            "/metadata%2fidentity/info",
            "/metadata/identity;v=1/info",
            "/metadata//identity/info",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            "/computeMetadata/v1/instance/service-accounts/default/identity?audience=a",
            "/computemetadata/v1beta1/instance/Service-Accounts/default/%74oken",
            "/latest/meta-data/iam/security-credentials/role",
            "/2021-07-15/meta-data/IAM/info",
            "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance",
            "/latest/dynamic/instance-identity/document",
            "/latest/api/token",
        ] {
            for method in ["GET", "PUT", "POST"] {
                let request = http::Request::builder().method(method).uri(uri(&service, path));
                let request = request.body(Full::<Bytes>::default()).unwrap();
                let refused = gate.gate.send(request, plenty()).await;
                let is_refused =
                    matches!(&refused, Err(Error::Denied { missing: MissingGrant::Identity { .. }, .. }));
                assert!(is_refused, "{flavor:?} {method} {path}: {refused:?}");
            }
        }
        let own = |request: &&String| !request.starts_with("PUT /latest/api/token ");
        assert_eq!(service.requests().iter().filter(own).count(), 0);
        // Without this kind it is the operator's grant alone that decides, as before.
        let config = Config { grants: vec![granted(&service)], ..nothing() };
        let plain = Watched::of(config, Answers::new(&[]));
        assert_eq!(plain.get(&uri(&service, "/metadata/identity")).await.unwrap().status(), 401);
    }
}

#[tokio::test]
async fn a_metadata_service_is_never_reached_through_a_proxy() {
    let tunnels = opening().await;
    for flavor in [MetadataFlavor::Azure, MetadataFlavor::Google, MetadataFlavor::Aws] {
        let service = aws(Arc::new(AtomicUsize::new(1))).await;
        let connection = Connection { proxy: Some(proxy(&tunnels)), extra_roots: None };
        let (grants, credentials) = (vec![granted(&service)], vec![of_flavor(flavor)]);
        let config = Config { grants, credentials, connection, ..nothing() };
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
        gate.get(&uri(&service, "/latest/meta-data/instance-id")).await.unwrap();
        assert!(!service.requests().is_empty());
    }
    assert_eq!(tunnels.connections(), 0);
}

#[tokio::test]
async fn a_metadata_credential_for_anything_else_than_one_near_address_is_a_config_error() {
    for hosts in [&["cloud.test"][..], &["10.0.0.1"], &["127.0.0.1", "169.254.169.254"], &["*.internal"], &[]]
    {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let credentials = vec![Credential { hosts, ..of_flavor(MetadataFlavor::Azure) }];
        let refused = Config { credentials, ..nothing() }.check().unwrap_err().to_string();
        assert!(refused.contains("spec.credentials[0].metadata"), "{refused}");
    }
}
