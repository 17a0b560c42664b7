//! Tokens of Entra and AD FS, and the metadata service.

use serde_json::{Value, json};

use super::super::*;
use super::fixture::{Fixture, code, seconds};
use crate::seed::{Arrangement, NewNodes};

const AUDIENCE: &str = "https://management.core.windows.net/";

fn directory() -> Directory {
    serde_json::from_value(json!({
        "clients": [
            {"tenants": ["tenant", "other"], "clientId": "app", "secret": "hush", "federated": [{"issuer": "https://issuer", "subject": "system:serviceaccount:a:b"}]},
            {"tenants": ["adfs"], "clientId": "stack", "secret": "hush"},
        ],
        "identities": [
            {"clientId": "system", "objectId": "o-system"},
            {"clientId": "user", "objectId": "o-user", "resourceId": "/subscriptions/sub/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u"},
        ],
        "lifetimeSeconds": 60,
    }))
    .unwrap()
}

fn secured() -> Fixture {
    Fixture::with(Settings {
        started_at: Timestamp::UNIX_EPOCH,
        seed: 1,
        subscription: "sub".to_owned(),
        tenant: "tenant".to_owned(),
        quotas: Quotas::unlimited(),
        directory: Some(directory()),
    })
}

fn ask(it: &mut Fixture, path: &str, form: &[(&str, &str)]) -> Response {
    let mut request = Request::new(Method::POST, "https://arm", path);
    let form: Vec<_> =
        form.iter().map(|(key, value)| format!("{key}={}", value.replace('/', "%2F"))).collect();
    request.body = form.join("&").into_bytes();
    it.send(&request)
}

fn by_secret<'a>(client: &'a str, secret: &'a str, scope: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("grant_type", "client_credentials"),
        ("client_id", client),
        ("client_secret", secret),
        ("scope", scope),
    ]
}

fn token(it: &mut Fixture, tenant: &str) -> String {
    let response = ask(
        it,
        &format!("/{tenant}/oauth2/v2.0/token"),
        &by_secret("app", "hush", &format!("{AUDIENCE}/.default")),
    );
    response.body.unwrap()["access_token"].as_str().unwrap().to_owned()
}

