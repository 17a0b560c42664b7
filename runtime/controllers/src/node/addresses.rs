//! The addresses that a Node gets: the cloud's, in the order that the kubelet's `--node-ip` asks for.
//!
//! As with upstream, the address that `--node-ip` names is the only one of its type, so that an address of the other family of
//! that type is dropped (U-27). An operator who wants both families names both, as in
//! `--node-ip=10.0.0.1,2001:db8::1` with the preferred family first, or names none for the cloud's order.
//!
//! Pure.

use std::collections::HashSet;
use std::net::IpAddr;

use pileus_cloud::{Address, AddressKind};

/// The kubelet's `--node-ip` asks for this address, which the cloud doesn't list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownNodeIp(pub(super) IpAddr);

/// The desired `status.addresses`, by upstream's rules:
///
/// - The kubelet's host names follow the cloud's addresses, unless the cloud has a host name.
/// - An address that `node_ips` asks for comes first and is the only one of its type. The other types follow.
/// - Without any address from the cloud the present ones stay.
///
/// # Errors
/// [`UnknownNodeIp`] for an address in `node_ips` that the cloud didn't list.
pub(super) fn addresses(
    cloud: &[Address],
    present: &[Address],
    node_ips: &[IpAddr],
) -> Result<Vec<Address>, UnknownNodeIp> {
    if cloud.is_empty() {
        return match node_ips.first() {
            Some(asked) => Err(UnknownNodeIp(*asked)),
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
            return Err(UnknownNodeIp(*asked));
        }
    }
    let claimed: Vec<_> = chosen.iter().map(|address| address.kind).collect();
    chosen.extend(all.into_iter().filter(|address| !claimed.contains(&address.kind)));
    // A kubelet may list as many host names as fit into an object, so this must not be quadratic.
    let mut seen = HashSet::new();
    chosen.retain(|address| seen.insert(address.clone()));
    Ok(chosen)
}

/// Whether an address is this IP address, in any notation.
fn is(address: &Address, ip: IpAddr) -> bool {
    address.value.parse() == Ok(ip)
}

/// Whether one of the addresses is an IP address at which the Node can be reached.
pub(super) fn has_ip(addresses: &[Address]) -> bool {
    addresses.iter().any(|address| matches!(address.kind, AddressKind::InternalIp | AddressKind::ExternalIp))
}

// The cases of upstream's tests are in scenarios.rs.
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_addresses_from_the_cloud_the_present_ones_stay_unless_node_ip_asks_for_one() {
        let present = [Address::new(AddressKind::InternalIp, "10.0.0.1")];
        assert_eq!(addresses(&[], &present, &[]), Ok(present.to_vec()));
        let asked = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(addresses(&[], &present, &[asked]), Err(UnknownNodeIp(asked)));
    }

    #[test]
    fn a_very_long_list_of_host_names_takes_little_time() {
        let cloud = [Address::new(AddressKind::InternalIp, "10.0.0.1")];
        let present: Vec<_> =
            (0..100_000).map(|n| Address::new(AddressKind::Hostname, format!("a{n}"))).collect();
        let started = std::time::Instant::now();
        assert_eq!(addresses(&cloud, &present, &[]).map(|all| all.len()), Ok(100_001));
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
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
