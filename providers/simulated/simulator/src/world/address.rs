//! Reserved addresses, for the frontends of shared load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::World;
use super::managed::Managed;
use super::pool::Family;
use super::resource::{Ended, Resource, ResourceKind, Resources};
use crate::refusal::Refusal;

/// The body of a write of an address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAddress {
    /// Its family, which can't be changed.
    pub family: Family,
    /// The address itself, which can't be changed. By default the cloud chooses one.
    #[serde(default)]
    pub value: Option<IpAddr>,
    /// Any labels.
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
    /// The shared load balancer that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
    /// Any labels.
    pub labels: BTreeMap<String, String>,
}

impl ResourceKind for ReservedAddress {
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
                Err(Refusal::Invalid(format!("invalid {} address {value}", family.as_str())))
            }
            _ => Ok(()),
        }
    }

    fn compose(world: &mut World, name: &str, new: NewAddress) -> Result<Self, Refusal> {
        let NewAddress { family, value, labels } = new;
        if let Some(it) = world.addresses.find(name) {
            let has = it.spec.value;
            if family != it.spec.family || value.is_some_and(|value| value != has) {
                return Err(Refusal::Conflict(format!("address {name} is {has} and can't be changed")));
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

    fn ended(world: &mut World, Ended { resource, is_deleted }: &Ended<Self>) {
        if *is_deleted {
            world.pool.release(&[resource.spec.value]);
        }
    }

    fn shown(world: &World, mut resource: Arc<Resource<Self>>) -> Arc<Resource<Self>> {
        if let Some(user) = world.users.get(&resource.name) {
            let resource = Arc::make_mut(&mut resource);
            Arc::make_mut(&mut resource.spec).used_by = Some(user.clone());
        }
        resource
    }
}
