//! Why the API refuses a request: the error codes of the Hetzner Cloud API with their HTTP statuses, as its specification and
//! hcloud-go list them.

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the API documents its codes")]
pub enum Code {
    JsonError,
    Unauthorized,
    ResourceLimitExceeded,
    NotFound,
    MethodNotAllowed,
    UniquenessError,
    Conflict,
    DeprecatedApiEndpoint,
    SourcePortAlreadyUsed,
    InvalidInput,
    IpNotOwned,
    CloudResourceIpNotAllowed,
    ServerNotAttachedToNetwork,
    TargetAlreadyDefined,
    InvalidLoadBalancerType,
    LoadBalancerAlreadyAttached,
    LoadBalancerNotAttachedToNetwork,
    LoadBalancerPublicInterfaceDisabled,
    TargetsWithoutUsePrivateIp,
    MissingIpv4,
    IpNotAvailable,
    NoSubnetAvailable,
    Locked,
    Protected,
    RateLimitExceeded,
    ServerError,
    ServiceError,
    BadGateway,
    Unavailable,
    Timeout,
}

impl Code {
    /// The HTTP status of a response with this code.
    pub fn status(self) -> u16 {
        match self {
            Self::JsonError => 400,
            Self::Unauthorized => 401,
            Self::ResourceLimitExceeded => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::UniquenessError | Self::Conflict => 409,
            Self::DeprecatedApiEndpoint => 410,
            Self::SourcePortAlreadyUsed => 412,
            Self::InvalidInput
            | Self::IpNotOwned
            | Self::CloudResourceIpNotAllowed
            | Self::ServerNotAttachedToNetwork
            | Self::TargetAlreadyDefined
            | Self::InvalidLoadBalancerType
            | Self::LoadBalancerAlreadyAttached
            | Self::LoadBalancerNotAttachedToNetwork
            | Self::LoadBalancerPublicInterfaceDisabled
            | Self::TargetsWithoutUsePrivateIp
            | Self::MissingIpv4
            | Self::IpNotAvailable
            | Self::NoSubnetAvailable => 422,
            Self::Locked | Self::Protected => 423,
            Self::RateLimitExceeded => 429,
            Self::ServerError | Self::ServiceError => 500,
            Self::BadGateway => 502,
            Self::Unavailable => 503,
            Self::Timeout => 504,
        }
    }
}

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code, on which clients branch.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, for people.
    pub message: String,
    /// The invalid field, for [`Code::InvalidInput`].
    pub field: Option<String>,
}

impl Refusal {
    /// A refusal with the usual status of its code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, status: code.status(), message: message.into(), field: None }
    }

    /// Invalid input in a field of the body or a parameter of the query.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidInput, message) }
    }

    /// There is no such resource.
    pub fn not_found(kind: &str, id: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("{kind} with ID '{id}' not found"))
    }

    /// The error as the API shows it.
    pub fn body(&self) -> Value {
        let Self { code, status: _, message, field } = self;
        let details = match field {
            Some(name) => json!({"fields": [{"name": name, "messages": [message]}]}),
            None => json!({}),
        };
        let message = match field {
            Some(name) => format!("invalid input in field '{name}'"),
            None => message.clone(),
        };
        json!({"error": {"code": code, "message": message, "details": details}})
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() {
            return Self::invalid("body", error.to_string());
        }
        Self::new(Code::JsonError, format!("invalid JSON: {error}"))
    }
}
