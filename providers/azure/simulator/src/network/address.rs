//! Free addresses: private ones of subnets, public ones of fixed ranges. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::id::Key;
use crate::json::{at, items, text};
use crate::refusal::Refusal;
use crate::state::{Resource, State, named};

/// How many addresses at the start of each subnet Azure keeps for itself: network, gateway and two for DNS.
const RESERVED: u128 = 4;

impl State {
    /// The ranges of a subnet.
    pub(crate) fn subnet_ranges(&self, subnet: &str) -> Vec<IpNet> {
        let network = self.store.owner(subnet);
        let name = subnet.rsplit('/').next().unwrap_or_default();
        let found = network.and_then(|network| named(at(&network.body, "/properties"), "subnets", name));
        let Some(found) = found else { return Vec::new() };
        let one = std::iter::once(text(found, "/properties/addressPrefix"));
        let more = items(found, "/properties/addressPrefixes").iter().filter_map(|it| it.as_str());
        let mut ranges: Vec<IpNet> = one.chain(more).filter_map(|text| text.parse().ok()).collect();
        ranges.dedup();
        ranges
    }

    /// Takes the next free address of a subnet.
    pub(crate) fn allocate(&mut self, subnet: &str, is_ipv4: bool) -> Result<IpAddr, Refusal> {
        let key = Key::of(subnet);
        let ranges = self.subnet_ranges(subnet);
        let range = ranges.into_iter().find(|range| matches!(range, IpNet::V4(_)) == is_ipv4);
        let full = || {
            let message = format!("Subnet {subnet} does not have enough capacity for 1 IP addresses.");
            Refusal::network(400, "SubnetIsFull", message)
        };
        let range = range.ok_or_else(full)?;
        let (first, last) = bounds(range);
        let next =
            self.store.last_taken(&key, is_ipv4).map_or(first, |address| number(address) + 1).max(first);
        let is_free = |number: &u128| !self.store.is_taken(&key, address(*number, is_ipv4));
        // Addresses count up; freed ones are used again only when the end is reached.
        let found = (next..=last).take(1).chain(first..=last).find(is_free).ok_or_else(full)?;
        let found = address(found, is_ipv4);
        self.store.take(&key, found);
        Ok(found)
    }

    /// Checks that a static address can be given in a subnet, and takes it.
    pub(crate) fn claim(
        &mut self,
        subnet: &str,
        wanted: IpAddr,
        user: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let key = Key::of(subnet);
        let ranges = self.subnet_ranges(subnet);
        let Some(range) = ranges.into_iter().find(|range| range.contains(&wanted)) else {
            let message = format!(
                "Private static IP address {wanted} does not belong to the range of subnet {subnet}."
            );
            return Err(Refusal::network(400, "PrivateIPAddressNotInSubnet", message));
        };
        let (first, last) = bounds(range);
        if !(first..=last).contains(&number(wanted)) {
            let message = format!(
                "Private static IP address {wanted} falls within reserved IP range of subnet {subnet}."
            );
            return Err(Refusal::network(400, "PrivateIPAddressInReservedRange", message));
        }
        let is_own = user.is_some_and(|user| user.body.to_string().contains(&format!("\"{wanted}\"")));
        if self.store.is_taken(&key, wanted) && !is_own {
            let message = format!(
                "IP configuration is using the private IP address {wanted} which is already allocated."
            );
            return Err(Refusal::network(400, "PrivateIPAddressIsAllocated", message));
        }
        self.store.take(&key, wanted);
        Ok(())
    }

    /// The next public address: of 198.18.0.0/15 or 2001:db8::/32, which are reserved for such purposes.
    pub(crate) fn next_public_address(&mut self, is_ipv4: bool) -> String {
        self.addresses += 1;
        if is_ipv4 {
            return Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + self.addresses).to_string();
        }
        let base = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0).to_bits();
        Ipv6Addr::from_bits(base + u128::from(self.addresses)).to_string()
    }
}

/// The first and the last address that can be given.
fn bounds(range: IpNet) -> (u128, u128) {
    let (first, last) = (number(range.network()), number(range.broadcast()));
    (first + RESERVED, if range.addr().is_ipv4() { last - 1 } else { last })
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(number: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        return Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into();
    }
    Ipv6Addr::from_bits(number).into()
}
