use std::collections::BTreeSet;

use pileus_guest::testing::{Host, schema};
use pileus_guest::{Annotation, AnnotationType, Place};
use serde_json::json;

use super::*;

#[test]
fn the_settings_follow_from_the_endpoint() {
    let settings = Host::new().configure::<Hetzner>().unwrap();
    let [endpoint] = &settings.endpoints[..] else { panic!("{settings:?}") };
    assert_eq!((endpoint.tls, &*endpoint.host, endpoint.port), (true, "api.hetzner.cloud", None));
    assert_eq!(endpoint.credential.as_ref().unwrap().kind, "bearer");
    let mut rules: Vec<_> =
        settings.rules.iter().map(|it| format!("{} {} {:?}", it.method, it.path, it.effect)).collect();
    rules.sort_unstable();
    let expected = [
        "DELETE /v1/load_balancers/* Write",
        "GET /v1/actions/* OperationPoll",
        "GET /v1/certificates Read",
        "GET /v1/certificates/* Read",
        "GET /v1/load_balancers Read",
        "GET /v1/load_balancers/* Read",
        "GET /v1/networks Read",
        "GET /v1/networks/* Read",
        "GET /v1/servers Read",
        "GET /v1/servers/* Read",
        "POST /v1/certificates Write",
        "POST /v1/load_balancers Write",
        "POST /v1/load_balancers/*/actions/* Write",
        "POST /v1/networks/*/actions/* Write",
        "PUT /v1/load_balancers/* Write",
    ];
    assert_eq!(rules, expected);
    let list = settings.rules.iter().find(|rule| rule.path == "/v1/servers").unwrap();
    assert_eq!(list.page, Some(Place::Query("page".to_owned())));
    let scope =
        |path: &str| settings.rules.iter().find(|rule| rule.path == path).unwrap().cache_scope.clone();
    assert_eq!(scope("/v1/networks/*/actions/*"), scope("/v1/networks"));
    assert_eq!(scope("/v1/load_balancers/*/actions/*"), scope("/v1/load_balancers"));
    assert!(settings.rules.iter().all(|rule| rule.limits == [PROJECT]));
    let [limit] = &settings.limits[..] else { panic!("{settings:?}") };
    assert_eq!((limit.capacity, limit.per_minute), (3_600, 60));
}

#[test]
fn an_invalid_configuration_is_rejected_with_the_path() {
    let rows = [
        (json!({"endpoint": "hetzner"}), "endpoint"),
        (json!({"token": "x"}), "token"),
        (json!({"network": true}), "network"),
        (json!({"addressFamily": "dual"}), "addressFamily"),
        (json!({"loadBalancers": {"algorithmType": "random"}}), "loadBalancers.algorithmType"),
        (
            json!({"loadBalancers": {"location": "fsn1", "networkZone": "eu-central"}}),
            "loadBalancers.networkZone",
        ),
        (json!({"loadBalancers": {"usePrivateIp": true}}), "loadBalancers.usePrivateIp"),
    ];
    for (document, path) in rows {
        let problems = Host::new().configuration(&document).configure::<Hetzner>().unwrap_err();
        assert_eq!(problems[0].path, path, "{document}: {problems:?}");
    }
    let valid = json!({
        "network": "nodes", "addressFamily": "dualstack", "zoneLabel": false,
        "loadBalancers": {"networkZone": "eu-central", "usePrivateIp": true, "disableIPv6": true, "usesProxyProtocol": true},
    });
    assert!(Host::new().configuration(valid).configure::<Hetzner>().is_ok());
}

#[test]
fn each_field_and_each_annotation_is_described() {
    let schema = schema::<Hetzner>();
    let fields = |schema: &Value| schema["properties"].as_object().unwrap().clone();
    let all = fields(&schema).into_iter().chain(fields(&schema["$defs"]["Defaults"]));
    for (name, field) in all {
        assert!(field["description"].is_string(), "{name}: {field}");
    }
    let annotations: Vec<Annotation> = Hetzner::describe().service_annotations;
    let names: BTreeSet<_> = annotations.iter().map(|annotation| &*annotation.name).collect();
    assert_eq!(names.len(), annotations.len());
    let selectors = annotations.iter().filter(|annotation| annotation.value == AnnotationType::NodeSelector);
    let selectors: Vec<_> = selectors.map(|annotation| &*annotation.name).collect();
    assert_eq!(selectors, ["load-balancer.hetzner.cloud/node-selector"]);
}
