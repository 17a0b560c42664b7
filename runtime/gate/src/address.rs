//! Which resolved addresses may be dialed. The operator grants hosts by name, and the owner of a name chooses its
//! addresses: without this filter a granted name could lead to the metadata service, the API server or this machine. Pure;
//! the dialer only dials an address for which [`permit`] returned `Ok`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::error::BlockReason;

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(head: [u16; 3], last: u16, prefix: u8) -> IpNet {
    let [a, b, c] = head;
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last)), prefix)
}

/// The first range that contains an address says what it is; an address in none of them is on the internet.
const RANGES: &[(IpNet, BlockReason)] = &[
    // Azure's wire server and the common link-local one, Alibaba's, Oracle's; AWS's and Google's over IPv6.
    (v4(168, 63, 129, 16, 32), BlockReason::Metadata),
    (v4(169, 254, 169, 254, 32), BlockReason::Metadata),
    (v4(100, 100, 100, 200, 32), BlockReason::Metadata),
    (v4(192, 0, 0, 192, 32), BlockReason::Metadata),
    (v6([0xfd00, 0xec2, 0], 0x254, 128), BlockReason::Metadata),
    (v6([0xfd20, 0xce, 0], 0x254, 128), BlockReason::Metadata),
    (v4(0, 0, 0, 0, 8), BlockReason::Unspecified),
    (v4(10, 0, 0, 0, 8), BlockReason::Private),
    (v4(100, 64, 0, 0, 10), BlockReason::Shared),
    (v4(127, 0, 0, 0, 8), BlockReason::Loopback),
    (v4(169, 254, 0, 0, 16), BlockReason::LinkLocal),
    (v4(172, 16, 0, 0, 12), BlockReason::Private),
    (v4(192, 0, 0, 0, 24), BlockReason::Reserved),
    (v4(192, 0, 2, 0, 24), BlockReason::Documentation),
    (v4(192, 88, 99, 0, 24), BlockReason::Tunnel),
    (v4(192, 168, 0, 0, 16), BlockReason::Private),
    (v4(198, 18, 0, 0, 15), BlockReason::Documentation),
    (v4(198, 51, 100, 0, 24), BlockReason::Documentation),
    (v4(203, 0, 113, 0, 24), BlockReason::Documentation),
    (v4(224, 0, 0, 0, 4), BlockReason::Multicast),
    (v4(240, 0, 0, 0, 4), BlockReason::Reserved),
    (v6([0, 0, 0], 0, 128), BlockReason::Unspecified),
    (v6([0, 0, 0], 1, 128), BlockReason::Loopback),
    // IPv4-compatible, local NAT64, Teredo, 6to4.
    (v6([0, 0, 0], 0, 96), BlockReason::Tunnel),
    (v6([0x64, 0xff9b, 1], 0, 48), BlockReason::Tunnel),
    (v6([0x2001, 0, 0], 0, 32), BlockReason::Tunnel),
    (v6([0x2002, 0, 0], 0, 16), BlockReason::Tunnel),
    (v6([0x2001, 0xdb8, 0], 0, 32), BlockReason::Documentation),
    (v6([0x3fff, 0, 0], 0, 20), BlockReason::Documentation),
    (v6([0x2001, 0, 0], 0, 23), BlockReason::Reserved),
    (v6([0xfc00, 0, 0], 0, 7), BlockReason::Private),
    (v6([0xfe80, 0, 0], 0, 10), BlockReason::LinkLocal),
    (v6([0xfec0, 0, 0], 0, 10), BlockReason::Private),
    (v6([0xff00, 0, 0], 0, 8), BlockReason::Multicast),
];

/// The part of IPv6 that is assigned to the internet.
const GLOBAL: IpNet = v6([0x2000, 0, 0], 0, 3);

