//! Reads the annotation in which the kubelet repeats its `--node-ip`.

use std::net::IpAddr;

use crate::well_known::ANNOTATION_NODE_IP;

/// The addresses that the kubelet's `--node-ip` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIps {
    /// No address, one, or one of each family.
    Given(Vec<IpAddr>),
    /// The annotation is malformed, for this reason.
    Malformed(String),
}

/// The longest part of a malformed annotation that a message repeats, in bytes. Two addresses fit.
const MAX_SHOWN: usize = 100;

/// Parses the annotation by upstream's rules: addresses separated by a comma without blanks, at most one of each family, and no
/// unspecified address in a pair. IPv6 may be in any notation.
pub(super) fn node_ips(text: &str) -> NodeIps {
    // An annotation may have 256 KiB, and the reason must fit into an event.
    let shown = text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
    let malformed = |problem: &str| NodeIps::Malformed(format!("{ANNOTATION_NODE_IP}={shown:?}: {problem}"));
    let mut addresses = Vec::new();
    for part in text.split(',') {
        let Ok(address) = part.parse::<IpAddr>() else {
            let part = part.get(..part.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
            return malformed(&format!("{part:?} is not an IP address"));
        };
        addresses.push(address);
    }
    match addresses.as_slice() {
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            malformed("a pair can't hold an unspecified address")
        }
        [first, second] if first.is_ipv4() == second.is_ipv4() => {
            malformed("two addresses must be of different families")
        }
        [_] | [_, _] => NodeIps::Given(addresses),
        _ => malformed("more than two addresses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ips_are_read_as_upstream_reads_them() {
        for (text, problem) in [
            ("", "not an IP"),
            ("10.0.0.1, 2001:db8::1", "not an IP"),
            ("node-1", "not an IP"),
            ("10.0.0.1,10.0.0.2", "different families"),
            ("10.0.0.1,::", "unspecified"),
            ("10.0.0.1,2001:db8::1,10.0.0.3", "more than two"),
        ] {
            let NodeIps::Malformed(why) = node_ips(text) else { panic!("{text:?} was accepted") };
            assert!(why.contains(problem), "{text:?}: {why}");
        }
        for text in ["10.0.0.1,".repeat(20_000) + "::1", "ü".repeat(100_000)] {
            let NodeIps::Malformed(why) = node_ips(&text) else { panic!("{text:?} was accepted") };
            assert!(why.len() < 500 && why.contains("address"), "{} bytes", why.len());
        }
        for text in ["10.0.0.1", "2001:db8::1", "0.0.0.0", "2001:db8::1,10.0.0.1"] {
            assert!(matches!(node_ips(text), NodeIps::Given(_)), "{text:?}");
        }
    }
}
