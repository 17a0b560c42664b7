//! Credentials on real sockets, with a token endpoint and a cloud that checks them: when they are acquired and renewed, which
//! request carries which, and that they show nowhere else.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use pileus_gate::{
    Config, Credential, CredentialKind, CredentialState, Effect, Error, Limit, OAuthClient, Rule, Secret,
    SecretFile, TokenTarget, View,
};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, text, within};

/// How many seconds a token lives whose expiry a test waits for. It is renewed after three quarters of that, which leaves
/// enough time for a busy machine.
const LIFE: u64 = 8;

/// A word that must not show up where tests look for it.
pub(crate) const PLANTED: &str = "planted-hunter2";

/// A server that answers the nth request, from 1, with the result of this function.
pub(crate) async fn answering(answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> Cloud {
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    Cloud::serving(move |mut stream, seen| {
        let (answer, count) = (answer.clone(), count.clone());
        async move {
            while let Some(request) = seen.request(&mut stream).await {
                let answer = answer(1 + count.fetch_add(1, Ordering::SeqCst), &request);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

pub(crate) fn json(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} So\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A token endpoint that issues `token-1`, `token-2` and so on, each for so many seconds.
async fn issuer(lifetime: u64) -> Cloud {
    answering(move |number, _| token(number, lifetime)).await
}

fn token(number: usize, lifetime: u64) -> String {
    json(
        200,
        &format!(r#"{{"access_token": "token-{number}", "token_type": "Bearer", "expires_in": {lifetime}}}"#),
    )
}

/// A cloud that accepts the requests for which this returns true, and answers 401 to all others.
async fn guarded(takes: impl Fn(&str) -> bool + Send + Sync + 'static) -> Cloud {
    answering(move |_, request| if takes(request) { OK.to_owned() } else { json(401, "{}") }).await
}

pub(crate) fn secret(path: &Path) -> Secret {
    Arc::new(SecretFile::new(path))
}

/// A file with this content, which is deleted with its folder.
pub(crate) fn file(folder: &tempfile::TempDir, name: &str, content: &str) -> Secret {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    secret(&path)
}

/// A client of this token endpoint.
pub(crate) fn client(issuer: &Cloud) -> OAuthClient {
    OAuthClient {
        token_url: format!("http://login.test:{}/tenant/token", issuer.port).parse().unwrap(),
        client_id: "client".to_owned(),
        target: TokenTarget::Scope("https://cloud.test/.default".to_owned()),
    }
}

/// A credential for the cloud, over loopback and without TLS.
pub(crate) fn credential(kind: CredentialKind) -> Credential {
    Credential {
        name: "main".to_owned(),
        hosts: vec![NAME.parse().unwrap()],
        paths: Vec::new(),
        auxiliary: Vec::new(),
        plain: true,
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
        kind,
    }
}

pub(crate) fn gate(cloud: &Cloud, credentials: Vec<Credential>) -> Watched {
    let config = Config { grants: vec![cloud.grant()], credentials, ..nothing() };
    Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
}

/// A gate with a client's secret at this endpoint.
pub(crate) fn gate_to(cloud: &Cloud, issuer: &Cloud, folder: &tempfile::TempDir) -> Watched {
    let secret = file(folder, "secret", &format!("{PLANTED}\n"));
    gate(cloud, vec![credential(CredentialKind::ClientSecret { client: client(issuer), secret })])
}

/// The `Authorization` headers of the requests, in order.
fn authorizations(cloud: &Cloud) -> Vec<String> {
    let line = |request: &String| {
        request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default().to_owned()
    };
    cloud.requests().iter().map(line).collect()
}

/// The state of the gate's only credential.
pub(crate) fn state(gate: &Watched) -> CredentialState {
    gate.gate.credentials().pop().unwrap()
}

/// Waits until the gate's only credential satisfies this condition.
pub(crate) async fn until(gate: &Watched, is: impl Fn(&CredentialState) -> bool) {
    let wait = async {
        while !is(&state(gate)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.map_err(|_| state(gate)).unwrap();
}

/// Advances the gate's clock by this time.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn five_hundred_requests_at_once_wait_for_one_token_and_carry_it() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = issuer(3600).await;
    let cloud = guarded(|request| request.contains("\r\nauthorization: Bearer token-1\r\n")).await;
    let gate = gate_to(&cloud, &issuer, &folder);
    let uri = cloud.uri("/");
    let answers = join_all((0..500).map(|_| gate.get(&uri))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().status() == 200));
    assert_eq!(authorizations(&cloud), vec!["Bearer token-1"; 500]);
    let [asked] = &issuer.requests()[..] else { panic!("{:?}", issuer.requests()) };
    let (head, form) = asked.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /tenant/token HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: login.test:{}", issuer.port)), "{head}");
    assert_eq!(
        form,
        format!(
            "grant_type=client_credentials&client_id=client&scope=https%3A%2F%2Fcloud.test%2F.default\
             &client_secret={PLANTED}"
        )
    );
    let line =
        r#"pileus_gate_credential_acquisitions_total{provider="test",credential="main",result="ok"} 1"#;
    assert!(gate.metrics().contains(line), "{}", gate.metrics());
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, cloud) = (issuer(LIFE).await, guarded(|request| request.contains("Bearer token-")).await);
    let gate = gate_to(&cloud, &issuer, &folder);
    until(&gate, |state| state.is_ready).await;
    let (first, now) = (state(&gate).until.unwrap(), SystemTime::now());
    assert!(first > now && first <= now + Duration::from_secs(LIFE), "{first:?}");
    until(&gate, |state| state.is_ready && state.until.unwrap() > first + Duration::from_millis(500)).await;
    assert!(SystemTime::now() < first, "before the first one ended");
    gate.get(&cloud.uri("/")).await.unwrap();
    assert_eq!(authorizations(&cloud), ["Bearer token-2"]);
    assert!(gate.metrics().contains("pileus_gate_credential_expiry_seconds{"), "{}", gate.metrics());
}

#[tokio::test]
async fn a_token_is_used_while_its_endpoint_is_down_until_it_expires_and_is_renewed_later() {
    let folder = tempfile::tempdir().unwrap();
    let is_down = Arc::new(Mutex::new(false));
    let (down, cloud) = (is_down.clone(), guarded(|request| request.contains("Bearer token-")).await);
    let issuer =
        answering(move |number, _| if *down.lock().unwrap() { json(503, "{}") } else { token(number, LIFE) })
            .await;
    let gate = gate_to(&cloud, &issuer, &folder);
    gate.get(&cloud.uri("/")).await.unwrap();
    *is_down.lock().unwrap() = true;
    until(&gate, |state| state.failing.is_some()).await;
    assert!(state(&gate).is_ready);
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200, "with the token that is left");
    until(&gate, |state| !state.is_ready).await;
    let count = cloud.requests().len();
    let refused = gate.gate.send(get(&cloud.uri("/")), within(Duration::from_millis(50))).await.unwrap_err();
    let text = refused.to_string();
    let url = format!("http://login.test:{}/tenant/token answered 503", issuer.port);
    assert!(matches!(refused, Error::Credential { .. }) && text.contains(&url), "{text}");
    assert_eq!(cloud.requests().len(), count, "nothing is sent without it");
    assert!(gate.metrics().contains(r#"result="credential_error"} 1"#), "{}", gate.metrics());
    *is_down.lock().unwrap() = false;
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200, "it waits for the next attempt");
    assert_eq!(state(&gate).failing, None);
}

#[tokio::test]
async fn only_a_host_that_a_credential_is_for_gets_it_and_never_without_tls_unless_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let bearer = |name: &str| CredentialKind::Bearer { token: file(&folder, name, name) };
    let other = Credential { hosts: vec!["other.test".parse().unwrap()], ..credential(bearer("other")) };
    let secure = Credential { plain: false, ..credential(bearer("secure")) };
    let first = credential(bearer("first"));
    let second = credential(bearer("second"));
    for (credentials, expected) in [
        (vec![other.clone()], ""),
        (vec![secure.clone()], ""),
        (vec![other, secure, first.clone(), second.clone()], "Bearer first"),
        (vec![second, first], "Bearer second"),
    ] {
        let cloud = Cloud::answering(OK).await;
        let gate = gate(&cloud, credentials);
        let request = http::Request::get(cloud.uri("/")).header("authorization", "Bearer the provider's");
        gate.gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap();
        assert_eq!(authorizations(&cloud), [expected]);
    }
}

#[tokio::test]
async fn the_credential_that_names_a_path_most_closely_is_used_whatever_its_case_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, paths: &[&str]| Credential {
        name: name.to_owned(),
        paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        ..credential(CredentialKind::Bearer { token: file(&folder, name, name) })
    };
    let credentials = vec![
        of("rest", &[]),
        of("network", &["/subscriptions/network", "/subscriptions/other"]),
        of("group", &["/subscriptions/network/resourceGroups/g"]),
        of("late", &["/subscriptions/network"]),
        of("unused", &[]),
    ];
    let cloud = Cloud::answering(OK).await;
    let rooted = gate(&cloud, vec![of("all", &["/"]), of("network", &["/subscriptions/network"])]);
    let watched = gate(&cloud, credentials);
    for (gate, path, expected) in [
        (&watched, "/", "rest"),
        (&watched, "/subscriptions/one", "rest"),
        (&watched, "/subscriptions/network", "network"),
        (&watched, "/Subscriptions/NETWORK/providers", "network"),
        (&watched, "/subscriptions/%6eetwork", "network"),
        (&watched, "/subscriptions/other?a=/subscriptions/network", "network"),
        (&watched, "/subscriptions/network2", "rest"),
        (&watched, "/subscriptions/network/resourcegroups/G/x", "group"),
        (&watched, "/subscriptions/network/resourcegroups/G2", "network"),
        (&rooted, "/subscriptions/network/x", "network"),
        (&rooted, "/", "all"),
    ] {
        gate.get(&cloud.uri(path)).await.unwrap();
        assert_eq!(authorizations(&cloud).pop().unwrap(), format!("Bearer {expected}"), "{path}");
    }
    let count = cloud.requests().len();
    for path in
        ["/subscriptions/network/%252e%252e/one", "/subscriptions/network/a%2fb", "/subscriptions/network/;x"]
    {
        let refused = watched.get(&cloud.uri(path)).await.unwrap_err();
        assert!(matches!(refused, Error::Credential { .. }), "{path}: {refused:?}");
    }
    assert_eq!(cloud.requests().len(), count);
}

#[tokio::test]
async fn auxiliary_tokens_are_sent_along_guarded_and_renewed_like_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aux) = (folder.path().join("second"), "auxiliary-planted");
    std::fs::write(&path, aux).unwrap();
    let main = Credential {
        auxiliary: vec!["second".to_owned(), "third".to_owned()],
        ..credential(CredentialKind::Bearer { token: file(&folder, "main", "main") })
    };
    let only = |name: &str, token: Secret| Credential {
        name: name.to_owned(),
        hosts: Vec::new(),
        ..credential(CredentialKind::Bearer { token })
    };
    let issuer = issuer(3600).await;
    let third = CredentialKind::ClientSecret { client: client(&issuer), secret: file(&folder, "s", PLANTED) };
    let third = Credential { name: "third".to_owned(), hosts: Vec::new(), ..credential(third) };
    let cloud = guarded(|request| {
        !request.contains("auxiliary: Bearer auxiliary-planted,") || request.contains("/open")
    });
    let (cloud, seconds) = (cloud.await, only("second", secret(&path)));
    let gate = gate(&cloud, vec![main, seconds, third]);
    let send = async || {
        let request = http::Request::get(cloud.uri("/open"))
            .header("x-ms-authorization-auxiliary", "Bearer own")
            .header("x_ms_authorization_auxiliary", "Bearer own");
        gate.gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap()
    };
    assert_eq!(send().await.status(), 200);
    let arrived = cloud.requests().concat();
    let line = "x-ms-authorization-auxiliary: Bearer auxiliary-planted, Bearer token-1\r\n";
    assert!(arrived.contains(line) && arrived.contains("authorization: Bearer main\r\n"), "{arrived}");
    assert!(!arrived.contains("Bearer own"), "{arrived}");
    // A refused one is replaced, and everything is sent once more.
    std::fs::write(&path, "auxiliary-second").unwrap();
    pass(Duration::from_secs(2)).await;
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
    let last = cloud.requests().pop().unwrap();
    assert!(last.contains("Bearer auxiliary-second, Bearer token-1\r\n"), "{last}");
}

#[tokio::test]
async fn a_response_that_shows_an_auxiliary_token_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let bearer = |name: &str, text: &str| Credential {
        name: name.to_owned(),
        ..credential(CredentialKind::Bearer { token: file(&folder, name, text) })
    };
    for shown in ["auxiliary-planted", "main-planted", "neither-of-both"] {
        let cloud = Cloud::answering(json(403, &format!(r#"{{"got": "{shown}"}}"#))).await;
        let main = Credential { auxiliary: vec!["second".to_owned()], ..bearer("main", "main-planted") };
        let gate = gate(&cloud, vec![main, bearer("second", "auxiliary-planted")]);
        let found = text(gate.get(&cloud.uri("/")).await.unwrap()).await;
        assert_eq!(
            matches!(found, Err(Error::CredentialEchoed { .. })),
            shown != "neither-of-both",
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn each_form_of_credential_takes_the_place_of_what_the_provider_sends() {
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str| file(&folder, name, name);
    let aws = CredentialKind::AwsSigV4 {
        region: "eu-central-1".into(),
        service: "ec2".into(),
        access_key_id: secret("AKID"),
        secret_access_key: secret("key"),
        session_token: Some(secret("session")),
    };
    let name = "x-key".parse().unwrap();
    let rows = [
        (CredentialKind::Header { name, value: secret("a value") }, vec!["x-key: a value"]),
        (
            CredentialKind::Basic { username: "user".into(), password: secret("word") },
            vec!["authorization: Basic dXNlcjp3b3Jk"],
        ),
        (
            aws,
            vec![
                "x-amz-security-token: session",
                // Of an empty body.
                "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "authorization: AWS4-HMAC-SHA256 Credential=AKID/",
                "/eu-central-1/ec2/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, ",
            ],
        ),
    ];
    for (kind, expected) in rows {
        let cloud = Cloud::answering(OK).await;
        let gate = gate(&cloud, vec![credential(kind)]);
        let request = http::Request::get(cloud.uri("/"))
            .header("x-key", "the provider's")
            .header("x-amz-date", "the provider's");
        gate.gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap();
        let arrived = cloud.requests().concat();
        assert!(expected.iter().all(|part| arrived.contains(part)), "{arrived}");
        assert_eq!(arrived.matches("authorization: ").count() + arrived.matches("x-key: a").count(), 1);
    }
}

#[tokio::test]
async fn many_401s_bring_one_new_token_with_which_everything_is_sent_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, taken) = (issuer(3600).await, Arc::new(Mutex::new("Bearer token-1")));
    let takes = taken.clone();
    let cloud = guarded(move |request| request.contains(*takes.lock().unwrap())).await;
    let gate = gate_to(&cloud, &issuer, &folder);
    gate.get(&cloud.uri("/")).await.unwrap();
    pass(Duration::from_secs(31)).await;
    *taken.lock().unwrap() = "Bearer token-2";
    let send = || async {
        let request = http::Request::post(cloud.uri("/")).body(Full::<Bytes>::from("the body")).unwrap();
        gate.gate.send(request, plenty()).await.unwrap().status().as_u16()
    };
    let found = join_all((0..50).map(|_| send())).await;
    assert_eq!(found, [200; 50]);
    let carried = authorizations(&cloud);
    assert_eq!(carried.iter().filter(|carried| **carried == "Bearer token-2").count(), 50);
    assert!(carried.len() <= 101, "none is sent a third time");
    assert!(cloud.requests().iter().skip(1).all(|request| request.ends_with("\r\n\r\nthe body")));
    let metrics = gate.metrics();
    let counted = metrics.lines().filter(|line| line.starts_with("pileus_gate_sent_bytes_total"));
    let sent: usize = counted.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum();
    assert_eq!(sent, (carried.len() - 1) * "the body".len(), "each time that it was sent");
    assert_eq!(issuer.requests().len(), 2);
    // A cloud that accepts no token doesn't make the gate acquire more and more of them.
    *taken.lock().unwrap() = "none";
    assert_eq!(join_all((0..50).map(|_| send())).await, [401; 50]);
    assert_eq!(issuer.requests().len(), 2);
    pass(Duration::from_secs(31)).await;
    assert_eq!(send().await, 401, "the second 401 is the provider's to see");
    assert_eq!(issuer.requests().len(), 3);
}

#[tokio::test]
async fn a_retry_overtakes_no_write_that_was_detached_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (goes_on, told) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let waits = goes_on.clone();
    let issuer = Cloud::serving(move |mut stream, seen| {
        let (waits, told) = (waits.clone(), told.clone());
        async move {
            while seen.request(&mut stream).await.is_some() {
                let number = 1 + told.fetch_add(1, Ordering::SeqCst);
                if number > 1 {
                    waits.notified().await;
                }
                stream.write_all(token(number, 3600).as_bytes()).await.unwrap();
            }
        }
    });
    let issuer = issuer.await;
    let cloud = Cloud::serving(|mut stream, seen| async move {
        while let Some(request) = seen.request(&mut stream).await {
            if request.ends_with("left") {
                std::future::pending::<()>().await;
            }
            stream.write_all(json(401, "{}").as_bytes()).await.unwrap();
        }
    });
    let cloud = cloud.await;
    let gate = gate_to(&cloud, &issuer, &folder);
    until(&gate, |state| state.is_ready).await;
    pass(Duration::from_secs(31)).await;
    let put = |body: &'static str| {
        let request = http::Request::put(cloud.uri("/")).body(Full::<Bytes>::from(body)).unwrap();
        gate.gate.send(request, plenty())
    };
    let leaves = async {
        issuer.arrived(2).await;
        tokio::select! {
            _ = put("left") => unreachable!("the cloud does not answer"),
            () = cloud.arrived(2) => {}
        }
        goes_on.notify_one();
    };
    let (refused, ()) = tokio::join!(put("refused"), leaves);
    assert_eq!(refused.unwrap().status(), 401, "the first 401 is the provider's to see");
    assert_eq!((cloud.requests().len(), gate.gate.writes_in_flight()), (2, 1));
}

#[tokio::test]
async fn a_401_while_the_endpoint_fails_keeps_the_current_token() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = answering(|number, _| if number == 1 { token(1, 3600) } else { json(400, "{}") }).await;
    let cloud = guarded(|request| request.contains("GET /open")).await;
    let gate = gate_to(&cloud, &issuer, &folder);
    gate.get(&cloud.uri("/open")).await.unwrap();
    pass(Duration::from_secs(31)).await;
    assert_eq!(gate.get(&cloud.uri("/closed")).await.unwrap().status(), 401);
    assert_eq!(gate.get(&cloud.uri("/open")).await.unwrap().status(), 200);
    assert!(state(&gate).failing.is_some());
    assert_eq!(authorizations(&cloud), ["Bearer token-1"; 3]);
}

#[tokio::test]
async fn a_retry_counts_against_the_limit_without_waiting_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = issuer(3600).await;
    let cloud = guarded(|request| request.contains("Bearer token-2")).await;
    let secret = file(&folder, "secret", PLANTED);
    let rule = Rule {
        host: NAME.parse().unwrap(),
        method: "*".parse().unwrap(),
        path: "/**".parse().unwrap(),
        operation: None,
        effect: Effect::Read,
        limits: vec!["reads".parse().unwrap()],
        cache_scope: None,
        fold_case: false,
        page: None,
    };
    let config = Config {
        grants: vec![cloud.grant()],
        rules: vec![rule],
        // One in 2 s.
        limits: vec![Limit::new("reads", 1, 0.5).unwrap()],
        credentials: vec![credential(CredentialKind::ClientSecret { client: client(&issuer), secret })],
        ..nothing()
    };
    let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
    until(&gate, |state| state.is_ready).await;
    pass(Duration::from_secs(31)).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
    let took = begun.elapsed().as_secs_f64();
    assert!((3.8..5.8).contains(&took), "the token that it took in advance is waited for: {took}");
}

#[tokio::test]
async fn a_rotated_file_is_read_again_after_a_401_and_a_missing_one_keeps_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let cloud = guarded(|request| request.contains("Bearer second") || request.contains("GET /open")).await;
    let gate = gate(&cloud, vec![credential(CredentialKind::Bearer { token: secret(&path) })]);
    until(&gate, |state| state.is_ready && state.until.is_none()).await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 401, "the file is the same");
    assert_eq!(authorizations(&cloud), ["Bearer first"], "so it isn't sent again");
    std::fs::write(&path, "second\n").unwrap();
    pass(Duration::from_secs(2)).await;
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
    assert_eq!(authorizations(&cloud)[1..], ["Bearer first", "Bearer second"]);

    for content in [None, Some(""), Some("two words")] {
        match content {
            None => std::fs::remove_file(&path).unwrap(),
            Some(content) => std::fs::write(&path, content).unwrap(),
        }
        pass(Duration::from_secs(11)).await;
        until(&gate, |state| state.failing.is_some()).await;
        let state = state(&gate);
        let cause = &state.failing.as_ref().unwrap().cause;
        assert!(state.is_ready && cause.contains(path.to_str().unwrap()), "{state:?}");
        assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
        std::fs::write(&path, "second\n").unwrap();
        until(&gate, |state| state.failing.is_none()).await;
    }
}

