//! The credentials that a provider's endpoints hint at, as the document has them: public values by the hint, and references to
//! Secrets that the operator creates. A hint never brings a value that is secret. Pure.

use pileus_gate::HostPattern;
use pileus_host::{CredentialHint, RequestedEndpoint};
use serde_json::{Map, Value, json};

/// A kind of credential, with its fields in the document.
struct Kind {
    name: &'static str,
    /// Its name for people, which also names the credential.
    label: &'static str,
    /// What it needs that is public, each with a placeholder.
    required: &'static [(&'static str, &'static str)],
    /// What it may have that is public.
    optional: &'static [&'static str],
    /// Its secret values, each with the key of the Secret.
    secrets: &'static [(&'static str, &'static str)],
}

/// A token endpoint that can't exist, for a hint without one.
const TOKEN_URL: (&str, &str) = ("tokenURL", "https://token-endpoint.invalid/token");
const CLIENT: &[(&str, &str)] = &[TOKEN_URL, ("clientID", "CLIENT-ID")];
const TARGETS: &[&str] = &["scope", "resource"];

const KINDS: &[Kind] = &[
    Kind {
        name: "clientSecret",
        label: "client-secret",
        required: CLIENT,
        optional: TARGETS,
        secrets: &[("secret", "client-secret")],
    },
    Kind {
        name: "clientCertificate",
        label: "client-certificate",
        required: CLIENT,
        optional: TARGETS,
        secrets: &[("certificate", "tls.crt"), ("key", "tls.key")],
    },
    Kind {
        name: "workloadIdentity",
        label: "workload-identity",
        required: CLIENT,
        optional: TARGETS,
        secrets: &[],
    },
    Kind {
        name: "managedIdentity",
        label: "managed-identity",
        required: &[("endpoint", "http://169.254.169.254/token"), ("resource", "RESOURCE")],
        optional: &["clientID", "resourceID", "objectID"],
        secrets: &[],
    },
    Kind {
        name: "metadata",
        label: "metadata",
        required: &[("flavor", "azure")],
        optional: &[],
        secrets: &[],
    },
    Kind { name: "bearer", label: "bearer", required: &[], optional: &[], secrets: &[("token", "token")] },
    Kind {
        name: "basic",
        label: "basic",
        required: &[("username", "USER-NAME")],
        optional: &[],
        secrets: &[("password", "password")],
    },
    Kind {
        name: "header",
        label: "header",
        required: &[("name", "X-Auth-Token")],
        optional: &[],
        secrets: &[("value", "value")],
    },
    Kind {
        name: "awsSigV4",
        label: "aws",
        required: &[("region", "REGION"), ("service", "SERVICE")],
        optional: &[],
        secrets: &[("accessKeyID", "access-key-id"), ("secretAccessKey", "secret-access-key")],
    },
];

/// The file of the service account's token, as `deploy/pileus.yaml` may mount it.
const TOKEN_FILE: &str = "cloud-token";

/// A credential of the document, with what the operator has to do for it.
#[derive(Debug, PartialEq)]
pub(super) struct DraftedCredential {
    pub(super) comments: Vec<String>,
    /// None where the document has no such kind.
    pub(super) value: Option<Value>,
}

/// A hint with the hosts that share it.
struct Hinted<'a> {
    hint: &'a CredentialHint,
    hosts: Vec<&'a HostPattern>,
    /// Whether it is for requests without TLS, too.
    plain: bool,
}

/// The credentials for these endpoints. `provider` names the Secret.
pub(super) fn credentials(endpoints: &[RequestedEndpoint], provider: &str) -> Vec<DraftedCredential> {
    let mut groups: Vec<Hinted<'_>> = Vec::new();
    for RequestedEndpoint { endpoint, credential, .. } in endpoints {
        let Some(hint) = credential else { continue };
        let (host, plain) = (&endpoint.host, !endpoint.tls && hint.kind != "metadata");
        match groups.iter_mut().find(|group| group.hint == hint) {
            Some(group) => {
                group.plain |= plain;
                if !group.hosts.contains(&host) {
                    group.hosts.push(host);
                }
            }
            None => groups.push(Hinted { hint, hosts: vec![host], plain }),
        }
    }
    // The first credential that names a host is attached, so those for fewer hosts come first.
    groups.sort_by_key(|group| group.hosts.iter().any(|host| matches!(host, HostPattern::Below(_))));
    let mut labels = Vec::new();
    groups.iter().map(|group| drafted(group, provider, &mut labels)).collect()
}

fn drafted(group: &Hinted<'_>, provider: &str, labels: &mut Vec<&'static str>) -> DraftedCredential {
    let Hinted { hint, hosts, plain } = group;
    let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    let Some(kind) = KINDS.iter().find(|kind| kind.name == hint.kind) else {
        let comment = format!(
            "The provider asks for a credential of the kind {:?} for {}, which this version doesn't have.",
            hint.kind,
            hosts.join(", ")
        );
        return DraftedCredential { comments: vec![comment], value: None };
    };
    labels.push(kind.label);
    let name = match labels.iter().filter(|label| **label == kind.label).count() {
        1 => kind.label.to_owned(),
        number => format!("{}-{number}", kind.label),
    };
    // Two credentials of one kind have a Secret each, since its keys are the same.
    let secret = if name == kind.label { provider.to_owned() } else { format!("{provider}-{name}") };
    let mut comments = Vec::new();
    let fields = fields(kind, hint, &secret, &mut comments);
    let mut value = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("hosts".to_owned(), json!(hosts)),
        (kind.name.to_owned(), Value::Object(fields)),
    ]);
    if *plain {
        value.insert("plain".to_owned(), json!(true));
        comments.push("Plain: it is sent in clear text.".to_owned());
    }
    DraftedCredential { comments, value: Some(Value::Object(value)) }
}

