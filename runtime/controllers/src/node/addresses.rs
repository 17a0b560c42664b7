//! Which addresses a Node gets: the cloud's, ordered as the kubelet's `--node-ip` asks.

use std::net::IpAddr;

use pileus_cloud::{Address, AddressKind};

/// The cloud doesn't have an address that the kubelet's `--node-ip` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotTheMachines(pub(super) IpAddr);

/// What `status.addresses` should be, by upstream's rules (ccm-behaviour 2.4):
///
/// - the kubelet's own host names follow the cloud's addresses, unless the cloud names one;
/// - an address that `node_ips` asks for comes first and is the only one of its type; the other types follow;
/// - without any address from the cloud the present ones stay.
///
/// # Errors
/// [`NotTheMachines`] for an address in `node_ips` that the cloud didn't list.
pub(super) fn addresses(
    cloud: &[Address],
    present: &[Address],
    node_ips: &[IpAddr],
) -> Result<Vec<Address>, NotTheMachines> {
    if cloud.is_empty() {
        return match node_ips.first() {
            Some(asked) => Err(NotTheMachines(*asked)),
            None => Ok(present.to_vec()),
        };
    }
    let mut all = cloud.to_vec();
    if !cloud.iter().any(|address| address.kind == AddressKind::Hostname) {
        all.extend(present.iter().filter(|address| address.kind == AddressKind::Hostname).cloned());
    }
    let mut chosen = Vec::new();
    for asked in node_ips {
        let before = chosen.len();
        chosen.extend(all.iter().filter(|address| is(address, *asked)).cloned());
        if chosen.len() == before {
            return Err(NotTheMachines(*asked));
        }
    }
    let claimed: Vec<_> = chosen.iter().map(|address| address.kind).collect();
    chosen.extend(all.into_iter().filter(|address| !claimed.contains(&address.kind)));
    let mut seen = Vec::new();
    chosen.retain(|address| {
        let is_new = !seen.contains(address);
        seen.push(address.clone());
        is_new
    });
    Ok(chosen)
}

/// Whether an address is this IP address, in whatever way the cloud writes it.
fn is(address: &Address, ip: IpAddr) -> bool {
    address.value.parse() == Ok(ip)
}

/// Whether one of the addresses is an IP address under which the Node can be reached.
pub(super) fn reachable(addresses: &[Address]) -> bool {
    addresses.iter().any(|address| matches!(address.kind, AddressKind::InternalIp | AddressKind::ExternalIp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use AddressKind::{ExternalIp, Hostname, InternalIp};
    use proptest::prelude::*;

    fn list(addresses: &[(AddressKind, &str)]) -> Vec<Address> {
        addresses.iter().map(|(kind, value)| Address::new(*kind, *value)).collect()
    }

    fn ips(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    type Addresses = &'static [(AddressKind, &'static str)];
    /// A claim, the cloud's addresses, the present ones, `--node-ip`, and what comes of it.
    type Row = (&'static str, Addresses, Addresses, &'static [&'static str], Option<Addresses>);

    #[test]
    fn addresses_follow_the_rules() {
        let internal_external: Addresses = &[(InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1")];
        let rows: &[Row] = &[
            (
                "a host name of the cloud replaces the kubelet's (N01)",
                &[(Hostname, "cloud"), (InternalIp, "10.0.0.1")],
                &[(Hostname, "kubelet")],
                &[],
                Some(&[(Hostname, "cloud"), (InternalIp, "10.0.0.1")]),
            ),
            (
                "the kubelet's host name comes last (N02)",
                internal_external,
                &[(Hostname, "kubelet"), (InternalIp, "192.168.0.1")],
                &[],
                Some(&[(InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1"), (Hostname, "kubelet")]),
            ),
            (
                "a node without addresses gets the cloud's (N03)",
                internal_external,
                &[],
                &[],
                Some(internal_external),
            ),
            (
                "an external address that is asked for comes first",
                internal_external,
                &[],
                &["203.0.113.1"],
                Some(&[(ExternalIp, "203.0.113.1"), (InternalIp, "10.0.0.1")]),
            ),
            (
                "the asked one is the only one of its type (N08)",
                &[(InternalIp, "10.0.0.2"), (InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1")],
                &[(Hostname, "kubelet")],
                &["10.0.0.1"],
                Some(&[(InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1"), (Hostname, "kubelet")]),
            ),
            (
                "a pair keeps its order and the text of IPv6 doesn't matter",
                &[(InternalIp, "10.0.0.1"), (InternalIp, "2001:db8:0:0::1")],
                &[],
                &["2001:db8::1", "10.0.0.1"],
                Some(&[(InternalIp, "2001:db8:0:0::1"), (InternalIp, "10.0.0.1")]),
            ),
            (
                "an address that the machine lacks is refused (N10)",
                internal_external,
                &[],
                &["10.9.9.9"],
                None,
            ),
            (
                "without the cloud's addresses the present ones stay",
                &[],
                &[(Hostname, "k")],
                &[],
                Some(&[(Hostname, "k")]),
            ),
            (
                "nothing can match where the cloud lists nothing",
                &[],
                &[(InternalIp, "10.0.0.1")],
                &["10.0.0.1"],
                None,
            ),
        ];
        for (claim, cloud, present, asked, expected) in rows {
            let got = addresses(&list(cloud), &list(present), &ips(asked)).ok();
            assert_eq!(got, expected.map(list), "{claim}");
        }
    }

    fn any_addresses() -> impl Strategy<Value = Vec<Address>> {
        let kind = prop::sample::select(AddressKind::ALL.to_vec());
        let address = (kind, 0_u8..6).prop_map(|(kind, n)| Address::new(kind, format!("10.0.0.{n}")));
        prop::collection::vec(address, 0..6)
    }

    proptest! {
        #[test]
        fn computing_them_again_changes_nothing(
            cloud in any_addresses(),
            present in any_addresses(),
            asked in prop::option::of(0_u8..6),
        ) {
            let asked: Vec<IpAddr> = asked.into_iter().map(|n| IpAddr::from([10, 0, 0, n])).collect();
            if let Ok(once) = addresses(&cloud, &present, &asked) {
                prop_assert_eq!(addresses(&cloud, &once, &asked), Ok(once));
            }
        }
    }
}
