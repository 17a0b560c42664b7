//! Tokens of Entra and AD FS: who gets one for which proof, and which ones the resource manager accepts. A token is signed
//! with a key of the process, so that nothing has to be stored. Pure.

mod assertion;
mod directory;
mod discovery;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use self::assertion::Assertion;
pub use self::directory::{Client, Directory, Federated, Identity};
pub(crate) use self::discovery::is_token_path;
use crate::id::Path;
use crate::json::{at, text};
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::state::State;

/// The audiences of the resource manager in the public cloud.
const AUDIENCES: [&str; 2] = ["https://management.core.windows.net", "https://management.azure.com"];

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) client: String,
    pub(crate) tenant: String,
    /// The tenants of auxiliary tokens.
    pub(crate) auxiliary: Vec<String>,
}

/// A token that was issued.
pub(crate) struct Issued {
    pub(crate) token: String,
    pub(crate) expires_in: u32,
    pub(crate) expires_on: i64,
    pub(crate) not_before: i64,
}

impl State {
    fn signing_key(&self) -> hmac::Key {
        let generation = self.directory.as_ref().map_or(0, |directory| directory.generation);
        hmac::Key::new(hmac::HMAC_SHA256, format!("{}/{generation}", self.tenant).as_bytes())
    }

    /// Issues a token for a client.
    pub(crate) fn issue(&mut self, tenant: &str, client: &str, object: &str, audience: &str) -> Issued {
        let expires_in =
            self.directory.as_ref().map_or_else(directory::an_hour, |directory| directory.lifetime_seconds);
        let not_before = self.timestamp().as_second();
        let expires_on = not_before + i64::from(expires_in);
        let claims = json!({
            "aud": audience, "iss": format!("https://sts.windows.net/{tenant}/"), "tid": tenant, "appid": client, "oid": object,
            "sub": object, "nbf": not_before, "iat": not_before, "exp": expires_on, "ver": "1.0", "uti": self.next_guid(),
        });
        let header = json!({"typ": "JWT", "alg": "HS256"});
        let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.signing_key(), signed.as_bytes()));
        Issued { token: format!("{signed}.{signature}"), expires_in, expires_on, not_before }
    }

    /// Checks the token of a request to the resource manager. `None` where requests need no token.
    pub(crate) fn authenticate(&self, request: &Request) -> Result<Option<Principal>, Refusal> {
        if self.directory.is_none() {
            return Ok(None);
        }
        let token = request.header("authorization").split_once(' ');
        let token =
            token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            let message = "Authentication failed. The 'Authorization' header is missing.";
            return Err(self.unauthorized("AuthenticationFailed", message));
        };
        let claims = self.check_token(request, token)?;
        let mut auxiliary = Vec::new();
        for other in request.header("x-ms-authorization-auxiliary").split(',').map(str::trim) {
            let other = other.strip_prefix("Bearer ").or_else(|| other.strip_prefix("bearer "));
            if let Some(other) = other {
                auxiliary.push(text(&self.check_token(request, other)?, "/tid").to_owned());
            }
        }
        let (client, tenant) = (text(&claims, "/appid").to_owned(), text(&claims, "/tid").to_owned());
        Ok(Some(Principal { client, tenant, auxiliary }))
    }

    fn check_token(&self, request: &Request, token: &str) -> Result<Value, Refusal> {
        let invalid = || self.unauthorized("InvalidAuthenticationToken", "The access token is invalid.");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(invalid)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| invalid())?;
        hmac::verify(&self.signing_key(), signed.as_bytes(), &signature).map_err(|_| invalid())?;
        let claims = assertion::claims(token).ok_or_else(invalid)?;
        let expires = at(&claims, "/exp").as_i64().unwrap_or_default();
        if expires <= self.timestamp().as_second() {
            let message = format!(
                "The access token expiry UTC time '{expires}' is earlier than current UTC time '{}'.",
                self.timestamp().as_second()
            );
            return Err(self.unauthorized("ExpiredAuthenticationToken", &message));
        }
        let audience = text(&claims, "/aud");
        if !self.is_own_audience(request, audience) {
            let message = format!(
                "The access token has been obtained for wrong audience or resource '{audience}'. It should exactly match with one \
                 of the allowed audiences '{}'.",
                AUDIENCES.join("','")
            );
            return Err(self.unauthorized("InvalidAuthenticationTokenAudience", &message));
        }
        Ok(claims)
    }

    fn is_own_audience(&self, request: &Request, audience: &str) -> bool {
        let configured =
            self.directory.iter().flat_map(|directory| directory.audiences.iter().map(String::as_str));
        let mut own = AUDIENCES.into_iter().chain([request.origin.as_str()]).chain(configured);
        own.any(|known| known.trim_end_matches('/') == audience.trim_end_matches('/'))
    }

    /// Refuses a token of another tenant than the subscription's.
    pub(crate) fn check_tenant(&self, path: &Path, principal: Option<&Principal>) -> Result<(), Refusal> {
        let Some(principal) = principal else { return Ok(()) };
        let Some(tenant) = self.tenant_of(&path.subscription) else { return Ok(()) };
        let is_of = |token: &str| token.eq_ignore_ascii_case(&tenant) || token.eq_ignore_ascii_case("adfs");
        if is_of(&principal.tenant) || principal.auxiliary.iter().any(|token| is_of(token)) {
            return Ok(());
        }
        let message = format!(
            "The access token is from the wrong issuer 'https://sts.windows.net/{}/'. It must match the tenant \
             'https://sts.windows.net/{tenant}/' associated with this subscription.",
            principal.tenant
        );
        Err(self.unauthorized("InvalidAuthenticationTokenTenant", &message))
    }

    fn unauthorized(&self, code: &str, message: &str) -> Refusal {
        let challenge = format!(
            "Bearer authorization_uri=\"https://login.windows.net/{}\", error=\"invalid_token\", error_description=\"{}\"",
            self.tenant,
            message.replace('"', "'")
        );
        Refusal::gateway(401, code, message).with_header("www-authenticate", challenge)
    }

    /// Answers requests to the token endpoints.
    pub(crate) fn entra(&mut self, request: &Request, path: &str) -> Response {
        if let Some(document) = self.discovery(request, path) {
            return Response::json(200, document);
        }
        let form = request.form();
        let field =
            |name: &str| form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
        let tenant = path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
        match self.grant(request, &tenant, &field) {
            Ok((client, audience)) => {
                let issued = self.issue(&tenant, &client, &client, &audience);
                token_response(&issued, &audience, path.contains("v2.0"))
            }
            Err(denial) => denial.response(&self.timestamp().to_string()),
        }
    }

    /// The client that proved itself, and the audience that it asks for.
    fn grant<'a>(
        &self,
        request: &Request,
        tenant: &str,
        field: &impl Fn(&str) -> &'a str,
    ) -> Result<(String, String), Denial> {
        if field("grant_type") != "client_credentials" {
            return Err(Denial(400, "unsupported_grant_type", 70_003, "The grant type is not supported."));
        }
        let audience = match (field("scope"), field("resource")) {
            ("", resource) => Some(resource),
            (scope, _) => scope.split(' ').find_map(|scope| scope.strip_suffix("/.default")),
        };
        let audience = audience.filter(|audience| !audience.is_empty());
        let audience =
            audience.ok_or(Denial(400, "invalid_scope", 70_011, "The provided scope is not valid."))?;
        let Some(directory) = &self.directory else {
            return Ok((field("client_id").to_owned(), audience.to_owned()));
        };
        let is_of_tenant = |client: &&Client| client.tenants.iter().any(|it| it.eq_ignore_ascii_case(tenant));
        if !directory.clients.iter().any(|client| is_of_tenant(&client)) {
            return Err(Denial(400, "invalid_request", 90_002, "The tenant was not found."));
        }
        let mut clients = directory.clients.iter().filter(is_of_tenant);
        let client = clients.find(|client| client.client_id.eq_ignore_ascii_case(field("client_id"))).ok_or(
            Denial(400, "unauthorized_client", 700_016, "The application was not found in the directory."),
        )?;
        let assertion = field("client_assertion");
        if assertion.is_empty() {
            let is_proven = client.secret.as_deref().is_some_and(|secret| secret == field("client_secret"));
            let denial = Denial(401, "invalid_client", 7_000_215, "Invalid client secret provided.");
            return if is_proven { Ok((client.client_id.clone(), audience.to_owned())) } else { Err(denial) };
        }
        if field("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
            return Err(Denial(
                400,
                "invalid_request",
                900_144,
                "The client_assertion_type is missing or invalid.",
            ));
        }
        let endpoint = format!("{}{}", request.origin, request.path);
        let assertion = Assertion { text: assertion, endpoint: &endpoint, now: self.timestamp().as_second() };
        assertion.check(client)?;
        Ok((client.client_id.clone(), audience.to_owned()))
    }
}

/// Why no token is issued: the status, the OAuth error, the number of Entra's message, and the message.
struct Denial(u16, &'static str, u32, &'static str);

impl Denial {
    fn response(&self, now: &str) -> Response {
        let Self(status, error, number, message) = *self;
        let description = format!("AADSTS{number}: {message} Timestamp: {now}");
        let body = json!({"error": error, "error_description": description, "error_codes": [number], "timestamp": now});
        Response::json(status, body)
    }
}

fn token_response(issued: &Issued, audience: &str, is_v2: bool) -> Response {
    let Issued { token, expires_in, expires_on, not_before } = issued;
    let body = if is_v2 {
        json!({"token_type": "Bearer", "expires_in": expires_in, "ext_expires_in": expires_in, "access_token": token})
    } else {
        json!({
            "token_type": "Bearer", "expires_in": expires_in.to_string(), "ext_expires_in": expires_in.to_string(),
            "expires_on": expires_on.to_string(), "not_before": not_before.to_string(), "resource": audience,
            "access_token": token,
        })
    };
    Response::json(200, body).with("cache-control", "no-store, no-cache")
}
