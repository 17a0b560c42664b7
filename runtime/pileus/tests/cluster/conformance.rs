//! `pileus provider test` with real components and a cloud process: the model provider passes every check, and a
//! provider that violates the contract in one way fails exactly the checks of that.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use pileus_dev::{Process, artifact};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time;

use crate::world::Said;

/// How long a test of a provider may take; on an idle machine it takes 15 seconds.
const LONG: Duration = Duration::from_mins(6);

/// How many providers are tested at the same time. Each mostly waits for a cloud that doesn't answer.
const SIDE_BY_SIDE: usize = 16;

/// The checks with a cloud that fails. The check of Retry-After is left out: it runs only for providers that get a 429.
const FAULTS: [&str; 9] = [
    "trouble.busy",
    "trouble.down",
    "trouble.halfway",
    "trouble.forbidden",
    "trouble.not-found",
    "trouble.page",
    "trouble.cut-off",
    "trouble.silence",
    "trouble.codes",
];

/// A cloud with the machines `node-1` and `node-2`.
struct Cloud {
    url: String,
    _process: Process,
}

impl Cloud {
    async fn start() -> Self {
        let mut command = Command::new(artifact::program("simulated-cloud").unwrap());
        command.args(["--machines", "2"]);
        let process = Process::start("simulated-cloud", &command).unwrap();
        let line = process.await_line(|line| line.contains("http://"), LONG).await.unwrap();
        Self { url: line.rsplit(' ').next().unwrap().to_owned(), _process: process }
    }

