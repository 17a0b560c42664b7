//! One machine of a uniform scale set: by its number, or by its computer name, whose last six characters are the number in base 36.

use pileus_guest::http::Source;
use pileus_guest::{Answer, Error, map_concurrently};

use super::Machine;
use super::address::{NetworkInterface, primary};
use super::provider_id::MachineId;
use super::sweep::ScaleSet;
use crate::Azure;
use crate::arm::{Api, Group, list, read, with_instance_view};

/// How many characters of a computer name are the number.
const NUMBER: usize = 6;

impl Azure {
    /// The answer about the instance with this ID.
    pub(super) async fn uniform_machine(&self, id: &MachineId, set: &str) -> Result<Answer, Error> {
        // The resource manager refuses other numbers as invalid, and no machine has such a one.
        if id.name.is_empty() || id.name.bytes().any(|digit| !digit.is_ascii_digit()) {
            return Err(Error::invalid(format!(
                "`{}` isn't the number of an instance of scale set {set}",
                id.name
            )));
        }
        let machine = self.read_uniform(id).await?;
        match machine {
            Some(machine) => self.uniform_answer(&machine, id).await,
            None => Ok(Answer::Absent),
        }
    }

    async fn read_uniform(&self, id: &MachineId) -> Result<Option<Machine>, Error> {
        read(&with_instance_view(&self.url(&id.group, Api::ScaleSets, &id.path()))).await
    }

    async fn uniform_answer(&self, machine: &Machine, id: &MachineId) -> Result<Answer, Error> {
        if machine.is_deleting() {
            return Ok(Answer::Absent);
        }
        let path = [&*id.path(), &["networkInterfaces"]].concat();
        let url = self.url(&id.group, Api::SetNetwork, &path);
        let (interfaces, end) = list::<NetworkInterface>(url, Source::Cloud).await;
        end?;
        let interface = primary(interfaces.iter());
        let public = interface.iter().flat_map(|it| it.public_ids()).collect();
        let (published, end) = self.read_public(public, Api::SetNetwork, Source::Cloud).await;
        end?;
        Ok(machine.answer(id, interface, &published))
    }

    /// The answer about the instance whose computer has this name. None if no uniform scale set of the group can have it.
    pub(super) async fn uniform_named(&self, group: &Group, name: &str) -> Result<Option<Answer>, Error> {
        let Some((prefix, number)) = number(name) else { return Ok(None) };
        let (sets, end) = self.scale_sets(group, Source::Cloud).await;
        end?;
        let fitting =
            sets.into_iter().filter(|set| set.is_uniform() && set.prefix().eq_ignore_ascii_case(prefix));
        let read = async |ScaleSet { name: set, .. }: ScaleSet| {
            let id = MachineId { group: group.clone(), set: Some(set), name: number.to_string() };
            let machine = self.read_uniform(&id).await?;
            Ok::<_, Error>(machine.map(|machine| (id, machine)))
        };
        for found in map_concurrently(fitting, read).await {
            match found? {
                Some((id, machine))
                    if machine.computer_name().as_deref() == Some(name) && !machine.is_deleting() =>
                {
                    return self.uniform_answer(&machine, &id).await.map(Some);
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The prefix and the number in a computer name. None for a name that no uniform scale set gives.
fn number(name: &str) -> Option<(&str, u64)> {
    let (prefix, digits) = name.split_at_checked(name.len().checked_sub(NUMBER)?)?;
    let is_valid = !prefix.is_empty() && digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    let number = u64::from_str_radix(digits, 36).ok()?;
    is_valid.then_some((prefix, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 2.4.
    #[test]
    fn a_computer_name_ends_with_a_number_in_base_36() {
        let rows = [
            ("aks-pool-vmss000000", Some(("aks-pool-vmss", 0))),
            ("aks-pool-vmss00000a", Some(("aks-pool-vmss", 10))),
            ("aks-pool-vmss000010", Some(("aks-pool-vmss", 36))),
            ("vmss00000Z", Some(("vmss", 35))),
            ("000001", None),
            ("vm-1", None),
            ("node-000-01", None),
            ("node+00001", None),
            ("vmß00001", None),
            ("", None),
        ];
        for (name, expected) in rows {
            assert_eq!(number(name), expected, "{name}");
        }
    }
}
