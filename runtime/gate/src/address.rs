//! Which resolved addresses may be dialed, and which addresses a provider may give to Nodes and load balancers. The operator
//! grants hosts by name, and the owner of a name chooses its addresses: without this filter a granted name could lead to the
//! metadata service, the API server or this machine. The addresses of Nodes and load balancers steer the cluster's own
//! traffic, so one table serves both. Pure; the dialer only dials an address for which [`permit`] returned `Ok`.

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

const fn v6_host(segments: [u16; 8]) -> IpNet {
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::from_segments(segments)), 128)
}

/// The first range that contains an address says what it is; an address in none of them is on the internet.
const RANGES: &[(IpNet, BlockReason)] = &[
    // Azure's wire server; Alibaba, UCloud and Volcengine, whose metadata services are in the carriers' shared range; Oracle
    // classic; Equinix.
    (v4(168, 63, 129, 16, 32), BlockReason::Metadata),
    (v4(100, 80, 80, 80, 32), BlockReason::Metadata),
    (v4(100, 96, 0, 96, 32), BlockReason::Metadata),
    (v4(100, 100, 100, 200, 32), BlockReason::Metadata),
    (v4(192, 0, 0, 192, 32), BlockReason::Metadata),
    (v4(192, 80, 8, 124, 32), BlockReason::Metadata),
    // The common one and its neighbors: GKE's, Rancher's, AWS's name and time servers. AWS's for containers and Pods. Tencent,
    // OpenNebula, Scaleway.
    (v4(169, 254, 169, 0, 24), BlockReason::Metadata),
    (v4(169, 254, 170, 2, 32), BlockReason::Metadata),
    (v4(169, 254, 170, 23, 32), BlockReason::Metadata),
    (v4(169, 254, 0, 23, 32), BlockReason::Metadata),
    (v4(169, 254, 10, 10, 32), BlockReason::Metadata),
    (v4(169, 254, 16, 9, 32), BlockReason::Metadata),
    (v4(169, 254, 42, 42, 32), BlockReason::Metadata),
    // AWS, Google, Oracle, Scaleway, Akamai and Alibaba over IPv6; OpenStack, Hetzner and others on the link.
    (v6([0xfd00, 0xec2, 0], 0, 32), BlockReason::Metadata),
    (v6([0xfd20, 0xce, 0], 0x254, 128), BlockReason::Metadata),
    (v6_host([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]), BlockReason::Metadata),
    (v6([0xfd00, 0x42, 0], 0x42, 128), BlockReason::Metadata),
    (v6([0xfd00, 0xa9fe, 0xa9fe], 1, 128), BlockReason::Metadata),
    (v6_host([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200]), BlockReason::Metadata),
    (v6_host([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]), BlockReason::Metadata),
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
    (v4(255, 255, 255, 255, 32), BlockReason::Broadcast),
    (v4(240, 0, 0, 0, 4), BlockReason::Reserved),
    (v6([0, 0, 0], 0, 128), BlockReason::Unspecified),
    (v6([0, 0, 0], 1, 128), BlockReason::Loopback),
    // IPv4-compatible, translated to IPv4 (SIIT), local NAT64, Teredo, 6to4.
    (v6([0, 0, 0], 0, 96), BlockReason::Tunnel),
    (IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0)), 96), BlockReason::Tunnel),
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
/// An address on the internet may be; any other only if one of the ranges contains it. A metadata service and the link, where
/// clouds put new ones, are opened only by the single address. An IPv6 address that embeds an IPv4 address is treated as both:
/// a denied IPv4 range also denies its tunnels, and a range of tunnels opens no metadata service. Behind the well-known NAT64
/// prefix, by which a network without IPv4 reaches the whole IPv4 internet, only the embedded address counts.
///
/// # Errors
/// Why it isn't dialed.
pub(crate) fn permit(address: IpAddr, granted: &[IpNet], denied: &[IpNet]) -> Result<(), BlockReason> {
    let address = address.to_canonical();
    let within = |ranges: &[IpNet], address: IpAddr| ranges.iter().any(|range| range.contains(&address));
    if within(denied, address) || embedded(address).any(|embedded| within(denied, embedded)) {
        return Err(BlockReason::AlwaysDenied);
    }
    let is_alone = |address| granted.contains(&IpNet::from(address));
    let must_be_alone = |address: &IpAddr| is_opened_alone(reason(*address)) && !is_alone(*address);
    // A tunnel is opened by its own address, or by that at its end.
    if let Some(end) = embedded(address).find(must_be_alone)
        && !is_alone(address)
    {
        return Err(reason(end).unwrap_or(BlockReason::Metadata));
    }
    let judged = judged(address);
    match reason(judged) {
        None => Ok(()),
        // A wide range is granted for the machines in it; it is easy to forget that a metadata service may be among them.
        reason if is_opened_alone(reason) && is_alone(judged) => Ok(()),
        Some(reason)
            if !is_opened_alone(Some(reason)) && (within(granted, address) || within(granted, judged)) =>
        {
            Ok(())
        }
        Some(reason) => Err(reason),
    }
}