    /// What it answers to a request with this body.
    async fn says(&self, method: &str, path: &str, body: &str) -> String {
        let host = self.url.trim_start_matches("http://");
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Said {
    fn report(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| unreachable!("{error}: {self:#?}"))
    }

    /// The checks with this result.
    fn checks(&self, result: &str) -> Vec<Value> {
        let report = self.report();
        let checks = report["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["result"] == result).cloned().collect()
    }

    /// Their ids.
    pub(crate) fn ids(&self, result: &str) -> Vec<String> {
        self.checks(result).iter().map(|check| check["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pileus"));
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    command.env_clear().env("PILEUS_COMPILED_CODE", compiled).args(["provider", "test"]).args(arguments);
    command
}

pub(crate) async fn test(arguments: &[&str]) -> Said {
    Said::by(tokio::process::Command::from(command(arguments)), LONG).await
}

fn component(package: &str) -> String {
    artifact::component(package).unwrap().to_str().unwrap().to_owned()
}

/// Tests a component against a cloud with all that can be asked.
async fn test_fully(cloud: &Cloud, package: &str, configuration: &Value, more: &[&str]) -> Said {
    let scheme = package.trim_end_matches("-provider");
    let [second, gone] = ["m-000002", "m-999999"].map(|id| format!("{scheme}://{id}"));
    let (component, configuration) = (component(package), configuration.to_string());
    let second = format!("node-2={second}");
    let arguments = [
        component.as_str(),
        "--config",
        &configuration,
        "--grant",
        &cloud.url,
        "--node",
        "node-1",
        "--node",
        &second,
        "--gone",
        &gone,
        "--allow-changes",
    ];
    test(&[&arguments[..], more].concat()).await
}

#[tokio::test]
async fn the_model_provider_passes_every_check() {
    let cloud = Cloud::start().await;
    let (configuration, flags) = (json!({"endpoint": cloud.url}), ["--json", "--require-all"]);
    let said = test_fully(&cloud, "simulated-provider", &configuration, &flags).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:#?}");
    assert_eq!((said.ids("failed").len(), said.ids("not-run").len()), (0, 0), "{said:#?}");
    let report = said.report();
    assert_eq!(report["component"]["name"], "simulated");
    assert_eq!(report["summary"]["passed"], report["checks"].as_array().unwrap().len());
}

/// Its configuration accepts unknown keys with a notice, and it has no load balancers.
#[tokio::test]
async fn the_azure_provider_passes_every_check_of_what_it_can_do() {
    let mut command = Command::new(artifact::program("azure-simulator").unwrap());
    command.args(["--quotas", "none", "create", "nodes", "3"]);
    let process = Process::start("azure-simulator", &command).unwrap();
    let line = process.await_line(|line| line.contains("http://"), LONG).await.unwrap();
    let url = line.rsplit(' ').next().unwrap();
    let subscription = "11111111-1111-1111-1111-111111111111";
    let configuration = json!({
        "subscriptionId": subscription, "resourceGroup": "nodes", "location": "eastus", "routeTableName": "routes",
        "resourceManagerEndpoint": url,
    })
    .to_string();
    let instance = |number: &str| {
        let set = "Microsoft.Compute/virtualMachineScaleSets/aks-nodes0-vmss";
        format!(
            "azure:///subscriptions/{subscription}/resourceGroups/nodes/providers/{set}/virtualMachines/{number}"
        )
    };
    let (second, gone) = (format!("aks-nodes0-vmss000001={}", instance("1")), instance("99"));
    let component = component("azure-provider");
    let nodes = ["--node", "aks-nodes0-vmss000000", "--node", &second, "--gone", &gone];
    let flags = ["--config", &configuration, "--grant", url, "--allow-changes", "--json"];
    let said = test(&[&[component.as_str()][..], &flags, &nodes].concat()).await;
    assert_eq!((said.code, said.ids("failed")), (Some(0), vec![]), "{:#?}", said.checks("failed"));
    let not_run = said.ids("not-run");
    assert!(not_run.iter().all(|id| id.starts_with("load-balancers.")), "{:#?}", said.checks("not-run"));
}

#[tokio::test]
async fn the_test_waits_for_slow_clouds_in_both_styles() {
    let cloud = Cloud::start().await;
    cloud.says("PUT", "/admin/faults", r#"{"operations": {"takesMs": 500}}"#).await;
    for style in ["perService", "shared"] {
        let configuration = json!({"endpoint": cloud.url, "loadBalancers": style});
        let said = test_fully(&cloud, "simulated-provider", &configuration, &["--json"]).await;
        assert_eq!(
            (said.code, said.ids("failed").len(), said.ids("not-run").len()),
            (Some(0), 0, 0),
            "{said:#?}"
        );
    }
    for path in ["/v1/load-balancers", "/v1/shared-load-balancers", "/v1/addresses", "/v1/routes"] {
        assert!(cloud.says("GET", path, "").await.contains("[]"), "{path} is empty again");
    }
}

#[tokio::test]
async fn a_test_that_is_stopped_removes_what_it_created() {
    let cloud = Cloud::start().await;
    cloud.says("PUT", "/admin/faults", r#"{"operations": {"takesMs": 2000}}"#).await;
    let configuration = json!({"endpoint": cloud.url}).to_string();
    let command = command(&[
        &component("simulated-provider"),
        "--config",
        &configuration,
        "--grant",
        &cloud.url,
        "--node",
        "node-1",
        "--allow-changes",
    ]);
    let process = Process::start("provider-test", &command).unwrap();
    let begun = async {
        while !cloud.says("GET", "/v1/load-balancers", "").await.contains("creating") {
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(LONG, begun).await.expect("it makes load balancers");
    let status = process.stop(LONG).await.unwrap();
    assert_eq!(status.code(), Some(1));
    let left = cloud.says("GET", "/v1/load-balancers", "").await;
    assert!(left.contains(r#""loadBalancers":[]"#), "{left}");
}

#[tokio::test]
async fn the_test_leaves_routes_of_others_alone() {
    let cloud = Cloud::start().await;
    let theirs = r#"{"destination": "10.0.0.0/8", "machine": "m-000001"}"#;
    cloud.says("PUT", "/v1/routes/theirs", theirs).await;
    let said = test_fully(&cloud, "simulated-provider", &json!({"endpoint": cloud.url}), &["--json"]).await;
    let routes = said.ids("not-run");
    assert!((said.code, said.ids("failed").len()) == (Some(0), 0) && routes.len() == 7, "{said:#?}");
    assert!(routes.iter().all(|id| id.starts_with("routes.")), "{routes:?}");
    let left = cloud.says("GET", "/v1/routes", "").await;
    assert_eq!(left.matches("\"name\"").count(), 1, "{left}");
    assert!(left.contains("theirs"), "{left}");
}

#[tokio::test]
async fn a_document_replaces_flags_and_checks_that_lack_one_do_not_pass() {
    let cloud = Cloud::start().await;
    let folder = TempDir::new().unwrap();
    let document = folder.path().join("provider.yaml");
    let (host, port) = cloud.url.trim_start_matches("http://").rsplit_once(':').unwrap();
    let grant = json!({
        "host": host, "port": port.parse::<u16>().unwrap(), "tls": false, "addresses": ["127.0.0.0/8"],
    });
    let content = json!({
        "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "mine"},
        "spec": {
            "source": {"file": component("simulated-provider")},
            "configuration": {"endpoint": cloud.url},
            "grants": [grant],
        },
    });
    std::fs::write(&document, content.to_string()).unwrap();
    let said = test(&["--provider", document.to_str().unwrap(), "--json"]).await;
    assert_eq!((said.code, said.ids("failed").len()), (Some(0), 0), "{said:#?}");
    let wanted = ["known", "by-id", "repeatable", "confirm", "gone", "order", "neighbours", "refresh"];
    let mut wanted: Vec<_> = wanted.iter().map(|id| format!("instances.{id}")).collect();
    wanted.push("trouble.halfway".to_owned());
    let changing = [
        "ensure",
        "one-each",
        "order",
        "no-write",
        "known",
        "targets",
        "selected",
        "owned",
        "delete",
        "gone",
        "orphan",
        "left",
        "early-ingress",
        "notices",
        "annotations",
    ];
    wanted.extend(changing.iter().map(|id| format!("load-balancers.{id}")));
    let changing = ["create", "one-each", "listed", "move", "delete", "gone", "left"];
    wanted.extend(changing.iter().map(|id| format!("routes.{id}")));
    assert_eq!(said.ids("not-run"), wanted, "{said:#?}");
    assert!(
        said.stdout.contains("--allow-changes, which lets the test create two load balancers"),
        "{said:#?}"
    );
}

#[tokio::test]
async fn without_a_configuration_only_checks_that_need_none_run() {
    let said = test(&[&component("simulated-provider")]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:#?}");
    for part in [
        "  passed   info.describe ",
        "  passed   configuration.refuses-rubbish ",
        "  not run  configuration.accepted ",
        "a configuration: pass --config FILE or --config '{…}', or --provider FILE.yaml",
        "  not run  trouble.silence ",
        " passed, 0 failed, ",
    ] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    assert!(!said.stdout.contains('\u{1b}'), "no colors without a terminal");
    let last = " not run; not a complete test: pass what the checks above need\n";
    assert!(said.stdout.ends_with(last), "{}", said.stdout);
}

#[tokio::test]
async fn a_test_that_is_not_complete_fails_if_all_checks_have_to_run() {
    let said = test(&[&component("simulated-provider"), "--require-all", "--json"]).await;
    let (failed, not_run) = (said.ids("failed").len(), said.ids("not-run").len());
    assert!(said.code == Some(5) && failed == 0 && not_run > 0, "{said:#?}");
    let why = format!("{not_run} checks were not run, and --require-all asks for all");
    assert!(said.stderr.contains(&why), "{said:#?}");
}

/// Each row is a violation of the contract, and the checks that must fail.
#[tokio::test]
async fn each_violation_of_the_contract_fails_exactly_its_checks() {
    // A 404 to everything may be absent, and an error of its own is one too.
    let errors_are_absent: Vec<_> =
        ["instances.foreign-id"].into_iter().chain(FAULTS).filter(|id| *id != "trouble.not-found").collect();
    let traps_in_trouble: Vec<_> =
        ["instances.foreign-id", "instances.largest-batch"].into_iter().chain(FAULTS).collect();
    let rows: [(&str, &[&str]); 40] = [
        ("nothing", &[]),
        ("takes-rubbish", &["configuration.names-fields"]),
        ("traps-on-rubbish", &["configuration.never-traps"]),
        ("names-no-field", &["configuration.names-fields"]),
        ("changes-its-mind", &["configuration.same-twice"]),
        ("order", &["instances.order", "instances.refresh", "load-balancers.order"]),
        ("one-too-few", &["instances.one-each", "load-balancers.one-each", "routes.one-each"]),
        ("absent-is-an-error", &["instances.absent", "instances.gone"]),
        ("errors-are-absent", &errors_are_absent),
        (
            "errors-are-broken",
            &["trouble.busy", "trouble.down", "trouble.forbidden", "trouble.cut-off", "trouble.codes"],
        ),
        ("foreign-scheme", &["instances.known"]),
        ("ignores-foreign-ids", &["instances.foreign-id"]),
        ("forgets-by-id", &["instances.by-id"]),
        ("one-for-all", &["instances.neighbours"]),
        ("restless", &["instances.repeatable"]),
        ("writes", &["instances.read-only"]),
        ("no-rules", &["instances.read-only", "load-balancers.read-only", "routes.read-only"]),
        ("confirms-by-list", &["instances.confirm"]),
        ("confirms-unasked", &["instances.confirm", "instances.gone"]),
        ("never-gone", &["instances.gone"]),
        ("half-a-list", &["trouble.halfway"]),
        ("ignores-the-deadline", &["trouble.silence", "load-balancers.deadline"]),
        ("traps-in-trouble", &traps_in_trouble),
        ("traps-on-many", &["instances.largest-batch"]),
        ("loses-ids-in-batches", &["instances.refresh"]),
        ("misreads-codes", &["trouble.codes"]),
        ("forgets-owners", &["load-balancers.owned"]),
        ("always-writes", &["load-balancers.no-write", "load-balancers.targets"]),
        ("keeps-targets", &["load-balancers.targets"]),
        ("ignores-selections", &["load-balancers.selected"]),
        ("reports-ingress-too-early", &["load-balancers.early-ingress"]),
        ("rewords-notices", &["load-balancers.notices"]),
        ("sets-undeclared-annotations", &["load-balancers.annotations"]),
        ("forgets-others", &["load-balancers.known"]),
        (
            "keeps-what-is-deleted",
            &["load-balancers.delete", "load-balancers.gone", "load-balancers.trouble"],
        ),
        ("gone-is-an-error", &["load-balancers.gone", "load-balancers.orphan", "routes.gone"]),
        ("errors-are-empty-lists", &["load-balancers.whole-list", "routes.whole-list"]),
        (
            "errors-are-done",
            &["load-balancers.trouble", "load-balancers.deadline", "routes.trouble", "routes.deadline"],
        ),
        ("creates-before-it-deletes", &["routes.move"]),
        ("lists-routes-without-nodes", &["routes.listed"]),
    ];
    // A cloud for each, so that no violation affects another test.
    let runs = rows.into_iter().map(|(breaks, _)| async move {
        let cloud = Cloud::start().await;
        let configuration = json!({"endpoint": cloud.url, "breaks": breaks});
        test_fully(&cloud, "unruly-provider", &configuration, &["--json"]).await
    });
    let said: Vec<_> = futures::stream::iter(runs).buffered(SIDE_BY_SIDE).collect().await;
    for ((breaks, expected), said) in rows.into_iter().zip(&said) {
        assert_eq!(said.ids("failed"), expected, "{breaks}: {:#?}", said.checks("failed"));
        assert_eq!(said.code, Some(if expected.is_empty() { 0 } else { 5 }), "{breaks}");
    }
}

#[tokio::test]
async fn a_failed_check_shows_what_was_sent_and_received_with_advice() {
    let cloud = Cloud::start().await;
    let configuration = json!({"endpoint": cloud.url, "breaks": "errors-are-absent"});
    let said = test_fully(&cloud, "unruly-provider", &configuration, &[]).await;
    assert_eq!(said.code, Some(5), "{said:#?}");
    for part in [
        "  failed   trouble.down ",
        "matters    an outage of the cloud must not delete Nodes",
        "sent       lookup(initialise, [node-1, node-2]), with a cloud that answers 503",
        "received   [absent, absent]",
        "advice     check the status before the body",
    ] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    assert!(said.stderr.contains("unruly_provider.wasm: ") && said.stderr.contains("checks failed"));
}

#[tokio::test]
async fn invalid_arguments_and_components_are_rejected_as_elsewhere() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script.wasm");
    std::fs::write(&script, "#!/bin/sh").unwrap();
    let (script, good) = (script.to_str().unwrap(), component("simulated-provider"));
    let rows: [(&[&str], i32, &str); 8] = [
        (&[], 2, "required"),
        (&["no-such.wasm"], 2, "can't read the component no-such.wasm"),
        (&[script], 3, "this is not WebAssembly"),
        (&[&good, "--provider", "no-such.yaml"], 2, "can't read the CloudProvider document no-such.yaml"),
        (&[&good, "--config", "{"], 2, "--config \"{\": invalid JSON"),
        (&[&good, "--node", "Node 1"], 2, "expected NAME or NAME=PROVIDER-ID"),
        (&[&good, "--grant", "cloud.example"], 2, "expected a URL"),
        (&[&good, "--gone", "m-1"], 2, "--gone"),
    ];
    for (arguments, code, part) in rows {
        let said = test(arguments).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{arguments:?}: {said:#?}");
        assert!(said.stderr.contains(part), "{part}: {said:#?}");
    }
}
