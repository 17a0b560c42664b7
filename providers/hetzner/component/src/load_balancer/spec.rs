//! What a Service asks for: pure, from its annotations, ports and targets.

use std::collections::{BTreeMap, BTreeSet};

use pileus_guest::http::NumericId;
use pileus_guest::{AddressKind, Error, Protocol, Service, ServiceCall, ServicePort, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::UID;
use crate::annotation::Options;
use crate::configuration::Defaults;
use crate::server::{is_dedicated, server_id};

/// The type of new load balancers, unless a Service or the operator names one.
const DEFAULT_TYPE: &str = "lb11";

/// How many targets a new load balancer gets at once: what the smallest type takes. Others follow one by one.
const FIRST_TARGETS: usize = 25;

/// What a Service asks for.
pub(crate) struct Spec<'a> {
    pub(super) options: Options<'a>,
    /// The name of a new load balancer, and of one that is taken over.
    pub(super) name: String,
    pub(super) network: Option<NumericId>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) listeners: Vec<Listener>,
    pub(super) targets: BTreeSet<Target>,
    pub(super) certificates: Vec<Certificate>,
    /// The protocols that the cloud lacks.
    pub(super) unsupported: BTreeSet<&'static str>,
}

/// What the API calls a service of a load balancer: a port that it listens on.
pub(crate) struct Listener {
    pub(super) port: u16,
    /// The fields that the Service sets. The cloud has defaults for others, which stay as they are.
    pub(super) body: Value,
    /// The same with the health check as hcloud-cloud-controller-manager writes it. It does as well, so it stays.
    pub(super) inherited: Value,
}

/// A target of a load balancer, as the API has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Target {
    Server {
        server: ServerNumber,
        #[serde(default)]
        use_private_ip: bool,
    },
    /// A dedicated server.
    Ip { ip: TargetIp },
    /// Servers by a label, which an operator has added.
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ServerNumber {
    id: NumericId,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TargetIp {
    ip: String,
}

/// A certificate that a Service names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certificate {
    Uploaded(String),
    /// The one that Hetzner manages for a Service: found by its UID, or created.
    Managed {
        uid: String,
        name: String,
        domains: Vec<String>,
        is_test: bool,
    },
}

impl<'a> Spec<'a> {
    pub(super) fn new(
        defaults: &'a Defaults,
        call: &ServiceCall,
        service: &'a Service,
        network: Option<NumericId>,
    ) -> Result<Self, Error> {
        let options = Options { service, defaults };
        let is_private = options.is("use-private-ip");
        if is_private && network.is_none() {
            return Err(Error::invalid(
                "use-private-ip needs a network: an operator has to configure `network`",
            ));
        }
        let (ports, others): (Vec<_>, Vec<_>) =
            service.ports.iter().partition(|port| port.protocol == Protocol::Tcp);
        let mut labels = labels::for_service(&call.cluster, service);
        labels.remove(labels::SERVICE);
        labels.insert(UID.to_owned(), service.uid.clone());
        let targets = call.targets_of(service).iter();
        Ok(Self {
            options,
            name: options.text("name").unwrap_or_else(|| default_name(&service.uid)),
            network,
            labels,
            listeners: ports.into_iter().map(|port| listener(&options, port)).collect::<Result<_, _>>()?,
            targets: targets.filter_map(|target| Target::new(target, is_private)).collect(),
            certificates: certificates(&options)?,
            unsupported: others.into_iter().map(|port| port.protocol.as_str()).collect(),
        })
    }

    /// The body that creates the load balancer, with all that the cloud takes at once.
    pub(super) fn creation(&self) -> Result<Value, Error> {
        let options = &self.options;
        let location = options.text("location").filter(|location| !location.is_empty());
        let zone = options.text("network-zone").filter(|_| location.is_none());
        if location.is_none() && zone.is_none() {
            return Err(Error::invalid(
                "set the annotation location or network-zone, or configure a default",
            ));
        }
        // The place in a network can't be chosen here, and private targets need one.
        let joins_later = options.text("private-ipv4").or(options.text("private-subnet-ip-range")).is_some();
        let now = |value: Value| Some(value).filter(|_| !joins_later);
        let is_public = options.flag("disable-public-network").map(|is_disabled| !is_disabled);
        let services: Vec<_> = self.listeners.iter().map(|listener| &listener.body).collect();
        let targets: Vec<_> = self.targets.iter().take(FIRST_TARGETS).collect();
        Ok(fields([
            ("name", Some(json!(self.name))),
            ("labels", Some(json!(self.labels))),
            ("load_balancer_type", Some(json!(options.text("type").as_deref().unwrap_or(DEFAULT_TYPE)))),
            ("location", location.map(Value::from)),
            ("network_zone", zone.map(Value::from)),
            ("algorithm", options.keyword("algorithm-type").map(|kind| json!({"type": kind}))),
            ("services", Some(json!(services))),
            ("network", self.network.and_then(|network| now(json!(network)))),
            ("targets", now(json!(targets))),
            ("public_interface", is_public.and_then(|is_public| now(json!(is_public)))),
        ]))
    }

    /// Sets the certificates of all listeners.
    pub(super) fn set_certificates(&mut self, ids: &BTreeMap<Certificate, NumericId>) {
        let numbers: Vec<_> =
            self.certificates.iter().filter_map(|certificate| ids.get(certificate)).collect();
        if self.certificates.is_empty() {
            return;
        }
        for body in self.listeners.iter_mut().flat_map(|it| [&mut it.body, &mut it.inherited]) {
            if let Some(fields) = body.as_object_mut() {
                let http = fields.entry("http").or_insert_with(|| json!({}));
                http.as_object_mut()
                    .into_iter()
                    .for_each(|http| drop(http.insert("certificates".to_owned(), json!(numbers))));
            }
        }
    }
}

