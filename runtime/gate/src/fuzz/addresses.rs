//! Compares the address filter with a second implementation, written from IANA's registries of special IPv4 and IPv6
//! addresses with the methods of the standard library, where the filter has one table of ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::permit;

const METADATA: [&str; 18] = [
    "168.63.129.16/32",
    "100.80.80.80/32",
    "100.96.0.96/32",
    "100.100.100.200/32",
    "192.0.0.192/32",
    "192.80.8.124/32",
    "169.254.169.0/24",
    "169.254.170.2/32",
    "169.254.170.23/32",
    "169.254.0.23/32",
    "169.254.10.10/32",
    "169.254.16.9/32",
    "169.254.42.42/32",
    "fd00:ec2::/32",
    "fd20:ce::254/128",
    "fd00:c1::a9fe:a9fe/128",
    "fd00:42::42/128",
    "fd00:a9fe:a9fe::1/128",
];

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
    let (ends, is_translated) = match address {
        IpAddr::V4(_) => (Vec::new(), false),
        IpAddr::V6(v6) => ends_of(v6),
    };
    if within(denied, address) || ends.iter().any(|end| within(denied, IpAddr::V4(*end))) {
        return false;
    }
    let alone = |address: IpAddr| {
        let is_it = |range: &IpNet| range.prefix_len() == range.max_prefix_len() && range.addr() == address;
        granted.iter().any(is_it)
    };
    let is_closed = |end: &Ipv4Addr| is_narrow(IpAddr::V4(*end)) && !alone(IpAddr::V4(*end));
    if ends.iter().any(is_closed) && !alone(address) {
        return false;
    }
    let judged = ends.first().filter(|_| is_translated).map_or(address, |end| IpAddr::V4(*end));
    if is_narrow(judged) {
        return alone(judged);
    }
    let is_global = match judged {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6),
    };
    is_global || within(granted, address) || within(granted, judged)
}

/// Whether only the single address opens it: metadata services and the link.
fn is_narrow(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let is_in = |range: &&str| range.parse::<IpNet>().is_ok_and(|range| range.contains(&address));
    is_link_local || METADATA.iter().any(is_in) || address.to_string() == "fd00:100::100:200"
}

/// The IPv4 addresses at which traffic to an IPv6 address may end, and whether it gets there by the well-known translation
/// (RFC 6052), which reaches the internet. The others are local translation, 6to4, Teredo, ISATAP, SIIT and IPv4-compatible
/// addresses.
fn ends_of(address: Ipv6Addr) -> (Vec<Ipv4Addr>, bool) {
    let octets = address.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets.get(place).copied().unwrap_or(0)));
    let mut ends = Vec::new();
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => return (vec![at([12, 13, 14, 15])], true),
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] => ends.push(at([12, 13, 14, 15])),
        [0x64, 0xff9b, 1, ..] => {
            ends.push(at([12, 13, 14, 15]));
            ends.extend([[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12]].map(at));
        }
        [0x2001, 0, ..] => ends.push(Ipv4Addr::from(at([12, 13, 14, 15]).octets().map(|octet| !octet))),
        segments => {
            ends.extend((segments[0] == 0x2002).then(|| at([2, 3, 4, 5])));
            let is_isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]);
            ends.extend(is_isatap.then(|| at([12, 13, 14, 15])));
        }
    }
    (ends, false)
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
