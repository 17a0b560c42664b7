//! What clients read before they ask for a token: the endpoints of the cloud, and of Entra and AD FS. Pure.

use serde_json::{Value, json};

use crate::request::{Request, Response};
use crate::state::State;

/// Whether a path is one of Entra or AD FS.
pub(crate) fn is_token_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path.ends_with("/oauth2/v2.0/token")
        || path.ends_with("/oauth2/token")
        || path.contains("/.well-known/")
        || path.ends_with("/discovery/instance")
}

impl State {
    /// The documents that MSAL reads. `None` for a token endpoint.
    pub(super) fn discovery(&self, request: &Request, path: &str) -> Option<Value> {
        let origin = &request.origin;
        if path.ends_with("/discovery/instance") {
            let host = origin.rsplit('/').next().unwrap_or_default();
            let tenant = &self.tenant;
            return Some(json!({
                "tenant_discovery_endpoint": format!("{origin}/{tenant}/v2.0/.well-known/openid-configuration"),
                "api-version": "1.1",
                "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
            }));
        }
        let (base, _) = path.split_once("/.well-known/")?;
        let tenant = base.trim_start_matches('/').split('/').next().unwrap_or_default();
        let (endpoint, issuer) = if tenant == "adfs" {
            ("oauth2/token", format!("{origin}/adfs"))
        } else {
            ("oauth2/v2.0/token", format!("{origin}/{tenant}/v2.0"))
        };
        Some(json!({
            "token_endpoint": format!("{origin}/{tenant}/{endpoint}"),
            "authorization_endpoint": format!("{origin}/{tenant}/{}", endpoint.replace("token", "authorize")),
            "device_authorization_endpoint": format!("{origin}/{tenant}/{}", endpoint.replace("token", "devicecode")),
            "issuer": issuer,
        }))
    }

    /// The endpoints of the cloud, as Azure Stack Hub publishes them.
    pub(crate) fn endpoints(&self, request: &Request) -> Response {
        let origin = &request.origin;
        let host = origin.rsplit('/').next().unwrap_or_default();
        let authentication = json!({
            "loginEndpoint": format!("{origin}/"), "audiences": [format!("{origin}/")], "tenant": self.tenant,
            "identityProvider": "AAD",
        });
        let version = request.parameter("api-version").unwrap_or_default();
        if version < "2018" {
            return Response::json(
                200,
                json!({
                    "galleryEndpoint": origin, "graphEndpoint": origin, "portalEndpoint": origin, "authentication": authentication,
                }),
            );
        }
        let cloud = json!({
            "name": "AzureStackCloud", "resourceManager": origin, "portal": origin, "graph": origin, "gallery": origin,
            "authentication": authentication,
            "suffixes": {"storage": host, "keyVaultDns": format!("vault.{host}"), "acrLoginServer": format!("azurecr.{host}")},
        });
        // One that other clouds have too, so that clients look for the name.
        let other = json!({"name": "Other", "resourceManager": "https://management.example", "authentication": {
            "loginEndpoint": "https://login.example", "audiences": ["https://management.example"], "tenant": "common",
        }, "suffixes": {}});
        Response::json(200, json!([other, cloud]))
    }
}
