//! The dispatch of the resource manager, and what it knows of providers and regions: API versions and zones. Pure.

use serde_json::{Value, json};

use super::State;
use super::group::subscription_view;
use crate::catalog::{Kind, LOCK_VERSIONS, Provider, RESOURCE_VERSIONS, Type};
use crate::id::Path;
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::token::Principal;
use axum::http::Method;
use simulated_cloud::world::WriteFaults;

/// A region: its name, its display name, and whether it has zones.
pub(crate) struct Location {
    pub(crate) name: &'static str,
    display: &'static str,
    pub(crate) has_zones: bool,
}

const fn location(name: &'static str, display: &'static str, has_zones: bool) -> Location {
    Location { name, display, has_zones }
}

/// The regions.
pub(crate) const LOCATIONS: &[Location] = &[
    location("eastus", "East US", true),
    location("eastus2", "East US 2", true),
    location("westeurope", "West Europe", true),
    location("northeurope", "North Europe", true),
    location("westus2", "West US 2", true),
    location("germanywestcentral", "Germany West Central", true),
    location("westus", "West US", false),
    location("northcentralus", "North Central US", false),
    location("chinaeast2", "China East 2", false),
    location("usgovvirginia", "USGov Virginia", true),
    location("local", "local", false),
];

/// A region's name as Azure compares it: in lower case, without blanks.
pub(crate) fn normalize_location(name: &str) -> String {
    name.chars().filter(|char| !char.is_whitespace()).collect::<String>().to_lowercase()
}

/// Refuses a region that doesn't exist.
pub(super) fn check_location(name: &str, kind: &str) -> Result<(), Refusal> {
    let normal = normalize_location(name);
    if LOCATIONS.iter().any(|location| location.name == normal) {
        return Ok(());
    }
    let known: Vec<_> = LOCATIONS.iter().map(|location| location.name).collect();
    let message = format!(
        "The provided location '{name}' is not available for resource type '{kind}'. List of available regions for the resource \
         type is '{}'.",
        known.join(",")
    );
    Err(Refusal::gateway(400, "LocationNotAvailableForResourceType", message))
}

impl State {
    /// Answers a request of the resource manager whose token is valid.
    pub(super) fn arm(
        &mut self,
        request: &Request,
        faults: WriteFaults,
        principal: Option<&Principal>,
    ) -> Result<Response, Refusal> {
        let path_of = request.path.to_lowercase();
        if path_of.trim_end_matches('/') == "/subscriptions" {
            check_version(request, RESOURCE_VERSIONS, "subscriptions")?;
            let tenant = principal.map(|principal| principal.tenant.as_str());
            let visible = self.subscriptions().filter(|it| tenant.is_none_or(|tenant| tenant == it.tenant));
            return Ok(Response::json(
                200,
                json!({"value": visible.map(subscription_view).collect::<Vec<_>>()}),
            ));
        }
        let path = Path::parse(&request.path).ok_or_else(|| unknown_path(request))?;
        self.check_tenant(&path, principal)?;
        if path_of.contains("/providers/microsoft.authorization/locks") {
            check_version(request, LOCK_VERSIONS, "locks")?;
            return self.locks(request, &path).unwrap_or_else(|| Err(unknown_path(request)));
        }
        if let [segment, id] = path.segments.as_slice()
            && path.namespace.is_none()
            && segment.eq_ignore_ascii_case("operationresults")
        {
            return self.poll(request, id, true);
        }
        let Some(namespace) = &path.namespace else {
            if !path.segments.is_empty() {
                return Err(unknown_path(request));
            }
            check_version(request, RESOURCE_VERSIONS, "resourceGroups")?;
            return self.subscription_or_group(request, &path, faults);
        };
        let provider = Provider::of(namespace).ok_or_else(|| {
            let message = format!("The resource namespace '{namespace}' is invalid.");
            Refusal::gateway(404, "InvalidResourceNamespace", message)
        })?;
        if path.segments.is_empty() {
            check_version(request, RESOURCE_VERSIONS, "providers")?;
            self.subscription(&path.subscription)?;
            return Ok(Response::json(200, provider_view(provider)));
        }
        self.resource_request(request, &path, provider, faults)
    }