/// Whether a range has to name the single address to open it.
const fn is_opened_alone(reason: Option<BlockReason>) -> bool {
    matches!(reason, Some(BlockReason::Metadata | BlockReason::LinkLocal))
}

/// The address by which an address is judged: behind the well-known NAT64 prefix the embedded one.
fn judged(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(outer) if is_nat64(outer) => embedded(address).next().unwrap_or(address),
        _ => address,
    }
}

/// Checks an address that a provider gives to a Node or a load balancer, and returns it in canonical form: an IPv4 address
/// that is mapped into IPv6 is plain. Private addresses are what most of them have. An address that means the reader itself,
/// its link, a metadata service or a group of hosts would turn the cluster's traffic there; so would an IPv6 address that
/// embeds one.
///
/// # Errors
/// What the address means.
pub fn check_output(address: IpAddr) -> Result<IpAddr, BlockReason> {
    use BlockReason::{Broadcast, LinkLocal, Loopback, Metadata, Multicast, Unspecified};
    let address = address.to_canonical();
    let refusal = |address: IpAddr| match reason(address) {
        Some(reason @ (Metadata | Loopback | LinkLocal | Multicast | Unspecified | Broadcast)) => {
            Some(reason)
        }
        _ => None,
    };
    // The positions that a local prefix doesn't use are often zero.
    let is_certain = |reason: &BlockReason| *reason != Unspecified || address != judged(address);
    match refusal(address).or_else(|| embedded(address).filter_map(refusal).find(is_certain)) {
        Some(reason) => Err(reason),
        None => Ok(address),
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
    near(address) || embedded(address).any(near)
}

/// Whether a granted range opens an address that means this machine, its link or its metadata service, or is a part of their
/// ranges. A wider range doesn't open those that only their single address opens.
pub fn opens_node(range: IpNet) -> bool {
    use BlockReason::{LinkLocal, Loopback, Metadata, Unspecified};
    if range.prefix_len() == range.max_prefix_len() {
        let address = range.addr().to_canonical();
        let is_unspecified = |address| reason(address) == Some(Unspecified);
        return is_near(address) || is_unspecified(address) || embedded(address).any(is_unspecified);
    }
    let range = match range {
        // Behind the well-known NAT64 prefix the embedded addresses count.
        IpNet::V6(outer) if is_nat64(outer.network()) && outer.prefix_len() >= 96 => {
            let [.., a, b, c, d] = outer.network().octets();
            v4(a, b, c, d, outer.prefix_len() - 96)
        }
        // With the whole prefix, all of them are behind it.
        IpNet::V6(outer) if outer.contains(&Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)) => return true,
        other => other,
    };
    RANGES.iter().any(|(known, reason)| match reason {
        Loopback | Unspecified => known.contains(&range) || range.contains(known),
        Metadata | LinkLocal => known.contains(&range),
        _ => false,
    })
}

fn reason(address: IpAddr) -> Option<BlockReason> {
    let known = RANGES.iter().find(|(range, _)| range.contains(&address)).map(|(_, reason)| *reason);
    let unassigned = address.is_ipv6() && !GLOBAL.contains(&address);
    known.or(unassigned.then_some(BlockReason::Reserved))
}

