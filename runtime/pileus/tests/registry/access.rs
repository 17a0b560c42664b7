//! How a registry is reached: TLS, logins, mirrors.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use pileus_dev::registry::{Protection, RealRegistry};

use super::Bench;

/// A line of htpasswd, of the user ann with the password "planted".
const LOGIN: &str = "ann:$2y$05$abcdefghijklmnopqrstuu0eHyQoAvNr2KOXo6uHFCH0PYNU3cnQO\n";

#[tokio::test]
async fn a_protected_registry_needs_its_certificate_and_a_login_of_docker() {
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, private) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let bench = Bench::protected(&Protection { tls: Some((&certificate, &private)), login: Some(LOGIN) });
    // A registry on loopback is expected without TLS, except with a certificate.
    let at = bench.at("p:1");
    let verify = ["verify", &at, "--insecure", "--ca-bundle", "certificate"];
    let push = ["push", "p.wasm", &at, "--ca-bundle", "certificate"];
    bench.refusal(&verify, 6, &["it demands a credential; credential used: none"]).await;
    bench.refusal(&push, 6, &["it demands a credential; credential used: none"]).await;
    bench.refusal(&["verify", &at, "--insecure"], 6, &["400"]).await;

    let write = |path: &str, login: &str| {
        let path = bench.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let host = &bench.registry.host;
        std::fs::write(path, format!(r#"{{"auths": {{"{host}": {{"auth": "{login}"}}}}}}"#)).unwrap();
    };
    write("wrong/config.json", "YW5uOndyb25n"); // ann:wrong
    let wrong = [&verify[..], &["--docker-config", "wrong/config.json"]].concat();
    let said = bench.refusal(&wrong, 6, &["refuses the credential", "of file wrong/config.json"]).await;
    assert!(!said.contains("wrong:") && !said.contains("YW5u"), "{said}");
    bench
        .refusal(
            &[&verify[..], &["--docker-config", "none.json"]].concat(),
            6,
            &["can't read file none.json"],
        )
        .await;

    // As `docker login` writes it: in the user's home, or where DOCKER_CONFIG says.
    write(".docker/config.json", "YW5uOnBsYW50ZWQ=");
    bench.succeed(&push).await;
    bench.succeed(&verify).await;
    let mut command = bench.command(&verify);
    let said = super::output({
        command.env("DOCKER_CONFIG", bench.path("wrong"));
        command
    })
    .await;
    assert_eq!(said.code, Some(6), "{said:?}");

    // A credential helper, as `credsStore` names it.
    let helper = bench.path("docker-credential-pileus-test");
    std::fs::write(
        &helper,
        "#!/bin/sh\nread server\necho '{\"Username\": \"ann\", \"Secret\": \"planted\"}'\n",
    )
    .unwrap();
    std::fs::set_permissions(&helper, Permissions::from_mode(0o700)).unwrap();
    std::fs::write(bench.path("wrong/config.json"), r#"{"credsStore": "pileus-test"}"#).unwrap();
    let mut command = bench.command(&wrong);
    command.env("PATH", format!("{}:/usr/bin:/bin", bench.folder().display()));
    let said = super::output(command).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_trusted_no_more_than_the_registry() {
    let bench = Bench::new();
    let alice = bench.key_pair("alice");
    let digest = bench.push("ghcr/example/p:1").await;
    // In the layout `bundle`, a signature counts wherever the bytes are.
    bench.sign(&alice, "ghcr/example/p", &digest, &[]);
    // The registry itself has nothing, and doesn't answer at the end.
    let mut origin = RealRegistry::start();
    let at = format!("{}/example/p:1", origin.host);
    let mirror = format!("{}/ghcr", bench.registry.host);
    let with_mirror = ["pull", &at, "--key", "alice.pub", "--mirror", &mirror];
    bench.refusal(&["pull", &at, "--key", "alice.pub"], 6, &["does not exist"]).await;
    let pinned = format!("{at}@{digest}\np.wasm: signed by alice\n");
    assert_eq!(bench.succeed(&with_mirror).await, pinned);
    origin.stop();
    assert_eq!(bench.succeed(&with_mirror).await, pinned);
    let other = format!("sha256:{}", "0".repeat(64));
    let verify = ["verify", &at, "--digest", &other, "--mirror", &mirror];
    bench.refusal(&verify, 6, &["it is not the pinned one", "can't reach"]).await;
    let wrong = ["verify", &at, "--insecure", "--mirror", "no mirror"];
    bench.refusal(&wrong, 2, &["invalid mirror \"no mirror\""]).await;
}
