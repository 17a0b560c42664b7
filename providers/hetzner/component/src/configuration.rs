//! What an operator configures. Each field of hcloud-cloud-controller-manager's environment that means something here has a
//! field; the README maps them.

use pileus_guest::Problem;
use pileus_guest::http::{BaseUrl, NumericId};
use schemars::JsonSchema;
use serde::Deserialize;

/// Hetzner Cloud, as an operator configures it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Hetzner {
    /// The base URL of the API. The default is `https://api.hetzner.cloud/v1`.
    #[serde(default = "official")]
    pub(crate) endpoint: BaseUrl,
    /// The private network of the Nodes, by ID or name; an ID saves a request a call. It gives Nodes their internal addresses,
    /// and is needed for routes and for private addresses of load balancers.
    pub(crate) network: Option<IdOrName>,
    /// Which public addresses Nodes get.
    #[serde(default)]
    pub(crate) address_family: AddressFamily,
    /// Whether Nodes get a zone: the data center that Hetzner used to name for their location, as in `fsn1-dc14`. New clusters
    /// don't need it, because the region says the same.
    #[serde(default = "yes")]
    pub(crate) zone_label: bool,
    /// What applies to the load balancers of Services without the annotation of the same name.
    #[serde(default)]
    pub(crate) load_balancers: Defaults,
}

/// A resource, by its number or its name.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum IdOrName {
    /// A number.
    Id(#[schemars(with = "u64")] NumericId),
    /// A name.
    Name(String),
}

/// The IP families of public addresses.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AddressFamily {
    /// The public IPv4 address.
    #[default]
    Ipv4,
    /// The first address of the public IPv6 network.
    Ipv6,
    /// Both.
    DualStack,
}

/// How load balancers choose a target.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Algorithm {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
}

/// What applies to the load balancers of Services without the annotation of the same name.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Defaults {
    /// The location of new load balancers, as in `fsn1`. Give this or `networkZone`, or each Service has to.
    location: Option<String>,
    /// The network zone of new load balancers, as in `eu-central`.
    network_zone: Option<String>,
    /// The type, as in `lb11`. Without it new load balancers are of type `lb11`, and existing ones keep their type.
    r#type: Option<String>,
    /// How load balancers choose a target. Without it existing ones keep what they have.
    algorithm_type: Option<Algorithm>,
    /// Whether targets are reached over their private addresses.
    use_private_ip: Option<bool>,
    /// Whether load balancers have no public interface. Without it existing ones keep what they have.
    disable_public_network: Option<bool>,
    /// Whether Services are told no private address.
    disable_private_ingress: Option<bool>,
    /// Whether Services are told no IPv6 address.
    #[serde(rename = "disableIPv6")]
    ipv6_disabled: Option<bool>,
    /// The subnet that gives load balancers their private address, as in `10.0.1.0/24`.
    #[serde(rename = "privateSubnetIPRange")]
    private_subnet_ip_range: Option<String>,
    /// Whether targets get the PROXY protocol.
    #[serde(rename = "usesProxyProtocol")]
    uses_proxyprotocol: Option<bool>,
    /// Seconds between health checks.
    health_check_interval_seconds: Option<u32>,
    /// Seconds after which a health check has failed.
    health_check_timeout_seconds: Option<u32>,
    /// How many health checks fail before a target is unhealthy.
    health_check_retries: Option<u32>,
}

fn official() -> BaseUrl {
    // The text is a URL, so this never falls back.
    BaseUrl::parse("https://api.hetzner.cloud/v1").unwrap_or_else(|error| unreachable!("{error}"))
}

const fn yes() -> bool {
    true
}

impl AddressFamily {
    pub(crate) fn has_ipv4(self) -> bool {
        self != Self::Ipv6
    }

    pub(crate) fn has_ipv6(self) -> bool {
        self != Self::Ipv4
    }
}

impl Hetzner {
    /// Checks what the types can't express.
    pub(crate) fn check(self) -> Result<Self, Vec<Problem>> {
        let Defaults { location, network_zone, use_private_ip, .. } = &self.load_balancers;
        let mut problems = Vec::new();
        if location.is_some() && network_zone.is_some() {
            problems.push(Problem::new(
                "loadBalancers.networkZone",
                "a location has a network zone, remove one of the two",
            ));
        }
        if *use_private_ip == Some(true) && self.network.is_none() {
            problems.push(Problem::new(
                "loadBalancers.usePrivateIp",
                "private addresses need a network, set `network`",
            ));
        }
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }
}

impl Defaults {
    /// The value that applies without the annotation of this name, as the annotation would have it.
    pub(crate) fn value(&self, annotation: &str) -> Option<String> {
        match annotation {
            "location" => self.location.clone(),
            "network-zone" => self.network_zone.clone(),
            "type" => self.r#type.clone(),
            "private-subnet-ip-range" => self.private_subnet_ip_range.clone(),
            "algorithm-type" => self.algorithm_type.map(|algorithm| match algorithm {
                Algorithm::RoundRobin => "round_robin".to_owned(),
                Algorithm::LeastConnections => "least_connections".to_owned(),
            }),
            "use-private-ip" => self.use_private_ip.map(|flag| flag.to_string()),
            "disable-public-network" => self.disable_public_network.map(|flag| flag.to_string()),
            "disable-private-ingress" => self.disable_private_ingress.map(|flag| flag.to_string()),
            "ipv6-disabled" => self.ipv6_disabled.map(|flag| flag.to_string()),
            "uses-proxyprotocol" => self.uses_proxyprotocol.map(|flag| flag.to_string()),
            "health-check-interval" => self.health_check_interval_seconds.map(|seconds| seconds.to_string()),
            "health-check-timeout" => self.health_check_timeout_seconds.map(|seconds| seconds.to_string()),
            "health-check-retries" => self.health_check_retries.map(|retries| retries.to_string()),
            _ => None,
        }
    }
}
