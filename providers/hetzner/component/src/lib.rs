//! The provider for Hetzner Cloud. It follows hcloud-cloud-controller-manager in provider IDs, labels and annotations, so that
//! it takes over a cluster without a write. This file has the settings, and what all capabilities need: collections, the
//! private network, and actions. `server`, `route` and `load_balancer` have one capability each.

mod annotation;
mod configuration;
mod load_balancer;
mod route;
mod server;

pub use configuration::Hetzner;
use configuration::IdOrName;
use pileus_guest::http::{self, CodePlace, Collection, Meaning, NumericId, Source};
use pileus_guest::operation::Status;
use pileus_guest::{
    CredentialHint, Description, Effect, Error, Limit, Problem, Provider, Settings, export_provider,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The rate limit of a project: 3,600 requests an hour, of which one is refilled each second.
const PROJECT: &str = "project";

/// The scheme of the provider IDs of cloud servers.
const CLOUD: &str = "hcloud";

/// The scheme of the provider IDs of dedicated servers, which Hetzner calls Robot servers.
const ROBOT: &str = "hrobot";

/// What an action answers, and a poll of it.
#[derive(Deserialize)]
struct Begun {
    action: Action,
}

/// A change in the cloud that takes time. It has an address of its own.
#[derive(Deserialize)]
struct Action {
    id: NumericId,
    status: ActionStatus,
    error: Option<ActionError>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionStatus {
    Running,
    Success,
    Error,
}

#[derive(Deserialize)]
struct ActionError {
    code: String,
    message: String,
}

/// A private network.
#[derive(Deserialize)]
struct Network {
    id: NumericId,
    #[serde(default)]
    routes: Vec<route::TableRoute>,
}

export_provider!(Hetzner, instances, load_balancers, routes);

impl Provider for Hetzner {
    type Configuration = Self;

    fn describe() -> Description {
        let description = Description::new("hetzner", env!("CARGO_PKG_VERSION"));
        let description = description.provider_id_scheme(CLOUD).provider_id_scheme(ROBOT);
        annotation::all().fold(description, Description::service_annotation)
    }

    fn configure(configuration: Self) -> Result<Self, Vec<Problem>> {
        configuration.check()
    }

    fn settings(&self) -> Settings {
        let reason = "to read servers, and to change load balancers, certificates and routes";
        let (balancers, certificates) =
            (self.collection::<()>("load_balancer"), self.collection::<()>("certificate"));
        let write = |path: &str, scope: &str| {
            self.endpoint.rule("POST", &format!("{path}/*/actions/*"), Effect::Write).cache_scope(scope)
        };
        let rules = ["server", "network", "load_balancer", "certificate"]
            .into_iter()
            .flat_map(|kind| self.collection::<()>(kind).read_rules())
            .chain(balancers.write_rules(["POST", "PUT", "DELETE"]))
            .chain(certificates.write_rules(["POST"]))
            .chain(["/load_balancers", "/networks"].map(|path| write(path, path)))
            .chain([self.endpoint.rule("GET", "/actions/*", Effect::OperationPoll)]);
        let codes = self
            .endpoint
            .codes(CodePlace::Json("error.code".to_owned()))
            .code(423, "locked", Meaning::Locked)
            .code(423, "protected", Meaning::Invalid)
            .code(409, "conflict", Meaning::Later)
            .code(409, "uniqueness_error", Meaning::Invalid)
            .code(403, "resource_limit_exceeded", Meaning::Invalid)
            .code(412, "source_port_already_used", Meaning::Invalid);
        Settings::default()
            .endpoint(self.endpoint.endpoint(reason).credential(CredentialHint::new("bearer")))
            .rules(rules.map(|rule| rule.limit(PROJECT)))
            .limit(Limit::new(PROJECT, 3_600, 60))
            .codes(codes)
    }
}

impl Hetzner {
    /// The collection of a kind, listed in pages of the largest size that the cloud allows.
    fn collection<T: DeserializeOwned>(&self, kind: &str) -> Collection<T> {
        let all = format!("{kind}s");
        let collection = Collection::new(&self.endpoint, [&all]).envelope(kind, all);
        collection.pages("page", "meta.pagination.next_page").list_query("per_page", "50")
    }

    /// The ID of the configured network, if there is one. Only a name costs a request.
    async fn network_id(&self, source: Source) -> Result<Option<NumericId>, Error> {
        match &self.network {
            None => Ok(None),
            Some(IdOrName::Id(id)) => Ok(Some(*id)),
            Some(IdOrName::Name(name)) => Ok(Some(self.network_named(name, source).await?.id)),
        }
    }

    async fn network_named(&self, name: &str, source: Source) -> Result<Network, Error> {
        let (networks, end) = self.collection("network").list_query("name", name).list_from(source).await;
        end?;
        networks.into_iter().next().ok_or_else(|| Error::invalid(format!("there is no network {name}")))
    }

    /// Begins an action, and returns its status. A resource that another action has locked is tried again soon.
    async fn act(&self, path: [&str; 4], body: &Value) -> Result<Status, Error> {
        let response = http::post(self.endpoint.join(path)).json(body).send().await?;
        if is_locked(&response) {
            return Ok(Status::running());
        }
        Ok(self.status(response.json::<Begun>()?.action))
    }

    /// Polls an action by its address.
    async fn poll(&self, url: &str) -> Result<Status, Error> {
        let response = http::get(url).send().await?.or_absent()?;
        let begun = response.map(http::Response::json::<Begun>).transpose()?;
        Ok(begun.map_or(Status::Succeeded, |begun| self.status(begun.action)))
    }

    fn status(&self, Action { id, status, error }: Action) -> Status {
        match status {
            ActionStatus::Running => {
                let url = self.endpoint.join(["actions", &id.to_string()]);
                Status::running_with(std::time::Duration::from_secs(1), url)
            }
            ActionStatus::Success => Status::Succeeded,
            ActionStatus::Error => {
                let reason = error.map(|ActionError { code, message }| format!("{code}: {message}"));
                Status::failed(reason.as_deref())
            }
        }
    }
}

/// Whether the cloud refuses a change because an action is changing the resource.
fn is_locked(response: &http::Response) -> bool {
    response.code() == Some("locked")
}

#[cfg(test)]
mod tests;