impl Target {
    fn new(target: &pileus_guest::Target, is_private: bool) -> Option<Self> {
        if !is_dedicated(&target.provider_id) {
            let id = server_id(&target.provider_id).ok()?;
            return Some(Self::Server { server: ServerNumber { id }, use_private_ip: is_private });
        }
        let of = |kind| target.addresses.iter().find(move |address| address.kind == kind);
        let internal = is_private.then(|| of(AddressKind::InternalIp)).flatten();
        let ip = internal.or_else(|| of(AddressKind::ExternalIp))?.value.clone();
        Some(Self::Ip { ip: TargetIp { ip } })
    }

    /// The same server over its other address.
    pub(super) fn twin(&self) -> Option<Self> {
        match self {
            Self::Server { server, use_private_ip } => {
                Some(Self::Server { server: server.clone(), use_private_ip: !use_private_ip })
            }
            Self::Ip { .. } | Self::Other => None,
        }
    }

    /// The body of the action that removes it.
    pub(super) fn removal(&self) -> Value {
        let mut body = json!(self);
        body.as_object_mut().map(|fields| fields.remove("use_private_ip"));
        body
    }
}

/// The name that Kubernetes gives to load balancers.
fn default_name(uid: &str) -> String {
    format!("a{uid}").replace('-', "").chars().take(32).collect()
}

fn certificates(options: &Options<'_>) -> Result<Vec<Certificate>, Error> {
    if options.keyword("certificate-type").as_deref() != Some("managed") {
        let named = options.list("http-certificates").unwrap_or_default();
        return Ok(named.into_iter().map(Certificate::Uploaded).collect());
    }
    let missing =
        || Error::invalid("a managed certificate needs the annotation http-managed-certificate-domains");
    let domains = options.list("http-managed-certificate-domains").ok_or_else(missing)?;
    let uid = options.service.uid.clone();
    let name = options.text("http-managed-certificate-name").filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| format!("ccm-managed-certificate-{uid}"));
    let is_test = options.is("http-managed-certificate-acme-staging");
    Ok(vec![Certificate::Managed { uid, name, domains, is_test }])
}

fn listener(options: &Options<'_>, port: &ServicePort) -> Result<Listener, Error> {
    let node_port =
        port.node_port.ok_or_else(|| Error::invalid(format!("port {} has no node port", port.port)))?;
    let protocol = options.keyword("protocol").unwrap_or_else(|| "tcp".to_owned());
    let uses_proxy = options.is("uses-proxyprotocol");
    let is_http = protocol != "tcp";
    let http = fields([
        ("cookie_name", options.text("http-cookie-name").map(Value::from)),
        ("cookie_lifetime", options.number("http-cookie-lifetime")?.map(Value::from)),
        ("timeout_idle", options.number("http-timeout-idle")?.map(Value::from)),
        (
            "sticky_sessions",
            options.flag("http-sticky-sessions").or(is_http.then_some(false)).map(Value::from),
        ),
        (
            "redirect_http",
            options.flag("http-redirect-http").or((protocol == "https").then_some(false)).map(Value::from),
        ),
    ]);
    // The health check of a Node speaks HTTP without the PROXY protocol.
    let local = options.service.policy.health_check_port().filter(|_| !uses_proxy);
    let body = |local| {
        Ok(fields([
            ("listen_port", Some(json!(port.port))),
            ("destination_port", Some(json!(node_port))),
            ("protocol", Some(json!(protocol))),
            ("proxyprotocol", Some(json!(uses_proxy))),
            ("http", Some(http.clone()).filter(|http| http != &json!({}))),
            ("health_check", Some(health_check(options, &protocol, node_port, local)?)),
        ]))
    };
    Ok(Listener { port: port.port, body: body(local)?, inherited: body(None)? })
}

/// The health check of a listener. `local` is the port on which Nodes tell whether they have an endpoint of the Service.
fn health_check(
    options: &Options<'_>,
    protocol: &str,
    node_port: u16,
    local: Option<u16>,
) -> Result<Value, Error> {
    let (given, port) = (options.keyword("health-check-protocol"), options.number("health-check-port")?);
    let times = [
        ("interval", options.number("health-check-interval")?.map(Value::from)),
        ("timeout", options.number("health-check-timeout")?.map(Value::from)),
        ("retries", options.number("health-check-retries")?.map(Value::from)),
    ];
    let local = local.filter(|_| given.is_none() && port.is_none());
    let is_default = given.is_none() && port.is_none() && times.iter().all(|(_, value)| value.is_none());
    let protocol = match &given {
        Some(given) => given,
        None if local.is_some() => "http",
        None if is_default => "tcp",
        None => protocol,
    };
    let uses_tls = options.flag("health-check-http-validate-certificate");
    let http = fields([
        ("domain", options.text("health-check-http-domain").map(Value::from)),
        (
            "path",
            options.text("health-check-http-path").or(local.map(|_| "/healthz".to_owned())).map(Value::from),
        ),
        ("status_codes", options.list("http-status-codes").map(Value::from)),
        ("tls", uses_tls.or((given.as_deref() == Some("https")).then_some(true)).map(Value::from)),
    ]);
    let mut check = fields(times);
    if let Some(fields) = check.as_object_mut() {
        // The API knows HTTPS as HTTP with TLS.
        fields.insert("protocol".to_owned(), json!(if protocol == "https" { "http" } else { protocol }));
        fields.insert("port".to_owned(), port.map_or_else(|| json!(local.unwrap_or(node_port)), Value::from));
        if protocol != "tcp" && http != json!({}) {
            fields.insert("http".to_owned(), http);
        }
    }
    Ok(check)
}

/// An object of the fields that have a value.
fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect::<Map<_, _>>())
}
