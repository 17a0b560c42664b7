use std::collections::{BTreeMap, BTreeSet};

use pileus_guest::testing::{Host, schema};
use pileus_guest::{CredentialHint, Effect, Endpoint, Place};
use serde_json::{Value, json};

use super::*;
use crate::configuration::keys::{self, KEYS, Kind, RATE_LIMITS};
use crate::environment::CLOUDS;

/// The least that a configuration needs.
pub(crate) fn minimal() -> Value {
    json!({"subscriptionId": "sub", "resourceGroup": "Group", "location": "eastus", "routeTableName": "table"})
}

/// The same with more keys.
pub(crate) fn with(more: &Value) -> Value {
    let mut document = minimal();
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document
}

fn settings(document: &Value) -> Settings {
    let settings = Host::new().configuration(document).configure::<Azure>();
    settings.unwrap_or_else(|problems| panic!("{document}: {problems:?}"))
}

fn problems(document: &Value) -> Vec<Problem> {
    Host::new()
        .configuration(document)
        .configure::<Azure>()
        .err()
        .unwrap_or_else(|| panic!("{document} is wrong"))
}

fn hint(more: &Value) -> Option<CredentialHint> {
    settings(&with(more)).endpoints[0].credential.clone()
}

/// A value of the right type for a key.
fn sample(name: &str, kind: Kind) -> Value {
    match (name, kind) {
        ("vmType", _) => json!("vmss"),
        ("cloud", _) => json!("AzurePublicCloud"),
        ("tags", _) => json!("a=b"),
        (name, Kind::Text) if name.ends_with("Endpoint") => json!("https://cloud.test"),
        (_, Kind::Text) => json!("x"),
        (_, Kind::Flag) => json!(true),
        (_, Kind::Number) => json!(7),
        (_, Kind::Object) => json!({}),
        (_, Kind::List) => json!([]),
    }
}

/// Sections 1.1 to 1.5 and 6.1: each key is accepted in any case, and what has no effect is told.
#[test]
fn each_key_is_read_in_any_case_and_told_if_it_has_no_effect() {
    use configuration::keys::Effect as KeyEffect;
    for key in KEYS {
        let KeyEffect::Secret(_) = key.effect else {
            for name in [key.name.to_owned(), key.name.to_uppercase(), key.name.to_lowercase()] {
                let mut document = minimal();
                document.as_object_mut().unwrap().retain(|given, _| !given.eq_ignore_ascii_case(&name));
                document[&name] = sample(key.name, key.kind);
                if key.name == "activeDirectoryEndpoint" {
                    document["aadClientId"] = json!("x");
                }
                let notices = settings(&document).notices;
                let is_told = notices
                    .iter()
                    .any(|it| it.path == key.name && it.message.starts_with("it has no effect"));
                let has_effect = matches!(key.effect, KeyEffect::Read | KeyEffect::Credential);
                assert_eq!(is_told, !has_effect, "{name}: {notices:?}");
            }
            continue;
        };
        let [problem] = problems(&with(&json!({key.name: "hunter2"}))).try_into().unwrap();
        assert_eq!(problem.path, key.name);
        assert!(problem.message.contains("spec.credentials[]"), "{problem:?}");
        assert!(!problem.message.contains("hunter2"), "{problem:?}");
        drop(settings(&with(&json!({key.name: ""}))));
    }
    for limit in RATE_LIMITS {
        let notices = settings(&with(&json!({*limit: {"cloudProviderRateLimit": true}}))).notices;
        assert_eq!(notices.len(), 1, "{limit}: {notices:?}");
    }
}

#[test]
fn a_value_of_another_type_and_a_key_that_is_there_twice_are_problems() {
    for key in KEYS {
        let wrong = if key.kind == Kind::Number { json!("7") } else { json!(7) };
        let problems = problems(&with(&json!({key.name: wrong})));
        assert!(problems.iter().any(|problem| problem.path == key.name), "{}: {problems:?}", key.name);
        if !["subscriptionId", "resourceGroup"].contains(&key.name) {
            drop(settings(&with(&json!({key.name: null}))));
        }
    }
    let twice = with(&json!({"RouteTableName": "other"}));
    assert!(problems(&twice)[0].message.contains("twice"));
    let missing: Vec<_> = problems(&json!({})).into_iter().map(|problem| problem.path).collect();
    assert_eq!(missing, ["subscriptionId", "resourceGroup"]);
    let rows = [
        (json!({"vmType": "vm"}), "vmType"),
        (json!({"resourceManagerEndpoint": "management"}), "resourceManagerEndpoint"),
        (json!({"cloud": "AzureStackCloud"}), "resourceManagerEndpoint"),
        (json!({"metadataEndpoint": "imds"}), "metadataEndpoint"),
    ];
    for (more, path) in rows {
        assert_eq!(problems(&with(&more))[0].path, path, "{more}");
    }
}

