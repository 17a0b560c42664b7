//! The target of a request: addresses, names, redirects, authorities and paths.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use pileus_gate::{BlockReason, Error, Grant, MissingGrant};
use tokio::net::TcpListener;

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, plenty, text};

#[tokio::test]
async fn row_01_metadata_services_are_denied_without_a_grant_and_blocked_by_address_with_one() {
    let cloud = Cloud::answering(OK).await;
    let anything = |host: &str, tls, port| Grant { host: host.parse().unwrap(), tls, port, ..cloud.grant() };
    let hosts = [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
    ];
    for host in hosts {
        let uri = format!("http://{host}/latest/meta-data");
        let denied = Watched::new(vec![cloud.grant()]).get(&uri).await;
        assert!(
            matches!(denied, Err(Error::Denied { missing: MissingGrant::Endpoint { .. }, .. })),
            "{host}: {denied:?}"
        );
        let blocked = Watched::new(vec![anything(host, false, 80)]).get(&uri).await;
        assert!(matches!(blocked, Err(Error::AddressBlocked { .. })), "{host}: {blocked:?}");
    }
    let name = "metadata.google.internal";
    let answers = Answers::new(&[&["169.254.169.254"]]);
    let blocked =
        Watched::resolving(vec![anything(name, false, 80)], answers).get(&format!("http://{name}/")).await;
    assert!(matches!(blocked, Err(Error::AddressBlocked { .. })), "{blocked:?}");
}

#[tokio::test]
async fn row_02_a_literal_address_passes_the_same_filter_in_every_spelling() {
    let cloud = Cloud::answering(OK).await;
    let host = "127.0.0.1".parse().unwrap();
    let named = Grant { host, addresses: Vec::new(), ..cloud.grant() };
    let spellings =
        ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]", "127.0.0.1."];
    for spelling in spellings {
        let uri = format!("http://{spelling}:{}/", cloud.port);
        let refused = Watched::new(vec![named.clone()]).get(&uri).await;
        assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{spelling}: {refused:?}");
    }
    assert_eq!(cloud.connections(), 0);
    let opened = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..named };
    let gate = Watched::new(vec![opened]);
    for spelling in spellings {
        let uri = format!("http://{spelling}:{}/", cloud.port);
        assert_eq!(text(gate.get(&uri).await.unwrap()).await.unwrap(), "ok", "{spelling}");
    }
    assert_eq!(cloud.connections(), 1, "one host, however it is spelled");
    for spelling in [
        "2852039166",
        "0251.0376.0251.0376",
        "025177524776",
        "0xa9fea9fe",
        "0xA9.0xFE.0xA9.0xFE",
        "169.254.43518",
        "169.16689662",
        "169.254.169.254.",
        "[::ffff:a9fe:a9fe]",
        "[::ffff:169.254.169.254]",
        "[::a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
    ] {
        // The grant allows the host and all addresses; a metadata service needs a range of its own address alone.
        let all = ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap());
        let host = spelling.parse().unwrap();
        let grant = Grant { host, port: 80, addresses: all.into(), ..cloud.grant() };
        let gate = Watched::new(vec![Grant { addresses: Vec::new(), ..grant.clone() }]);
        let refused = gate.get(&format!("http://{spelling}/")).await;
        assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{spelling}: {refused:?}");
        if !spelling.starts_with("[2002:") && !spelling.starts_with("[::a9") && !spelling.contains(":1:") {
            let refused = Watched::new(vec![grant]).get(&format!("http://{spelling}/")).await;
            assert!(
                matches!(&refused, Err(Error::AddressBlocked { refused, .. }) if refused[0].1 == BlockReason::Metadata),
                "{spelling}: {refused:?}"
            );
        }
    }
}

#[tokio::test]
async fn row_03_only_the_permitted_of_several_addresses_is_dialed() {
    let good = Cloud::answering(OK).await;
    let bad = TcpListener::bind(("127.0.0.2", good.port)).await.unwrap();
    let bad = Cloud::on(bad, |_, _| async {});
    let grant = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..good.grant() };
    let answers = Answers::new(&[&["127.0.0.2", "169.254.169.254", "::1", "127.0.0.1"]]);
    let gate = Watched::resolving(vec![grant], answers);
    text(gate.get(&good.uri("/")).await.unwrap()).await.unwrap();
    assert_eq!((good.connections(), bad.connections()), (1, 0));
}