/// Checks whether an address may be dialed under a grant that opens the ranges `granted`, where the host never dials an
/// address in `denied`.
///
/// An address on the internet may be; any other only if one of the ranges contains it. An IPv6 address that embeds an IPv4
/// address is treated as both: a denied IPv4 range also denies its tunnels. Behind the well-known NAT64 prefix, by which a
/// network without IPv4 reaches the whole IPv4 internet, only the embedded address counts.
///
/// # Errors
/// Why it isn't dialed.
pub(crate) fn permit(address: IpAddr, granted: &[IpNet], denied: &[IpNet]) -> Result<(), BlockReason> {
    let address = address.to_canonical();
    let embedded = embedded(address).map(IpAddr::V4);
    let within = |ranges: &[IpNet], address: IpAddr| ranges.iter().any(|range| range.contains(&address));
    if within(denied, address) || embedded.is_some_and(|embedded| within(denied, embedded)) {
        return Err(BlockReason::AlwaysDenied);
    }
    let judged = match (address, embedded) {
        (IpAddr::V6(outer), Some(inner)) if is_nat64(outer) => inner,
        _ => address,
    };
    match reason(judged) {
        None => Ok(()),
        // A wide range is granted for the machines in it; it is easy to forget that a metadata service may be among them.
        Some(BlockReason::Metadata) => {
            if granted.contains(&IpNet::from(judged)) {
                Ok(())
            } else {
                Err(BlockReason::Metadata)
            }
        }
        Some(reason) => {
            if within(granted, address) || within(granted, judged) {
                Ok(())
            } else {
                Err(reason)
            }
        }
    }
}

/// Whether an address means this machine, its link or its metadata service. Through another machine it would mean that
/// machine's.
pub(crate) fn is_near(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let near = |address| {
        matches!(
            reason(address),
            Some(BlockReason::Loopback | BlockReason::LinkLocal | BlockReason::Metadata)
        )
    };
    near(address) || embedded(address).is_some_and(|embedded| near(IpAddr::V4(embedded)))
}

fn reason(address: IpAddr) -> Option<BlockReason> {
    let known = RANGES.iter().find(|(range, _)| range.contains(&address)).map(|(_, reason)| *reason);
    let unassigned = address.is_ipv6() && !GLOBAL.contains(&address);
    known.or(unassigned.then_some(BlockReason::Reserved))
}

fn is_nat64(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _])
}