#[tokio::test]
async fn a_changed_file_is_used_within_seconds_without_a_401() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, vec![credential(CredentialKind::Bearer { token: secret(&path) })]);
    until(&gate, |state| state.is_ready).await;
    std::fs::write(&path, "second\n").unwrap();
    pass(Duration::from_secs(10)).await;
    let swapped = async {
        while authorizations(&cloud).last().is_none_or(|last| last != "Bearer second") {
            gate.get(&cloud.uri("/")).await.unwrap();
        }
    };
    timeout(Duration::from_secs(5), swapped).await.unwrap();
}

#[tokio::test]
async fn a_response_cached_for_one_account_is_not_given_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let cloud = answering(|_, request| json(200, if request.contains("first") { "first" } else { "second" }));
    let cloud = cloud.await;
    let rule = Rule {
        host: NAME.parse().unwrap(),
        method: "*".parse().unwrap(),
        path: "/**".parse().unwrap(),
        operation: None,
        effect: Effect::Read,
        limits: Vec::new(),
        cache_scope: None,
        fold_case: false,
        page: None,
    };
    let credentials = vec![credential(CredentialKind::Bearer { token: secret(&path) })];
    let config = Config { grants: vec![cloud.grant()], rules: vec![rule], credentials, ..nothing() };
    let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
    let read = || async {
        let gate = gate.gate.clone().with_view(View::at_most(Duration::from_hours(1)));
        text(gate.send(get(&cloud.uri("/")), plenty()).await.unwrap()).await.unwrap()
    };
    assert_eq!([read().await, read().await], ["first"; 2]);
    assert_eq!(cloud.requests().len(), 1);
    std::fs::write(&path, "second\n").unwrap();
    pass(Duration::from_secs(10)).await;
    let replaced = async {
        while read().await == "first" {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), replaced).await.unwrap();
    assert_eq!(cloud.requests().len(), 2);
}

