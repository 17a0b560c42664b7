//! Machines: how the API shows them, what a caller may write, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::listing::Listable;
use crate::refusal::Refusal;

/// The ID of a machine, such as `m-000001`. IDs count up and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MachineId(pub(super) u64);

impl MachineId {
    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Parses an ID. An invalid ID can't be a machine's, so it is [`Refusal::NotFound`].
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let number = text.strip_prefix("m-").and_then(|digits| digits.parse().ok());
        // Only the canonical form: `m-1` and `m-+00001` don't mean `m-000001`.
        let id = number.map(Self).filter(|id| id.to_string() == text);
        id.ok_or_else(|| Refusal::NotFound(format!("machine {text}")))
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "m-{:06}", self.0)
    }
}

impl From<MachineId> for String {
    fn from(id: MachineId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for MachineId {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Its ID.
    pub id: MachineId,
    /// Its name. No two machines have the same name at the same time.
    pub name: String,
    /// Its instance type.
    #[serde(rename = "type")]
    pub machine_type: String,
    /// Its zone.
    pub zone: String,
    /// Its region.
    pub region: String,
    /// Its addresses, the preferred one of each kind first.
    pub addresses: Vec<Address>,
    /// Whether it runs.
    pub state: State,
    /// Any labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Listable for Machine {
    const PLURAL: &'static str = "machines";

    fn name(&self) -> &str {
        &self.name
    }
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Its kind.
    pub kind: AddressKind,
    /// The address or name itself.
    pub value: String,
}

/// The kind of an address, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// A host name.
    Hostname,
    /// An IP address that is reachable from inside the cloud's network.
    InternalIp,
    /// An IP address that is reachable from outside.
    ExternalIp,
    /// A DNS name that resolves inside.
    InternalDns,
    /// A DNS name that resolves outside.
    ExternalDns,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is being created.
    Creating,
    /// It runs.
    Running,
    /// It has been stopped.
    Stopped,
}

/// The body of a create request. Missing fields get defaults that follow from the machine's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMachine {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type", default)]
    pub machine_type: Option<String>,
    /// Its zone, one of the cloud's.
    #[serde(default)]
    pub zone: Option<String>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Option<Vec<Address>>,
    /// Its labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Many machines at once, for tests: new ones with the first free names of `PREFIX1`, `PREFIX2` and so on, or the first
/// existing ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// How many, at most [`MAX_BATCH`].
    pub count: u32,
    /// The prefix of their names.
    pub prefix: String,
}

/// The most machines of one batch: far more than a benchmark needs, and still quick.
pub const MAX_BATCH: u32 = 100_000;

/// The changes of a machine. Each field that is present replaces the old value as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    /// Its type.
    #[serde(rename = "type")]
    pub machine_type: Option<String>,
    /// Its addresses.
    pub addresses: Option<Vec<Address>>,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
}

impl NewMachine {
    /// A machine of this name with defaults for everything else.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(super) fn check(&self, zones: &[String]) -> Result<(), Refusal> {
        let Self { name, machine_type, zone, addresses, labels: _ } = self;
        check_name(name)?;
        check_type(machine_type.as_deref())?;
        check_addresses(addresses.as_deref())?;
        match zone {
            Some(zone) if !zones.contains(zone) => {
                let zones = zones.join(", ");
                Err(Refusal::Invalid(format!("unknown zone {zone}; expected one of {zones}")))
            }
            _ => Ok(()),
        }
    }
}

impl Batch {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if !(1..=MAX_BATCH).contains(&self.count) {
            let count = self.count;
            return Err(Refusal::Invalid(format!("count is {count}; it must be from 1 to {MAX_BATCH}")));
        }
        // A name ends with a number of at most 20 digits.
        check_name(&format!("{}{}", self.prefix, u64::MAX))
    }
}

impl Changes {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Self { machine_type, addresses, labels: _ } = self;
        check_type(machine_type.as_deref())?;
        check_addresses(addresses.as_deref())
    }

    pub(super) fn change(self, machine: &mut Machine) {
        let Self { machine_type, addresses, labels } = self;
        if let Some(machine_type) = machine_type {
            machine.machine_type = machine_type;
        }
        if let Some(addresses) = addresses {
            machine.addresses = addresses;
        }
        if let Some(labels) = labels {
            machine.labels = labels;
        }
    }
}

/// Checks that a Node could have this name, which is a DNS name.
fn check_name(name: &str) -> Result<(), Refusal> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= 253
        && bytes.iter().all(|byte| inner(*byte))
        && outer(bytes.first())
        && outer(bytes.last())
    {
        return Ok(());
    }
    Err(Refusal::Invalid(format!(
        "invalid name {name:?}: expected up to 253 of a-z, 0-9, - and ., with a letter or a digit at both ends"
    )))
}

fn check_type(machine_type: Option<&str>) -> Result<(), Refusal> {
    if machine_type == Some("") {
        return Err(Refusal::Invalid("type is empty; leave it out or name one".to_owned()));
    }
    Ok(())
}

fn check_addresses(addresses: Option<&[Address]>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for Address { kind, value } in addresses.unwrap_or_default() {
        let is_ip = matches!(kind, AddressKind::InternalIp | AddressKind::ExternalIp);
        if value.is_empty() || (is_ip && value.parse::<IpAddr>().is_err()) {
            return Err(Refusal::Invalid(format!("invalid address {value:?} of this kind")));
        }
        if !seen.insert((format!("{kind:?}"), value)) {
            return Err(Refusal::Invalid(format!("address {value} is listed twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_form_only() {
        for text in ["m-000001", "m-999999", "m-1000000"] {
            assert_eq!(MachineId::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "m-", "m-1", "m-+00001", "m-0000001", "M-000001", "node-1", "m-00000x"] {
            let refusal = MachineId::parse(text).unwrap_err();
            assert_eq!(refusal.to_string(), format!("no machine {text}"));
        }
    }

    #[test]
    fn a_name_is_one_that_a_node_could_have() {
        let long = "a".repeat(253);
        for name in ["a", "node-1", "10.0.0.1", "a.b-c", &long] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let longer = "a".repeat(254);
        for name in ["", "-a", "a-", ".a", "A", "a b", "a/b", "ä", &longer] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn addresses_must_fit_their_kind() {
        let address = |kind, value: &str| Address { kind, value: value.to_owned() };
        let good = [
            address(AddressKind::InternalIp, "10.0.0.1"),
            address(AddressKind::InternalIp, "fd00::1"),
            address(AddressKind::ExternalIp, "10.0.0.1"),
            address(AddressKind::ExternalDns, "node-1.example.org"),
        ];
        assert!(check_addresses(Some(&good)).is_ok());
        for bad in [address(AddressKind::InternalIp, "node-1"), address(AddressKind::Hostname, "")] {
            assert!(check_addresses(Some(std::slice::from_ref(&bad))).is_err(), "{bad:?}");
        }
        let twice = [good[0].clone(), good[0].clone()];
        assert!(check_addresses(Some(&twice)).is_err());
    }
}
