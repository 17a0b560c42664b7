//! The types of resources: their names, the API versions in which they exist, the parts that have IDs of their own, and the
//! fields that clients can't write. Pure.

mod version;

use self::version::SCALE_SET_NETWORK_VERSIONS;
pub(crate) use self::version::{LOCK_VERSIONS, RESOURCE_VERSIONS};

/// A resource provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Provider {
    Compute,
    Network,
}

impl Provider {
    pub(crate) const ALL: [Self; 2] = [Self::Compute, Self::Network];

    /// The namespace as Azure spells it.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::Compute => "Microsoft.Compute",
            Self::Network => "Microsoft.Network",
        }
    }

    pub(crate) fn of(namespace: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.namespace().eq_ignore_ascii_case(namespace))
    }
}

/// A type of resources that the simulator stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    VirtualMachine,
    ScaleSet,
    ScaleSetMachine,
    AvailabilitySet,
    Interface,
    PublicAddress,
    AddressPrefix,
    LoadBalancer,
    SecurityGroup,
    ApplicationSecurityGroup,
    RouteTable,
    VirtualNetwork,
    PrivateLinkService,
}

/// A field of a resource whose elements have IDs of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The field below `properties`, which is also the last segment of the type.
    pub(crate) field: &'static str,
    /// Whether elements can be written one by one.
    pub(crate) is_writable: bool,
    /// The fields that Azure fills in.
    pub(crate) read_only: &'static [&'static str],
}

const fn part(field: &'static str, is_writable: bool, read_only: &'static [&'static str]) -> Part {
    Part { field, is_writable, read_only }
}

const RULE_REFERENCES: &[&str] =
    &["loadBalancingRules", "inboundNatRules", "inboundNatPools", "outboundRules", "outboundRule"];

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::VirtualMachine,
        Self::ScaleSet,
        Self::ScaleSetMachine,
        Self::AvailabilitySet,
        Self::Interface,
        Self::PublicAddress,
        Self::AddressPrefix,
        Self::LoadBalancer,
        Self::SecurityGroup,
        Self::ApplicationSecurityGroup,
        Self::RouteTable,
        Self::VirtualNetwork,
        Self::PrivateLinkService,
    ];

    pub(crate) fn provider(self) -> Provider {
        match self {
            Self::VirtualMachine | Self::ScaleSet | Self::ScaleSetMachine | Self::AvailabilitySet => {
                Provider::Compute
            }
            _ => Provider::Network,
        }
    }

    /// The type without its namespace.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::VirtualMachine => "virtualMachines",
            Self::ScaleSet => "virtualMachineScaleSets",
            Self::ScaleSetMachine => "virtualMachineScaleSets/virtualMachines",
            Self::AvailabilitySet => "availabilitySets",
            Self::Interface => "networkInterfaces",
            Self::PublicAddress => "publicIPAddresses",
            Self::AddressPrefix => "publicIPPrefixes",
            Self::LoadBalancer => "loadBalancers",
            Self::SecurityGroup => "networkSecurityGroups",
            Self::ApplicationSecurityGroup => "applicationSecurityGroups",
            Self::RouteTable => "routeTables",
            Self::VirtualNetwork => "virtualNetworks",
            Self::PrivateLinkService => "privateLinkServices",
        }
    }

    /// The type with its namespace.
    pub(crate) fn full_name(self) -> String {
        format!("{}/{}", self.provider().namespace(), self.name())
    }

    /// What the network provider calls its operations, such as `PutRouteTableOperation`.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Interface => "NetworkInterface",
            Self::PublicAddress => "PublicIpAddress",
            Self::AddressPrefix => "PublicIpPrefix",
            Self::LoadBalancer => "LoadBalancer",
            Self::SecurityGroup => "NetworkSecurityGroup",
            Self::ApplicationSecurityGroup => "ApplicationSecurityGroup",
            Self::RouteTable => "RouteTable",
            Self::VirtualNetwork => "VirtualNetwork",
            Self::PrivateLinkService => "PrivateLinkService",
            Self::VirtualMachine | Self::ScaleSetMachine => "VirtualMachine",
            Self::ScaleSet => "VirtualMachineScaleSet",
            Self::AvailabilitySet => "AvailabilitySet",
        }
    }

    /// The parts that have IDs of their own.
    pub(crate) fn parts(self) -> &'static [Part] {
        match self {
            Self::VirtualNetwork => {
                const {
                    &[
                        part("subnets", true, &["ipConfigurations", "privateEndpoints", "purpose"]),
                        part("virtualNetworkPeerings", false, &[]),
                    ]
                }
            }
            Self::RouteTable => const { &[part("routes", true, &["hasBgpOverride"])] },
            Self::SecurityGroup => const { &[part("securityRules", true, &[])] },
            Self::Interface => {
                const { &[part("ipConfigurations", false, &["privateLinkConnectionProperties"])] }
            }
            Self::LoadBalancer => {
                const {
                    &[
                        part("frontendIPConfigurations", false, RULE_REFERENCES),
                        part(
                            "backendAddressPools",
                            true,
                            &[
                                "backendIPConfigurations",
                                "loadBalancingRules",
                                "inboundNatRules",
                                "outboundRule",
                                "outboundRules",
                            ],
                        ),
                        part("loadBalancingRules", false, &[]),
                        part("probes", false, RULE_REFERENCES),
                        part("inboundNatRules", true, &["backendIPConfiguration"]),
                        part("inboundNatPools", false, &[]),
                        part("outboundRules", false, &[]),
                    ]
                }
            }
            Self::PrivateLinkService => {
                const {
                    &[
                        part("ipConfigurations", false, &[]),
                        part("privateEndpointConnections", true, &["privateEndpoint", "linkIdentifier"]),
                    ]
                }
            }
            _ => &[],
        }
    }

    /// The fields of `properties` that Azure fills in, besides those of all types.
    pub(crate) fn read_only(self) -> &'static [&'static str] {
        match self {
            Self::VirtualMachine => &["instanceView", "vmId", "timeCreated"],
            Self::ScaleSet => &["uniqueId", "timeCreated"],
            Self::ScaleSetMachine => &[
                "instanceView",
                "vmId",
                "timeCreated",
                "latestModelApplied",
                "modelDefinitionApplied",
                "networkProfile",
                "resilientVMDeletionStatus",
            ],
            Self::AvailabilitySet => &["virtualMachines", "virtualMachineScaleSetMigrationInfo", "statuses"],
            Self::Interface => &[
                "virtualMachine",
                "macAddress",
                "primary",
                "hostedWorkloads",
                "privateEndpoint",
                "tapConfigurations",
            ],
            Self::PublicAddress => &["ipConfiguration"],
            Self::AddressPrefix => &["publicIPAddresses", "ipPrefix", "loadBalancerFrontendIpConfiguration"],
            Self::SecurityGroup => &["defaultSecurityRules", "networkInterfaces", "subnets", "flowLogs"],
            Self::RouteTable => &["subnets"],
            Self::PrivateLinkService => &["alias", "networkInterfaces"],
            Self::LoadBalancer | Self::ApplicationSecurityGroup | Self::VirtualNetwork => &[],
        }
    }

    fn of(provider: Provider, types: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.provider() == provider && kind.name().eq_ignore_ascii_case(types))
    }
}

