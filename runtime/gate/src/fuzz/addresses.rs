//! Compares the address filter with a second implementation, written from IANA's registries of special IPv4 and IPv6
//! addresses with the methods of the standard library, where the filter has one table of ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::permit;

const METADATA: [&str; 6] =
    ["168.63.129.16", "169.254.169.254", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"];

/// The input is words: an address, the ranges that a grant opens, and after a `!` the ranges that the host denies.
pub(super) fn hold(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (address, ranges) = text.split_once(' ').unwrap_or((&text, ""));
    let (granted, denied) = ranges.split_once('!').unwrap_or((ranges, ""));
    let Ok(address) = address.parse::<IpAddr>() else { return };
    let ranges = |text: &str| text.split(' ').filter_map(|range| range.parse().ok()).collect();
    let (granted, denied): (Vec<IpNet>, Vec<IpNet>) = (ranges(granted), ranges(denied));
    let found = permit(address, &granted, &denied);
    assert_eq!(found.is_ok(), may_be_dialled(address, &granted, &denied), "{text}: {found:?}");
}

fn may_be_dialled(address: IpAddr, granted: &[IpNet], denied: &[IpNet]) -> bool {
    let within = |ranges: &[IpNet], address: IpAddr| {
        ranges.iter().any(|range| (range.network()..=range.broadcast()).contains(&address))
    };
    // From here on an address is IPv4, or plain IPv6, or a tunnel, or translated.
    let address = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let (inner, is_translated) = match address {
        IpAddr::V4(_) => (None, false),
        IpAddr::V6(v6) => end_of(v6),
    };
    if within(denied, address) || inner.is_some_and(|inner| within(denied, IpAddr::V4(inner))) {
        return false;
    }
    let judged = inner.filter(|_| is_translated).map_or(address, IpAddr::V4);
    if METADATA.iter().any(|metadata| metadata.parse() == Ok(judged)) {
        let alone = |range: &IpNet| range.prefix_len() == range.max_prefix_len() && range.addr() == judged;
        return granted.iter().any(alone);
    }
    let is_global = match judged {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6),
    };
    is_global || within(granted, address) || within(granted, judged)
}

/// The IPv4 address at which traffic to an IPv6 address ends, and whether it gets there by the well-known translation (RFC
/// 6052), which reaches the internet. The others are local translation, 6to4, Teredo and IPv4-compatible addresses.
fn end_of(address: Ipv6Addr) -> (Option<Ipv4Addr>, bool) {
    let bits = u128::from(address);
    let v4 = |bits: u128| Ipv4Addr::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(0));
    if bits >> 32 == 0x64_ff9b << 64 {
        (Some(v4(bits)), true)
    } else if bits >> 80 == 0x64_ff9b_0001 || bits >> 32 == 0 {
        (Some(v4(bits)), false)
    } else if bits >> 112 == 0x2002 {
        (Some(v4(bits >> 80)), false)
    } else if bits >> 96 == 0x2001_0000 {
        (Some(v4(!bits)), false)
    } else {
        (None, false)
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || address.is_broadcast()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99);
    !is_special
}

fn is_global_v6(address: Ipv6Addr) -> bool {
    let segments @ [a, b, ..] = address.segments();
    let is_special = address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || a >> 13 != 1 // nothing else is assigned
        || (a == 0x2001 && b < 0x200)
        || (a == 0x2001 && b == 0xdb8)
        || a == 0x2002
        || (a == 0x3fff && segments[1] < 0x1000);
    !is_special
}
