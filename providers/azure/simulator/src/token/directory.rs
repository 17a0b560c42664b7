//! The clients and identities that get tokens, as a file or the admin API has them. Pure.

use serde::Deserialize;

/// The clients and identities that get tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Directory {
    /// The applications.
    #[serde(default)]
    pub clients: Vec<Client>,
    /// The managed identities of the machine at which the metadata service is.
    #[serde(default)]
    pub identities: Vec<Identity>,
    /// Audiences of the resource manager besides those of the public cloud and its own address.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// How long a token is valid, in seconds.
    #[serde(default = "an_hour")]
    pub lifetime_seconds: u32,
    /// Tokens of former generations are refused.
    #[serde(default)]
    pub generation: u32,
}

pub(super) fn an_hour() -> u32 {
    3_599
}

/// An application.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Client {
    /// The tenants in which it may ask for tokens; `adfs` for AD FS.
    pub tenants: Vec<String>,
    /// Its ID.
    pub client_id: String,
    /// Its secret.
    #[serde(default)]
    pub secret: Option<String>,
    /// Its certificates, in PEM.
    #[serde(default)]
    pub certificates: Vec<String>,
    /// The federated credentials.
    #[serde(default)]
    pub federated: Vec<Federated>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// A federated credential: which tokens of another issuer prove the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Federated {
    /// The issuer.
    pub issuer: String,
    /// The subject.
    pub subject: String,
    /// The audience.
    #[serde(default = "exchange")]
    pub audience: String,
}

fn exchange() -> String {
    "api://AzureADTokenExchange".to_owned()
}

/// A managed identity.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Identity {
    /// The client ID.
    pub client_id: String,
    /// The object ID.
    #[serde(default)]
    pub object_id: String,
    /// The resource ID of a user-assigned identity; empty for that of the machine itself.
    #[serde(default)]
    pub resource_id: String,
}
