//! The CloudProvider document: which component runs, its configuration, grants, limits and credentials. It is a file of the
//! operator, or a resource of the API server with the same `spec`.
//!
//! ```yaml
//! apiVersion: pileus.dev/v1alpha1
//! kind: CloudProvider
//! metadata:
//!   name: simulated
//! spec:
//!   source:                             # exactly one of file and image
//!     file: simulated_provider.wasm     # relative to this document, or an absolute path
//!     # image: registry.example.com/pileus/hetzner:1.2   # with a tag, a digest, or both; without both only with `versions`
//!     # versions: ">=1.2, <2"           # follow the highest tag that is a semantic version in this range
//!     # pullSecret: {name: regcred}     # of type kubernetes.io/dockerconfigjson, in the namespace of Pileus
//!     # dockerConfig: /etc/pileus/config.json   # or a Docker configuration
//!     # registries:                     # how to reach registries that need it
//!     #   - registry: registry.example.com
//!     #     plainHTTP: false
//!     #     caBundle: registry.pem
//!     #     mirrors: [mirror.corp/ghcr]
//!     #     tokenHosts: []
//!     #     addresses: []               # private ranges to which it may lead
//!     interval: 5m                      # how often a tag, a range or a file is looked at, from 10s to 24h
//!   trust:                              # what makes the component trusted; an image by a tag needs keys, or a digest
//!     digest: sha256:…                  # the only one that is accepted
//!     # keys:                           # of cosign: P-256 or Ed25519
//!     #   - {name: release, key: "-----BEGIN PUBLIC KEY-----…", expires: 2027-01-01T00:00:00Z}
//!     # threshold: 1                    # how many of the keys must have signed
//!     # layouts: [bundle, tag]          # where signatures count
//!     # insecure: false                 # true: accept what the registry serves
//!   swap:                               # how to move to another release
//!     window: {opens: "22:00", lasts: 4h}          # when a swap may begin, in UTC; default always
//!     onDifference: {lookups: Hold, writes: Hold}  # what a difference in the dry run does: Hold or Proceed
//!     canary: {share: 10, duration: 1m}            # percentage of nodes whose lookups go first to the new release
//!     observe: 10m                      # how long the new release is compared with the one before
//!     drain: 2m                         # how long calls of a replaced release may take
//!   nodeSelector:                       # the Nodes without a provider ID that it serves; default all
//!     matchLabels: {cloud: simulated}
//!   default: true                       # serve Services without a class
//!   configuration:                      # of the provider; `pileus inspect` shows its schema
//!     endpoint: http://127.0.0.1:8080
//!   grants:                             # the only hosts that it may reach
//!     - host: 127.0.0.1
//!       port: 8080                      # default 443, or 80 without tls
//!       tls: false                      # default true
//!       methods: [GET]                  # default all
//!       paths: [/v1/]                   # default all
//!       addresses: [127.0.0.0/8]        # required for loopback and private addresses
//!   limits:                             # of requests that leave
//!     reads:                            # by a key of the provider's rules: a lower limit than it declares
//!       burst: 100                      # tokens that may be saved up
//!       perSecond: 2.5                  # refill rate
//!     all-changes:                      # by a match: regardless of the provider
//!       burst: 10
//!       perSecond: 1
//!       match:
//!         requests: writes              # all, reads or writes; default all
//!         host: api.example.com         # default all
//!         path: /v1/**                  # default all; without regard to case
//!   credentials:                        # attached to requests; the provider never sees them
//!     - name: main
//!       hosts: [management.azure.com]   # attached to requests to these hosts, over TLS
//!       plain: false                    # true: also without TLS, also to fetch the token
//!       addresses: []                   # addresses of the token endpoint that aren't public, as in grants
//!       clientSecret:                   # exactly one kind; secret values are {file: …} or {secret: {name, key}}
//!         tokenURL: https://login.microsoftonline.com/TENANT/oauth2/v2.0/token
//!         clientID: ID
//!         scope: https://management.azure.com/.default
//!         secret: {file: /etc/pileus/secret}
//!       # clientCertificate: {tokenURL, clientID, scope, certificate: {file}, key: {file}}
//!       # workloadIdentity:  {tokenURL, clientID, scope, token: {file}}
//!       # managedIdentity:   {endpoint, resource, clientID}
//!       # bearer:            {token: {secret: {name: cloud, key: token}}}
//!       # basic:             {username, password: {file}}
//!       # header:            {name: X-Auth-Token, value: {file}}
//!       # awsSigV4:          {region, service, accessKeyID: {file}, secretAccessKey: {file}, sessionToken: {file}}
//!   identity:                           # public facts that the provider may read, by name
//!     subscription: 00000000-0000-0000-0000-000000000000
//!   connection:                         # how to connect to the cloud
//!     caBundle: /etc/ssl/corporate.pem  # certificates to trust besides the system's
//!     proxy: {url: http://proxy.corp:3128, username: pileus, password: {file: /etc/pileus/proxy}, addresses: [10.0.0.0/8]}
//!   deadlines:                          # of calls to the provider, from 1s to 5m; these are the defaults
//!     lookup: {soft: 10s, hard: 20s}    # of instances, and lists of routes and load balancers
//!     routes: {soft: 20s, hard: 60s}    # changes
//!     loadBalancers: {soft: 5s, hard: 60s}
//!   resources:                          # of each call to the provider
//!     memory: 64Mi                      # from 16Mi to 256Mi; this is the default
//!   loadBalancerClasses:                # serve Services of these classes
//!     - example.com/internal
//! ```
//!
//! Parsing is strict: an unknown field is an error, because it could be a misspelled grant or limit that the operator
//! relies on. All errors are reported at once.

