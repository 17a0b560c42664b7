//! The addresses of a machine: network interfaces and public addresses, and which of them are the Node's. An interface may have
//! hundreds of IP configurations, for Pods, and only the first of each family counts; so only these are kept while a list is
//! read. Pure.

use std::collections::HashMap;
use std::fmt;

use pileus_guest::{Address, AddressKind};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::arm::id;

/// A network interface, as far as Nodes need it.
#[derive(Debug, Deserialize)]
pub(crate) struct NetworkInterface {
    #[serde(default)]
    pub(crate) id: String,
    pub(crate) properties: InterfaceProperties,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterfaceProperties {
    #[serde(default)]
    primary: Option<bool>,
    #[serde(default)]
    ip_configurations: IpConfigurations,
}

/// The configuration of each family that is the Node's.
#[derive(Debug, Default)]
struct IpConfigurations {
    ipv4: Option<IpConfiguration>,
    ipv6: Option<IpConfiguration>,
}

#[derive(Debug, Deserialize)]
struct IpConfiguration {
    properties: IpProperties,
}

#[derive(Debug, Deserialize)]
struct IpProperties {
    #[serde(default)]
    primary: Option<bool>,
    #[serde(rename = "privateIPAddress")]
    address: Option<String>,
    #[serde(rename = "privateIPAddressVersion")]
    version: Option<String>,
    #[serde(rename = "publicIPAddress")]
    public: Option<Reference>,
}

/// A reference to a resource.
#[derive(Debug, Deserialize)]
pub(crate) struct Reference {
    #[serde(default)]
    pub(crate) id: String,
}

/// A public address.
#[derive(Debug, Deserialize)]
pub(crate) struct PublicAddress {
    #[serde(default)]
    pub(crate) id: String,
    properties: PublicProperties,
}

#[derive(Debug, Deserialize)]
struct PublicProperties {
    #[serde(rename = "ipAddress")]
    address: Option<String>,
}

/// Public addresses by the key of their ID. None for one that has no address at the moment.
pub(crate) type Published = HashMap<String, Option<String>>;

/// The addresses by the keys of their IDs.
pub(crate) fn published(addresses: Vec<PublicAddress>) -> Published {
    addresses.into_iter().map(|it| (id::key(&it.id), it.properties.address)).collect()
}

impl PublicAddress {
    pub(crate) fn address(self) -> Option<String> {
        self.properties.address
    }
}

impl<'de> Deserialize<'de> for IpConfigurations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = IpConfigurations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of IP configurations")
            }

            fn visit_unit<E>(self) -> Result<IpConfigurations, E> {
                Ok(IpConfigurations::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IpConfigurations, A::Error> {
                let mut kept = IpConfigurations::default();
                while let Some(next) = list.next_element::<IpConfiguration>()? {
                    let place = if next.is_ipv6() { &mut kept.ipv6 } else { &mut kept.ipv4 };
                    let is_better = match place {
                        None => true,
                        Some(there) => next.is_primary() && !there.is_primary(),
                    };
                    if is_better {
                        *place = Some(next);
                    }
                }
                Ok(kept)
            }
        }

        deserializer.deserialize_any(List)
    }
}

impl IpConfiguration {
    fn is_primary(&self) -> bool {
        self.properties.primary == Some(true)
    }

    fn is_ipv6(&self) -> bool {
        let is_said = self.properties.version.as_deref().map(|version| version.eq_ignore_ascii_case("IPv6"));
        is_said.unwrap_or_else(|| self.properties.address.as_deref().is_some_and(|ip| ip.contains(':')))
    }
}

impl NetworkInterface {
    /// Whether it is the machine's primary one. None if it doesn't say, as an interface of a machine with a single one.
    pub(crate) const fn is_primary(&self) -> Option<bool> {
        self.properties.primary
    }

    /// The IDs of its public addresses.
    pub(crate) fn public_ids(&self) -> impl Iterator<Item = &str> {
        self.configurations().filter_map(|it| Some(it.properties.public.as_ref()?.id.as_str()))
    }

    /// IPv4 first.
    fn configurations(&self) -> impl Iterator<Item = &IpConfiguration> {
        let IpConfigurations { ipv4, ipv6 } = &self.properties.ip_configurations;
        ipv4.iter().chain(ipv6)
    }

