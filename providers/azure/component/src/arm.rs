//! Azure's resource manager: URLs with the version of each API, lists and single reads. Everything is sent by the SDK, which the
//! host's gate serves; so nothing here retries, waits or knows a token.

pub(crate) mod error;
pub(crate) mod id;
pub(crate) mod operation;
pub(crate) mod read_only;
pub(crate) mod tags;

use std::cell::Cell;

use pileus_guest::Error;
use pileus_guest::http::{self, Request, Response, Source, StatusCode, read_pages};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Azure;
use crate::configuration::RouteTableName;

/// The query parameter that names a page. Azure's services write it in both cases.
pub(crate) const PAGE: [&str; 2] = ["$skiptoken", "$skipToken"];

/// The version of network interfaces and public addresses below a scale set.
pub(crate) const SET_NETWORK: &str = "2018-10-01";

/// An API, of which each has a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Machines,
    ScaleSets,
    Network,
    /// Network resources below a scale set.
    SetNetwork,
}

/// A place of machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) subscription: String,
    /// In lower case.
    pub(crate) name: String,
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Page<T> {
    #[serde(default)]
    value: Option<Vec<T>>,
    #[serde(rename = "nextLink")]
    next: Option<String>,
}

/// The items of a list, and how the list ended.
pub(crate) type Listed<T> = (Vec<T>, Result<(), Error>);

impl Azure {
    /// The version of an API. Azure Stack has older ones.
    pub(crate) const fn version(&self, api: Api) -> &'static str {
        match (api, self.environment.is_stack) {
            (Api::Machines | Api::ScaleSets, false) => "2025-04-01",
            (Api::Machines, true) => "2017-12-01",
            (Api::ScaleSets, true) => "2019-07-01",
            (Api::Network, false) => "2025-05-01",
            (Api::Network, true) => "2018-11-01",
            (Api::SetNetwork, _) => SET_NETWORK,
        }
    }

    /// The URL of a resource or a list below a resource group.
    pub(crate) fn url(&self, group: &Group, api: Api, path: &[&str]) -> String {
        let namespace = match api {
            Api::Network => "Microsoft.Network",
            Api::Machines | Api::ScaleSets | Api::SetNetwork => "Microsoft.Compute",
        };
        let above =
            ["subscriptions", &group.subscription, "resourceGroups", &group.name, "providers", namespace];
        let url = self.environment.arm.join(above.iter().chain(path));
        format!("{url}?api-version={}", self.version(api))
    }

    /// The URL of the resource with this ID.
    pub(crate) fn url_of(&self, id: &str, api: Api) -> String {
        let url = self.environment.arm.join(id.split('/').filter(|segment| !segment.is_empty()));
        format!("{url}?api-version={}", self.version(api))
    }

    /// The URL of the cluster's route table.
    ///
    /// # Errors
    ///
    /// `invalid` if the configuration names none.
    pub(crate) fn route_table_url(&self) -> Result<String, Error> {
        let RouteTableName { subscription, resource_group, name, maximum: _ } = &self.route_table;
        let missing = "routes need routeTableName in the configuration, or start Pileus with --configure-cloud-routes=false";
        let name = name.as_deref().ok_or_else(|| Error::invalid(missing))?;
        let group = Group { subscription: subscription.clone(), name: resource_group.clone() };
        Ok(self.url(&group, Api::Network, &["routeTables", name]))
    }
}

/// Adds a request for the power state.
pub(crate) fn with_instance_view(url: &str) -> String {
    format!("{url}&%24expand=instanceView")
}

/// Reads a resource. None only if the resource manager says by a code that it doesn't exist: a 404 of a proxy, or of a resource
/// group that one of Azure's regions doesn't know yet, says nothing about a machine.
pub(crate) async fn read<T: DeserializeOwned>(url: &str) -> Result<Option<T>, Error> {
    let response = http::get(url).send().await?;
    match strictly(response)?.or_absent()? {
        Some(response) => response.json().map(Some),
        None => Ok(None),
    }
}

/// Lists resources. A list below something that doesn't exist has none.
pub(crate) async fn list<T: DeserializeOwned>(url: String, source: Source) -> Listed<T> {
    let is_gone = Cell::new(false);
    let send = async |page: Request| {
        let response = strictly(page.send_from(source).await?)?.or_absent()?;
        is_gone.set(response.is_none());
        response.ok_or_else(|| Error::broken("the list's parent is gone"))
    };
    let split = |response: Response| {
        let Page { value, next } = response.json()?;
        // A body without a list is an answer of a region that doesn't know the resource group yet.
        let value = value.ok_or_else(|| Error::unavailable("a list came without its items"))?;
        Ok((value, next.filter(|next| !next.is_empty()).map(http::get)))
    };
    match read_pages(http::get(url), send, split).await {
        (_, Err(_)) if is_gone.get() => (Vec::new(), Ok(())),
        listed => listed,
    }
}

/// The response, unless it says "not found" without a code of the resource manager.
fn strictly(response: Response) -> Result<Response, Error> {
    let is_missing = matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE);
    let is_said = response.code().is_some_and(|code| !error::NOT_ABOUT_THE_RESOURCE.contains(&code));
    if is_missing && !is_said {
        let why = response.error_for_status().err().map_or_else(String::new, |error| error.message);
        return Err(Error::unavailable(format!("this says nothing about the resource: {why}")));
    }
    Ok(response)
}

#[cfg(test)]
mod tests;