fn is_nat64(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _])
}

/// The IPv4 addresses at which traffic to an IPv6 address may end. The local NAT64 prefix allows several positions (RFC 6052),
/// and the network decides which one holds.
fn embedded(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let segments = match address {
        IpAddr::V4(_) => [u16::MAX; 8], // embeds nothing
        IpAddr::V6(address) => address.segments(),
    };
    let bits = segments.iter().fold(0_u128, |bits, segment| (bits << 16) | u128::from(*segment));
    let v4 = |bits: u128| Some(Ipv4Addr::from(u32::try_from(bits & 0xffff_ffff).unwrap_or_default()));
    // The byte at bit 64 is never a part of the address.
    let around = |before: u32| {
        let (head, tail) = ((bits >> 64) & ((1 << before) - 1), (bits << 72) >> (96 + before));
        v4((head << (32 - before)) | tail)
    };
    let found = match segments {
        // Translated: well-known NAT64, SIIT, IPv4-compatible.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff | 0, 0, ..] => [v4(bits), None, None, None],
        [0x64, 0xff9b, 1, ..] => [v4(bits), around(16), around(8), around(0)],
        [0x2002, ..] => [v4(bits >> 80), isatap(segments), None, None],
        // Teredo keeps the client's address inverted.
        [0x2001, 0, ..] => [v4(!bits), None, None, None],
        _ => [isatap(segments), None, None, None],
    };
    found.into_iter().flatten().map(IpAddr::V4)
}

