//! Addresses that are reserved by themselves, for the frontends of shared load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::World;
use super::managed::Managed;
use super::pool::Family;
use super::resource::{Ended, Kind, Resource, Resources};
use crate::refusal::Refusal;

/// What a caller asks for in an address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAddress {
    /// Its family, which stays.
    pub family: Family,
    /// The address itself, which stays; else the cloud chooses.
    #[serde(default)]
    pub value: Option<IpAddr>,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// An address, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedAddress {
    /// Its family.
    pub family: Family,
    /// The address itself.
    pub value: IpAddr,
    /// The shared load balancer that needs it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
}

impl Kind for ReservedAddress {
    const NOUN: &'static str = "address";
    const PLURAL: &'static str = "addresses";
}

impl Managed for ReservedAddress {
    type New = NewAddress;

    fn all(world: &World) -> &Resources<Self> {
        &world.addresses
    }

    fn all_mut(world: &mut World) -> &mut Resources<Self> {
        &mut world.addresses
    }

    fn check(_: &World, NewAddress { family, value, labels: _ }: &NewAddress) -> Result<(), Refusal> {
        match value {
            Some(value) if Family::of(*value) != *family => {
                Err(Refusal::Invalid(format!("{value} is no {} address", family.as_str())))
            }
            _ => Ok(()),
        }
    }

    fn compose(world: &mut World, name: &str, new: NewAddress) -> Result<Self, Refusal> {
        let NewAddress { family, value, labels } = new;
        if let Some(it) = world.addresses.find(name) {
            let has = it.goal.value;
            if family != it.goal.family || value.is_some_and(|value| value != has) {
                return Err(Refusal::Conflict(format!("address {name} is {has} and stays that")));
            }
            return Ok(Self { family, value: has, used_by: None, labels });
        }
        let holder = format!("{} {name}", Self::NOUN);
        let value = value.unwrap_or_else(|| world.pool.free(family));
        world.pool.check(value, &holder)?;
        world.pool.assign(&holder, &[], &[value]);
        Ok(Self { family, value, used_by: None, labels })
    }

    fn check_deletion(world: &World, name: &str) -> Result<(), Refusal> {
        match world.users.get(name) {
            Some(user) => {
                Err(Refusal::InUse(format!("address {name} is in use by shared load balancer {user}")))
            }
            None => Ok(()),
        }
    }

    fn ended(world: &mut World, Ended { resource, is_gone }: &Ended<Self>) {
        if *is_gone {
            world.pool.release(&[resource.goal.value]);
        }
    }

    fn shown(world: &World, mut resource: Arc<Resource<Self>>) -> Arc<Resource<Self>> {
        if let Some(user) = world.users.get(&resource.name) {
            let resource = Arc::make_mut(&mut resource);
            Arc::make_mut(&mut resource.goal).used_by = Some(user.clone());
        }
        resource
    }
}
