//! The error of a request to the API server, by what the controller does about it.

use kube::core::Status;
use kube::runtime::watcher;
use pileus_cloud::Retry;

/// A failed request to the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read: read it again and plan again.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object is gone, or another object has its name now: there is nothing left to do.
    #[error("the object is gone")]
    Gone,
    /// The API server rejects the request, or an admission policy undoes it.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The API server denies the request. An API server that has just started does so until it has read the RBAC rules.
    #[error("the API server refuses: {0}")]
    Forbidden(String),
    /// The API server can't be reached, or can't answer now.
    #[error("the API server does not answer: {0}")]
    Unavailable(String),
}

impl Error {
    /// The result of the request, as a metric label.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Refused(_) | Self::Forbidden(_) => "refused",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// When to retry.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Conflict | Self::Gone => Retry::Soon,
            Self::Unavailable(_) => Retry::WithBackoff,
            Self::Forbidden(_) => Retry::Uncertain,
            Self::Refused(_) => Retry::Slowly,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => of_status(&status),
            other => Self::Unavailable(describe(&other)),
        }
    }
}

fn of_status(status: &Status) -> Error {
    match status.code {
        404 => Error::Gone,
        // A write names the object's UID. Another UID means that another object has the name now.
        422 if has_cause(status, "metadata.uid") => Error::Gone,
        409 => Error::Conflict,
        401 | 403 => Error::Forbidden(text_of(status)),
        429 | 500..=599 => Error::Unavailable(text_of(status)),
        _ => Error::Refused(text_of(status)),
    }
}

/// Whether the API server names this field as a cause.
fn has_cause(status: &Status, field: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == field)
}

/// The text of an error with its causes, for messages. The interesting part is often the last cause. kube's own texts show an
/// answer of the API server as Rust source code, so this function writes their texts itself.
pub fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let (part, is_last) = part(cause);
        if !text.contains(&part) {
            text = if text.is_empty() { part } else { format!("{text}: {part}") };
        }
        next = cause.source().filter(|_| !is_last);
    }
    text
}

/// The text of one error of a chain, and whether its causes say the same.
fn part(error: &(dyn std::error::Error + 'static)) -> (String, bool) {
    if let Some(error) = error.downcast_ref::<kube::Error>() {
        return match error {
            kube::Error::Api(status) => (text_of(status), true),
            // Its cause says what happened.
            kube::Error::Service(_) => (String::new(), false),
            other => (other.to_string(), false),
        };
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(_)) => ("the list failed".to_owned(), false),
        Some(watcher::Error::WatchStartFailed(_)) => ("the watch did not start".to_owned(), false),
        Some(watcher::Error::WatchFailed(_)) => ("the watch broke off".to_owned(), false),
        Some(watcher::Error::WatchError(status)) => (text_of(status), true),
        Some(error @ watcher::Error::NoResourceVersion) => (error.to_string(), true),
        None => (error.to_string(), false),
    }
}

/// The message of an answer of the API server; its reason or its code where it has none.
fn text_of(status: &Status) -> String {
    let Status { message, reason, code, .. } = status;
    match (message.as_str(), reason.as_str()) {
        ("", "") => format!("the API server answers with code {code}"),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_shows_an_answer_as_rust_source_code() {
        let status =
            |message: &str, reason: &str| Box::new(Status { code: 403, ..Status::failure(message, reason) });
        let api = |message: &str, reason: &str| kube::Error::Api(status(message, reason));
        let service = |text: &str| kube::Error::Service(text.to_owned().into());
        let rows: Vec<(Box<dyn std::error::Error>, &str)> = vec![
            (Box::new(api("nodes is forbidden", "Forbidden")), "nodes is forbidden"),
            (Box::new(api("", "Forbidden")), "Forbidden"),
            (Box::new(api("", "")), "the API server answers with code 403"),
            (Box::new(service("connection refused")), "connection refused"),
            (Box::new(watcher::Error::InitialListFailed(api("denied", "N"))), "the list failed: denied"),
            (
                Box::new(watcher::Error::WatchStartFailed(api("denied", "N"))),
                "the watch did not start: denied",
            ),
            (Box::new(watcher::Error::WatchFailed(service("reset"))), "the watch broke off: reset"),
            (Box::new(watcher::Error::WatchError(status("too old", "Expired"))), "too old"),
        ];
        for (error, expected) in rows {
            let text = describe(&*error);
            assert_eq!(text, expected);
        }
        for code in [404, 409, 401, 403, 429, 503, 422, 400] {
            let error = kube::Error::Api(Box::new(Status { code, ..Status::failure("why", "Reason") }));
            let text = Error::from(error).to_string();
            assert!(!text.contains("Status") && !text.contains('{'), "{text}");
        }
    }
}