    /// The addresses of a machine of this name whose primary interface this is, in cloud-provider-azure's order, and those of
    /// IPv6 after them. None if a public address isn't known.
    pub(crate) fn addresses(&self, name: &str, published: &Published) -> Option<Vec<Address>> {
        let mut all = Vec::with_capacity(5);
        let mut hostname = Some(Address::new(AddressKind::Hostname, name));
        for configuration in self.configurations() {
            let IpProperties { address, public, .. } = &configuration.properties;
            all.extend(address.as_ref().map(|ip| Address::new(AddressKind::InternalIp, ip)));
            all.extend(hostname.take());
            if let Some(public) = public {
                let known = published.get(&id::key(&public.id))?;
                all.extend(known.as_ref().map(|ip| Address::new(AddressKind::ExternalIp, ip)));
            }
        }
        all.extend(hostname);
        Some(all)
    }
}

/// The primary one of a machine's interfaces: the one that says so, or else the first.
pub(crate) fn primary<'a>(
    interfaces: impl Iterator<Item = &'a NetworkInterface> + Clone,
) -> Option<&'a NetworkInterface> {
    let said = interfaces.clone().find(|interface| interface.is_primary() == Some(true));
    said.or_else(|| interfaces.into_iter().next())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configuration(primary: Option<bool>, version: Option<&str>, ip: &str, public: Option<&str>) -> Value {
        let public = public.map(|id| json!({"id": id}));
        json!({"name": "c", "properties": {
            "primary": primary, "privateIPAddress": ip, "privateIPAddressVersion": version, "publicIPAddress": public,
        }})
    }

    fn found(configurations: &[Value], published: &Published) -> Option<Vec<(AddressKind, String)>> {
        let interface =
            json!({"id": "/nic", "properties": {"primary": true, "ipConfigurations": configurations}});
        let interface: NetworkInterface = serde_json::from_value(interface).unwrap();
        let addresses = interface.addresses("node", published)?;
        Some(addresses.into_iter().map(|it| (it.kind, it.value)).collect())
    }

    /// Section 2.7 and D6: both families, in cloud-provider-azure's order; of many configurations the primary one.
    #[test]
    fn addresses_are_those_of_the_primary_configuration_of_each_family() {
        use AddressKind::{ExternalIp, Hostname, InternalIp};
        let published: Published =
            [("/p4".to_owned(), Some("203.0.113.1".to_owned())), ("/p6".to_owned(), None)].into();
        let v4 = |primary, ip: &str| configuration(primary, Some("IPv4"), ip, None);
        let v6 = |ip: &str, public| configuration(Some(false), Some("IPv6"), ip, public);
        let rows = [
            ("one", vec![v4(Some(true), "10.0.0.4")], vec![(InternalIp, "10.0.0.4"), (Hostname, "node")]),
            (
                "many, the primary one is not the first",
                vec![v4(Some(false), "10.0.0.5"), v4(Some(true), "10.0.0.4"), v4(None, "10.0.0.6")],
                vec![(InternalIp, "10.0.0.4"), (Hostname, "node")],
            ),
            (
                "dual stack with a public address",
                vec![configuration(Some(true), None, "10.0.0.4", Some("/P4")), v6("fd00::4", Some("/p6"))],
                vec![
                    (InternalIp, "10.0.0.4"),
                    (Hostname, "node"),
                    (ExternalIp, "203.0.113.1"),
                    (InternalIp, "fd00::4"),
                ],
            ),
            (
                "IPv6 alone",
                vec![configuration(None, None, "fd00::4", None)],
                vec![(InternalIp, "fd00::4"), (Hostname, "node")],
            ),
            ("none", vec![], vec![(Hostname, "node")]),
            ("no address yet", vec![json!({"properties": {}})], vec![(Hostname, "node")]),
        ];
        for (row, configurations, expected) in rows {
            let expected: Vec<_> =
                expected.into_iter().map(|(kind, value)| (kind, value.to_owned())).collect();
            assert_eq!(found(&configurations, &published), Some(expected), "{row}");
        }
        let unknown = configuration(Some(true), None, "10.0.0.4", Some("/other"));
        assert_eq!(
            found(&[unknown], &published),
            None,
            "a public address that isn't known is no address less"
        );
    }

    #[test]
    fn the_primary_interface_says_so() {
        let interface = |name: &str, primary: Option<bool>| -> NetworkInterface {
            serde_json::from_value(json!({"id": name, "properties": {"primary": primary}})).unwrap()
        };
        let rows = [
            (vec![("a", Some(false)), ("b", Some(true))], Some("b")),
            (vec![("a", None), ("b", None)], Some("a")),
            (vec![], None),
        ];
        for (interfaces, expected) in rows {
            let interfaces: Vec<_> =
                interfaces.into_iter().map(|(name, said)| interface(name, said)).collect();
            assert_eq!(primary(interfaces.iter()).map(|it| &*it.id), expected);
        }
    }
}
