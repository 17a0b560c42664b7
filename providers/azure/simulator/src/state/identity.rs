//! Tokens that the metadata service issues for the identities of a machine. Pure.

use serde_json::json;

use super::State;
use crate::request::{Request, Response};
use crate::token::Identity;

impl State {
    pub(super) fn identity_token(&mut self, request: &Request) -> Response {
        let Some(resource) = request.parameter("resource").filter(|it| !it.is_empty()) else {
            return denied("invalid_request", "Required query variable 'resource' is missing");
        };
        let identities = self.directory.as_ref().map(|directory| directory.identities.clone());
        let found = match identities {
            None => Ok(Identity {
                client_id: "any".to_owned(),
                object_id: "any".to_owned(),
                resource_id: String::new(),
            }),
            Some(identities) => choose(request, &identities),
        };
        let identity = match found {
            Ok(identity) => identity,
            Err(message) => return denied("invalid_request", message),
        };
        let tenant = self.tenant.clone();
        let issued = self.issue(&tenant, &identity.client_id, &identity.object_id, resource);
        Response::json(
            200,
            json!({
                "access_token": issued.token, "client_id": identity.client_id, "expires_in": issued.expires_in.to_string(),
                "expires_on": issued.expires_on.to_string(), "ext_expires_in": issued.expires_in.to_string(),
                "not_before": issued.not_before.to_string(), "resource": resource, "token_type": "Bearer",
            }),
        )
    }
}

/// The identity that a request asks for.
fn choose(request: &Request, identities: &[Identity]) -> Result<Identity, &'static str> {
    let wanted = ["client_id", "object_id", "msi_res_id", "mi_res_id"]
        .into_iter()
        .filter_map(|name| Some((name, request.parameter(name)?)));
    let wanted: Vec<_> = wanted.collect();
    let found = match wanted.as_slice() {
        [] => {
            // Without a name, the machine's own identity; else the only one.
            let own = identities.iter().find(|it| it.resource_id.is_empty());
            match (own, identities) {
                (Some(own), _) | (None, [own]) => Some(own),
                (None, [_, _, ..]) => {
                    return Err(
                        "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
                    );
                }
                (None, []) => None,
            }
        }
        [(name, value)] => identities.iter().find(|it| {
            let own = match *name {
                "client_id" => &it.client_id,
                "object_id" => &it.object_id,
                _ => &it.resource_id,
            };
            !own.is_empty() && own.eq_ignore_ascii_case(value)
        }),
        _ => return Err("Only one of client_id, object_id and msi_res_id may be given"),
    };
    found.cloned().ok_or("Identity not found")
}

pub(super) fn denied(error: &str, description: &str) -> Response {
    Response::json(400, json!({"error": error, "error_description": description}))
}
