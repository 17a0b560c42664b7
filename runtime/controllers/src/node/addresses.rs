//! Which addresses a Node gets: the cloud's, ordered as the kubelet's `--node-ip` asks.
//!
//! As upstream has it, a `--node-ip` of one family makes its address the only one of its type, so that the other
//! family's address of that type goes (P-27). Who wants both gives both, `--node-ip=10.0.0.1,2001:db8::1`, the first
//! family preferred; or gives none, and has them in the cloud's order.

use std::collections::HashSet;
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
    // A kubelet may list as many host names as an object holds.
    let mut seen = HashSet::new();
    chosen.retain(|address| seen.insert(address.clone()));
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

// Upstream's tests are in scenarios.rs.
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_any_address_of_the_cloud_the_present_ones_stay_unless_one_is_asked_for() {
        let present = [Address::new(AddressKind::InternalIp, "10.0.0.1")];
        assert_eq!(addresses(&[], &present, &[]), Ok(present.to_vec()));
        let asked = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(addresses(&[], &present, &[asked]), Err(NotTheMachines(asked)));
    }

    #[test]
    fn a_kubelet_that_lists_all_that_an_object_holds_takes_no_time() {
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