    fn resource_request(
        &mut self,
        request: &Request,
        path: &Path,
        provider: Provider,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        let version = required_version(request)?;
        let action = self.action(request, path, provider)?;
        let types = action.as_ref().map_or_else(|| path.types(), |_| path_without_action(path).types());
        let Some(found) = Type::of(provider, &types) else {
            let message = format!(
                "The resource type '{types}' could not be found in the namespace '{}' for api version '{version}'.",
                provider.namespace()
            );
            return Err(Refusal::gateway(404, "InvalidResourceType", message));
        };
        let name = path.segments.first().map_or("", String::as_str);
        check_version(request, found.versions(provider), name)?;
        if found == Type::Operations {
            self.subscription(&path.subscription)?;
            let is_result = request.parameter("monitor").is_some() || types.ends_with("results");
            return self.poll(request, path.segments.last().map_or("", String::as_str), is_result);
        }
        if let Some(action) = action {
            return self.act(request, &path_without_action(path), &action, faults);
        }
        match request.method {
            Method::GET => self.read(request, path, found),
            Method::PUT => self.put(request, path, found, faults),
            Method::PATCH => self.patch(request, path, found, faults),
            Method::DELETE => self.delete(request, path, found, faults),
            _ => Err(super::group::method_not_allowed(request)),
        }
    }

    /// The action at the end of the path of a `POST`.
    fn action(&self, request: &Request, path: &Path, _: Provider) -> Result<Option<String>, Refusal> {
        if request.method != Method::POST {
            return Ok(None);
        }
        self.subscription(&path.subscription)?;
        Ok(path.segments.last().filter(|_| path.is_list()).map(|action| action.to_lowercase()))
    }
}

fn path_without_action(path: &Path) -> Path {
    let mut path = path.clone();
    path.segments.pop();
    path
}

fn unknown_path(request: &Request) -> Refusal {
    let message = format!("The request to '{}' is invalid: no resource has this path.", request.path);
    Refusal::gateway(404, "NotFound", message)
}

fn required_version(request: &Request) -> Result<&str, Refusal> {
    request.parameter("api-version").filter(|version| !version.is_empty()).ok_or_else(|| {
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        Refusal::gateway(400, "MissingApiVersionParameter", message)
    })
}

/// Refuses an API version in which a type doesn't exist.
fn check_version(request: &Request, known: &[&str], kind: &str) -> Result<(), Refusal> {
    let version = required_version(request)?;
    if known.contains(&version) {
        return Ok(());
    }
    let is_date = version.len() >= 10 && version.chars().take(10).all(|it| it.is_ascii_digit() || it == '-');
    let versions = known.join(", ");
    if !is_date {
        let message =
            format!("The api-version '{version}' is invalid. The supported versions are '{versions}'.");
        return Err(Refusal::gateway(400, "InvalidApiVersionParameter", message));
    }
    let locations: Vec<_> = LOCATIONS.iter().map(|location| location.name).collect();
    let message = format!(
        "No registered resource provider found for location 'eastus' and API version '{version}' for type '{kind}'. The supported \
         api-versions are '{versions}'. The supported locations are '{}'.",
        locations.join(", ")
    );
    Err(Refusal::gateway(400, "NoRegisteredProviderFound", message))
}

/// What a provider has: its types, where, and in which zones.
fn provider_view(provider: Provider) -> Value {
    let zones = |location: &&Location| json!({"location": location.display, "zones": ["1", "2", "3"]});
    let zone_mappings: Vec<_> = LOCATIONS.iter().filter(|it| it.has_zones).map(|it| zones(&it)).collect();
    let locations: Vec<_> = LOCATIONS.iter().map(|location| location.display).collect();
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.provider() == provider);
    let types: Vec<_> = kinds
        .map(|kind| {
            let versions = Type::Stored(kind).versions(provider).iter().rev().collect::<Vec<_>>();
            json!({
                "resourceType": kind.name(), "locations": locations, "apiVersions": versions, "zoneMappings": zone_mappings,
                "capabilities": "SupportsTags, SupportsLocation",
            })
        })
        .collect();
    let namespace = provider.namespace();
    json!({
        "id": format!("/providers/{namespace}"), "namespace": namespace, "registrationState": "Registered",
        "registrationPolicy": "RegistrationRequired", "resourceTypes": types,
    })
}