fn list(it: &mut Fixture, headers: &[(&'static str, &str)]) -> Response {
    it.call(Method::GET, "routeTables", headers, &Value::Null)
}

#[test]
fn a_token_is_valid_for_its_tenant_and_time_only() {
    let mut it = secured();
    let own = format!("Bearer {}", token(&mut it, "tenant"));
    let foreign = format!("Bearer {}", token(&mut it, "other"));
    let forged = own.replace('.', "x.");
    assert_eq!(code(&list(&mut it, &[])), "401 AuthenticationFailed");
    assert_eq!(code(&list(&mut it, &[("authorization", "Basic x")])), "401 AuthenticationFailed");
    assert_eq!(code(&list(&mut it, &[("authorization", &forged)])), "401 InvalidAuthenticationToken");
    assert_eq!(code(&list(&mut it, &[("authorization", &own)])), "200");
    let refused = list(&mut it, &[("authorization", &foreign)]);
    assert_eq!(code(&refused), "401 InvalidAuthenticationTokenTenant");
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer authorization_uri="));
    assert_eq!(
        code(&list(&mut it, &[("authorization", &foreign), ("x-ms-authorization-auxiliary", &own)])),
        "200"
    );
    it.state.revoke_tokens();
    assert_eq!(code(&list(&mut it, &[("authorization", &own)])), "401 InvalidAuthenticationToken");
    let own = format!("Bearer {}", token(&mut it, "tenant"));
    it.now = seconds(60);
    assert_eq!(code(&list(&mut it, &[("authorization", &own)])), "401 ExpiredAuthenticationToken");
}

#[test]
fn a_token_for_another_audience_is_refused() {
    let mut it = secured();
    let response = ask(
        &mut it,
        "/tenant/oauth2/v2.0/token",
        &by_secret("app", "hush", "https://vault.azure.net/.default"),
    );
    let token = format!("Bearer {}", response.body.unwrap()["access_token"].as_str().unwrap());
    assert_eq!(code(&list(&mut it, &[("authorization", &token)])), "401 InvalidAuthenticationTokenAudience");
}

#[test]
fn only_a_proof_of_a_client_of_the_tenant_gets_a_token() {
    let scope = "https://arm/.default";
    let rows = [
        ("/tenant/oauth2/v2.0/token", by_secret("app", "hush", scope), 200, ""),
        ("/tenant/oauth2/v2.0/token", by_secret("app", "wrong", scope), 401, "invalid_client"),
        ("/tenant/oauth2/v2.0/token", by_secret("none", "hush", scope), 400, "unauthorized_client"),
        ("/none/oauth2/v2.0/token", by_secret("app", "hush", scope), 400, "invalid_request"),
        ("/tenant/oauth2/v2.0/token", by_secret("app", "hush", "https://arm"), 400, "invalid_scope"),
        ("/tenant/oauth2/v2.0/token", vec![("grant_type", "password")], 400, "unsupported_grant_type"),
        (
            "/adfs/oauth2/token",
            vec![
                ("grant_type", "client_credentials"),
                ("client_id", "stack"),
                ("client_secret", "hush"),
                ("resource", "https://arm/"),
            ],
            200,
            "",
        ),
    ];
    for (path, form, status, error) in rows {
        let response = ask(&mut secured(), path, &form);
        let body = response.body.clone().unwrap();
        assert_eq!(
            (response.status, body["error"].as_str().unwrap_or_default()),
            (status, error),
            "{path} {form:?}"
        );
        assert!(!body.to_string().contains("hush"), "{body}");
    }
}

fn assertion(claims: &Value) -> String {
    use base64::Engine as _;
    let encode = |value: &Value| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", encode(&json!({"alg": "RS256"})), encode(claims))
}

#[test]
fn a_federated_token_proves_the_client_by_its_issuer_subject_and_audience() {
    let good = json!({"iss": "https://issuer", "sub": "system:serviceaccount:a:b", "aud": ["api://AzureADTokenExchange"], "exp": 100});
    let with = |field: &str, value: Value| {
        let mut claims = good.clone();
        claims[field] = value;
        claims
    };
    let rows = [
        (good.clone(), 200),
        (with("iss", json!("https://other")), 401),
        (with("sub", json!("system:serviceaccount:a:c")), 401),
        (with("aud", json!("other")), 401),
        (with("exp", json!(0)), 401),
    ];
    for (claims, status) in rows {
        let text = assertion(&claims);
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", "app"),
            ("scope", "https://arm/.default"),
            ("client_assertion", text.as_str()),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ];
        assert_eq!(ask(&mut secured(), "/tenant/oauth2/v2.0/token", &form).status, status, "{claims}");
    }
}

fn metadata(it: &mut Fixture, path: &str, headers: &[(&'static str, &str)]) -> Response {
    it.call(Method::GET, path, headers, &Value::Null)
}

const MARK: (&str, &str) = ("metadata", "true");

#[test]
fn an_identity_is_chosen_by_client_object_or_resource_id() {
    let base = "/metadata/identity/oauth2/token?api-version=2018-02-01";
    let resource =
        "/subscriptions/sub/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u";
    let rows = [
        (format!("{base}&resource={AUDIENCE}"), Ok("system")),
        (format!("{base}&resource={AUDIENCE}&client_id=user"), Ok("user")),
        (format!("{base}&resource={AUDIENCE}&object_id=o-user"), Ok("user")),
        (format!("{base}&resource={AUDIENCE}&msi_res_id={resource}"), Ok("user")),
        (format!("{base}&resource={AUDIENCE}&client_id=none"), Err(400)),
        (base.to_owned(), Err(400)),
    ];
    for (path, expected) in rows {
        let mut it = secured();
        assert_eq!(metadata(&mut it, &path, &[]).status, 400, "without the header");
        let response = metadata(&mut it, &path, &[MARK]);
        let body = response.body.unwrap();
        match expected {
            Ok(client) => {
                assert_eq!(
                    (body["client_id"].as_str(), body["expires_in"].as_str()),
                    (Some(client), Some("60")),
                    "{path}"
                );
                let token = format!("Bearer {}", body["access_token"].as_str().unwrap());
                assert_eq!(list(&mut it, &[("authorization", &token)]).status, 200);
            }
            Err(status) => assert_eq!(
                (response.status, body["error"].as_str()),
                (status, Some("invalid_request")),
                "{path}"
            ),
        }
    }
}

#[test]
fn the_instance_document_describes_machines_of_both_kinds() {
    for arrangement in [Arrangement::Uniform, Arrangement::Standalone, Arrangement::Flexible] {
        let nodes = NewNodes {
            count: 2,
            arrangement,
            dual_stack: true,
            public_addresses: true,
            ..NewNodes::default()
        };
        let (mut it, names) = Fixture::nodes(nodes);
        it.state.set_metadata(Metadata { machine: Some(names[1].clone()), ..Metadata::default() });
        let body =
            metadata(&mut it, "/metadata/instance?format=json&api-version=2021-10-01", &[MARK]).body.unwrap();
        let (compute, interface) = (&body["compute"], &body["network"]["interface"][0]);
        assert_eq!(compute["resourceId"], it.state.machine(&names[1]).unwrap().id.as_str());
        assert_eq!(
            (compute["zone"].as_str(), compute["platformFaultDomain"].as_str()),
            (Some("2"), Some("0")),
            "{arrangement:?}"
        );
        assert_eq!(
            compute["vmScaleSetName"].as_str().unwrap().is_empty(),
            arrangement == Arrangement::Standalone
        );
        assert_eq!(interface["ipv4"]["ipAddress"][0]["privateIpAddress"], "10.224.0.5");
        assert!(
            interface["ipv4"]["ipAddress"][0]["publicIpAddress"].as_str().unwrap().starts_with("198.18."),
            "{interface}"
        );
        assert_eq!(interface["ipv6"]["ipAddress"][0]["privateIpAddress"], "fd12:3456:789a::5");
        assert!(
            compute.as_object().unwrap().values().all(|it| it.is_string() || it.is_array() || it.is_object()),
            "all are strings"
        );
        let size = metadata(
            &mut it,
            "/metadata/instance/compute/vmSize?format=text&api-version=2021-10-01",
            &[MARK],
        );
        assert_eq!(size.body, Some(json!("Standard_D4s_v5")));
    }
}

#[test]
fn the_load_balancer_document_names_the_frontends_of_the_machine() {
    let nodes = NewNodes { count: 1, arrangement: Arrangement::Standalone, ..NewNodes::default() };
    let (mut it, _) = Fixture::nodes(nodes);
    let base = "/subscriptions/sub/resourceGroups/nodes/providers/Microsoft.Network";
    let public = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
    it.put("publicIPAddresses/p", &public);
    let balancer = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": format!("{base}/publicIPAddresses/p")}}}],
        "backendAddressPools": [{"name": "p"}],
    }});
    it.put("loadBalancers/b", &balancer);
    let mut interface = it.get("networkInterfaces/aks-nodes-vm0000000-nic").body.unwrap();
    let pools = json!([{"id": format!("{base}/loadBalancers/b/backendAddressPools/p")}]);
    interface["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] = pools;
    assert_eq!(it.put("networkInterfaces/aks-nodes-vm0000000-nic", &interface).status, 200);
    let body = metadata(&mut it, "/metadata/loadbalancer?api-version=2020-10-01", &[MARK]).body.unwrap();
    let address = it.get("publicIPAddresses/p").body.unwrap()["properties"]["ipAddress"].clone();
    assert_eq!(
        body["loadbalancer"]["publicIpAddresses"],
        json!([{"frontendIpAddress": address, "privateIpAddress": "10.224.0.4"}])
    );
}

#[test]
fn the_metadata_service_refuses_as_azure_does() {
    let path = "/metadata/instance?api-version=2021-10-01";
    let (mut it, _) = Fixture::nodes(NewNodes { count: 1, ..NewNodes::default() });
    let rows = [
        (path, vec![], 400),
        (path, vec![MARK, ("x-forwarded-for", "10.0.0.1")], 400),
        ("/metadata/instance", vec![MARK], 400),
        ("/metadata/loadbalancer?api-version=2020-10-01", vec![MARK], 404),
        (path, vec![MARK], 200),
    ];
    for (path, headers, status) in rows {
        assert_eq!(metadata(&mut it, path, &headers).status, status, "{path} {headers:?}");
    }
    it.state.set_quotas(Quotas::default());
    let answered = (0..10).filter(|_| metadata(&mut it, path, &[MARK]).status == 200).count();
    assert_eq!(answered, 5, "five requests a second");
    it.state.set_metadata(Metadata { status: Some(500), ..Metadata::default() });
    it.now = seconds(10);
    assert_eq!(metadata(&mut it, path, &[MARK]).status, 500);
    let instance = json!({"compute": {"resourceId": "/subscriptions/other"}});
    it.state.set_metadata(Metadata { instance, ..Metadata::default() });
    assert_eq!(
        metadata(&mut it, path, &[MARK]).body.unwrap()["compute"]["resourceId"],
        "/subscriptions/other"
    );
}

#[test]
fn clients_discover_the_endpoints() {
    let mut it = secured();
    let found = it.get("/metadata/endpoints?api-version=2019-05-01").body.unwrap();
    let own = found.as_array().unwrap().iter().find(|it| it["name"] == "AzureStackCloud").unwrap();
    assert_eq!(own["authentication"]["loginEndpoint"], "https://arm/");
    let found = it.get("/tenant/v2.0/.well-known/openid-configuration").body.unwrap();
    assert_eq!(found["token_endpoint"], "https://arm/tenant/oauth2/v2.0/token");
    let found = it.get("/adfs/.well-known/openid-configuration").body.unwrap();
    assert_eq!(found["token_endpoint"], "https://arm/adfs/oauth2/token");
}
