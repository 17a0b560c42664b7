//! Good and bad CloudProvider documents, as changes to a good one: the API server with `deploy/crd.yaml` and the program's reader
//! have to agree about each.

use serde_json::{Value, json};

/// Which readers accept a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Accepted,
    Refused,
    /// Accepted as a file of the operator.
    RefusedInCluster,
    /// Accepted by the API server, and by a program with the feature `keyless`.
    NeedsKeyless,
}

use Expected::{Accepted, NeedsKeyless, Refused, RefusedInCluster};

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Nothing is signed with these keys.
const KEYS: [&str; 2] = [
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAHb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
];

/// The document to which the rows are changes.
pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "pileus.dev/v1alpha1",
        "kind": "CloudProvider",
        "metadata": {"name": "cloud"},
        "spec": {
            "source": {"image": "registry.example.com/pileus/cloud:1.2"},
            "trust": {"insecure": true},
            "grants": [{"host": "*.cloud.example"}],
        },
    })
}

/// The documents of all rows: what is changed, the document, and who accepts it.
pub(crate) fn documents() -> Vec<(String, Value, Expected)> {
    let row = |(change, expected): &(&str, Expected)| {
        let text = change
            .replace("DIGEST", DIGEST)
            .replace("KEY0", &quoted(KEYS[0]))
            .replace("KEY1", &quoted(KEYS[1]));
        let text = text.replace("TOKEN", "{secret: {name: cloud, key: token}}");
        let patch: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut document = base();
        merge(&mut document, &patch);
        ((*change).to_owned(), document, *expected)
    };
    ROWS.iter().map(row).collect()
}

/// As a text of YAML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Applies a JSON merge patch: null removes a field.
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert_with(|| json!({})), change);
        }
    }
}

