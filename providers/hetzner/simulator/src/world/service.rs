//! Services of load balancers: their defaults, and what is valid. Pure.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A service, as the API shows it. A request has a part of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    protocol: Protocol,
    pub(super) listen_port: u16,
    destination_port: u16,
    proxyprotocol: bool,
    pub(super) http: Option<Http>,
    health_check: HealthCheck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Protocol {
    Tcp,
    Http,
    Https,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "they are the names of the API")]
pub(super) struct Http {
    cookie_name: String,
    cookie_lifetime: u32,
    pub(super) certificates: Vec<u64>,
    redirect_http: bool,
    sticky_sessions: bool,
    timeout_idle: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthCheck {
    protocol: HealthProtocol,
    port: u16,
    interval: u32,
    timeout: u32,
    retries: u32,
    http: Option<HealthHttp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HealthProtocol {
    Tcp,
    Http,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthHttp {
    domain: Option<String>,
    path: String,
    response: String,
    status_codes: Vec<String>,
    tls: bool,
}

impl Service {
    /// The service that a request to add it means.
    pub(super) fn added(request: &Value) -> Result<Self, Refusal> {
        let is_tcp = request["protocol"] == "tcp";
        let port = |field: &str| request[field].clone();
        let destination = match &request["destination_port"] {
            Value::Null if !is_tcp => json!(80),
            given => given.clone(),
        };
        let listen = match request["protocol"].as_str() {
            Some("http") => json!(80),
            Some("https") => json!(443),
            _ => port("listen_port"),
        };
        let health = json!({
            "protocol": if is_tcp { "tcp" } else { "http" }, "port": destination, "interval": 15, "timeout": 10,
            "retries": 3, "http": null,
        });
        let defaults = json!({
            "protocol": null, "listen_port": listen, "destination_port": destination, "proxyprotocol": false,
            "http": null, "health_check": health,
        });
        Self::merged(defaults, request)
    }

    /// The service with the fields of a request to update it in place of its own.
    pub(super) fn updated(&self, request: &Value) -> Result<Self, Refusal> {
        Self::merged(json!(self), request)
    }

    /// The port of the service that a request to update means.
    pub(super) fn port_of(request: &Value) -> Result<u16, Refusal> {
        let port = request["listen_port"].as_u64().and_then(|port| port.try_into().ok());
        port.ok_or_else(|| Refusal::invalid("listen_port", "missing or invalid listen_port"))
    }

    fn merged(mut service: Value, request: &Value) -> Result<Self, Refusal> {
        merge(&mut service, request);
        let field = |path: &str| service.pointer(path).unwrap_or(&Value::Null);
        let is_http = field("/protocol") != "tcp";
        if !is_http && request.get("http").is_some_and(|http| !http.is_null()) {
            return Err(Refusal::invalid("http", "only available for protocols http and https"));
        }
        for name in ["protocol", "listen_port", "destination_port"] {
            if field(&format!("/{name}")).is_null() {
                return Err(Refusal::invalid(name, format!("missing {name}")));
            }
        }
        let http = json!({
            "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [], "redirect_http": false,
            "sticky_sessions": false, "timeout_idle": 50,
        });
        let http = completed(field("/http"), is_http, http);
        let check = json!({
            "domain": null, "path": "/", "response": "", "status_codes": ["2??", "3??"], "tls": false,
        });
        let check = completed(field("/health_check/http"), field("/health_check/protocol") == "http", check);
        for (path, value) in [("/http", http), ("/health_check/http", check)] {
            if let Some(part) = service.pointer_mut(path) {
                *part = value;
            }
        }
        let service: Self = serde_json::from_value(service)?;
        service.check()?;
        Ok(service)
    }

    /// The ports that it listens on: with a redirect, also that of HTTP.
    pub(super) fn source_ports(&self) -> impl Iterator<Item = u16> + use<> {
        let redirects = self.http.as_ref().is_some_and(|http| http.redirect_http);
        [Some(self.listen_port), redirects.then_some(80)].into_iter().flatten()
    }

    fn check(&self) -> Result<(), Refusal> {
        let Self { protocol, listen_port, destination_port, proxyprotocol: _, http, health_check } = self;
        in_range("listen_port", u32::from(*listen_port), 1..=65_535)?;
        in_range("destination_port", u32::from(*destination_port), 1..=65_535)?;
        if let Some(Http {
            cookie_name, cookie_lifetime, certificates, redirect_http, timeout_idle, ..
        }) = http
        {
            let length = u32::try_from(cookie_name.len()).unwrap_or(u32::MAX);
            in_range("http.cookie_name", length, 1..=100)?;
            in_range("http.cookie_lifetime", *cookie_lifetime, 30..=86_400)?;
            in_range("http.timeout_idle", *timeout_idle, 30..=300)?;
            if *protocol != Protocol::Https && (*redirect_http || !certificates.is_empty()) {
                let field = if *redirect_http { "http.redirect_http" } else { "http.certificates" };
                return Err(Refusal::invalid(field, "only available for protocol https"));
            }
        }
        health_check.check()
    }
}

impl HealthCheck {
    fn check(&self) -> Result<(), Refusal> {
        let Self { protocol: _, port, interval, timeout, retries, http } = self;
        in_range("health_check.port", u32::from(*port), 1..=65_535)?;
        in_range("health_check.interval", *interval, 3..=60)?;
        in_range("health_check.timeout", *timeout, 1..=60)?;
        in_range("health_check.retries", *retries, 1..=5)?;
        let Some(HealthHttp { domain, path, status_codes, .. }) = http else { return Ok(()) };
        if domain.as_ref().is_some_and(|domain| domain.len() > 128 || domain.contains([' ', '%', '\\'])) {
            return Err(Refusal::invalid("health_check.http.domain", "is not a host name"));
        }
        if path.is_empty() || path.len() > 256 || path.contains(' ') {
            return Err(Refusal::invalid("health_check.http.path", "is not a path"));
        }
        if status_codes.len() > 20 {
            return Err(Refusal::invalid("health_check.http.status_codes", "are more than 20"));
        }
        Ok(())
    }
}

/// A part with defaults for the fields that it lacks, or null where the protocol doesn't have it.
fn completed(part: &Value, is_needed: bool, mut defaults: Value) -> Value {
    if !is_needed {
        return Value::Null;
    }
    merge(&mut defaults, part);
    defaults
}

/// Puts the fields of a request into the place of those that are there. A null counts as missing.
fn merge(base: &mut Value, given: &Value) {
    match (base, given) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(given)) => {
            for (field, value) in given {
                merge(base.entry(field).or_insert(Value::Null), value);
            }
        }
        (base, given) => *base = given.clone(),
    }
}

fn in_range(field: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), Refusal> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Refusal::invalid(field, format!("Must be between {least} and {most}.")))
}
