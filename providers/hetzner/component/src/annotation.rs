//! The Service annotations, which are those of hcloud-cloud-controller-manager, and how a value is found: in the annotation, or
//! in what the operator configured for all Services.

use pileus_guest::AnnotationType::{Boolean, Integer, NodeSelector, Text, TextList};
use pileus_guest::{Annotation, AnnotationType, Error, Service};

use crate::configuration::Defaults;

const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// The name after the prefix, the type, the default, and a sentence for users.
const TABLE: [(&str, AnnotationType, Option<&str>, &str); 39] = [
    ("name", Text, None, "The name; a load balancer of this name that no Service has is taken over"),
    ("type", Text, None, "The type, as in `lb11`, which new load balancers are without it"),
    ("location", Text, None, "Where it is created, as in `fsn1`; empty undoes the configured location"),
    ("network-zone", Text, None, "In which network zone it is created, if no location is given"),
    ("algorithm-type", Text, None, "How a target is chosen: `round_robin` or `least_connections`"),
    ("hostname", Text, None, "The host name that clients are told instead of addresses"),
    ("ipv6-disabled", Boolean, Some("false"), "Whether clients are told no IPv6 address"),
    ("disable-public-network", Boolean, None, "Whether the load balancer has no public interface"),
    ("disable-private-ingress", Boolean, Some("false"), "Whether clients are told no private address"),
    ("use-private-ip", Boolean, Some("false"), "Whether targets are reached over their private addresses"),
    ("private-ipv4", Text, None, "The load balancer's address in the private network"),
    ("private-subnet-ip-range", Text, None, "The subnet of the private address"),
    ("node-selector", NodeSelector, None, "Which Nodes are targets"),
    ("ipv4-rdns", Text, None, "The reverse DNS name of the public IPv4 address"),
    ("ipv6-rdns", Text, None, "The reverse DNS name of the public IPv6 address"),
    ("protocol", Text, Some("tcp"), "What the load balancer speaks: `tcp`, `http` or `https`"),
    ("uses-proxyprotocol", Boolean, Some("false"), "Whether targets get the PROXY protocol"),
    ("http-cookie-name", Text, None, "The name of the cookie of sticky sessions"),
    ("http-cookie-lifetime", Text, None, "How long the cookie of sticky sessions lives, as in `5m`"),
    ("http-sticky-sessions", Boolean, Some("false"), "Whether a client's requests go to one target"),
    ("http-timeout-idle", Text, None, "When idle connections are closed, from `30s` to `300s`"),
    ("http-redirect-http", Boolean, Some("false"), "Whether port 80 redirects to HTTPS"),
    ("http-certificates", TextList, None, "The certificates, by ID or name"),
    ("certificate-type", Text, Some("uploaded"), "`uploaded`, or `managed` by Hetzner"),
    ("http-managed-certificate-name", Text, None, "The name of the managed certificate"),
    ("http-managed-certificate-domains", TextList, None, "The domains of the managed one"),
    ("http-managed-certificate-acme-staging", Boolean, Some("false"), "For Hetzner's own tests"),
    ("health-check-protocol", Text, None, "How targets are checked: `tcp`, `http` or `https`"),
    ("health-check-port", Integer, None, "The port of the check, if not that of the traffic"),
    ("health-check-interval", Text, None, "The time between checks, as in `15s`"),
    ("health-check-timeout", Text, None, "When a check has failed, as in `10s`"),
    ("health-check-retries", Integer, None, "How many checks fail before a target is unhealthy"),
    ("health-check-http-domain", Text, None, "The host name that the check asks for"),
    ("health-check-http-path", Text, None, "The path that the check asks for"),
    ("health-check-http-validate-certificate", Boolean, None, "Whether the check uses TLS"),
    ("http-status-codes", TextList, None, "The status codes of a healthy target, as in `2??,401`"),
    ("id", Text, None, "Has no effect: the load balancer is found by its label or name"),
    ("ipv4", Text, None, "Has no effect: the Service's status has the address"),
    ("ipv6", Text, None, "Has no effect: the Service's status has the address"),
];

/// All annotations.
pub(crate) fn all() -> impl Iterator<Item = Annotation> {
    TABLE.into_iter().map(|(name, value, default, description)| {
        let annotation = Annotation::new(format!("{PREFIX}{name}"), value, format!("{description}."));
        default.into_iter().fold(annotation, Annotation::default)
    })
}

/// The options of a Service: its annotations, and the operator's defaults.
#[derive(Clone, Copy)]
pub(crate) struct Options<'a> {
    pub(crate) service: &'a Service,
    pub(crate) defaults: &'a Defaults,
}

impl Options<'_> {
    /// The value of the annotation of this name, or what applies without it.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        debug_assert!(TABLE.iter().any(|(known, ..)| *known == name), "{name} is no annotation");
        let annotation = self.service.annotation(&format!("{PREFIX}{name}")).map(str::to_owned);
        annotation.or_else(|| self.defaults.value(name))
    }

    /// A name of the API, which users may write in any case.
    pub(crate) fn keyword(&self, name: &str) -> Option<String> {
        self.text(name).map(|text| text.to_ascii_lowercase())
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text == "true")
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        self.text(name).map(|text| text.split(',').map(|item| item.trim().to_owned()).collect())
    }

    /// A number, or the seconds of a duration.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        let read = |text: String| {
            let invalid = || {
                format!(
                    "annotation {PREFIX}{name} is `{text}`: expected seconds, or a duration such as 1m30s"
                )
            };
            seconds(&text).ok_or_else(|| Error::invalid(invalid()))
        };
        self.text(name).map(read).transpose()
    }
}

/// The seconds of a duration as Go writes it, such as `1m30s`, or of a plain number.
fn seconds(text: &str) -> Option<u64> {
    let (mut milliseconds, mut rest) = (0_u64, text);
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    while !rest.is_empty() {
        let (number, unit_on) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit())?);
        let end = unit_on.find(|it: char| it.is_ascii_digit()).unwrap_or(unit_on.len());
        let (unit, next) = unit_on.split_at(end);
        let factor = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        milliseconds = milliseconds.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = next;
    }
    Some(milliseconds / 1_000).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let rows = [
            ("15", Some(15)),
            ("15s", Some(15)),
            ("1m30s", Some(90)),
            ("2h", Some(7_200)),
            ("1500ms", Some(1)),
            ("", None),
            ("s", None),
            ("15x", None),
            ("-15s", None),
            ("1m30", None),
            ("99999999999999999999s", None),
            ("9999999999999999h", None),
        ];
        for (text, expected) in rows {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
