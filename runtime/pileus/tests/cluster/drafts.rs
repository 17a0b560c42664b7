//! `pileus provider document`: what it prints is a document as it is, for the program and for the API server.

use kube::Client;
use pileus_dev::artifact;
use pileus_dev::registry::{RealRegistry, key_pair, sign};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SOON;
use crate::crd::{create, kubernetes};
use crate::world::Said;

/// A registry with components, and a user's folder.
struct Drafts {
    client: Client,
    registry: RealRegistry,
    folder: TempDir,
}

impl Drafts {
    async fn pileus(&self, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
        command.args(arguments).current_dir(self.folder.path());
        command.env("XDG_CACHE_HOME", self.folder.path()).env("HOME", self.folder.path());
        Said::by(command, SOON).await
    }

    /// Drafts a document, and checks that it is accepted and lacks nothing that the component asks for.
    async fn draft(&self, component: &str, more: &[&str]) -> (String, Value) {
        let drafted = self.pileus(&[&["provider", "document", component][..], more].concat()).await;
        assert_eq!((drafted.code, drafted.stderr.as_str()), (Some(0), ""), "{drafted:?}");
        let document: Value = serde_saphyr::from_str(&drafted.stdout).unwrap();
        std::fs::write(self.folder.path().join("drafted.yaml"), &drafted.stdout).unwrap();
        let inspect = ["inspect", component, "--provider", "drafted.yaml"];
        let trust = if more[0] == "--key" { &more[..2] } else { &["--insecure"][..] };
        let said = self.pileus(&[&inspect[..], trust].concat()).await;
        assert_eq!(said.code, Some(0), "{}\n{said:?}", drafted.stdout);
        let lacks = |line: &str| line.contains("NOT GRANTED") && !line.ends_with("none");
        assert!(!said.stdout.lines().any(lacks), "{}\n{}", drafted.stdout, said.stdout);
        (drafted.stdout, document)
    }

    /// Pushes a component, signed by the key of the folder, and returns its reference.
    async fn push(&self, package: &str, key: &str) -> String {
        let (component, image) =
            (artifact::component(package).unwrap(), format!("{}/{package}:1", self.registry.host));
        let pushed = self.pileus(&["push", component.to_str().unwrap(), &image]).await;
        assert_eq!(pushed.code, Some(0), "{pushed:?}");
        sign(self.folder.path(), key, pushed.stdout.trim(), &[]);
        image
    }
}

#[tokio::test]
async fn a_drafted_document_is_accepted_as_it_is_by_the_program_and_the_api_server() {
    let kubernetes = kubernetes().await;
    let folder = TempDir::new().unwrap();
    let (key, _) = key_pair(folder.path(), "release");
    let drafts = Drafts { client: kubernetes.admin(), registry: RealRegistry::start(), folder };
    std::fs::write(
        drafts.folder.path().join("cloud.json"),
        r#"{"network": "off", "addressFamily": "dualstack"}"#,
    )
    .unwrap();
    let quotas = r#"{"endpoint": "http://127.0.0.1:8080", "reads": {"burst": 9, "perSecond": 2}}"#;
    let hetzner = drafts.push("hetzner-provider", &key).await;
    let simulated = drafts.push("simulated-provider", &key).await;
    for (image, more, name) in [
        (&hetzner, &["--key", "release.pub", "--configuration", "cloud.json"][..], "hetzner"),
        (&hetzner, &["--insecure", "--name", "mine"], "mine"),
        (&simulated, &["--key", "release.pub", "--configuration", quotas], "simulated"),
    ] {
        let (text, document) = drafts.draft(image, more).await;
        let created = create(&drafts.client, &document).await;
        assert!(created.is_ok(), "{created:?}\n{text}");
        assert_eq!(document["metadata"]["name"], name);
        let is_pinned = document["spec"]["source"]["image"].as_str().unwrap().contains("@sha256:");
        assert_eq!(is_pinned, more[0] == "--insecure", "{text}");
    }
    let (text, document) =
        drafts.draft(&hetzner, &["--key", "release.pub", "--configuration", "cloud.json"]).await;
    assert_eq!(document["spec"]["configuration"]["network"], "off", "not a boolean: {text}");
    let token = json!({"token": {"secret": {"name": "hetzner", "key": "token"}}});
    let credential = json!({"name": "bearer", "hosts": ["api.hetzner.cloud"], "bearer": token});
    assert_eq!(document["spec"]["credentials"], json!([credential]));
    let grant = &document["spec"]["grants"][0];
    assert_eq!(
        (&grant["host"], &grant["methods"][1]),
        (&json!("api.hetzner.cloud"), &json!("GET")),
        "{text}"
    );
    for comment in [
        "# Drafted by `pileus provider document` from what hetzner ",
        "kubectl -n NAMESPACE create secret generic hetzner",
        "--from-file=token=FILE",
    ] {
        assert!(text.contains(comment), "{comment}: {text}");
    }
    let (text, document) =
        drafts.draft(&simulated, &["--key", "release.pub", "--configuration", quotas]).await;
    let expected = json!([{
        "host": "127.0.0.1", "port": 8080, "tls": false, "methods": ["DELETE", "GET", "PUT"],
        "paths": ["/v1/addresses", "/v1/load-balancers", "/v1/machines", "/v1/routes", "/v1/shared-load-balancers"],
        "addresses": ["127.0.0.1/32"],
    }]);
    assert_eq!(document["spec"]["grants"], expected, "{text}");
    assert_eq!(document["spec"]["limits"], json!({"reads": {"burst": 9, "perSecond": 2.0}}));
    assert!(text.contains("    # to read the instances of Nodes, and to change routes"), "{text}");
}

#[tokio::test]
async fn a_file_is_drafted_with_its_digest_and_notices_are_no_part_of_the_document() {
    let folder = TempDir::new().unwrap();
    let component = artifact::component("unruly-provider").unwrap();
    let draft = async |configuration: &str| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
        command.args(["provider", "document", component.to_str().unwrap(), "--configuration", configuration]);
        command.env("XDG_CACHE_HOME", folder.path());
        Said::by(command, SOON).await
    };
    let said = draft(r#"{"endpoint": "https://cloud.test", "breaks": "no-rules"}"#).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.stderr, "notice: breaks: a promise is broken on purpose\n");
    let document: Value = serde_saphyr::from_str(&said.stdout).unwrap();
    assert_eq!(document["spec"]["source"]["file"], component.to_str().unwrap());
    assert!(document["spec"]["trust"]["digest"].as_str().unwrap().starts_with("sha256:"), "{document}");
    assert_eq!(document["spec"]["grants"], json!([{"host": "cloud.test"}]), "without rules, all requests");
    for (configuration, code, expected) in [
        ("no-such-file", 2, "--configuration \"no-such-file\": can't read it"),
        ("{", 2, "--configuration \"{\": invalid JSON"),
        ("{}", 4, "missing field `endpoint`"),
    ] {
        let said = draft(configuration).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{said:?}");
        assert!(said.stderr.contains(expected), "{said:?}");
    }
}
