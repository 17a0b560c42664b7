//! Host names that a provider gives to Nodes and load balancers. Clients and controllers of DNS follow them, so a name must be
//! one that only DNS resolves, and must not lead into the cluster, to the reader itself or to a metadata service.
//!
//! Pure.

use std::net::IpAddr;

use super::MAX_NAME_BYTES;
use crate::sanitize::excerpt;

/// The longest label of a host name, in bytes (RFC 1123).
const MAX_LABEL_BYTES: usize = 63;

/// Names by which resolvers mean this machine, as the first or the last label.
const LOCAL: [&str; 5] = ["localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"];

/// The names of metadata services that resolve without a search domain.
const METADATA: [&str; 7] = [
    "metadata.google.internal",
    "metadata.goog",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "metadata.packet.net",
    "metadata.aliyuncs.com",
];

/// Checks a host name by RFC 1123 and returns it in lower case, as the API server stores it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let problem = if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
        "expected at most 253 letters, digits, hyphens and dots, and at most 63 between dots (RFC 1123)"
    } else if is_address(&name) {
        "it reads as an IP address"
    } else if is_local(&name) {
        "it means the reader itself"
    } else if is_in_cluster(&name) {
        "it is a name inside the cluster"
    } else if METADATA.iter().any(|service| name == *service || name.ends_with(&format!(".{service}"))) {
        "it is the name of a metadata service"
    } else {
        return Ok(name);
    };
    Err(format!("invalid host name {:?}: {problem}", excerpt(text)))
}

fn is_label(label: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    label.len() <= MAX_LABEL_BYTES
        && is_end(label.chars().next())
        && is_end(label.chars().next_back())
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Whether resolvers take a name for an IPv4 address: `inet_aton` reads one to four numbers, also in octal and hexadecimal, and
/// no name of DNS ends in a number.
fn is_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.chars().all(|c| c.is_ascii_hexdigit());
    name.parse::<IpAddr>().is_ok()
        || last.chars().all(|c| c.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(is_hex)
}

fn is_local(name: &str) -> bool {
    let ends = [name.split('.').next(), name.rsplit('.').next()];
    ends.into_iter().flatten().any(|label| LOCAL.contains(&label))
}

/// Whether the cluster's DNS resolves a name: that of a Service, also under a domain of the operator's choice, and that by which
/// every Pod finds the API server.
fn is_in_cluster(name: &str) -> bool {
    matches!(name, "kubernetes" | "kubernetes.default" | "svc" | "cluster.local")
        || name.rsplit_once('.').is_some_and(|(_, last)| last == "svc")
        || name.ends_with(".cluster.local")
        || name.split('.').skip(2).any(|label| label == "svc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitize::is_control;

    #[test]
    fn a_host_name_is_one_that_only_dns_resolves() {
        let long_label = "a".repeat(MAX_LABEL_BYTES + 1);
        let long = ["abcdefghi"; 26].join(".");
        for (text, problem) in [
            ("node-1", None),
            ("LB-1.Example.com", None),
            ("1.example.com", None),
            ("1a", None),
            ("0xa.example", None),
            ("198-51-100-7.example.com", None),
            ("svc.example.com", None),
            ("a.svc-1.example.com", None),
            ("metadata.example.com", None),
            ("kubernetes.example.com", None),
            ("", Some("RFC 1123")),
            (".", Some("RFC 1123")),
            ("a..b", Some("RFC 1123")),
            ("a.example.", Some("RFC 1123")),
            (".a.example", Some("RFC 1123")),
            ("-a.example", Some("RFC 1123")),
            ("a-.example", Some("RFC 1123")),
            ("a_b.example", Some("RFC 1123")),
            ("a b.example", Some("RFC 1123")),
            ("a.example/x", Some("RFC 1123")),
            ("a.example:443", Some("RFC 1123")),
            ("user@a.example", Some("RFC 1123")),
            ("*.example", Some("RFC 1123")),
            ("bücher.example", Some("RFC 1123")),
            ("a\u{202e}b", Some("RFC 1123")),
            ("a.example\n", Some("RFC 1123")),
            ("2001:db8::1", Some("RFC 1123")),
            (&long_label, Some("RFC 1123")),
            (&long, Some("RFC 1123")),
            ("198.51.100.7", Some("IP address")),
            ("127.1", Some("IP address")),
            ("2130706433", Some("IP address")),
            ("0x7f000001", Some("IP address")),
            ("0x7f.0.0.0x1", Some("IP address")),
            ("0X7F.1", Some("IP address")),
            ("017700000001", Some("IP address")),
            ("256.256.256.256", Some("IP address")),
            ("a.example.1", Some("IP address")),
            ("localhost", Some("reader itself")),
            ("LOCALHOST", Some("reader itself")),
            ("localhost.localdomain", Some("reader itself")),
            ("a.localhost", Some("reader itself")),
            ("ip6-loopback", Some("reader itself")),
            ("kubernetes", Some("inside the cluster")),
            ("kubernetes.default", Some("inside the cluster")),
            ("kubernetes.default.svc", Some("inside the cluster")),
            ("Kubernetes.Default.Svc.Cluster.Local", Some("inside the cluster")),
            ("kubernetes.default.svc.corp.example", Some("inside the cluster")),
            ("db-0.db.shop.svc.corp.example", Some("inside the cluster")),
            ("a.cluster.local", Some("inside the cluster")),
            ("metadata.google.internal", Some("metadata")),
            ("a.metadata.goog", Some("metadata")),
        ] {
            let read = host_name(text);
            match problem {
                None => assert_eq!(read, Ok(text.to_ascii_lowercase()), "{text}"),
                Some(problem) => {
                    let error = read.unwrap_err();
                    assert!(error.contains(problem) && !error.contains(is_control), "{text}: {error}");
                    assert!(error.len() < 300, "{error}");
                }
            }
        }
    }
}