/// The IPv4 address in an interface identifier of ISATAP, which may follow any prefix (RFC 5214).
fn isatap(segments: [u16; 8]) -> Option<Ipv4Addr> {
    match segments {
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => {
            Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
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
            ("64:ff9b:1::a9fe:a9fe", Some(BlockReason::Metadata)),
            ("2002:a9fe:a9fe::1", Some(BlockReason::Metadata)),
            ("2002:1401:203::1", Some(BlockReason::Tunnel)),
            ("2001:0:1::5601:5601", Some(BlockReason::Metadata)),
            ("2001:0:1::fefd:fcfb", Some(BlockReason::Tunnel)),
            ("::169.254.169.254", Some(BlockReason::Metadata)),
            ("::20.1.2.3", Some(BlockReason::Tunnel)),
            ("::ffff:0:20.1.2.3", Some(BlockReason::Tunnel)),
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
            ("255.255.255.255", Some(BlockReason::Broadcast)),
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
            ("169.254.1.1", &["169.254.0.0/16"], Some(BlockReason::LinkLocal)),
            ("169.254.1.1", &["169.254.1.1/32"], None),
            ("fe80::1", &["fe80::/10"], Some(BlockReason::LinkLocal)),
            ("2002:a9fe:a9fe::1", &["2002::/16"], Some(BlockReason::Metadata)),
            ("2002:a9fe:a9fe::1", &["2002:a9fe:a9fe::1/128"], None),
        ];
        for (text, granted, refusal) in rows {
            assert_eq!(permit(address(text), &ranges(granted), &[]).err(), refusal, "{text} in {granted:?}");
        }
    }

    /// The metadata services of the clouds, and what they put beside them.
    const SERVICES: &[&str] = &[
        "168.63.129.16",
        "169.254.169.254",
        "169.254.169.253",
        "169.254.169.123",
        "169.254.169.252",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.0.23",
        "169.254.42.42",
        "100.100.100.200",
        "100.96.0.96",
        "100.80.80.80",
        "192.0.0.192",
        "192.80.8.124",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
        "fd00:100::100:200",
        "fe80::a9fe:a9fe",
    ];

    /// Every form in which IPv6 embeds an IPv4 address.
    fn forms(plain: Ipv4Addr) -> Vec<Ipv6Addr> {
        let [a, b, c, d] = plain.octets();
        let join = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        let (high, low) = (join(a, b), join(c, d));
        vec![
            plain.to_ipv6_mapped(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, high, join(0, c), join(d, 0), 0, 0),
            Ipv6Addr::new(0x64, 0xff9b, 1, join(7, a), join(0, b), low, 0, 0),
            Ipv6Addr::new(0x64, 0xff9b, 1, 7, join(0, a), join(b, c), join(d, 0), 0),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x2603, 1, 2, 3, 0, 0x5efe, high, low),
            Ipv6Addr::new(0xfd12, 1, 2, 3, 0x200, 0x5efe, high, low),
        ]
    }

    #[test]
    fn no_wide_range_opens_a_metadata_service_in_any_form_and_no_output_has_one() {
        let wide = ranges(&[
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/8",
            "169.254.0.0/16",
            "fc00::/7",
            "2002::/16",
            "64:ff9b:1::/48",
        ]);
        for text in SERVICES {
            let plain = address(text);
            let embedded = match plain {
                IpAddr::V4(v4) => forms(v4).into_iter().map(IpAddr::V6).collect(),
                IpAddr::V6(_) => Vec::new(),
            };
            for form in [plain].into_iter().chain(embedded) {
                assert_eq!(permit(form, &wide, &[]), Err(BlockReason::Metadata), "{text} as {form}");
                assert_eq!(check_output(form), Err(BlockReason::Metadata), "{text} as {form}");
            }
            assert_eq!(permit(plain, &[IpNet::from(plain)], &[]), Ok(()), "{text} alone");
        }
    }

    #[test]
    fn each_range_that_opens_an_address_of_this_node_is_known_as_one() {
        let others = ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::", "169.254.1.1", "fe80::1"];
        for text in SERVICES.iter().chain(&others) {
            let plain = address(text);
            let translated = match plain {
                IpAddr::V4(v4) => {
                    let [a, b, c, d] = v4.octets().map(u16::from);
                    Some(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, (a << 8) | b, (c << 8) | d).into())
                }
                IpAddr::V6(_) => None,
            };
            for form in [plain].into_iter().chain(translated) {
                let longest = IpNet::from(form).max_prefix_len();
                for prefix in 0..=longest {
                    let range = IpNet::new(form, prefix).unwrap().trunc();
                    if permit(form, &[range], &[]).is_ok() {
                        assert!(opens_node(range), "{range} opens {form}");
                    }
                }
                assert!(opens_node(IpNet::from(form)), "{form}");
            }
        }
        for range in ["10.0.0.0/8", "100.64.0.0/10", "192.168.1.1", "fc00::/7", "20.1.2.3", "2603:1030::/32"]
        {
            let range = range.parse().unwrap_or_else(|_| IpNet::from(address(range)));
            assert!(!opens_node(range), "{range}");
        }
    }

    #[test]
    fn an_output_is_an_address_at_which_another_machine_may_be() {
        use BlockReason::{Broadcast, LinkLocal, Loopback, Multicast, Unspecified};
        for text in
            ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.7", "20.1.2.3", "198.51.100.7", "240.0.0.1"]
        {
            assert_eq!(check_output(address(text)), Ok(address(text)), "{text}");
            for form in forms(text.parse().unwrap()) {
                assert_eq!(check_output(IpAddr::V6(form)), Ok(IpAddr::V6(form).to_canonical()), "{form}");
            }
        }
        for text in ["2001:db8::1", "fd12::1", "2603:1030::1"] {
            assert_eq!(check_output(address(text)), Ok(address(text)), "{text}");
        }
        for (text, why) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("::", Unspecified),
            ("169.254.3.4", LinkLocal),
            ("fe80::1", LinkLocal),
            ("224.0.0.1", Multicast),
            ("ff02::1", Multicast),
            ("255.255.255.255", Broadcast),
        ] {
            assert_eq!(check_output(address(text)), Err(why), "{text}");
        }
        for plain in ["127.0.0.1", "169.254.3.4", "224.0.0.1", "255.255.255.255"] {
            for form in forms(plain.parse().unwrap()) {
                assert!(check_output(IpAddr::V6(form)).is_err(), "{plain} as {form}");
            }
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
            for form in forms(plain) {
                // An ISATAP address is in the network of its prefix.
                let is_isatap = form.segments()[5] == 0x5efe;
                if permit(IpAddr::V4(plain), &[], &[]).is_err() && !is_isatap {
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