mod connection;
mod credentials;
mod deadlines;
#[cfg(test)]
mod examples;
mod fields;
mod grants;
mod identity;
mod limits;
mod origin;
mod release;
mod resources;
#[cfg(test)]
#[path = "../tests/cluster/crd/rows.rs"]
mod rows;
pub(crate) mod schema;
mod selector;
mod settings;
mod source;
mod swap;
mod syntax;
mod trust;
mod value_kind;

use std::collections::BTreeMap;
use std::path::Path;

use pileus_controllers::facts::service::NodeSelector;
use pileus_gate::{Connection, Credential, Grant, Limit, Problem};
use pileus_host::Limits;
use pileus_host::swap::Policy;
use pileus_loader::TrustPolicy;
use serde_json::Value;

use crate::error::Error;
use crate::secrets::Secrets;
use fields::Fields;
use origin::Origin;
use syntax::{cidr, class, first_line, name, non_empty, parsed};

pub(crate) use origin::{ClusterOrigin, DocumentOrigin};
pub(crate) use settings::Settings;
pub(crate) use source::{Image, ImageSource, Source};

/// The version of the document that this program reads.
pub(crate) const API_VERSION: &str = "pileus.dev/v1alpha1";

/// A CloudProvider document.
#[derive(Debug)]
pub(crate) struct CloudProvider {
    /// The operator's name for the provider.
    pub(crate) name: String,
    /// Where the component comes from.
    pub(crate) source: Source,
    /// What makes the component trusted.
    pub(crate) trust: TrustPolicy,
    /// How to move to another release.
    pub(crate) swap: Policy,
    /// What changes how the component runs, and not which one or when.
    pub(crate) settings: Settings,
    /// The Nodes without a provider ID that it serves.
    pub(crate) node_selector: NodeSelector,
    /// Whether it serves Services without a class.
    pub(crate) is_default: bool,
    /// The provider's configuration, JSON text.
    pub(crate) configuration: String,
    /// What the provider may reach.
    pub(crate) grants: Vec<Grant>,
    /// The operator's limits: lower ones than the provider declares, and those with a match of their own.
    pub(crate) limits: Vec<Limit>,
    /// The credentials that the gate attaches to requests.
    pub(crate) credentials: Vec<Credential>,
    /// Public facts about the identity under which requests are sent, by name. The provider may read them.
    pub(crate) identity: BTreeMap<String, String>,
    /// How to connect to the cloud.
    pub(crate) connection: Connection,
    /// The load balancer classes that it serves.
    pub(crate) classes: Vec<String>,
    /// What a call to the provider may use, with the document's deadlines and memory.
    pub(crate) call_limits: Limits,
}

impl CloudProvider {
    /// Reads a document from a file. Relative paths in it are relative to the document; `secrets` resolves references to
    /// Kubernetes Secrets.
    ///
    /// # Errors
    /// [`Error::DocumentUnreadable`], [`Error::Document`].
    pub(crate) fn read(path: &Path, secrets: &Secrets) -> Result<Self, Error> {
        let unreadable = |source| Error::DocumentUnreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let origin = Origin::File { folder, secrets };
        Self::parse(&text, &origin).map_err(|problems| Error::Document { path: path.to_owned(), problems })
    }