/// What a path of types leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A resource that is stored.
    Stored(Kind),
    /// A part of a stored resource.
    Part(Kind, Part),
    /// The interfaces of the machines of a uniform scale set, or of one of them.
    ScaleSetInterfaces,
    /// The public addresses of the machines of a uniform scale set, or of one interface.
    ScaleSetAddresses,
    /// The instance view of a machine.
    InstanceView(Kind),
    /// An operation, or the result of one.
    Operations,
}

impl Type {
    /// What a provider has below a path of types in lower case.
    pub(crate) fn of(provider: Provider, types: &str) -> Option<Self> {
        if let Some(kind) = Kind::of(provider, types) {
            return Some(Self::Stored(kind));
        }
        match (provider, types) {
            (
                Provider::Compute,
                "virtualmachinescalesets/networkinterfaces"
                | "virtualmachinescalesets/virtualmachines/networkinterfaces",
            ) => return Some(Self::ScaleSetInterfaces),
            (
                Provider::Compute,
                "virtualmachinescalesets/publicipaddresses"
                | "virtualmachinescalesets/virtualmachines/networkinterfaces/ipconfigurations/publicipaddresses",
            ) => return Some(Self::ScaleSetAddresses),
            (Provider::Compute, "virtualmachines/instanceview") => {
                return Some(Self::InstanceView(Kind::VirtualMachine));
            }
            (Provider::Compute, "virtualmachinescalesets/virtualmachines/instanceview") => {
                return Some(Self::InstanceView(Kind::ScaleSetMachine));
            }
            (_, "locations/operations" | "locations/operationresults") => return Some(Self::Operations),
            _ => {}
        }
        let (whole, field) = types.rsplit_once('/')?;
        let kind = Kind::of(provider, whole)?;
        let part = kind.parts().iter().find(|part| part.field.eq_ignore_ascii_case(field))?;
        Some(Self::Part(kind, *part))
    }

    /// The API versions in which it exists.
    pub(crate) fn versions(self, provider: Provider) -> &'static [&'static str] {
        match self {
            Self::ScaleSetInterfaces | Self::ScaleSetAddresses => SCALE_SET_NETWORK_VERSIONS,
            _ => provider.versions(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_without_case() {
        let table = [
            (Provider::Compute, "virtualmachines", Some(Type::Stored(Kind::VirtualMachine))),
            (Provider::Network, "virtualmachines", None),
            (Provider::Compute, "virtualmachinescalesets/networkinterfaces", Some(Type::ScaleSetInterfaces)),
            (Provider::Network, "locations/operationresults", Some(Type::Operations)),
            (Provider::Network, "routetables/rules", None),
        ];
        for (provider, types, expected) in table {
            assert_eq!(Type::of(provider, types), expected, "{types}");
        }
        let subnets = Type::of(Provider::Network, "virtualnetworks/subnets");
        assert!(matches!(subnets, Some(Type::Part(Kind::VirtualNetwork, part)) if part.is_writable));
    }
}