#[test]
fn unknown_keys_are_ignored_with_one_notice() {
    let notices = settings(&with(&json!({"unknown": 1, "another": {}}))).notices;
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(notice.path, "");
    assert!(notice.message.starts_with("another, unknown have no effect"), "{notice:?}");
    // All keys at once are fewer notices than the host takes.
    let all: Value = KEYS
        .iter()
        .filter(|key| !matches!(key.effect, keys::Effect::Secret(_)))
        .map(|key| (key.name.to_owned(), sample(key.name, key.kind)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert!(settings(&all).notices.len() < 20);
}

/// Section 1.6 and D4: the clouds are values, and an override of one changes no other.
#[test]
fn each_cloud_has_its_endpoints() {
    let client = json!({"aadClientId": "client", "tenantId": "tenant"});
    let of = |more: Value| {
        let mut document = with(&client);
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let settings = settings(&document);
        let Endpoint { tls, host, port, credential, .. } = settings.endpoints[0].clone();
        assert!(settings.rules.iter().all(|rule| rule.host == host));
        let values: BTreeMap<_, _> = credential.unwrap().values.into_iter().collect();
        (format!("{tls} {host} {port:?}"), values)
    };
    for (name, authority, arm, audience) in CLOUDS {
        for name in [name.to_owned(), name.to_uppercase()] {
            let (host, values) = of(json!({"cloud": name}));
            assert_eq!(host, format!("true {arm} None"));
            assert_eq!(values["tokenURL"], format!("https://{authority}/tenant/oauth2/v2.0/token"));
            assert_eq!(values["scope"], format!("https://{audience}/.default"));
        }
    }
    for (alias, arm) in
        [("AzureCloud", CLOUDS[0].2), ("azureusgovernment", CLOUDS[2].2), ("Mars", CLOUDS[0].2)]
    {
        assert_eq!(of(json!({"cloud": alias})).0, format!("true {arm} None"), "{alias}");
    }
    assert_eq!(settings(&with(&json!({"cloud": "Mars"}))).notices[0].path, "cloud");
    let custom = json!({"resourceManagerEndpoint": "http://127.0.0.1:8080/"});
    assert_eq!(of(custom).0, "false 127.0.0.1 Some(8080)");
    assert_eq!(of(json!({})).0, "true management.azure.com None");
    let stack = json!({
        "cloud": "AzureStackCloud", "resourceManagerEndpoint": "https://management.local.stack",
        "activeDirectoryEndpoint": "https://adfs.local.stack/adfs/", "tokenAudience": "https://management.adfs.stack/guid",
        "tenantId": "adfs",
    });
    let (host, values) = of(stack);
    assert_eq!(host, "true management.local.stack None");
    assert_eq!(values["tokenURL"], "https://adfs.local.stack/adfs/oauth2/token");
    assert_eq!((&*values["resource"], values.get("scope")), ("https://management.adfs.stack/guid", None));
    let bare = settings(&with(&json!({
        "cloud": "AzureStackCloud", "resourceManagerEndpoint": "https://management.local.stack", "aadClientId": "c",
    })));
    assert!(
        bare.notices.iter().any(|notice| notice.message.contains("/metadata/endpoints")),
        "{:?}",
        bare.notices
    );
}

/// Section 1.7: which credential a configuration describes, in cloud-provider-azure's order, never with a secret.
#[test]
fn each_identity_becomes_the_hint_of_a_credential() {
    let kind = |more: &Value| hint(more).map(|hint| hint.kind);
    let resource =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
    let rows = [
        (json!({}), None),
        (json!({"aadClientId": "c", "tenantId": "t"}), Some("clientSecret")),
        (
            json!({"aadClientId": "msi", "aadClientSecret": "msi", "useManagedIdentityExtension": true}),
            Some("managedIdentity"),
        ),
        (json!({"aadClientId": "c", "aadClientCertPath": "/cert.pfx"}), Some("clientCertificate")),
        (
            json!({"useFederatedWorkloadIdentityExtension": true, "useManagedIdentityExtension": true}),
            Some("workloadIdentity"),
        ),
        (
            json!({"aadClientId": "c", "aadFederatedTokenFile": "/token", "useFederatedWorkloadIdentityExtension": true}),
            Some("workloadIdentity"),
        ),
    ];
    for (more, expected) in rows {
        assert_eq!(kind(&more).as_deref(), expected, "{more}");
    }
    let managed = |id: &str| {
        let values =
            hint(&json!({"useManagedIdentityExtension": true, "userAssignedIdentityID": id})).unwrap().values;
        values.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let audience = "resource=https://management.core.windows.net/";
    assert_eq!(managed(""), [audience]);
    assert_eq!(managed("guid"), [audience, "clientID=guid"]);
    assert_eq!(managed(resource), [audience, &format!("resourceID={resource}")]);
    let two =
        settings(&with(&json!({"aadClientId": "c", "tenantId": "t", "networkResourceTenantID": "other"})));
    assert!(two.notices[0].message.contains("auxiliary"), "{:?}", two.notices);
}

#[test]
fn the_metadata_service_is_asked_for_only_if_the_configuration_says_so() {
    assert_eq!(settings(&minimal()).endpoints.len(), 1);
    let both = settings(&with(&json!({"useInstanceMetadata": true})));
    let metadata = &both.endpoints[1];
    assert_eq!((metadata.tls, &*metadata.host), (false, "169.254.169.254"));
    assert_eq!(metadata.credential.as_ref().unwrap().kind, "metadata");
    let paths: Vec<_> =
        both.rules.iter().filter(|rule| rule.host == metadata.host).map(|rule| &*rule.path).collect();
    assert_eq!(paths, ["/metadata/instance", "/metadata/loadbalancer"], "never an identity");
    let local = settings(&json!({"useInstanceMetadata": true}));
    assert_eq!((local.endpoints.len(), local.rules.len(), local.limits.len()), (1, 2, 1));
}

#[test]
fn every_limit_is_counted_by_a_rule_and_only_the_table_is_written() {
    let settings = settings(&minimal());
    let declared: BTreeSet<_> = settings.limits.iter().map(|limit| &*limit.key).collect();
    let counted: BTreeSet<_> =
        settings.rules.iter().flat_map(|rule| &rule.limits).map(|key| &**key).collect();
    assert_eq!(declared, counted);
    let writes: Vec<_> = settings.rules.iter().filter(|rule| rule.effect == Effect::Write).collect();
    let [write] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(
        (&*write.method, &*write.path),
        ("PUT", "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/routeTables/*")
    );
    assert!(settings.rules.iter().all(|rule| rule.fold_case));
    let told =
        |key: &str| settings.limits.iter().find(|limit| limit.key == key).unwrap().told_by.clone().unwrap();
    assert_eq!(
        told("subscription-reads-{1}"),
        ("x-ms-ratelimit-remaining-subscription-reads".to_owned(), String::new())
    );
    let policy = "Microsoft.Compute/HighCostGetVMScaleSet".to_owned();
    assert_eq!(told("scale-set-lists-{1}"), ("x-ms-ratelimit-remaining-resource".to_owned(), policy));
}

/// Section 5.1: a page is named in two spellings, and both are pages of one list.
#[test]
fn a_page_of_either_spelling_belongs_to_its_list() {
    let settings = settings(&minimal());
    let lists: Vec<_> =
        settings.rules.iter().filter(|rule| rule.path.ends_with("/virtualMachineScaleSets")).collect();
    let query = |name: &str| Some(Place::Query(name.to_owned()));
    let seen: Vec<_> = lists.iter().map(|rule| (rule.operation.is_some(), rule.page.clone())).collect();
    assert_eq!(seen, [(true, query("$skipToken")), (false, query("$skiptoken"))]);
}

#[test]
fn the_schema_has_each_key_but_those_of_secrets() {
    let schema = schema::<Azure>();
    let properties = schema["properties"].as_object().unwrap();
    for key in KEYS {
        let is_secret = matches!(key.effect, keys::Effect::Secret(_));
        assert_eq!(properties.contains_key(key.name), !is_secret, "{}", key.name);
    }
    assert!(
        properties
            .values()
            .all(|property| property["description"].as_str().is_some_and(|text| !text.is_empty()))
    );
}