/// The IPv4 address at which traffic to an IPv6 address ends.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..]
        | [0, 0, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        // Teredo keeps the client's address inverted.
        [0x2001, 0, _, _, _, _, high, low] => Some(join(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn without_a_granted_range_only_the_internet_is_dialed() {
        let rows = [
            ("20.1.2.3", None),
            ("2603:1030::1", None),
            ("168.63.129.16", Some(BlockReason::Metadata)),
            ("169.254.169.254", Some(BlockReason::Metadata)),
            ("100.100.100.200", Some(BlockReason::Metadata)),
            ("192.0.0.192", Some(BlockReason::Metadata)),
            ("fd00:ec2::254", Some(BlockReason::Metadata)),
            ("fd20:ce::254", Some(BlockReason::Metadata)),
            ("::ffff:169.254.169.254", Some(BlockReason::Metadata)),
            ("64:ff9b::a9fe:a9fe", Some(BlockReason::Metadata)),
            ("64:ff9b::20.1.2.3", None),
            ("64:ff9b::10.0.0.1", Some(BlockReason::Private)),
            ("64:ff9b:1::a9fe:a9fe", Some(BlockReason::Tunnel)),
            ("2002:a9fe:a9fe::1", Some(BlockReason::Tunnel)),
            ("2002:1401:203::1", Some(BlockReason::Tunnel)),
            ("2001:0:1::5601:5601", Some(BlockReason::Tunnel)),
            ("::169.254.169.254", Some(BlockReason::Tunnel)),
            ("0.0.0.0", Some(BlockReason::Unspecified)),
            ("0.1.2.3", Some(BlockReason::Unspecified)),
            ("::", Some(BlockReason::Unspecified)),
            ("127.0.0.1", Some(BlockReason::Loopback)),
            ("127.255.0.1", Some(BlockReason::Loopback)),
            ("::1", Some(BlockReason::Loopback)),
            ("::ffff:127.0.0.1", Some(BlockReason::Loopback)),
            ("169.254.1.1", Some(BlockReason::LinkLocal)),
            ("fe80::1", Some(BlockReason::LinkLocal)),
            ("10.1.2.3", Some(BlockReason::Private)),
            ("172.31.255.255", Some(BlockReason::Private)),
            ("172.32.0.0", None),
            ("192.168.0.1", Some(BlockReason::Private)),
            ("fd12::1", Some(BlockReason::Private)),
            ("fec0::1", Some(BlockReason::Private)),
            ("100.64.0.1", Some(BlockReason::Shared)),
            ("100.128.0.1", None),
            ("224.0.0.1", Some(BlockReason::Multicast)),
            ("ff02::1", Some(BlockReason::Multicast)),
            ("192.0.2.1", Some(BlockReason::Documentation)),
            ("198.18.0.1", Some(BlockReason::Documentation)),
            ("2001:db8::1", Some(BlockReason::Documentation)),
            ("3fff::1", Some(BlockReason::Documentation)),
            ("2001:20::1", Some(BlockReason::Reserved)),
            ("240.0.0.1", Some(BlockReason::Reserved)),
            ("255.255.255.255", Some(BlockReason::Reserved)),
            ("100::1", Some(BlockReason::Reserved)),
            ("5f00::1", Some(BlockReason::Reserved)),
        ];
        for (text, refusal) in rows {
            assert_eq!(permit(address(text), &[], &[]).err(), refusal, "{text}");
        }
    }

    #[test]
    fn a_range_of_the_grant_opens_what_it_contains() {
        let rows = [
            ("10.1.2.3", &["10.0.0.0/8"][..], None),
            ("10.1.2.3", &["10.2.0.0/16"], Some(BlockReason::Private)),
            ("127.0.0.1", &["127.0.0.1/32"], None),
            ("::ffff:10.1.2.3", &["10.0.0.0/8"], None),
            ("64:ff9b::10.1.2.3", &["10.0.0.0/8"], None),
            ("64:ff9b::10.1.2.3", &["64:ff9b::/96"], None),
            ("2002:a01:203::1", &["10.0.0.0/8"], Some(BlockReason::Tunnel)),
            ("2002:a01:203::1", &["2002::/16"], None),
            ("169.254.169.254", &["169.254.169.254/32"], None),
            ("169.254.169.254", &["169.254.0.0/16"], Some(BlockReason::Metadata)),
            ("100.100.100.200", &["100.64.0.0/10"], Some(BlockReason::Metadata)),
            ("fd00:ec2::254", &["fc00::/7"], Some(BlockReason::Metadata)),
            ("64:ff9b::a9fe:a9fe", &["64:ff9b::/96"], Some(BlockReason::Metadata)),
        ];
        for (text, granted, refusal) in rows {
            assert_eq!(permit(address(text), &ranges(granted), &[]).err(), refusal, "{text} in {granted:?}");
        }
    }

    #[test]
    fn what_the_host_denies_stays_denied_inside_a_grant() {
        let denied = ranges(&["10.96.0.1/32", "20.5.5.5/32"]);
        for text in ["10.96.0.1", "::ffff:10.96.0.1", "64:ff9b::10.96.0.1", "2002:a60:1::1", "20.5.5.5"] {
            let refusal = permit(address(text), &ranges(&["0.0.0.0/0", "::/0"]), &denied).err();
            assert_eq!(refusal, Some(BlockReason::AlwaysDenied), "{text}");
        }
        assert_eq!(permit(address("10.96.0.2"), &ranges(&["10.0.0.0/8"]), &denied), Ok(()));
    }

    proptest! {
        #[test]
        fn a_denied_address_is_denied_in_every_form_that_embeds_it(octets in any::<[u8; 4]>()) {
            let plain = Ipv4Addr::from(octets);
            let [a, b, c, d] = octets;
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let forms = [
                plain.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            ];
            for form in forms {
                if permit(IpAddr::V4(plain), &[], &[]).is_err() {
                    prop_assert!(permit(IpAddr::V6(form), &[], &[]).is_err(), "{}", form);
                }
                let host = [IpNet::from(IpAddr::V4(plain))];
                let all = ranges(&["0.0.0.0/0", "::/0"]);
                prop_assert_eq!(permit(IpAddr::V6(form), &all, &host), Err(BlockReason::AlwaysDenied));
            }
        }

        #[test]
        fn an_address_outside_all_granted_ranges_is_dialed_only_on_the_internet(bits in any::<u128>()) {
            let address = IpAddr::V6(Ipv6Addr::from(bits));
            if permit(address, &[], &[]).is_ok() {
                prop_assert!(!address.is_loopback() && !address.is_multicast() && !address.is_unspecified());
            }
        }
    }
}
