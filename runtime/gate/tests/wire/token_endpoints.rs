//! Token endpoints on real sockets: what each kind of credential sends them, and how endpoints are handled that refuse,
//! misbehave, or repeat what they were sent.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use pileus_gate::{Config, Connection, Credential, CredentialKind, Error, IdentityId, OAuthClient};
use ring::signature::{KeyPair, RSA_PSS_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{sleep, timeout};

use crate::cloud::{Answers, Cloud, Log, NAME, Watched, get, nothing, text, within};
use crate::credentials::{
    PLANTED, answering, client, credential, file, gate, gate_to, json, secret, state, until,
};
use crate::environment::{is_child, run_with, serve_tls_with};
use crate::proxy::{opening, proxy};
use crate::{OK, SHORT};

const KEY: &str = include_str!("rsa-key.pem");

/// The value of a field in the form of a request.
fn field(request: &str, name: &str) -> String {
    let (_, form) = request.split_once("\r\n\r\n").unwrap();
    let mut pairs = url::form_urlencoded::parse(form.as_bytes());
    pairs.find(|(found, _)| found == name).unwrap().1.into_owned()
}

#[tokio::test]
async fn a_refusing_or_misbehaving_endpoint_is_reported_without_repeating_its_response() {
    let elsewhere = Cloud::answering(OK).await;
    let echo = format!(
        r#"{{"error": "{PLANTED}", "error_description": "AADSTS7000215: {PLANTED}", "error_codes": [7000215]}}"#
    );
    let invalid = format!(r#"{{"error": "invalid_client", "error_description": "{PLANTED}"}}"#);
    let redirect = format!(
        "HTTP/1.1 307 {PLANTED}\r\nlocation: http://login.test:{}/\r\ncontent-length: 0\r\n\r\n",
        elsewhere.port
    );
    let huge = json(200, &format!(r#"{{"access_token": "t", "x": "{}"}}"#, PLANTED.repeat(10_000)));
    let unsendable = json(200, &format!(r#"{{"access_token": "{PLANTED} \u0007"}}"#));
    let other_type = json(200, &format!(r#"{{"access_token": "t", "token_type": "{PLANTED}"}}"#));
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(1 << 20));
    let rows = [
        (json(401, &echo), "answered 401 AADSTS7000215"),
        (json(400, &invalid), "answered 400: invalid_client"),
        (json(500, PLANTED), "answered 500"),
        (redirect, "answered 307, a redirect, which isn't followed"),
        (json(200, PLANTED), "is not JSON with an `access_token`"),
        (json(200, "{}"), "is not JSON with an `access_token`"),
        (other_type, "a token that is not of type Bearer"),
        (json(200, r#"{"access_token": "t", "expires_in": 0}"#), "a token that has expired"),
        (unsendable, "a token that is not valid in a header"),
        (huge, "over 64 KiB"),
        (endless, "its head is over 100 lines or 64 KiB"),
        (format!("{PLANTED}\r\n\r\n"), "broke off"),
    ];
    for (answer, expected) in rows {
        let folder = tempfile::tempdir().unwrap();
        let cloud = Cloud::answering(OK).await;
        let issuer = answering(move |_, _| answer.clone()).await;
        let gate = gate_to(&cloud, &issuer, &folder);
        until(&gate, |state| state.failing.is_some()).await;
        let refused = gate.gate.send(get(&cloud.uri("/")), within(SHORT)).await.unwrap_err();
        let shown = format!("{refused} {refused:?} {:?} {}", gate.gate.credentials(), gate.metrics());
        assert!(
            matches!(refused, Error::Credential { .. }) && shown.contains(expected),
            "{expected}: {shown}"
        );
        assert!(!shown.contains(PLANTED), "{shown}");
        assert!(!state(&gate).is_ready && cloud.connections() == 0, "{expected}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_request_waits_for_a_silent_endpoint_until_its_soft_deadline_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let silent = Cloud::serving(|mut stream, seen| async move {
        seen.request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let cloud = Cloud::answering(OK).await;
    let gate = gate_to(&cloud, &silent, &folder);
    let begun = std::time::Instant::now();
    let refused = gate.gate.send(get(&cloud.uri("/")), within(SHORT)).await.unwrap_err();
    assert!(refused.to_string().contains("credential main: it has not been acquired yet"), "{refused}");
    // It doesn't wait until the attempt at the endpoint times out.
    assert!((SHORT..Duration::from_secs(5)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_endpoint_is_asked_again_no_sooner_than_its_retry_after() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Cloud::answering("HTTP/1.1 429 Slow\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n").await;
    let cloud = Cloud::answering(OK).await;
    let gate = gate_to(&cloud, &issuer, &folder);
    until(&gate, |state| state.failing.is_some()).await;
    let begun = std::time::Instant::now();
    let refused = gate.gate.send(get(&cloud.uri("/")), within(Duration::from_secs(30))).await;
    assert!(matches!(refused, Err(Error::Credential { .. })), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "who would wait in vain is told at once");
    assert_eq!(issuer.requests().len(), 1);
}

#[tokio::test]
async fn a_managed_identity_comes_from_the_configured_metadata_address() {
    let metadata =
        answering(|_, _| json(200, r#"{"access_token": "machine", "expires_in": "86399", "resource": "r"}"#))
            .await;
    let cloud = Cloud::answering(OK).await;
    let endpoint = format!("http://127.0.0.1:{}/metadata/identity/oauth2/token", metadata.port);
    let kind = |identity: Option<IdentityId>| CredentialKind::ManagedIdentity {
        endpoint: endpoint.parse().unwrap(),
        resource: "https://cloud.test/".into(),
        identity,
    };
    // Only the address in the URL itself opens loopback.
    let of = |identity| vec![Credential { addresses: Vec::new(), ..credential(kind(identity)) }];
    for (identity, tail) in [
        (None, ""),
        (Some(IdentityId::Client("some id".into())), "&client_id=some+id"),
        (Some(IdentityId::Object("some id".into())), "&object_id=some+id"),
        (Some(IdentityId::Resource("/subscriptions/1/x".into())), "&msi_res_id=%2Fsubscriptions%2F1%2Fx"),
    ] {
        let gate = gate(&cloud, of(identity));
        gate.get(&cloud.uri("/")).await.unwrap();
        let asked = metadata.requests().pop().unwrap();
        let line = format!(
            "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fcloud.test%2F{tail} HTTP/1.1\r\n"
        );
        assert!(asked.starts_with(&line) && asked.contains("\r\nmetadata: true\r\n"), "{asked}");
    }
    assert!(cloud.requests().iter().all(|request| request.contains("authorization: Bearer machine\r\n")));
    let config =
        Config { credentials: of(None), denied_ranges: vec!["127.0.0.0/8".parse().unwrap()], ..nothing() };
    let gate = Watched::of(config, Answers::new(&[]));
    until(&gate, |state| state.failing.is_some()).await;
}

#[tokio::test]
async fn tokens_are_asked_for_through_the_proxy_and_a_machines_identity_never() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = answering(|_, _| json(200, r#"{"access_token": "t"}"#)).await;
    let tunnels = opening().await;
    let secret = file(&folder, "secret", PLANTED);
    let by_name = credential(CredentialKind::ClientSecret { client: client(&endpoint), secret });
    // A metadata service that isn't on this machine's link.
    let machine = credential(CredentialKind::ManagedIdentity {
        endpoint: format!("http://metadata.test:{}/token", endpoint.port).parse().unwrap(),
        resource: "r".into(),
        identity: None,
    });
    for (credential, tunnelled) in [(by_name, 1), (machine, 0)] {
        let connection = Connection { proxy: Some(proxy(&tunnels)), extra_roots: None };
        let config = Config { credentials: vec![credential], connection, ..nothing() };
        let before = (tunnels.requests().len(), endpoint.requests().len());
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
        until(&gate, |state| state.is_ready).await;
        assert_eq!(
            (tunnels.requests().len(), endpoint.requests().len()),
            (before.0 + tunnelled, before.1 + 1)
        );
    }
    assert!(!tunnels.requests().concat().contains(PLANTED));
}

#[tokio::test]
async fn a_client_certificate_signs_its_assertion_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::from_pem(KEY).unwrap();
    let own = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
    let issuer = answering(|_, _| json(200, r#"{"access_token": "t", "expires_in": 1}"#)).await;
    let cloud = Cloud::answering(OK).await;
    let kind = CredentialKind::ClientCertificate {
        client: client(&issuer),
        certificate: file(&folder, "certificate.pem", &own.pem()),
        key: file(&folder, "key.pem", KEY),
    };
    let gate = gate(&cloud, vec![credential(kind)]);
    gate.get(&cloud.uri("/")).await.unwrap();
    issuer.arrived(2).await;

    let der = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, pair.public_key().as_ref());
    let mut names = Vec::new();
    for request in issuer.requests() {
        assert_eq!(
            field(&request, "client_assertion_type"),
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
        let assertion = field(&request, "client_assertion");
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        public.verify(signed.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let claims = BASE64_URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], client(&issuer).token_url.to_string());
        names.push(claims["jti"].as_str().unwrap().to_owned());
    }
    assert_ne!(names[0], names[1], "each has a name of its own");
}

#[tokio::test]
async fn the_clusters_token_is_read_again_for_each_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first").unwrap();
    let issuer = answering(|_, _| json(200, r#"{"access_token": "t", "expires_in": 1}"#)).await;
    let cloud = Cloud::answering(OK).await;
    let kind = CredentialKind::WorkloadIdentity { client: client(&issuer), token: secret(&path) };
    let gate = gate(&cloud, vec![credential(kind)]);
    gate.get(&cloud.uri("/")).await.unwrap();
    std::fs::write(&path, "second").unwrap();
    issuer.arrived(2).await;
    let sent: Vec<_> =
        issuer.requests().iter().map(|request| field(request, "client_assertion")).take(2).collect();
    assert_eq!(sent, ["first", "second"]);
}

#[tokio::test]
async fn over_tls_both_the_token_and_its_use_are_checked_against_the_trusted_roots() {
    const TEST: &str =
        "token_endpoints::over_tls_both_the_token_and_its_use_are_checked_against_the_trusted_roots";
    if is_child() {
        let folder = std::env::var_os("FOLDER").unwrap();
        let folder = Path::new(&folder);
        let port = serve_tls_with(folder, |request| {
            if request.starts_with("POST /token ") {
                return json(200, r#"{"access_token": "over-tls"}"#);
            }
            let carried = request.lines().find_map(|line| line.strip_prefix("authorization: "));
            json(200, carried.unwrap_or("nothing"))
        });
        let plain = Cloud::answering(OK).await;
        let grant = pileus_gate::Grant { tls: true, port, ..plain.grant() };
        let client = OAuthClient {
            token_url: format!("https://{NAME}:{port}/token").parse().unwrap(),
            ..client(&plain)
        };
        let kind = CredentialKind::ClientSecret { client, secret: secret(&folder.join("secret")) };
        let credentials = vec![Credential { plain: false, ..credential(kind) }];
        let alone = Config { credentials: credentials.clone(), ..nothing() };
        let config = Config { grants: vec![grant], credentials, ..nothing() };
        let [alone, gate] =
            [alone, config].map(|config| Watched::of(config, Answers::new(&[&["127.0.0.1"]])));
        if std::env::var_os("TRUSTED").is_some() {
            let answer = gate.get(&format!("https://{NAME}:{port}/")).await.unwrap();
            assert_eq!(text(answer).await.unwrap(), "Bearer over-tls");
            // Even if no grant uses TLS.
            until(&alone, |state| state.is_ready).await;
        } else {
            until(&gate, |state| state.failing.is_some()).await;
            let cause = state(&gate).failing.unwrap().cause;
            assert!(cause.contains(&format!("TLS with {NAME} failed")), "{cause}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    write("certificate.der", own.cert.der());
    write("secret", PLANTED.as_bytes());
    write("key.der", &own.signing_key.serialize_der());
    let roots = write("roots.pem", own.cert.pem().as_bytes());
    let strangers = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let strangers = write("strangers.pem", strangers.cert.pem().as_bytes());
    let folder = folder.path().display().to_string();
    run_with(TEST, &[("SSL_CERT_FILE", roots), ("FOLDER", folder.clone()), ("TRUSTED", "yes".to_owned())]);
    run_with(TEST, &[("SSL_CERT_FILE", strangers), ("FOLDER", folder)]);
}

#[tokio::test]
async fn the_log_reports_changes_not_attempts_and_never_a_secret() {
    const TEST: &str = "token_endpoints::the_log_reports_changes_not_attempts_and_never_a_secret";
    if !is_child() {
        return run_with(TEST, &[]);
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let echo = format!(r#"{{"error": "{PLANTED}", "error_description": "{PLANTED}"}}"#);
    let granted = format!(r#"{{"access_token": "{PLANTED}", "expires_in": 1}}"#);
    let issuer = answering(move |number, _| match number {
        1 | 2 | 5.. => json(200, &granted),
        _ => json(400, &echo),
    })
    .await;
    let cloud = Cloud::answering(OK).await;
    let gate = gate_to(&cloud, &issuer, &folder);
    gate.get(&cloud.uri("/")).await.unwrap();
    issuer.arrived(4).await;
    gate.gate.send(get(&cloud.uri("/")), within(SHORT)).await.unwrap_err();
    issuer.arrived(5).await;
    let is_back = async {
        while log.text().matches("credential acquired").count() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(Duration::from_secs(20), is_back).await;
    let log = log.text();
    let count = |text: &str| log.matches(text).count();
    assert_eq!(count("credential acquired"), 2, "at first, and when it was back: {log}");
    assert_eq!(count("credential not acquired; requests that need it fail"), 1, "{log}");
    let own: Vec<_> = log.lines().filter(|line| line.contains("pileus_gate")).collect();
    assert!(own.len() > 3 && !log.contains(PLANTED), "{log}");
}