#[tokio::test]
async fn row_03_a_granted_name_cannot_lead_to_this_machine_its_link_or_a_metadata_service() {
    let cloud = Cloud::answering(OK).await;
    let grant = Grant { addresses: Vec::new(), ..cloud.grant() };
    for address in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "169.254.1.1",
        "fe80::1",
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "64:ff9b::a9fe:a9fe",
    ] {
        let gate = Watched::resolving(vec![grant.clone()], Answers::new(&[&[address]]));
        let blocked = gate.get(&cloud.uri("/")).await;
        assert!(matches!(blocked, Err(Error::AddressBlocked { .. })), "{address}: {blocked:?}");
    }
    assert_eq!(cloud.connections(), 0);
}

/// The owner of a name may change its addresses at each lookup. The address that was checked is dialed: one lookup for each
/// connection, and none between check and dial.
#[tokio::test]
async fn row_03_a_name_is_not_resolved_again_between_check_and_dial() {
    let good = Cloud::answering(OK).await;
    let bad = TcpListener::bind(("127.0.0.2", good.port)).await.unwrap();
    let bad = Cloud::on(bad, |_, _| async {});
    let grant = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..good.grant() };
    let answers = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let gate = Watched::resolving(vec![grant], answers.clone());
    text(gate.get(&good.uri("/")).await.unwrap()).await.unwrap();
    assert_eq!(answers.lookups.load(Ordering::SeqCst), 1);
    assert_eq!((good.connections(), bad.connections()), (1, 0));
}

#[tokio::test]
async fn row_03_a_name_that_changes_its_address_is_checked_again() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let cloud = Cloud::answering(closing).await;
    let grant = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..cloud.grant() };
    let answers = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let gate = Watched::resolving(vec![grant], answers);
    assert!(gate.get(&cloud.uri("/")).await.is_ok());
    let refused = gate.get(&cloud.uri("/")).await;
    assert!(
        matches!(&refused, Err(Error::AddressBlocked { refused, .. })
            if *refused == [("127.0.0.2".parse().unwrap(), BlockReason::Loopback)]),
        "{refused:?}"
    );
}

#[tokio::test]
async fn row_04_a_redirect_is_returned_and_never_followed() {
    let elsewhere = Cloud::answering(OK).await;
    for status in [301, 302, 307, 308] {
        let location = elsewhere.uri("/latest/meta-data");
        let answer =
            format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let cloud = Cloud::answering(answer).await;
        // Even if the target is granted: the provider decides whether to follow it.
        let gate = Watched::new(vec![cloud.grant(), elsewhere.grant()]);
        let found = gate.get(&cloud.uri("/")).await.unwrap();
        assert_eq!(found.status(), status);
        assert_eq!(found.headers()["location"], location);
    }
    assert_eq!(elsewhere.connections(), 0);
    for target in ["http://169.254.169.254/latest/meta-data", "//169.254.169.254/", "http://denied.test/"] {
        let answer = format!("HTTP/1.1 307 Elsewhere\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let cloud = Cloud::answering(answer).await;
        let gate = Watched::new(vec![cloud.grant()]);
        let put = http::Request::put(cloud.uri("/")).body(Full::<Bytes>::from("body")).unwrap();
        let found = gate.gate.send(put, plenty()).await.unwrap();
        assert_eq!(found.status(), 307);
        assert_eq!(found.headers()["location"], target);
        assert_eq!(cloud.requests().len(), 1, "the provider is who decides");
    }
}

#[tokio::test]
async fn row_05_only_the_canonical_form_of_an_authority_arrives() {
    let cloud = Cloud::answering(OK).await;
    let international = Grant { host: "xn--bcher-kva.test".parse().unwrap(), ..cloud.grant() };
    let gate = Watched::new(vec![cloud.grant(), international]);
    let port = cloud.port;
    for (authority, host) in [
        (format!("CLOUD.Test:{port}"), NAME),
        (format!("cloud.test.:{port}"), NAME),
        (format!("{NAME}:0{port}"), NAME),
        (format!("XN--BCHER-KVA.test:{port}"), "xn--bcher-kva.test"),
    ] {
        text(gate.get(&format!("http://{authority}/")).await.unwrap()).await.unwrap();
        let last = cloud.requests().pop().unwrap();
        assert!(last.contains(&format!("\r\nhost: {host}:{port}\r\n")), "{authority}: {last}");
    }
    assert_eq!(cloud.connections(), 2, "two hosts, however they are spelled");
    for authority in [
        format!("user@{NAME}:{port}"),
        format!("user:secret@{NAME}:{port}"),
        format!("evil.test:80@{NAME}:{port}"),
        format!("{NAME}:0"),
        format!("{NAME}:{port}x"),
        format!("{NAME}:"),
        format!("{NAME}..:{port}"),
        format!("xn--a-ecp.test:{port}"),
        format!(":{port}"),
        String::new(),
    ] {
        // The HTTP types themselves refuse some of these, which is as good.
        let Ok(uri) = format!("http://{authority}/").parse::<http::Uri>() else { continue };
        let mut request = get("http://replaced/");
        *request.uri_mut() = uri;
        let refused = gate.gate.send(request, plenty()).await;
        assert!(matches!(refused, Err(Error::Malformed { .. })), "{authority}: {refused:?}");
    }
    assert_eq!(cloud.requests().len(), 4);
}

#[tokio::test]
async fn row_06_a_path_that_reads_in_two_ways_never_reaches_a_wire() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    for path in ["http://evil.test/", "//evil.test/", "*"] {
        let uri = http::Uri::builder().scheme("http").authority(format!("{NAME}:{}", cloud.port));
        // Some versions of the HTTP types refuse these themselves, which is as good.
        let Ok(uri) = uri.path_and_query(path).build() else { continue };
        let mut request = get("http://replaced/");
        *request.uri_mut() = uri;
        let refused = gate.gate.send(request, plenty()).await;
        assert!(matches!(refused, Err(Error::Malformed { part: "path", .. })), "{path}: {refused:?}");
    }
    for path in ["/a b", "/a\r\nhost: evil", "/a\n", "/a\0", "/%0d%0ahost:%20evil", "/a%0a", "/%00"] {
        let Ok(uri) = format!("http://{NAME}:{}{path}", cloud.port).parse::<http::Uri>() else { continue };
        let mut request = get("http://replaced/");
        *request.uri_mut() = uri;
        let refused = gate.gate.send(request, plenty()).await;
        assert!(matches!(refused, Err(Error::Malformed { part: "path", .. })), "{path:?}: {refused:?}");
    }
    let below = Grant { paths: vec!["/allowed".parse().unwrap()], ..cloud.grant() };
    let below = Watched::new(vec![below]);
    for path in
        ["/allowed/../secret", "/allowed/%2e%2e/secret", "/allowed%2F..%2fsecret", "/allowed/..;/secret"]
    {
        let refused = below.get(&cloud.uri(path)).await;
        assert!(matches!(refused, Err(Error::Malformed { part: "path", .. })), "{path}: {refused:?}");
    }
    assert_eq!(cloud.connections(), 0);
    text(gate.get(&cloud.uri("/a/%62?c=%64")).await.unwrap()).await.unwrap();
    let lines = cloud.requests().concat();
    let host = format!("host: {NAME}:{}", cloud.port);
    assert!(lines.starts_with("GET /a/b?c=%64 HTTP/1.1\r\n") && lines.contains(&host), "{lines}");
}