    /// Reads a resource of the API server, whose metadata and status are not part of the document.
    ///
    /// # Errors
    /// All problems of the document.
    pub(crate) fn from_resource(resource: &Value, origin: &ClusterOrigin) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut document = Fields::of("", Some(resource), &mut problems);
        let name = document.object("metadata").required("name", name);
        let read = Self::spec(&mut document, resource.get("spec"), name, &Origin::Cluster(origin));
        read.filter(|_| problems.is_empty()).map(Self::pinned).ok_or(problems)
    }

    /// Parses a document that no file holds yet. Its relative paths stay relative.
    ///
    /// # Errors
    /// All problems of the document.
    pub(crate) fn from_draft(text: &str) -> Result<Self, Vec<Problem>> {
        Self::parse(text, &Origin::File { folder: Path::new(""), secrets: &Secrets::default() })
    }

    /// Parses a document.
    ///
    /// # Errors
    /// All problems of the document.
    fn parse(text: &str, origin: &Origin<'_>) -> Result<Self, Vec<Problem>> {
        let value: Value = serde_saphyr::from_str(text)
            .map_err(|error| vec![Problem::at("", format!("invalid YAML: {}", first_line(&error)))])?;
        let mut problems = Vec::new();
        let mut document = Fields::of("", Some(&value), &mut problems);
        document.constant("apiVersion", API_VERSION);
        document.constant("kind", "CloudProvider");
        let mut metadata = document.object("metadata");
        let name = metadata.required("name", name);
        metadata.end();
        let read = Self::spec(&mut document, value.get("spec"), name, origin);
        document.end();
        read.filter(|_| problems.is_empty()).map(Self::pinned).ok_or(problems)
    }

    /// The digest by which the operator pins an image makes it trusted.
    fn pinned(self) -> Self {
        match self.source.pinned() {
            Some(digest) => Self { trust: self.trust.pinned(digest), ..self },
            None => self,
        }
    }

    /// Reads the field `spec`, whose value is `written`. A result counts only if there are no problems. The digest of an image adds
    /// no trust here: it may be one that was found.
    fn spec(
        document: &mut Fields<'_>,
        written: Option<&Value>,
        name: Option<String>,
        origin: &Origin<'_>,
    ) -> Option<Self> {
        let mut spec = document.object("spec");
        let (source, interval) = source::source(&mut spec, origin);
        let trust = trust::trust(&mut spec, source.as_ref(), origin);
        let swap = swap::policy(&mut spec, interval);
        let configuration = spec.json_object("configuration");
        let before = spec.problems();
        let grants: Vec<_> =
            spec.objects("grants", |fields| grants::grant(fields, origin)).into_iter().flatten().collect();
        let grants_are_valid = spec.problems() == before;
        let limits = spec.named("limits", limits::limit).into_iter().flatten().collect();
        let before = spec.problems();
        let credentials = spec.objects("credentials", |fields| credentials::credential(fields, origin));
        let credentials: Vec<_> = credentials.into_iter().flatten().collect();
        // Invalid grants or credentials would cause misleading follow-up problems here.
        if spec.problems() == before {
            spec.report(pileus_gate::credential_problems(&credentials));
        }
        if grants_are_valid && spec.problems() == before {
            spec.report(credentials::problems(&credentials, &grants));
        }
        let connection = connection::connection(&mut spec, origin);
        let classes = spec.list("loadBalancerClasses", &[], class);
        let identity = identity::identity(&mut spec);
        let call_limits = Limits { memory: resources::memory(&mut spec), ..deadlines::deadlines(&mut spec) };
        let node_selector = selector::node_selector(&mut spec);
        let is_default = spec.boolean("default", true);
        spec.end();
        let source = source?;
        Some(Self {
            name: name?,
            settings: Settings::of(written.unwrap_or(&Value::Null), &source),
            source,
            trust,
            swap,
            node_selector,
            is_default,
            configuration,
            grants,
            limits,
            credentials,
            identity,
            connection,
            classes,
            call_limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_gate::{LimitScope, RequestKind};

    use super::*;

    const VALID: &str = "
apiVersion: pileus.dev/v1alpha1
kind: CloudProvider
metadata:
  name: simulated
spec:
  source:
    file: provider.wasm
  configuration:
    endpoint: http://127.0.0.1:8080
    nested: {list: [1, two, null]}
  grants:
    - host: 127.0.0.1
      port: 8080
      tls: false
      methods: [GET]
      paths: [/v1/]
      addresses: [127.0.0.0/8, '::1']
    - host: '*.example.com'
  limits:
    reads: {burst: 100, perSecond: 2.5}
    'vm/{1}': {burst: 3, perSecond: 1}
    all: {burst: 5, perSecond: 1, match: {}}
    changes: {burst: 5, perSecond: 1, match: {requests: writes, host: '*.example.org', path: /v1/*/x}}
  credentials:
    - name: main
      hosts: [api.example.com]
      bearer: {token: {file: token}}
  connection:
    caBundle: corporate.pem
    proxy: {url: http://proxy.corp:3128, username: pileus, password: {file: proxy}, addresses: [10.0.0.0/8]}
  loadBalancerClasses: [internal-vip, example.com/Internal_1.0]
";

    pub(super) fn parse(text: &str, folder: &str) -> Result<CloudProvider, Vec<Problem>> {
        let origin = Origin::File { folder: Path::new(folder), secrets: &Secrets::default() };
        CloudProvider::parse(text, &origin)
    }

    fn problems(text: &str) -> Vec<String> {
        parse(text, "/etc").unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_valid_document_is_read_with_its_defaults() {
        let document = parse(VALID, "/etc/pileus").unwrap();
        assert_eq!(document.name, "simulated");
        assert!(
            matches!(&document.source, Source::File(path) if path == Path::new("/etc/pileus/provider.wasm"))
        );
        assert_eq!(
            document.configuration,
            r#"{"endpoint":"http://127.0.0.1:8080","nested":{"list":[1,"two",null]}}"#
        );
        let [first, second] = document.grants.as_slice() else { panic!("two grants") };
        assert_eq!((first.tls, first.port, first.methods.len(), first.addresses.len()), (false, 8080, 1, 2));
        assert_eq!((second.tls, second.port, second.methods.len(), second.paths.len()), (true, 443, 1, 1));
        let matched = |name, scope| Limit::new(name, 5, 1.0).unwrap().of_requests(scope).unwrap();
        let changes = LimitScope {
            kind: RequestKind::Writes,
            host: Some("*.example.org".parse().unwrap()),
            path: Some("/v1/*/x".parse().unwrap()),
        };
        let limits = [
            matched("all", LimitScope::default()),
            matched("changes", changes),
            Limit::new("reads", 100, 2.5).unwrap(),
            Limit::new("vm/{1}", 3, 1.0).unwrap(),
        ];
        assert_eq!(document.limits, limits);
        let [credential] = document.credentials.as_slice() else { panic!("one credential") };
        assert_eq!(
            (credential.name.as_str(), credential.kind.label(), credential.plain),
            ("main", "bearer", false)
        );
        assert_eq!(document.classes, ["internal-vip", "example.com/Internal_1.0"]);
        let Connection { extra_roots, proxy } = document.connection;
        assert_eq!(extra_roots.as_deref(), Some(Path::new("/etc/pileus/corporate.pem")));
        let proxy = proxy.unwrap();
        assert_eq!((proxy.url.to_string().as_str(), proxy.addresses.len()), ("http://proxy.corp:3128", 1));
        assert!(proxy.login.is_some());
    }

    #[test]
    fn deadlines_have_defaults_and_are_in_order() {
        let read = |deadlines: &str| {
            let text = VALID.replace("  connection:", &format!("  deadlines: {deadlines}\n  connection:"));
            parse(&text, "")
                .map(|document| document.call_limits)
                .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        };
        let default = Limits::default();
        let seconds = Duration::from_secs;
        for (text, expected) in [
            ("{}", default.clone()),
            (
                "{lookup: {soft: 40s, hard: 1m30s}}",
                Limits { lookup_soft: seconds(40), lookup_hard: seconds(90), ..default.clone() },
            ),
            ("{lookup: {hard: 5m}}", Limits { lookup_hard: seconds(300), ..default.clone() }),
            (
                "{routes: {soft: 1s}, loadBalancers: {hard: 2m}}",
                Limits { change_soft: seconds(1), load_balancers_hard: seconds(120), ..default },
            ),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        let order = "the hard deadline of";
        for (text, expected) in [
            ("{lookup: {soft: 20s}}", "spec.deadlines.lookup: the hard deadline of 20 s must be"),
            ("{lookup: {hard: 5s}}", order),
            ("{loadBalancers: {soft: 59500ms}}", order),
            ("{routes: {hard: 6m}}", "spec.deadlines.routes.hard: 6m is out of range"),
            ("{routes: {soft: 0}}", "spec.deadlines.routes.soft: expected a string"),
            ("{routes: {soft: 500ms}}", "out of range; choose a deadline from 1s to 5m"),
            ("{routes: {soft: never}}", "invalid duration"),
            ("{lookups: {soft: 1s}}", "spec.deadlines.lookups: unknown field; known fields are"),
            ("{lookup: {softly: 1s}}", "spec.deadlines.lookup.softly: unknown field"),
            ("5s", "spec.deadlines: expected fields"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn only_the_source_is_required() {
        let text = VALID.split("  configuration:").next().unwrap();
        let document = parse(text, "").unwrap();
        let CloudProvider { configuration, grants, limits, credentials, connection, classes, .. } = document;
        assert_eq!((configuration.as_str(), grants.len(), limits.len()), ("{}", 0, 0));
        assert!(
            classes.is_empty()
                && credentials.is_empty()
                && connection.extra_roots.is_none()
                && connection.proxy.is_none()
        );
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_paths() {
        let text = "
apiVersion: pileus.dev/v2
metadata:
  name: My Provider
  labels: {}
spec:
  source: {url: x}
  configuration: [1]
  grants:
    - port: 70000
      tls: 'yes'
      methods: GET
      paths: [v1, 5]
      addresses: [10.0.0.0/99]
      hosts: a
    - 7
  limits:
    empty: {}
    reads: {burst: 0, perSecond: fast, per_second: 1}
    'vm/{0}': {burst: 1, perSecond: 1}
    writes: 5
  credentials:
    - {name: A, hosts: [], bearer: {token: hunter2}, basic: {}}
    - {name: a, host: a.example, plain: 1, addresses: x}
    - {hosts: ['*'], clientSecret: {tokenURL: 'http://login.example/t', scope: '', secret: {}}}
    - 5
  connection:
    caBundle: ''
    proxy: {url: https://proxy.corp, username: a, password: hunter2, addresses: [a], port: 1}
    socks: 1
  loadBalancerClasses: ['', a/b/c, Example.com/a, example.com/, -a, 5]
extra: 1
";
        assert_eq!(
            problems(text).iter().map(|line| line.split(": ").next().unwrap()).collect::<Vec<_>>(),
            [
                "apiVersion",
                "kind",
                "metadata.name",
                "metadata.labels",
                "spec.source",
                "spec.source.url",
                "spec.configuration",
                "spec.grants[0].tls",
                "spec.grants[0].host",
                "spec.grants[0].port",
                "spec.grants[0].methods",
                "spec.grants[0].paths[0]",
                "spec.grants[0].paths[1]",
                "spec.grants[0].addresses[0]",
                "spec.grants[0].hosts",
                "spec.grants[1]",
                "spec.limits.empty.burst",
                "spec.limits.empty.perSecond",
                "spec.limits.reads.burst",
                "spec.limits.reads.perSecond",
                "spec.limits.reads.per_second",
                "spec.limits.vm/{0}",
                "spec.limits.writes",
                "spec.credentials[0].name",
                "spec.credentials[0]",
                "spec.credentials[1].plain",
                "spec.credentials[1].addresses",
                "spec.credentials[1]",
                "spec.credentials[1].host",
                "spec.credentials[2].name",
                "spec.credentials[2].hosts[0]",
                "spec.credentials[2].clientSecret.clientID",
                "spec.credentials[2].clientSecret.scope",
                "spec.credentials[2].clientSecret.secret",
                "spec.credentials[3]",
                "spec.connection.caBundle",
                "spec.connection.proxy.url",
                "spec.connection.proxy.password",
                "spec.connection.proxy.addresses[0]",
                "spec.connection.proxy.port",
                "spec.connection.socks",
                "spec.loadBalancerClasses[0]",
                "spec.loadBalancerClasses[1]",
                "spec.loadBalancerClasses[2]",
                "spec.loadBalancerClasses[3]",
                "spec.loadBalancerClasses[4]",
                "spec.loadBalancerClasses[5]",
                "extra",
            ]
        );
    }

    #[test]
    fn a_proxy_login_is_complete_and_can_be_sent() {
        let proxy = "username: pileus, password: {file: proxy}";
        for (with, expected) in [
            ("username: pileus", "spec.connection.proxy.password: required field is missing"),
            ("password: {file: proxy}", "spec.connection.proxy.username: required field is missing"),
            ("username: 'a:b', password: {file: proxy}", "spec.connection.proxy.username: user name \"a\""),
        ] {
            let found = problems(&VALID.replace(proxy, with));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{with}: {found:#?}");
        }
    }

    #[test]
    fn facts_about_the_identity_and_the_memory_of_a_call_are_read() {
        let parsed = |more: &str| {
            parse(&format!("{VALID}{more}"), "/etc").map(|it| (it.identity, it.call_limits.memory))
        };
        assert_eq!(parsed("").unwrap(), (BTreeMap::new(), 64 << 20));
        let facts = [("project", "p-1"), ("subscription", "00-11")]
            .map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        let more = "  identity: {subscription: 00-11, project: p-1}\n  resources: {memory: 256Mi}\n";
        assert_eq!(parsed(more).unwrap(), (facts.into(), 256 << 20));
        let many: Vec<_> = (0..33).map(|number| format!("f{number}: x")).collect();
        let (long, many) = ("x".repeat(1025), many.join(", "));
        let quantity = "expected a quantity of bytes from 16Mi to 256Mi, found";
        for (more, expected) in [
            ("identity: {project: 7}", "spec.identity.project: expected a string, found a number"),
            ("identity: {'a b': x}", "spec.identity.a b: invalid name; use 1 to 63 letters"),
            ("identity: {project: ' '}", "spec.identity.project: expected a text of 1 to 1024 bytes"),
            (
                &format!("identity: {{project: {long}}}"),
                "spec.identity.project: expected a text of 1 to 1024 bytes",
            ),
            ("identity: {project: \"a\\nb\"}", "spec.identity.project: expected a text of 1 to 1024 bytes"),
            (&format!("identity: {{{many}}}"), "spec.identity: 33 facts; the limit is 32"),
            ("identity: [project]", "spec.identity: expected fields, found a list"),
            ("resources: {memory: 257Mi}", &format!("spec.resources.memory: {quantity} \"257Mi\"")),
            ("resources: {memory: 15Mi}", &format!("spec.resources.memory: {quantity} \"15Mi\"")),
            ("resources: {memory: 64MB}", &format!("spec.resources.memory: {quantity} \"64MB\"")),
            ("resources: {memory: 64}", &format!("spec.resources.memory: {quantity} 64")),
            ("resources: {cpu: 1}", "spec.resources.cpu: unknown field; known fields are memory"),
        ] {
            let found = problems(&format!("{VALID}  {more}\n"));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{more}: {found:#?}");
        }
    }

    #[test]
    fn a_provider_serves_all_nodes_and_services_without_a_class_unless_it_says_otherwise() {
        let parsed =
            |more: &str| parse(&format!("{VALID}{more}"), "").map(|it| (it.node_selector, it.is_default));
        let selector = |text: &str| NodeSelector::parse(text).unwrap();
        assert_eq!(parsed("").unwrap(), (selector(""), true));
        let more = "  nodeSelector: {matchLabels: {pool: web}, matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: \
                    spot, operator: DoesNotExist}]}\n  default: false\n";
        assert_eq!(parsed(more).unwrap(), (selector("pool=web,zone in (a,b),!spot"), false));
        for (more, expected) in [
            ("nodeSelector: {pool: web}", "spec.nodeSelector.pool: unknown field"),
            (
                "nodeSelector: {matchLabels: {'a,b': web}}",
                "spec.nodeSelector.matchLabels.a,b: \"a,b\" is not valid",
            ),
            ("nodeSelector: {matchLabels: {a: 1}}", "spec.nodeSelector.matchLabels.a: expected a string"),
            (
                "nodeSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
                "spec.nodeSelector.matchExpressions[0].operator: unknown operator \"in\"",
            ),
            (
                "nodeSelector: {matchExpressions: [{key: a, operator: In}]}",
                "spec.nodeSelector.matchExpressions[0]: the operator In needs values",
            ),
            ("default: 1", "spec.default: expected true or false"),
        ] {
            let found = problems(&format!("{VALID}  {more}\n"));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{more}: {found:#?}");
        }
    }

    #[test]
    fn a_resource_is_read_without_its_metadata_and_status() {
        let resource = serde_json::json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider",
            "metadata": {"name": "hetzner", "uid": "1", "generation": 3, "labels": {"a": "b"}, "managedFields": [{}]},
            "spec": {"source": {"image": "ghcr.io/a/b:1"}, "trust": {"insecure": true}},
            "status": {"paused": true},
        });
        let origin = ClusterOrigin::new(Secrets::default(), None, false).unwrap();
        let read = CloudProvider::from_resource(&resource, &origin).unwrap();
        assert_eq!((read.name.as_str(), read.configuration.as_str()), ("hetzner", "{}"));
        assert_eq!(read.settings, Settings::of(&resource["spec"], &read.source));
        let mut wrong = resource.clone();
        wrong["metadata"]["name"] = "hetzner.example".into();
        wrong["spec"]["grant"] = serde_json::json!([]);
        let found = CloudProvider::from_resource(&wrong, &origin).unwrap_err();
        let paths: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["metadata.name", "spec.grant"]);
    }

    /// A cluster test runs the same rows against the API server.
    #[test]
    fn documents_of_the_cluster_and_of_files_are_accepted_as_their_table_says() {
        use rows::Expected::{Accepted, NeedsKeyless, Refused, RefusedInCluster};
        let cluster = ClusterOrigin::new(Secrets::default(), None, true).unwrap();
        for (change, document, expected) in rows::documents() {
            let (in_cluster, as_file) = match expected {
                Accepted => (true, true),
                Refused => (false, false),
                RefusedInCluster => (false, true),
                NeedsKeyless => [cfg!(feature = "keyless"); 2].into(),
            };
            let of_cluster = CloudProvider::from_resource(&document, &cluster);
            assert_eq!(of_cluster.is_ok(), in_cluster, "{change}: {:?}", of_cluster.err());
            let of_file = parse(&document.to_string(), "/etc");
            assert_eq!(of_file.is_ok(), as_file, "{change}: {:?}", of_file.err());
        }
    }

    /// Each row changes one thing of the valid document.
    #[test]
    fn one_problem_is_one_clear_line() {
        for (from, to, expected) in [
            (
                "v1alpha1",
                "v1",
                "apiVersion: unknown value \"pileus.dev/v1\"; expected \"pileus.dev/v1alpha1\"",
            ),
            ("kind: CloudProvider", "kind: Pod", "kind: unknown value \"Pod\"; expected \"CloudProvider\""),
            ("name: simulated", "name: ''", "metadata.name: invalid name \"\""),
            ("file: provider.wasm", "file: 7", "spec.source.file: expected a string, found a number"),
            ("port: 8080", "port: 0", "spec.grants[0].port: expected a port from 1 to 65535, found 0"),
            ("port: 8080", "prot: 8080", "spec.grants[0].prot: unknown field"),
            ("tls: false", "tls: 1", "spec.grants[0].tls: expected true or false, found a number"),
            ("'*.example.com'", "'a.*.com'", "spec.grants[1].host: "),
            (
                "burst: 100",
                "burst: 0.5",
                "spec.limits.reads.burst: expected a whole number from 1 to 1000000, found 0.5",
            ),
            (
                "perSecond: 2.5",
                "perSecond: 0",
                "spec.limits.reads.perSecond: expected a number from 0.001 to 100000, found 0",
            ),
            ("burst: 100, ", "", "spec.limits.reads.burst: required field is missing"),
            (
                "[internal-vip, ",
                "[internal vip, ",
                "spec.loadBalancerClasses[0]: invalid load balancer class \"internal vip\"; write it as in example.com/",
            ),
            ("vm/{1}", "vm/{", "spec.limits.vm/{: key \"vm/{\" isn't valid"),
        ] {
            let found = problems(&VALID.replace(from, to));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{to}: {found:#?}");
        }
        for text in ["", "a: b: c", "- 1", "5", "a: 1\na: 2"] {
            assert!(!problems(text).is_empty(), "{text:?}");
        }
    }
}
