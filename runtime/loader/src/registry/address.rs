//! Which addresses are dialed. The operator names a registry, so it may be in a private network; but a registry chooses where
//! its downloads and tokens are, and must not make this process ask its machine, its cloud's metadata service or its private
//! network for something. The address that is checked is the one that is dialed. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// How a host came to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedBy {
    /// The operator names it.
    Operator,
    /// The operator names it by an address or name that means this machine.
    OperatorAsThisMachine,
    /// An answer of a registry leads to it.
    Registry,
}

/// Checks an address. `opened` are the private ranges to which the operator lets the registry lead. The error says what the
/// address is.
pub(super) fn permit(address: IpAddr, named_by: NamedBy, opened: &[IpNet]) -> Result<(), &'static str> {
    let address = judged(address);
    let kind = kind(address);
    let is_opened = opened.iter().any(|range| range.contains(&address));
    match (kind, named_by) {
        (Kind::Public, _)
        | (Kind::Private, NamedBy::Operator | NamedBy::OperatorAsThisMachine)
        | (Kind::ThisMachine, NamedBy::OperatorAsThisMachine) => Ok(()),
        (Kind::Private | Kind::ThisMachine, NamedBy::Registry) if is_opened => Ok(()),
        (Kind::Private, NamedBy::Registry) => {
            Err("a private address; list its range in `addresses` of the registry")
        }
        (Kind::ThisMachine, _) => Err("an address of this machine"),
        (Kind::Special, _) => Err("a link-local, metadata or reserved address"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Public,
    Private,
    ThisMachine,
    Special,
}

/// An address as it acts: one that embeds an IPv4 address is that address.
fn judged(address: IpAddr) -> IpAddr {
    let IpAddr::V6(outer) = address.to_canonical() else { return address.to_canonical() };
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match outer.segments() {
        // NAT64, 6to4, IPv4-compatible. `::` and `::1` stay.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => v4(high, low),
        _ => IpAddr::V6(outer),
    }
}

fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [127, ..] => Kind::ThisMachine,
        // Metadata services that are not link-local: Azure's wire server, Alibaba's, Oracle's. They come before the private
        // ranges, which contain one of them.
        [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, _] | [0 | 224..=255, ..] | [169, 254, ..] => {
            Kind::Special
        }
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] | [198, 18 | 19, ..] => {
            Kind::Private
        }
        _ => Kind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let segments = address.segments();
    // The metadata services of AWS, Google and Oracle are among the private addresses; Teredo and other protocols among the
    // public ones.
    let is_special =
        matches!(segments, [0xfd00, 0xec2 | 0xc1, ..] | [0xfd20, 0xce, ..] | [0x2001, 0..=0x1ff, ..]);
    match segments {
        _ if is_special => Kind::Special,
        [0, 0, 0, 0, 0, 0, 0, 1] => Kind::ThisMachine,
        [0xfc00..=0xfdff, ..] => Kind::Private,
        [0x2000..=0x3fff, ..] => Kind::Public,
        _ => Kind::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_leads_only_to_public_and_opened_addresses_and_no_name_to_metadata() {
        use NamedBy::{Operator, OperatorAsThisMachine, Registry};
        let opened = ["10.1.0.0/16".parse().unwrap(), "169.254.0.0/16".parse().unwrap()];
        let all = [Operator, OperatorAsThisMachine, Registry];
        for (addresses, allowed) in [
            (&["1.1.1.1", "2606:4700::1", "64:ff9b::101:101", "::ffff:1.1.1.1"][..], &all[..]),
            (&["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"], &all),
            (&["10.2.0.1", "192.168.0.1", "172.31.0.1", "100.64.0.1", "fd12::1", "2002:a02:1::"], &all[..2]),
            (&["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], &all[1..2]),
            (
                &[
                    "169.254.169.254",
                    "::ffff:a9fe:a9fe",
                    "64:ff9b::a9fe:a9fe",
                    "2002:a9fe:a9fe::",
                    "::a9fe:a9fe",
                ],
                &[],
            ),
            (&["168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fe80::1"], &[]),
            (&["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "2001::1", "4000::1"], &[]),
        ] {
            for (address, named) in addresses.iter().flat_map(|address| all.map(|named| (address, named))) {
                let found = permit(address.parse().unwrap(), named, &opened);
                assert_eq!(found.is_ok(), allowed.contains(&named), "{address} {named:?}: {found:?}");
            }
        }
    }
}
