//! One machine outside of uniform scale sets: standalone, in an availability set, or in a flexible scale set.

use pileus_guest::http::{self, Source};
use pileus_guest::{Answer, Error, ErrorKind, map_concurrently};

use super::Machine;
use super::address::{NetworkInterface, PublicAddress, Published, primary};
use super::provider_id::MachineId;
use crate::Azure;
use crate::arm::{Api, Group, Listed, id, list, read, with_instance_view};

impl Azure {
    /// The answer about the machine with this ID.
    pub(super) async fn standalone_machine(&self, id: &MachineId) -> Result<Answer, Error> {
        let url = self.url(&id.group, Api::Machines, &id.path());
        match read::<Machine>(&with_instance_view(&url)).await? {
            Some(machine) => self.standalone_answer(&machine, id).await,
            None => Ok(Answer::Absent),
        }
    }

    async fn standalone_answer(&self, machine: &Machine, id: &MachineId) -> Result<Answer, Error> {
        if machine.is_deleting() {
            return Ok(Answer::Absent);
        }
        let read = async |id: &str| self.interface(id, Source::Cloud).await;
        let interfaces = map_concurrently(machine.interface_ids(), read).await;
        let interfaces: Vec<_> =
            interfaces.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let interface = primary(interfaces.iter());
        let public = interface.iter().flat_map(|it| it.public_ids()).collect();
        let (published, end) = self.read_public(public, Api::Network, Source::Cloud).await;
        end?;
        Ok(machine.answer(id, interface, &published))
    }

    /// The machines of a resource group outside of uniform scale sets. Where the resource manager refuses to tell the power states of
    /// a whole group, they come without.
    pub(super) async fn machines(&self, group: &Group, source: Source) -> Listed<Machine> {
        let url = self.url(group, Api::Machines, &["virtualMachines"]);
        match list(with_instance_view(&url), source).await {
            (_, Err(error)) if error.kind == ErrorKind::Invalid => list(url, source).await,
            listed => listed,
        }
    }

    /// Reads a network interface.
    pub(super) async fn interface(
        &self,
        id: &str,
        source: Source,
    ) -> Result<Option<NetworkInterface>, Error> {
        if source == Source::Cloud {
            return read(&self.url_of(id, Api::Network)).await;
        }
        let response = http::get(self.url_of(id, Api::Network)).send_from(source).await?;
        response.or_absent()?.map(http::Response::json).transpose()
    }

    /// Reads public addresses, each by itself. One that is gone is no address.
    pub(super) async fn read_public(
        &self,
        ids: Vec<&str>,
        api: Api,
        source: Source,
    ) -> (Published, Result<(), Error>) {
        let read_one = async |public: &str| {
            let found: Option<PublicAddress> = match source {
                Source::Cloud => read(&self.url_of(public, api)).await?,
                Source::Cache => {
                    let response = http::get(self.url_of(public, api)).send_from(source).await?;
                    response.or_absent()?.map(http::Response::json).transpose()?
                }
            };
            Ok::<_, Error>((id::key(public), found.and_then(PublicAddress::address)))
        };
        let (mut published, mut end) = (Published::new(), Ok(()));
        for read in map_concurrently(ids, read_one).await {
            match read {
                Ok((key, address)) => drop(published.insert(key, address)),
                Err(error) => end = end.and(Err(error)),
            }
        }
        (published, end)
    }

    /// The answer about the machine whose computer has this name. Absent only if neither a uniform scale set nor the complete list
    /// of other machines has it.
    pub(super) async fn machine_named(&self, group: &Group, name: &str) -> Result<Answer, Error> {
        if self.has_scale_sets
            && let Some(answer) = self.uniform_named(group, name).await?
        {
            return Ok(answer);
        }
        let named = MachineId { group: group.clone(), set: None, name: name.to_owned() };
        let url = with_instance_view(&self.url(group, Api::Machines, &named.path()));
        let is_it =
            |machine: &Machine| machine.computer_name().as_deref() == Some(name) && !machine.is_deleting();
        if let Some(machine) = read::<Machine>(&url).await?.filter(is_it) {
            let id = MachineId::of(&machine.id).unwrap_or(named);
            return self.standalone_answer(&machine, &id).await;
        }
        // The name of a machine may differ from that of its computer, as in flexible scale sets.
        let (machines, end) = self.machines(group, Source::Cloud).await;
        end?;
        let mut found = machines.iter().filter(|machine| is_it(machine));
        let Some(machine) = found.next() else { return Ok(Answer::Absent) };
        if found.next().is_some() {
            return Err(Error::invalid(format!("several machines of {} have the name {name}", group.name)));
        }
        let id = MachineId::of(&machine.id)
            .ok_or_else(|| Error::broken(format!("a machine has the unexpected ID `{}`", machine.id)))?;
        self.standalone_answer(machine, &id).await
    }
}
