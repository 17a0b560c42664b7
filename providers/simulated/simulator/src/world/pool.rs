//! The addresses that the cloud assigns, each to one holder at a time: the lowest free one, or a requested one. They are from
//! ranges that aren't used on the internet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The first range of IPv4 addresses, which is reserved for documentation.
const IPV4_FIRST: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);

/// The range from the 255th address on: 4 million addresses, which are reserved for carriers' shared use.
const IPV4_REST: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);

/// The range of IPv6 addresses, which is reserved for documentation.
const IPV6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32);

/// The number of the last address that is assigned, which is the last one of [`IPV4_REST`].
const MAX_NUMBER: u32 = (1 << 22) - 1;

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// The holder of each address.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressPool {
    holders: HashMap<IpAddr, String>,
}

impl AddressPool {
    /// The lowest free address of a family.
    pub(super) fn free(&self, family: Family) -> IpAddr {
        // Never more than MAX_NUMBER are held: that many load balancers don't fit into memory.
        let number = (1..MAX_NUMBER).find(|number| !self.holders.contains_key(&nth(family, *number)));
        nth(family, number.unwrap_or(MAX_NUMBER))
    }

    /// Checks that a holder may have this address: it is one of the cloud's and not assigned to another holder.
    pub(super) fn check(&self, address: IpAddr, holder: &str) -> Result<(), Refusal> {
        let is_ours = match address {
            IpAddr::V4(address) => IPV4_FIRST.contains(&address) || IPV4_REST.contains(&address),
            IpAddr::V6(address) => IPV6.contains(&address),
        };
        if !is_ours {
            return Err(Refusal::Invalid(format!(
                "address {address} isn't one of this cloud's, which are in {IPV4_FIRST}, {IPV4_REST} and {IPV6}"
            )));
        }
        match self.holders.get(&address) {
            Some(other) if other != holder => {
                Err(Refusal::Conflict(format!("address {address} is taken by {other}")))
            }
            _ => Ok(()),
        }
    }

    /// Assigns addresses to a holder in place of those that it had.
    pub(super) fn assign(&mut self, holder: &str, had: &[IpAddr], has: &[IpAddr]) {
        self.release(had);
        self.holders.extend(has.iter().map(|address| (*address, holder.to_owned())));
    }

    /// Frees addresses.
    pub(super) fn release(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            self.holders.remove(address);
        }
    }
}

fn nth(family: Family, number: u32) -> IpAddr {
    match family {
        Family::Ipv4 if number < 255 => Ipv4Addr::from_bits(IPV4_FIRST.addr().to_bits() | number).into(),
        Family::Ipv4 => Ipv4Addr::from_bits(IPV4_REST.addr().to_bits().wrapping_add(number)).into(),
        Family::Ipv6 => Ipv6Addr::from_bits(IPV6.addr().to_bits() | u128::from(number)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_assigned_and_is_one_of_the_clouds() {
        let mut pool = AddressPool::default();
        for family in [Family::Ipv4, Family::Ipv6] {
            for number in 0..300 {
                let free = pool.free(family);
                pool.check(free, "a").unwrap();
                assert_eq!(Family::of(free), family);
                pool.assign(&number.to_string(), &[], &[free]);
            }
        }
        let third = "198.51.100.3".parse().unwrap();
        assert_eq!(pool.free(Family::Ipv4).to_string(), "100.64.1.45");
        pool.release(&[third]);
        assert_eq!(pool.free(Family::Ipv4), third);
        assert_eq!(pool.free(Family::Ipv6).to_string(), "2001:db8::12d");
    }

    #[test]
    fn an_address_has_one_holder_and_foreign_ones_have_none() {
        let mut pool = AddressPool::default();
        let taken = "198.51.100.9".parse().unwrap();
        pool.assign("a", &[], &[taken]);
        assert_eq!(pool.check(taken, "a"), Ok(()));
        let refusal = pool.check(taken, "b").unwrap_err();
        assert_eq!(
            (refusal.code(), &*refusal.to_string()),
            ("conflict", "address 198.51.100.9 is taken by a")
        );
        for foreign in ["10.0.0.1", "203.0.113.1", "fd00::1"] {
            assert_eq!(pool.check(foreign.parse().unwrap(), "a").unwrap_err().code(), "invalid", "{foreign}");
        }
    }
}
