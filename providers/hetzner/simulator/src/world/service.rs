//! Services of load balancers: their defaults, and what is valid. Pure.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize};

use crate::refusal::Refusal;

/// A service, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Service {
    pub(super) protocol: Protocol,
    pub(super) listen_port: u16,
    pub(super) destination_port: u16,
    proxyprotocol: bool,
    pub(super) http: Option<Http>,
    health_check: HealthCheck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Protocol {
    Tcp,
    Http,
    Https,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Http {
    cookie_name: String,
    cookie_lifetime: u32,
    pub(super) certificates: Vec<u64>,
    redirect_http: bool,
    sticky_sessions: bool,
    timeout_idle: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HealthHttp {
    domain: String,
    path: String,
    response: String,
    status_codes: Vec<String>,
    tls: bool,
}

/// A new service, or the fields of a service that change.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServiceRequest {
    protocol: Option<Protocol>,
    listen_port: Option<u16>,
    destination_port: Option<u16>,
    proxyprotocol: Option<bool>,
    http: Option<HttpRequest>,
    health_check: Option<HealthRequest>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpRequest {
    cookie_name: Option<String>,
    cookie_lifetime: Option<u32>,
    certificates: Option<Vec<u64>>,
    redirect_http: Option<bool>,
    sticky_sessions: Option<bool>,
    timeout_idle: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HealthRequest {
    protocol: Option<HealthProtocol>,
    port: Option<u16>,
    interval: Option<u32>,
    timeout: Option<u32>,
    retries: Option<u32>,
    http: Option<HealthHttpRequest>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HealthHttpRequest {
    #[serde(deserialize_with = "present")]
    domain: Option<String>,
    path: Option<String>,
    response: Option<String>,
    status_codes: Option<Vec<String>>,
    tls: Option<bool>,
}

/// A field that may be null, which means empty.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| Some(text.unwrap_or_default()))
}

impl ServiceRequest {
    /// The service that a request to add it means.
    pub(super) fn added(&self) -> Result<Service, Refusal> {
        let protocol = self.protocol.ok_or_else(|| Refusal::invalid("protocol", "missing protocol"))?;
        let (listen, destination) = match protocol {
            Protocol::Tcp => (None, None),
            Protocol::Http => (Some(80), Some(80)),
            Protocol::Https => (Some(443), Some(80)),
        };
        let port = |given: Option<u16>, default: Option<u16>, field: &str| {
            given.or(default).ok_or_else(|| Refusal::invalid(field, format!("missing {field}")))
        };
        let destination_port = port(self.destination_port, destination, "destination_port")?;
        self.merged(Service {
            protocol,
            listen_port: port(self.listen_port, listen, "listen_port")?,
            destination_port,
            proxyprotocol: false,
            http: None,
            health_check: HealthCheck {
                protocol: if protocol == Protocol::Tcp { HealthProtocol::Tcp } else { HealthProtocol::Http },
                port: destination_port,
                interval: 15,
                timeout: 10,
                retries: 3,
                http: None,
            },
        })
    }

    /// The port of the service that a request to update means.
    pub(super) fn updates(&self) -> Result<u16, Refusal> {
        self.listen_port.ok_or_else(|| Refusal::invalid("listen_port", "missing listen_port"))
    }

    /// The service with the given fields in place of its own.
    pub(super) fn merged(&self, service: Service) -> Result<Service, Refusal> {
        let protocol = self.protocol.unwrap_or(service.protocol);
        let is_http = protocol != Protocol::Tcp;
        if !is_http && self.http.is_some() {
            return Err(Refusal::invalid("http", "only available for protocols http and https"));
        }
        let given = self.http.clone().unwrap_or_default();
        let merged = Service {
            protocol,
            destination_port: self.destination_port.unwrap_or(service.destination_port),
            proxyprotocol: self.proxyprotocol.unwrap_or(service.proxyprotocol),
            http: is_http.then(|| given.merged(service.http)),
            health_check: match &self.health_check {
                Some(given) => given.merged(service.health_check),
                None => service.health_check,
            },
            listen_port: service.listen_port,
        };
        merged.check()?;
        Ok(merged)
    }
}

impl HttpRequest {
    fn merged(self, http: Option<Http>) -> Http {
        let http = http.unwrap_or_else(|| Http {
            cookie_name: "HCLBSTICKY".to_owned(),
            cookie_lifetime: 300,
            certificates: Vec::new(),
            redirect_http: false,
            sticky_sessions: false,
            timeout_idle: 50,
        });
        Http {
            cookie_name: self.cookie_name.unwrap_or(http.cookie_name),
            cookie_lifetime: self.cookie_lifetime.unwrap_or(http.cookie_lifetime),
            certificates: self.certificates.unwrap_or(http.certificates),
            redirect_http: self.redirect_http.unwrap_or(http.redirect_http),
            sticky_sessions: self.sticky_sessions.unwrap_or(http.sticky_sessions),
            timeout_idle: self.timeout_idle.unwrap_or(http.timeout_idle),
        }
    }
}

impl HealthRequest {
    fn merged(&self, check: HealthCheck) -> HealthCheck {
        let protocol = self.protocol.unwrap_or(check.protocol);
        let http = (protocol == HealthProtocol::Http).then(|| {
            let given = self.http.clone().unwrap_or_default();
            let http = check.http.unwrap_or_else(|| HealthHttp {
                domain: String::new(),
                path: "/".to_owned(),
                response: String::new(),
                status_codes: vec!["2??".to_owned(), "3??".to_owned()],
                tls: false,
            });
            HealthHttp {
                domain: given.domain.unwrap_or(http.domain),
                path: given.path.unwrap_or(http.path),
                response: given.response.unwrap_or(http.response),
                status_codes: given.status_codes.unwrap_or(http.status_codes),
                tls: given.tls.unwrap_or(http.tls),
            }
        });
        HealthCheck {
            protocol,
            port: self.port.unwrap_or(check.port),
            interval: self.interval.unwrap_or(check.interval),
            timeout: self.timeout.unwrap_or(check.timeout),
            retries: self.retries.unwrap_or(check.retries),
            http,
        }
    }
}

impl Service {
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
        let HealthCheck { protocol: _, port, interval, timeout, retries, http } = health_check;
        in_range("health_check.port", u32::from(*port), 1..=65_535)?;
        in_range("health_check.interval", *interval, 3..=60)?;
        in_range("health_check.timeout", *timeout, 1..=60)?;
        in_range("health_check.retries", *retries, 1..=5)?;
        if let Some(HealthHttp { domain, path, status_codes, .. }) = http {
            if domain.len() > 128 || domain.contains([' ', '%', '\\']) {
                return Err(Refusal::invalid("health_check.http.domain", "is not a host name"));
            }
            if path.is_empty() || path.len() > 256 || path.contains(' ') {
                return Err(Refusal::invalid("health_check.http.path", "is not a path"));
            }
            if status_codes.len() > 20 {
                return Err(Refusal::invalid("health_check.http.status_codes", "are more than 20"));
            }
        }
        Ok(())
    }
}

fn in_range(field: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), Refusal> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Refusal::invalid(field, format!("Must be between {least} and {most}.")))
}