#[tokio::test]
async fn row_23_a_grant_of_a_path_carries_only_what_every_server_sees_below_it() {
    let cloud = Cloud::answering(OK).await;
    let below = Grant { paths: vec!["/allowed".parse().unwrap()], ..cloud.grant() };
    let below = Watched::new(vec![below]);
    let climbs = |up: &str| format!("/allowed/{up}/secret");
    for path in [
        climbs("%252e%252e"),
        climbs("%25252e%25252e"),
        climbs("%252E."),
        climbs("..%252f.."),
        climbs("%2e%2e%2f"),
        climbs("..%5c.."),
        climbs("..%255c.."),
        climbs("%c0%ae%c0%ae"),
        climbs("..%c0%af"),
        climbs("..%c1%9c"),
        climbs("%e0%80%ae%e0%80%ae"),
        climbs("%ef%bc%8e%ef%bc%8e"),
        climbs("x;/..;"),
        climbs("..%20"),
        climbs("..."),
        "/allowed/a%2Fb".to_owned(),
        "/allowed/a%5cb".to_owned(),
        "/allowed/a;jsessionid=1".to_owned(),
        "/allowed/a%3bb".to_owned(),
        "/allowed/%00".to_owned(),
        "/allowed/a%3fb".to_owned(),
        "/allowed/%ff".to_owned(),
        "/allowed%2fa".to_owned(),
        "/%2561llowed".to_owned(),
    ] {
        let refused = below.get(&cloud.uri(&path)).await;
        assert!(
            matches!(refused, Err(Error::Denied { .. } | Error::Malformed { .. })),
            "{path}: {refused:?}"
        );
    }
    assert_eq!(cloud.connections(), 0);
    for path in ["/allowed", "/allowed/a:start", "/allowed/%c3%a4%20b", "/allowed/a.b/c"] {
        text(below.get(&cloud.uri(path)).await.unwrap()).await.unwrap();
    }
    let all = Watched::new(vec![cloud.grant()]);
    text(all.get(&cloud.uri("/projects/a%2Fb;c/%252e")).await.unwrap()).await.unwrap();
    assert!(cloud.requests().pop().unwrap().starts_with("GET /projects/a%2Fb;c/%252e HTTP"));
}