const ROWS: &[(&str, Expected)] = &[
    ("{}", Accepted),
    // Names.
    ("{metadata: {name: hetzner-2}}", Accepted),
    ("{metadata: {name: my.cloud}}", Refused),
    ("{metadata: {name: My-Cloud}}", Refused),
    ("{metadata: {name: cloud-}}", Refused),
    ("{spec: null}", Refused),
    ("{spec: {sources: {}}}", Refused),
    // The source.
    ("{spec: {source: {image: null}}}", Refused),
    ("{spec: {source: {image: null, file: cloud.wasm}}}", RefusedInCluster),
    ("{spec: {source: {file: cloud.wasm}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com/cloud@DIGEST'}}}", Accepted),
    ("{spec: {source: {image: 'oci://localhost:5000/cloud:v1@DIGEST'}}}", Accepted),
    ("{spec: {source: {image: 'localhost/a/b__c-d.e:A_b.c-d'}}}", Accepted),
    ("{spec: {source: {image: '[::1]:5000/cloud:1'}}}", Accepted),
    ("{spec: {source: {image: registry.example.com/cloud}}}", Refused),
    ("{spec: {source: {image: 'localhost:5000/cloud'}}}", Refused),
    ("{spec: {source: {image: 'cloud:1'}}}", Refused),
    ("{spec: {source: {image: 'example/cloud:1'}}}", Refused),
    ("{spec: {source: {image: 'https://registry.example.com/cloud:1'}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com/Cloud:1'}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com/a/../b:1'}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com:99999/a:1'}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com/a:1@sha256:0'}}}", Refused),
    ("{spec: {source: {image: 7}}}", Refused),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '>=1.2, <2'}}}", Accepted),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '*'}}}", Accepted),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '~1.2.3-rc.1'}}}", Accepted),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '1.*'}}}", Accepted),
    ("{spec: {source: {image: registry.example.com/cloud, versions: ''}}}", Refused),
    ("{spec: {source: {image: registry.example.com/cloud, versions: latest}}}", Refused),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '>=1 <2'}}}", Refused),
    ("{spec: {source: {image: registry.example.com/cloud, versions: '01.2'}}}", Refused),
    ("{spec: {source: {versions: '>=1'}}}", Refused),
    ("{spec: {source: {image: 'registry.example.com/cloud@DIGEST', versions: '>=1'}}}", Refused),
    ("{spec: {source: {interval: 10s}}}", Accepted),
    ("{spec: {source: {interval: 1h30m}}}", Accepted),
    ("{spec: {source: {interval: 9s}}}", Refused),
    ("{spec: {source: {interval: 25h}}}", Refused),
    ("{spec: {source: {interval: 5 minutes}}}", Refused),
    ("{spec: {source: {interval: 60}}}", Refused),
    ("{spec: {source: {pullSecret: {name: regcred}}}}", Accepted),
    ("{spec: {source: {pullSecret: {}}}}", Refused),
    ("{spec: {source: {pullSecret: {name: Reg}}}}", Refused),
    ("{spec: {source: {pullSecret: {name: a, namespace: b}}}}", Refused),
    ("{spec: {source: {dockerConfig: config.json}}}", RefusedInCluster),
    ("{spec: {source: {dockerConfig: config.json, pullSecret: {name: a}}}}", Refused),
    (
        "{spec: {source: {registries: [{registry: 'registry.example.com:5000', plainHTTP: true, mirrors: [mirror.corp/ghcr, \
         'mirror.corp:1'], tokenHosts: [auth.corp], addresses: [10.0.0.0/8, 'fd00::1']}]}}}",
        Accepted,
    ),
    ("{spec: {source: {registries: [{registry: a.example}, {registry: b.example}]}}}", Accepted),
    ("{spec: {source: {registries: [{registry: a.example}, {registry: a.example}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: A.example}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: example}]}}}", Refused),
    ("{spec: {source: {registries: [{}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: a.example, mirrors: [mirror]}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: a.example, tokenHosts: ['auth.corp:1']}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: a.example, addresses: [10.0.0.0/33]}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: a.example, plainHTTP: 'yes'}]}}}", Refused),
    ("{spec: {source: {registries: [{registry: a.example, plainHttp: true}]}}}", Refused),
    // Trust.
    ("{spec: {trust: null}}", Refused),
    ("{spec: {trust: {insecure: false}}}", Refused),
    ("{spec: {trust: null, source: {image: 'registry.example.com/cloud@DIGEST'}}}", Accepted),
    ("{spec: {trust: {insecure: null, digest: 'DIGEST'}}}", Accepted),
    (
        "{spec: {trust: {insecure: null, digest: 'DIGEST'}, source: {image: 'registry.example.com/cloud@DIGEST'}}}",
        Accepted,
    ),
    (
        "{spec: {trust: {insecure: null, digest: \
         'sha256:0000000000000000000000000000000000000000000000000000000000000000'}, source: {image: \
         'registry.example.com/cloud@DIGEST'}}}",
        Refused,
    ),
    ("{spec: {trust: {insecure: null, digest: 'sha256:0'}}}", Refused),
    ("{spec: {trust: {digest: 'DIGEST'}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}]}}}", Accepted),
    (
        "{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0, expires: '2027-01-01T00:00:00Z'}]}}}",
        Accepted,
    ),
    (
        "{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}, {name: b, key: KEY1}], threshold: 2}}}",
        Accepted,
    ),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}], layouts: [tag]}}}", Accepted),
    ("{spec: {trust: {keys: [{name: a, key: KEY0}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: []}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}], threshold: 2}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}], threshold: 0}}}", Refused),
    ("{spec: {trust: {threshold: 2}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}, {name: a, key: KEY1}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}, {name: b, key: KEY0}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{key: KEY0}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: cosign.pub}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: '-----BEGIN EC PRIVATE KEY-----'}]}}}", Refused),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0, expires: '2027-01-01'}]}}}", Refused),
    (
        "{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0, expires: '2027-01-01T00:00:00+01:00'}]}}}",
        Refused,
    ),
    (
        "{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0, expires: '2027-02-30T00:00:00Z'}]}}}",
        Refused,
    ),
    ("{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}], layouts: []}}}", Refused),
    ("{spec: {trust: {layouts: [oci]}}}", Refused),
    ("{spec: {trust: {insecure: 'true'}}}", Refused),
    ("{spec: {trust: {key: a}}}", Refused),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subject: a@b.example}]}}}",
        NeedsKeyless,
    ),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subjectPattern: 'https://b/*'}]}}}",
        NeedsKeyless,
    ),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subject: a, trustedRoot: ../a}]}}}",
        Refused,
    ),
    (
        "{spec: {trust: {insecure: null, keys: [{name: a, key: KEY0}], threshold: 3, identities: \
         [{issuer: 'https://a', subject: a}, {issuer: 'https://b', subject: a}]}}}",
        NeedsKeyless,
    ),
    ("{spec: {trust: {identities: [{issuer: 'https://a', subject: a}]}}}", Refused),
    ("{spec: {trust: {insecure: null, identities: []}}}", Refused),
    ("{spec: {trust: {insecure: null, identities: [{subject: a}]}}}", Refused),
    ("{spec: {trust: {insecure: null, identities: [{issuer: 'https://a'}]}}}", Refused),
    ("{spec: {trust: {insecure: null, identities: [{issuer: ' ', subject: a}]}}}", Refused),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subject: a, subjectPattern: 'a*'}]}}}",
        Refused,
    ),
    ("{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subjectPattern: a}]}}}", Refused),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subjectPattern: '*@*'}]}}}",
        Refused,
    ),
    (
        "{spec: {trust: {insecure: null, threshold: 2, identities: [{issuer: 'https://a', subject: a}]}}}",
        Refused,
    ),
    (
        "{spec: {trust: {insecure: null, layouts: [tag], identities: [{issuer: 'https://a', subject: a}]}}}",
        Refused,
    ),
    (
        "{spec: {trust: {insecure: null, identities: [{issuer: 'https://a', subject: a}, \
         {issuer: 'https://a', subject: a}]}}}",
        Refused,
    ),
    // Swaps.
    ("{spec: {swap: {}}}", Accepted),
    (
        "{spec: {swap: {window: {opens: '22:00', lasts: 4h}, onDifference: {lookups: Proceed, writes: Hold}, canary: {share: 0, \
         duration: 0s}, observe: 24h, drain: 1s}}}",
        Accepted,
    ),
    ("{spec: {swap: {window: {opens: '22:00'}}}}", Refused),
    ("{spec: {swap: {window: {opens: '24:00', lasts: 1h}}}}", Refused),
    ("{spec: {swap: {window: {opens: '2:00', lasts: 1h}}}}", Refused),
    ("{spec: {swap: {window: {opens: '22:00', lasts: 90s}}}}", Refused),
    ("{spec: {swap: {window: {opens: '22:00', lasts: 25h}}}}", Refused),
    ("{spec: {swap: {onDifference: {lookups: hold}}}}", Refused),
    ("{spec: {swap: {onDifference: {routes: Hold}}}}", Refused),
    ("{spec: {swap: {canary: {share: 101}}}}", Refused),
    ("{spec: {swap: {canary: {share: 1.5}}}}", Refused),
    ("{spec: {swap: {canary: {share: '10'}}}}", Refused),
    ("{spec: {swap: {canary: {duration: 25h}}}}", Refused),
    ("{spec: {swap: {observe: 25h}}}", Refused),
    ("{spec: {swap: {drain: 0s}}}", Refused),
    ("{spec: {swap: {interval: 1m}}}", Refused),
    // Configuration.
    ("{spec: {configuration: {endpoint: 'http://a', list: [1, {a: null}], nested: {any: 1.5}}}}", Accepted),
    ("{spec: {configuration: [1]}}", Refused),
    ("{spec: {configuration: text}}", Refused),
    // Grants.
    (
        "{spec: {grants: [{host: 10.0.0.5, port: 8080, tls: false, methods: [GET], paths: [/v1/, /], addresses: [10.0.0.0/8, \
         '::1']}]}}",
        Accepted,
    ),
    (
        "{spec: {grants: [{host: 'API.example.com.'}, {host: '::1'}, {host: '[fd00::1]'}, {host: bücher.example}]}}",
        Accepted,
    ),
    ("{spec: {grants: [{host: a.example, methods: [], paths: []}]}}", Accepted),
    ("{spec: {grants: [{}]}}", Refused),
    ("{spec: {grants: {}}}", Refused),
    ("{spec: {grants: [{host: 'https://a.example'}]}}", Refused),
    ("{spec: {grants: [{host: 'a.example:443'}]}}", Refused),
    ("{spec: {grants: [{host: 'a.*.example'}]}}", Refused),
    ("{spec: {grants: [{host: '*'}]}}", Refused),
    ("{spec: {grants: [{host: ''}]}}", Refused),
    ("{spec: {grants: [{host: a.example, port: 0}]}}", Refused),
    ("{spec: {grants: [{host: a.example, port: 65536}]}}", Refused),
    ("{spec: {grants: [{host: a.example, tls: 'no'}]}}", Refused),
    ("{spec: {grants: [{host: a.example, methods: [get]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, methods: GET}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [v1]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [/v1/*]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: ['/v1?a=b']}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [/a/../b]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [/a/%2e%2E/b]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [/a%2]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: [//a]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, paths: ['/a b']}]}}", Refused),
    ("{spec: {grants: [{host: a.example, addresses: [a]}]}}", Refused),
    ("{spec: {grants: [{host: a.example, hosts: b}]}}", Refused),
    // Limits.
    ("{spec: {limits: {reads: {burst: 100, perSecond: 2.5}, 'vm/{1}': {burst: 1, perSecond: 1}}}}", Accepted),
    ("{spec: {limits: {all: {burst: 5, perSecond: 1, match: {}}}}}", Accepted),
    (
        "{spec: {limits: {changes: {burst: 5, perSecond: 1, match: {requests: writes, host: '*.example', path: /v1/*/x/**}}}}}",
        Accepted,
    ),
    ("{spec: {limits: {reads: {burst: 0, perSecond: 1}}}}", Refused),
    ("{spec: {limits: {reads: {burst: 1.5, perSecond: 1}}}}", Refused),
    ("{spec: {limits: {reads: {burst: 1, perSecond: 0}}}}", Refused),
    ("{spec: {limits: {reads: {burst: 1, perSecond: fast}}}}", Refused),
    ("{spec: {limits: {reads: {burst: 1}}}}", Refused),
    ("{spec: {limits: {reads: 5}}}", Refused),
    ("{spec: {limits: {'vm/{': {burst: 1, perSecond: 1}}}}", Refused),
    ("{spec: {limits: {'vm/{0}': {burst: 1, perSecond: 1}}}}", Refused),
    ("{spec: {limits: {'vm/{1}': {burst: 1, perSecond: 1, match: {}}}}}", Refused),
    ("{spec: {limits: {a: {burst: 1, perSecond: 1, match: {requests: some}}}}}", Refused),
    ("{spec: {limits: {a: {burst: 1, perSecond: 1, match: {path: /v1/a*}}}}}", Refused),
    ("{spec: {limits: {a: {burst: 1, perSecond: 1, match: {path: /**/a}}}}}", Refused),
    // Credentials.
    ("{spec: {credentials: [{name: main, hosts: [api.cloud.example], bearer: {token: TOKEN}}]}}", Accepted),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], paths: [/v1], basic: {username: u, password: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], header: {name: X-Auth-Token, value: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientSecret: {tokenURL: 'https://login.example/t', clientID: c, \
         scope: s, secret: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientCertificate: {tokenURL: 'https://login.example/t', \
         clientID: c, resource: s, certificate: TOKEN, key: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], workloadIdentity: {tokenURL: 'https://login.example/t', \
         clientID: c, scope: s, token: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], managedIdentity: {endpoint: \
         'http://169.254.169.254/metadata/identity/oauth2/token', resource: r, clientID: c}}]}}",
        Accepted,
    ),
    (
        "{spec: {grants: [{host: 169.254.169.254, tls: false, addresses: [169.254.169.254/32]}], credentials: [{name: a, hosts: \
         [169.254.169.254], metadata: {flavor: azure}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], awsSigV4: {region: eu-central-1, service: ec2, accessKeyID: \
         TOKEN, secretAccessKey: TOKEN, sessionToken: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], auxiliary: [b], bearer: {token: TOKEN}}, {name: b, bearer: \
         {token: TOKEN}}]}}",
        Accepted,
    ),
    ("{spec: {credentials: [{hosts: [a.cloud.example], bearer: {token: TOKEN}}]}}", Refused),
    ("{spec: {credentials: [{name: A, hosts: [a.cloud.example], bearer: {token: TOKEN}}]}}", Refused),
    ("{spec: {credentials: [{name: a, bearer: {token: TOKEN}}]}}", Refused),
    ("{spec: {credentials: [{name: a, hosts: [a.cloud.example]}]}}", Refused),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: TOKEN}, basic: {username: u, password: TOKEN}}]}}",
        Refused,
    ),
    ("{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: hunter2}}]}}", Refused),
    ("{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {env: CLOUD}}}]}}", Refused),
    ("{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {}}}]}}", Refused),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {file: a, secret: {name: a, key: b}}}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {file: ../token}}}]}}",
        RefusedInCluster,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {secret: {name: a}}}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {secret: {name: A, key: b}}}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: {secret: {name: a, key: b, namespace: \
         kube-system}}}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], basic: {username: 'u:p', password: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], header: {name: 'X: y', value: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], header: {name: Host, value: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], header: {name: Proxy-X, value: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientSecret: {tokenURL: 'http://login.example/t', clientID: c, \
         scope: s, secret: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], plain: true, clientSecret: {tokenURL: 'http://login.example/t', \
         clientID: c, scope: s, secret: TOKEN}}]}}",
        Accepted,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientSecret: {tokenURL: 'https://u@login.example/t', clientID: \
         c, scope: s, secret: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientSecret: {tokenURL: 'https://login.example/t', clientID: c, \
         secret: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], clientSecret: {tokenURL: 'https://login.example/t', clientID: c, \
         scope: s, resource: r, secret: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], managedIdentity: {endpoint: 'http://login.example/t', resource: \
         r}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], managedIdentity: {endpoint: 'http://169.254.169.254/t', resource: \
         r, clientID: c, objectID: o}}]}}",
        Refused,
    ),
    ("{spec: {credentials: [{name: a, hosts: [a.cloud.example], metadata: {flavor: azure}}]}}", Refused),
    (
        "{spec: {grants: [{host: 169.254.169.254, tls: false}], credentials: [{name: a, hosts: [169.254.169.254], metadata: {flavor: \
         oracle}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], awsSigV4: {region: 'eu central', service: ec2, accessKeyID: TOKEN, \
         secretAccessKey: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], bearer: {token: TOKEN}}, {name: a, hosts: [b.cloud.example], \
         bearer: {token: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], auxiliary: [b], bearer: {token: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], auxiliary: [a], bearer: {token: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {credentials: [{name: a, hosts: [a.cloud.example], auxiliary: [b], bearer: {token: TOKEN}}, {name: b, basic: \
         {username: u, password: TOKEN}}]}}",
        Refused,
    ),
    (
        "{spec: {grants: [{host: a.cloud.example, tls: false}], credentials: [{name: a, hosts: [a.cloud.example], plain: true, \
         auxiliary: [b], bearer: {token: TOKEN}}, {name: b, bearer: {token: TOKEN}}]}}",
        Refused,
    ),
    // The connection.
    (
        "{spec: {connection: {proxy: {url: 'http://proxy.corp:3128', username: pileus, password: TOKEN, addresses: [10.0.0.0/8]}}}}",
        Accepted,
    ),
    ("{spec: {connection: {}}}", Accepted),
    ("{spec: {connection: {caBundle: ''}}}", Refused),
    ("{spec: {connection: {caBundle: a/../../b}}}", RefusedInCluster),
    ("{spec: {connection: {proxy: {url: 'https://proxy.corp'}}}}", Refused),
    ("{spec: {connection: {proxy: {url: 'http://u@proxy.corp'}}}}", Refused),
    ("{spec: {connection: {proxy: {url: 'http://proxy.corp/path'}}}}", Refused),
    ("{spec: {connection: {proxy: {url: 'http://proxy.corp', username: a}}}}", Refused),
    ("{spec: {connection: {proxy: {url: 'http://proxy.corp', username: 'a:b', password: TOKEN}}}}", Refused),
    ("{spec: {connection: {proxy: {url: 'http://proxy.corp', username: a, password: hunter2}}}}", Refused),
    ("{spec: {connection: {proxy: {}}}}", Refused),
    ("{spec: {connection: {socks: a}}}", Refused),
    // Identity, deadlines, resources.
    ("{spec: {identity: {project: p-1, a.b_c-D: 'x y'}}}", Accepted),
    ("{spec: {identity: {'a b': x}}}", Refused),
    ("{spec: {identity: {project: ' '}}}", Refused),
    ("{spec: {identity: {project: 7}}}", Refused),
    ("{spec: {identity: {project: \"a\\nb\"}}}", Refused),
    ("{spec: {identity: [project]}}", Refused),
    ("{spec: {deadlines: {lookup: {soft: 40s, hard: 1m30s}, routes: {}}}}", Accepted),
    ("{spec: {deadlines: {lookup: {soft: 20s}}}}", Refused),
    ("{spec: {deadlines: {lookup: {hard: 5s}}}}", Refused),
    ("{spec: {deadlines: {loadBalancers: {soft: 59500ms}}}}", Refused),
    ("{spec: {deadlines: {routes: {hard: 6m}}}}", Refused),
    ("{spec: {deadlines: {routes: {soft: 500ms}}}}", Refused),
    ("{spec: {deadlines: {routes: {soft: 5}}}}", Refused),
    ("{spec: {deadlines: {lookups: {}}}}", Refused),
    ("{spec: {resources: {memory: 256Mi}}}", Accepted),
    ("{spec: {resources: {memory: 67108864}}}", Accepted),
    ("{spec: {resources: {memory: 0.1G}}}", Accepted),
    ("{spec: {resources: {memory: 257Mi}}}", Refused),
    ("{spec: {resources: {memory: 64}}}", Refused),
    ("{spec: {resources: {memory: 64MB}}}", Refused),
    ("{spec: {resources: {memory: true}}}", Refused),
    ("{spec: {resources: {cpu: 1}}}", Refused),
    // What it serves.
    ("{spec: {loadBalancerClasses: [internal-vip, example.com/Internal_1.0], default: false}}", Accepted),
    ("{spec: {loadBalancerClasses: ['']}}", Refused),
    ("{spec: {loadBalancerClasses: [a/b/c]}}", Refused),
    ("{spec: {loadBalancerClasses: [Example.com/a]}}", Refused),
    ("{spec: {loadBalancerClasses: [-a]}}", Refused),
    ("{spec: {loadBalancerClasses: [5]}}", Refused),
    ("{spec: {default: 'yes'}}", Refused),
    (
        "{spec: {nodeSelector: {matchLabels: {example.com/pool: web, zone: ''}, matchExpressions: [{key: a, operator: In, values: [b, \
         '']}, {key: c, operator: DoesNotExist}, {key: d, operator: Exists, values: []}]}}}",
        Accepted,
    ),
    ("{spec: {nodeSelector: {}}}", Accepted),
    ("{spec: {nodeSelector: {pool: web}}}", Refused),
    ("{spec: {nodeSelector: {matchLabels: {'a,b': web}}}}", Refused),
    ("{spec: {nodeSelector: {matchLabels: {Example.com/a: web}}}}", Refused),
    ("{spec: {nodeSelector: {matchLabels: {a: 'b c'}}}}", Refused),
    ("{spec: {nodeSelector: {matchLabels: {a: 1}}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{key: a, operator: In}]}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{operator: Exists}]}}}", Refused),
    ("{spec: {nodeSelector: {matchExpressions: [{key: -a, operator: Exists}]}}}", Refused),
];
