//! Registries that are away, slow, corrupt, or lead astray. Each ends in an error of its own, within bounds, and nothing of
//! what they sent is ever loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use pileus_loader::{
    CredentialSource, Digest, Error, RegistrySettings, Retry, SecretFile, Timeouts, TrustPolicy, TrustSpec,
    Verified,
};

use crate::scripted::{Received, Reply, Scripted, answer};
use crate::{Fixture, TIMEOUTS, component, reference};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn insecure() -> TrustPolicy {
    TrustPolicy::new(TrustSpec { insecure: true, ..TrustSpec::default() }).unwrap()
}

fn manifest(component: &[u8]) -> Vec<u8> {
    let (digest, size) = (Digest::of(component), component.len());
    format!(r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/wasm","digest":"{digest}","size":{size}}}]}}"#)
        .into_bytes()
}

/// Answers as a registry with one component should.
fn orderly(request: &Received) -> Reply {
    let bytes = component("one");
    if request.path.contains("/manifests/") {
        answer(200, "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n", &manifest(&bytes))
    } else {
        answer(200, "", &bytes)
    }
}

async fn fetch(fixture: &Fixture, server: &Scripted) -> Result<Verified, Error> {
    let reference = reference(&format!("{}/p:1", server.host));
    let found = fixture.loader.fetch(&reference, &insecure(), NOW).await;
    if found.is_err() {
        // Nothing that was refused is in the store.
        assert!(fixture.loader.store().resolved(&reference).is_none());
        for folder in ["components", "artifacts"] {
            let entries = std::fs::read_dir(fixture.folder.path().join("store").join(folder)).unwrap();
            assert_eq!(entries.count(), 0, "{folder}");
        }
    }
    found
}

/// Fetches from a server that answers like this, and returns the error and the number of requests.
async fn refused(reply: impl Fn(&Received, &str) -> Reply + Send + Sync + 'static) -> (Error, usize) {
    let server = Scripted::start(reply).await;
    let error = fetch(&Fixture::new(), &server).await.unwrap_err();
    (error, server.received().len())
}

#[tokio::test]
async fn a_tag_without_a_policy_is_refused_without_a_request() {
    let server = Scripted::start(|request, _| orderly(request)).await;
    let fixture = Fixture::new();
    let policy = TrustPolicy::new(TrustSpec::default()).unwrap();
    let reference = reference(&format!("{}/p:1", server.host));
    let error = fixture.loader.fetch(&reference, &policy, NOW).await.unwrap_err().to_string();
    assert!(
        error.contains("/p:1 is not trusted: a tag can be moved") && error.contains("insecure: true"),
        "{error}"
    );
    assert_eq!(server.received().len(), 0);
    // A digest is a policy.
    let pinned = reference.pinned(Digest::of(&manifest(&component("one"))));
    assert_eq!(fixture.loader.fetch(&pinned, &policy, NOW).await.unwrap().bytes(), component("one"));
    let other = reference.pinned(Digest::of(b"other"));
    let error = fixture.loader.fetch(&other, &policy, NOW).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_that_answers_401_forever_costs_two_requests_and_one_for_a_token() {
    let (error, requests) = refused(|request, own| {
        if request.path.starts_with("/token") {
            assert_eq!(request.path, "/token?service=s&scope=repository%3Ap%3Apull");
            return answer(200, "", br#"{"token": "t"}"#);
        }
        answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"s\"\r\n"), b"")
    })
    .await;
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    assert_eq!(requests, 3);
    assert_eq!(error.retry(), Retry::Later(None));

    let (error, requests) = refused(|_, _| {
        answer(401, "WWW-Authenticate: Basic realm=r\r\n", br#"{"errors": [{"message": "log in"}]}"#)
    })
    .await;
    assert!(
        error.to_string().contains("(log in): it demands a credential; credential used: none"),
        "{error}"
    );
    assert_eq!(requests, 1);
    let (error, requests) = refused(|_, _| answer(401, "", b"")).await;
    assert!(error.to_string().contains("a kind of login that is not supported"), "{error}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn a_refused_password_is_named_by_its_source_and_never_shown() {
    let server = Scripted::start(|_, _| answer(401, "WWW-Authenticate: Basic realm=r\r\n", b"")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "planted\n").unwrap();
    let credential = CredentialSource::Basic {
        registry: server.host.clone(),
        username: "ann".into(),
        password: Arc::new(SecretFile::new(&file)),
    };
    let fixture = Fixture::with(vec![], vec![credential], TIMEOUTS);
    let error = fetch(&fixture, &server).await.unwrap_err();
    assert!(error.to_string().contains("refuses the credential; credential used: user ann"), "{error}");
    assert!(!format!("{error} {error:?}").contains("planted"));
    let [first, second] = &server.received()[..] else { panic!("two requests") };
    assert_eq!(first.header("authorization"), None, "not before it is asked for");
    assert_eq!(second.header("authorization"), Some("Basic YW5uOnBsYW50ZWQ="));
    // Without the file, nothing is fetched anonymously.
    std::fs::remove_file(&file).unwrap();
    let error = fetch(&fixture, &server).await.unwrap_err();
    assert!(
        matches!(error, Error::Credential { .. }) && error.to_string().contains("can't read file"),
        "{error}"
    );
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn an_identity_token_is_exchanged_and_not_sent_to_the_registry() {
    let server = Scripted::start(|request, own| {
        if request.path == "/token" {
            return answer(200, "", br#"{"access_token": "access"}"#);
        }
        if request.header("authorization") != Some("Bearer access") {
            return answer(
                401,
                &format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=s\r\n"),
                b"",
            );
        }
        orderly(request)
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, format!(r#"{{"auths": {{"{}": {{"identitytoken": "refresh"}}}}}}"#, server.host))
        .unwrap();
    let credential =
        CredentialSource::DockerConfig { config: Arc::new(SecretFile::new(&file)), helpers: false };
    fetch(&Fixture::with(vec![], vec![credential], TIMEOUTS), &server).await.unwrap();
    let [_, token, manifest, blob] = &server.received()[..] else { panic!("four requests") };
    let form = "service=s&scope=repository%3Ap%3Apull&grant_type=refresh_token&client_id=pileus&refresh_token=refresh";
    assert_eq!((&*token.body, token.header("authorization")), (form, None));
    // The token is kept for the fetch.
    for request in [manifest, blob] {
        assert_eq!(request.header("authorization"), Some("Bearer access"));
    }
}

#[tokio::test]
async fn places_that_a_registry_must_not_lead_to_are_refused_and_get_no_credential() {
    for (realm, expected) in [
        ("https://tokens.evil.example/t", "it is in another domain"),
        ("http://tokens.example/t", "only fetched over TLS"),
        ("https://169.254.169.254/latest/meta-data", "it is in another domain"),
        ("ftp://HOST/t", "neither http nor https"),
        ("https://user:planted@HOST/t", "it contains a login"),
    ] {
        let (error, requests) = refused(move |_, own| {
            let realm = realm.replace("HOST", own);
            answer(401, &format!("WWW-Authenticate: Bearer realm=\"{realm}\"\r\n"), b"")
        })
        .await;
        assert!(matches!(error, Error::Misled { .. }), "{error}");
        assert!(
            error.to_string().contains(expected) && !error.to_string().contains("planted"),
            "{realm}: {error}"
        );
        assert_eq!(requests, 1, "{realm}");
    }
    for (location, expected) in [
        ("http://169.254.169.254/latest/meta-data?secret", "a link-local, metadata or reserved address"),
        ("https://[fd00:ec2::254]/", "a link-local, metadata or reserved address"),
        ("http://2852039166/", "a link-local, metadata or reserved address"),
        ("http://10.0.0.1/", "a private address; list its range"),
        ("file:///etc/shadow", "neither http nor https"),
        ("", "one redirect too many"),
    ] {
        let (error, requests) = refused(move |request, _| {
            if request.path.contains("/blobs/") {
                return answer(307, &format!("Location: {location}\r\n"), b"");
            }
            orderly(request)
        })
        .await;
        assert!(matches!(error, Error::Misled { .. }), "{error}");
        assert!(
            error.to_string().contains(expected) && !error.to_string().contains("secret"),
            "{location}: {error}"
        );
        assert!(requests <= 5, "{location}: {requests}");
        assert_eq!(error.retry(), Retry::Later(None));
    }
}

/// A captive portal, a proxy that wants a login or is in trouble: the artifact is as good as before.
#[tokio::test]
async fn what_a_proxy_in_between_answers_makes_no_artifact_bad_for_good() {
    const PAGE: &[u8] = b"<html>log in to the network</html>";
    for place in ["/manifests/", "/blobs/"] {
        for (status, headers) in [
            (200, "Content-Type: text/html\r\n"),
            (302, "Location: https://portal.example/login\r\n"),
            (307, "Location: http://127.0.0.1:1/\r\n"),
            (400, ""),
            (403, ""),
            (404, ""),
            (407, "Proxy-Authenticate: Basic\r\n"),
            (408, ""),
            (414, ""),
            (451, ""),
            (511, ""),
        ] {
            for page in [PAGE.to_vec(), PAGE.repeat(10_000)] {
                let server = Scripted::start(move |request, _| {
                    if request.path.contains(place) {
                        answer(status, headers, &page)
                    } else {
                        orderly(request)
                    }
                })
                .await;
                let fixture = Fixture::new();
                let digest = Digest::of(&manifest(&component("one")));
                let reference = reference(&format!("{}/p:1", server.host));
                let error =
                    fixture.loader.fetch_resolved(&reference, digest, &insecure(), NOW).await.unwrap_err();
                assert!(matches!(error.retry(), Retry::Later(_)), "{place} {status}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn what_has_the_right_digest_and_is_no_component_is_bad_for_good() {
    let text = b"<html>no component</html>";
    let server = Scripted::start(|request, _| {
        let bytes = if request.path.contains("/manifests/") { manifest(text) } else { text.to_vec() };
        answer(200, "", &bytes)
    })
    .await;
    let error = fetch(&Fixture::new(), &server).await.unwrap_err();
    assert!(matches!(error, Error::NotComponent { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_followed_without_the_token() {
    let storage = Scripted::start(|_, _| answer(200, "", &component("one"))).await;
    let place = storage.host.clone();
    let server = Scripted::start(move |request, own| {
        if request.path.starts_with("/token") {
            return answer(200, "", br#"{"access_token": "planted"}"#);
        }
        if request.header("authorization") != Some("Bearer planted") {
            return answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\"\r\n"), b"");
        }
        if request.path.contains("/blobs/") {
            return answer(307, &format!("Location: http://{place}/x?signature=1\r\n"), b"");
        }
        orderly(request)
    })
    .await;
    assert_eq!(fetch(&Fixture::new(), &server).await.unwrap().bytes(), component("one"));
    let [request] = &storage.received()[..] else { panic!("one request") };
    assert_eq!((&*request.path, request.header("authorization")), ("/x?signature=1", None));
}

#[tokio::test]
async fn a_download_that_is_cut_off_goes_on_where_it_stopped() {
    for honors_ranges in [true, false] {
        let cuts = AtomicUsize::new(0);
        let server = Scripted::start(move |request, _| {
            if !request.path.contains("/blobs/") {
                return orderly(request);
            }
            let bytes = component("one");
            let from = request
                .header("range")
                .map_or(0, |range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
            let from = if honors_ranges { from } else { 0 };
            let mut whole = if from > 0 {
                let range = format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len());
                answer(206, &range, &bytes[from..])
            } else {
                answer(200, "", &bytes)
            };
            if cuts.fetch_add(1, Ordering::SeqCst) < 2 {
                whole.bytes.truncate(40_000);
            }
            whole
        })
        .await;
        assert_eq!(fetch(&Fixture::new(), &server).await.unwrap().bytes(), component("one"));
        let received = server.received();
        let ranges: Vec<_> = received.iter().filter_map(|request| request.header("range")).collect();
        assert_eq!(ranges.len(), 2, "{ranges:?}");
        assert_ne!(ranges[0] == ranges[1], honors_ranges, "{ranges:?}");
    }
}

#[tokio::test]
async fn bytes_that_are_not_what_their_digest_names_are_refused() {
    let blob = |change: fn(&mut Vec<u8>)| {
        move |request: &Received, _: &str| {
            if !request.path.contains("/blobs/") {
                return orderly(request);
            }
            let mut bytes = component("one");
            change(&mut bytes);
            answer(200, "", &bytes)
        }
    };
    let (error, _) = refused(blob(|bytes| bytes[50_000] ^= 1)).await;
    assert!(
        matches!(error, Error::Corrupt { .. }) && error.to_string().contains("check the registry"),
        "{error}"
    );
    let (error, _) = refused(blob(|bytes| bytes.push(0))).await;
    assert!(matches!(error, Error::TooLarge { limit: 100_008, .. }), "{error}");
    let (error, _) = refused(blob(|bytes| bytes[..2].copy_from_slice(b"\x1f\x8b"))).await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    // More than announced, without a length.
    let (error, _) = refused(|request, _| {
        if !request.path.contains("/blobs/") {
            return orderly(request);
        }
        let bytes = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &component("one"), &component("one")].concat();
        Reply { bytes, hangs: false }
    })
    .await;
    assert!(matches!(error, Error::TooLarge { limit: 100_008, .. }), "{error}");
    // A manifest that isn't the one that its header names.
    let (error, _) = refused(|_, _| {
        answer(200, &format!("Docker-Content-Digest: {}\r\n", Digest::of(b"x")), &manifest(&component("one")))
    })
    .await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn answers_without_end_are_cut_off_at_their_limit() {
    let (error, _) = refused(|_, _| Reply {
        bytes: b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{".to_vec(),
        hangs: true,
    })
    .await;
    assert!(matches!(error, Error::TooLarge { limit: 4_194_304, .. }), "{error}");
    let (error, _) = refused(|_, _| {
        let bytes = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b' '; 5 << 20]].concat();
        Reply { bytes, hangs: true }
    })
    .await;
    assert!(matches!(error, Error::TooLarge { limit: 4_194_304, .. }), "{error}");
    let (error, _) = refused(|_, _| {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        Reply { bytes: head.into_bytes(), hangs: true }
    })
    .await;
    assert!(matches!(error, Error::Protocol { .. } | Error::Unreachable { .. }), "{error}");
    let (error, _) = refused(|_, _| Reply { bytes: b"SSH-2.0-OpenSSH\r\n".to_vec(), hangs: false }).await;
    assert!(error.to_string().contains("its answer is not HTTP"), "{error}");
}

#[tokio::test]
async fn a_slow_registry_is_given_up_at_each_of_its_limits() {
    let short = Duration::from_millis(200);
    let first_byte = Timeouts { first_byte: short, ..TIMEOUTS };
    let between_bytes = Timeouts { between_bytes: short, ..TIMEOUTS };
    let whole = Timeouts { whole: short, ..TIMEOUTS };
    let silent: fn(&Received, &str) -> Reply = |_, _| Reply { bytes: Vec::new(), hangs: true };
    let halting: fn(&Received, &str) -> Reply = |request, _| {
        if !request.path.contains("/blobs/") {
            return orderly(request);
        }
        // The next attempt gets no further.
        let mut half = answer(200, "", &component("one"));
        half.bytes.truncate(40_000);
        Reply { hangs: true, ..half }
    };
    for (timeouts, reply, expected) in [
        (first_byte, silent, "took longer than 200ms to answer"),
        (between_bytes, halting, "took longer than 200ms to continue its answer"),
        (whole, silent, "took longer than 200ms for the whole fetch"),
    ] {
        let server = Scripted::start(reply).await;
        let fixture = Fixture::with(vec![], vec![], timeouts);
        let error = fetch(&fixture, &server).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.retry(), Retry::Later(None));
        assert!(server.received().len() <= 5);
    }
}

#[tokio::test]
async fn a_failure_that_may_pass_is_repeated_and_a_long_pause_left_to_the_caller() {
    let failures = AtomicUsize::new(0);
    let server = Scripted::start(move |request, _| {
        if failures.fetch_add(1, Ordering::SeqCst) < 2 { answer(503, "", b"") } else { orderly(request) }
    })
    .await;
    assert!(fetch(&Fixture::new(), &server).await.is_ok());
    assert_eq!(server.received().len(), 4);

    let (error, requests) =
        refused(|_, _| answer(429, "Retry-After: 60\r\n", br#"{"errors":[{"message":"slow down"}]}"#)).await;
    let text = error.to_string();
    assert!(text.contains("answers 429 to GET") && text.contains("slow down"), "{text}");
    assert_eq!((error.retry(), requests), (Retry::Later(Some(Duration::from_mins(1))), 1));
    let (error, requests) = refused(|_, _| answer(404, "", b"")).await;
    assert!(matches!(error, Error::NotFound { .. }) && requests == 1, "{error}");
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_the_registry_where_it_fails() {
    let server = Scripted::start(|request, _| orderly(request)).await;
    let corrupt = Scripted::start(|_, _| answer(200, "", b"<html>")).await;
    let good = Scripted::start(|request, _| orderly(request)).await;
    let with = |mirrors: &[&str]| {
        let settings = RegistrySettings {
            registry: server.host.clone(),
            mirrors: mirrors.iter().map(|&mirror| mirror.to_owned()).collect(),
            ..RegistrySettings::default()
        };
        Fixture::with(vec![settings], vec![], TIMEOUTS)
    };
    let prefixed = format!("{}/team/x", good.host);
    let verified = fetch(&with(&["127.0.0.1:1", &corrupt.host, &prefixed]), &server).await.unwrap();
    assert_eq!(verified.source(), format!("{}/p:1", server.host), "it has the name that the operator gave");
    assert_eq!(server.received().len(), 0);
    assert_eq!(good.received()[0].path, "/v2/team/x/p/manifests/1");
    fetch(&with(&["127.0.0.1:1", &corrupt.host]), &server).await.unwrap();
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn an_index_leads_to_its_entry_for_wasm() {
    let bytes = component("one");
    let entry = manifest(&bytes);
    let index = format!(
        r#"{{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":{},"platform":{{"architecture":"wasm","os":"wasip2"}}}}]}}"#,
        Digest::of(&entry),
        entry.len()
    );
    let digest = Digest::of(index.as_bytes());
    let server = Scripted::start(move |request, _| match &*request.path {
        "/v2/p/manifests/1" => answer(200, "", index.as_bytes()),
        path if path.contains("/manifests/") => answer(200, "", &entry),
        _ => answer(200, "", &bytes),
    })
    .await;
    let fixture = Fixture::new();
    let verified = fetch(&fixture, &server).await.unwrap();
    assert_eq!((verified.digest(), verified.bytes()), (digest, &*component("one")));
    let loaded =
        fixture.loader.load(&reference(&format!("{}/p:1", server.host)), digest, &insecure(), NOW).await;
    assert_eq!(loaded.unwrap().bytes(), component("one"));
}

#[tokio::test]
async fn a_file_is_bound_to_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.wasm");
    std::fs::write(&path, component("one")).unwrap();
    let nothing = TrustPolicy::new(TrustSpec::default()).unwrap();
    let verified = pileus_loader::Loader::read_file(&path, &nothing).await.unwrap();
    assert_eq!((verified.digest(), verified.bytes()), (Digest::of(&component("one")), &*component("one")));
    let pinned =
        |digest| TrustPolicy::new(TrustSpec { digest: Some(digest), ..TrustSpec::default() }).unwrap();
    assert!(pileus_loader::Loader::read_file(&path, &pinned(verified.digest())).await.is_ok());
    let error =
        pileus_loader::Loader::read_file(&path, &pinned(Digest::of(b"x"))).await.unwrap_err().to_string();
    assert!(error.contains("it is not the pinned one, sha256:"), "{error}");
    let error = pileus_loader::Loader::read_file(&folder.path().join("q"), &nothing).await.unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}