#[tokio::test]
async fn no_description_of_a_gate_holds_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = answering(|_, _| json(200, &format!(r#"{{"access_token": "{PLANTED}"}}"#))).await;
    let secret = |name: &str| file(&folder, name, PLANTED);
    let kinds = [
        CredentialKind::Bearer { token: secret("bearer") },
        CredentialKind::Basic { username: "user".into(), password: secret("basic") },
        CredentialKind::Header { name: "x-key".parse().unwrap(), value: secret("header") },
        CredentialKind::ClientSecret { client: client(&issuer), secret: secret("client") },
        CredentialKind::AwsSigV4 {
            region: "r".into(),
            service: "s".into(),
            access_key_id: file(&folder, "id", "AKID"),
            secret_access_key: secret("key"),
            session_token: Some(secret("session")),
        },
    ];
    for kind in kinds {
        let cloud = Cloud::answering(OK).await;
        let credentials = vec![credential(kind)];
        let config = Config { grants: vec![cloud.grant()], credentials: credentials.clone(), ..nothing() };
        let config = format!("{config:?}");
        let gate = gate(&cloud, credentials);
        gate.get(&cloud.uri("/")).await.unwrap();
        assert!(["authorization", "x-key"].iter().any(|name| cloud.requests().concat().contains(name)));
        let (metrics, recent) = (gate.metrics(), gate.gate.recent());
        let shown = format!("{config} {:?} {:?} {metrics} {recent:?}", gate.gate, state(&gate));
        assert!(shown.contains("main") && !shown.contains(PLANTED), "{shown}");
        assert!(!shown.contains("cGxhbnRlZ"), "nor in base64: {shown}");
    }
}

#[tokio::test]
async fn an_invalid_credential_is_a_config_error() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = issuer(3600).await;
    let kind = CredentialKind::ClientSecret { client: client(&issuer), secret: file(&folder, "s", PLANTED) };
    let credentials = vec![Credential { plain: false, ..credential(kind) }];
    let metrics = pileus_gate::Metrics::register(&mut prometheus_client::registry::Registry::default());
    let refused = pileus_gate::Gate::new(Config { credentials, ..nothing() }, &metrics).unwrap_err();
    assert!(refused.to_string().contains("would carry secrets without TLS"), "{refused}");
}

#[tokio::test]
async fn a_dropped_gate_acquires_no_more_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, cloud) = (issuer(2).await, Cloud::answering(OK).await);
    let gate = gate_to(&cloud, &issuer, &folder);
    gate.get(&cloud.uri("/")).await.unwrap();
    drop(gate);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(issuer.requests().len(), 1);
}

#[tokio::test]
async fn a_token_endpoint_passes_the_same_address_filter() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, cloud) = (issuer(3600).await, Cloud::answering(OK).await);
    let kind =
        CredentialKind::ClientSecret { client: client(&issuer), secret: file(&folder, "secret", PLANTED) };
    let api_server: IpAddr = "127.0.0.1".parse().unwrap();
    let rows = [
        (
            Vec::new(),
            Vec::new(),
            "127.0.0.1 is loopback); to allow one, add its range to `addresses` of the credential",
        ),
        (credential(kind.clone()).addresses, vec![api_server.into()], "127.0.0.1 is denied by the host"),
    ];
    for (addresses, denied_ranges, expected) in rows {
        let credentials = vec![Credential { addresses, ..credential(kind.clone()) }];
        let config = Config { grants: vec![cloud.grant()], credentials, denied_ranges, ..nothing() };
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
        until(&gate, |state| state.failing.is_some()).await;
        let cause = state(&gate).failing.unwrap().cause;
        assert!(cause.contains(expected), "{cause}");
    }
    assert_eq!(issuer.connections(), 0);
}
