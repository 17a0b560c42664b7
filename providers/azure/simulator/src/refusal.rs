//! Why Azure refuses a request: the status, and the error body in the forms in which the resource manager and its providers
//! write it. Pure.

use serde_json::{Value, json};
use thiserror::Error;

use crate::request::Response;

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The error code, on which clients branch.
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
    more: Box<More>,
}

/// What few errors have. It is apart, because results with large errors are slow to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    /// Codes and messages of the details. The network provider always writes this field, others only where it has elements.
    details: Option<Vec<(String, String)>>,
    /// The parameter that is meant.
    target: Option<String>,
    /// Other headers of the response.
    headers: Vec<(String, String)>,
    /// Whether the body is the error itself, without the outer `error` object.
    is_bare: bool,
    /// The target of each detail.
    detail_target: Option<String>,
}

impl Refusal {
    /// A refusal with a status, a code and a message.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), more: Box::default() }
    }

    /// As the network provider writes it, with an empty list of details.
    pub(crate) fn network(status: u16, code: &str, message: impl Into<String>) -> Self {
        let mut refusal = Self::new(status, code, message);
        refusal.more.details = Some(Vec::new());
        refusal
    }

    /// As the resource manager itself writes it, which a header shows.
    pub(crate) fn gateway(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self::new(status, code, message).with_header("x-ms-failure-cause", "gateway")
    }

    /// As the compute provider writes it when it throttles: without the outer `error` object.
    pub(crate) fn bare(mut self) -> Self {
        self.more.is_bare = true;
        self
    }

    pub(crate) fn with_detail(mut self, code: &str, message: impl Into<String>) -> Self {
        self.more.details.get_or_insert_default().push((code.to_owned(), message.into()));
        self
    }

    pub(crate) fn with_targeted_detail(
        mut self,
        code: &str,
        message: impl Into<String>,
        target: &str,
    ) -> Self {
        self.more.detail_target = Some(target.to_owned());
        self.with_detail(code, message)
    }

    pub(crate) fn with_target(mut self, target: &str) -> Self {
        self.more.target = Some(target.to_owned());
        self
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.more.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn resource_not_found(kind: &str, name: &str, group: &str) -> Self {
        let message = format!(
            "The Resource '{kind}/{name}' under resource group '{group}' was not found. For more details please go to \
             https://aka.ms/ARMResourceNotFoundFix"
        );
        Self::gateway(404, "ResourceNotFound", message)
    }

    pub(crate) fn group_not_found(group: &str) -> Self {
        Self::gateway(404, "ResourceGroupNotFound", format!("Resource group '{group}' could not be found."))
    }

    pub(crate) fn content(error: impl std::fmt::Display) -> Self {
        let message = format!("The request content was invalid and could not be deserialized: '{error}'.");
        Self::new(400, "InvalidRequestContent", message)
    }

    /// The error object.
    pub fn error(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(details) = &self.more.details {
            let details = details.iter().map(|(code, message)| match &self.more.detail_target {
                Some(target) => json!({"code": code, "message": message, "target": target}),
                None => json!({"code": code, "message": message}),
            });
            crate::json::set(&mut error, "details", details.collect::<Vec<_>>());
        }
        if let Some(target) = &self.more.target {
            crate::json::set(&mut error, "target", target.clone());
        }
        error
    }

    /// The response that says so.
    pub fn response(&self) -> Response {
        let body = if self.more.is_bare { self.error() } else { json!({"error": self.error()}) };
        let mut response = Response::json(self.status, body);
        response.headers.extend(self.more.headers.iter().cloned());
        response
    }
}