/// The fields of a kind. Adds what the operator has to do to `comments`.
fn fields(
    kind: &Kind,
    hint: &CredentialHint,
    secret: &str,
    comments: &mut Vec<String>,
) -> Map<String, Value> {
    let hinted = |field: &str| {
        hint.values.iter().find(|(name, value)| name == field && !value.is_empty()).map(|(_, value)| value)
    };
    let mut fields = Map::new();
    let mut replaced = Vec::new();
    for (field, placeholder) in kind.required {
        let value = if let Some(value) = hinted(field) {
            value.as_str()
        } else {
            replaced.push(*field);
            placeholder
        };
        fields.insert((*field).to_owned(), json!(value));
    }
    let optional = kind.optional.iter().filter_map(|field| Some((*field, hinted(field)?)));
    fields.extend(optional.map(|(field, value)| (field.to_owned(), json!(value))));
    if kind.optional == TARGETS && !TARGETS.iter().any(|target| fields.contains_key(*target)) {
        replaced.push("scope");
        fields.insert("scope".to_owned(), json!("SCOPE"));
    }
    if !replaced.is_empty() {
        comments.push(format!("Replace {}.", replaced.join(", ")));
    }
    for (field, key) in kind.secrets {
        fields.insert((*field).to_owned(), json!({"secret": {"name": secret, "key": key}}));
    }
    if !kind.secrets.is_empty() {
        let keys: Vec<_> = kind.secrets.iter().map(|(_, key)| format!("--from-file={key}=FILE")).collect();
        comments.push(format!(
            "Create the Secret in the namespace of Pileus: kubectl -n NAMESPACE create secret generic {secret} {}",
            keys.join(" ")
        ));
    }
    if kind.name == "workloadIdentity" {
        fields.insert("token".to_owned(), json!({"file": TOKEN_FILE}));
        comments.push(format!(
            "Mount the service account's token for this audience as the file {TOKEN_FILE} in the folder of --provider-files, or \
             beside this document"
        ));
    }
    fields
}

#[cfg(test)]
mod tests {
    use pileus_gate::Endpoint;

    use super::*;

    fn asks(tls: bool, host: &str, kind: &str, values: &[(&str, &str)]) -> RequestedEndpoint {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RequestedEndpoint {
            endpoint: Endpoint::new(tls, host.parse().unwrap(), None),
            reason: "to test".to_owned(),
            credential: Some(CredentialHint { kind: kind.to_owned(), values }),
        }
    }

    fn values(endpoints: &[RequestedEndpoint]) -> Vec<Value> {
        credentials(endpoints, "cloud").into_iter().filter_map(|drafted| drafted.value).collect()
    }

    #[test]
    fn a_hint_becomes_a_reference_to_a_secret_and_its_own_values_are_never_secret() {
        let [value] = &values(&[asks(true, "a.example", "bearer", &[("token", "hunter2")])])[..] else {
            panic!("one credential")
        };
        let token = json!({"secret": {"name": "cloud", "key": "token"}});
        assert_eq!(*value, json!({"name": "bearer", "hosts": ["a.example"], "bearer": {"token": token}}));
        let client = [
            ("tokenURL", "https://login.example/t"),
            ("clientID", "id"),
            ("resource", "all"),
            ("secret", "hunter2"),
        ];
        let value = &values(&[asks(true, "a.example", "clientSecret", &client)])[0]["clientSecret"];
        let secret = json!({"secret": {"name": "cloud", "key": "client-secret"}});
        let expected = json!({"tokenURL": "https://login.example/t", "clientID": "id", "resource": "all", "secret": secret});
        assert_eq!(*value, expected);
    }

    #[test]
    fn hosts_share_a_hint_and_those_of_a_pattern_come_last() {
        let (one, other) = ([("name", "X-One")], [("name", "X-Two")]);
        let found = values(&[
            asks(true, "*.example", "header", &one),
            asks(true, "b.test", "header", &other),
            asks(false, "c.test", "header", &other),
            asks(true, "b.test", "header", &other),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (&it["name"], &it["hosts"], &it["header"]["value"]["secret"]["name"], &it["plain"]))
            .collect();
        assert_eq!(
            shown,
            [
                (&json!("header"), &json!(["b.test", "c.test"]), &json!("cloud"), &json!(true)),
                (&json!("header-2"), &json!(["*.example"]), &json!("cloud-header-2"), &Value::Null),
            ]
        );
    }

    #[test]
    fn what_a_hint_lacks_is_a_placeholder_that_the_comment_names() {
        for (kind, lacks) in [
            ("clientSecret", "Replace tokenURL, clientID, scope."),
            ("workloadIdentity", "Replace tokenURL, clientID, scope."),
            ("managedIdentity", "Replace endpoint, resource."),
            ("awsSigV4", "Replace region, service."),
        ] {
            let [drafted] = &credentials(&[asks(true, "a.example", kind, &[])], "cloud")[..] else {
                panic!("one credential")
            };
            assert_eq!(drafted.comments[0], lacks, "{kind}");
        }
        let [unknown] = &credentials(&[asks(true, "a.example", "kerberos", &[])], "cloud")[..] else {
            panic!("one credential")
        };
        assert!(unknown.value.is_none() && unknown.comments[0].contains("\"kerberos\""), "{unknown:?}");
    }
}
