//! Long-running operations. The cloud says that an operation has begun; to learn more, a client polls the operation by its
//! address, or reads the resource.
//!
//! A provider doesn't wait. It answers that the change is in progress, leaves itself a note, and is called again with the
//! note. The note is a hint that may be lost at any time. Without it the provider reads the resource, and sees what an
//! operation has changed or that one is in progress.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use pileus_guest::{Error, Service, ServiceOutcome, ServiceProgress, http};
//! use pileus_guest::operation::{self, Status};
//!
//! # struct Cloud;
//! # impl Cloud {
//! async fn ensure(&self, service: &Service, resume: Option<&str>) -> ServiceOutcome {
//!     if let Some(progress) = operation::follow(resume, async |url| self.poll(url).await).await? {
//!         return Ok(progress);
//!     }
//!     // Nothing is in progress: read the resource, and write it if it differs from what the Service asks for.
//! #   Ok(ServiceProgress::gone())
//! }
//!
//! async fn poll(&self, url: &str) -> Result<Status, Error> {
//!     let Some(response) = http::get(url).send().await?.or_absent()? else { return Ok(Status::Succeeded) };
//!     Ok(match response.header("x-status") {
//!         Some("failed") => Status::Failed(Error::unavailable("the operation failed")),
//!         Some("running") => Status::running_with(Duration::from_secs(5), url),
//!         _ => Status::Succeeded,
//!     })
//! }
//! # }
//! ```

use std::time::Duration;

use crate::http::{Response, StatusCode, status};
use crate::{Error, host};

/// When to poll an operation again, if the cloud doesn't say.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The headers in which clouds name an operation that has begun.
const ADDRESS_HEADERS: [&str; 2] = ["azure-asyncoperation", "operation-location"];

/// A change that has begun, or could not begin before the soft deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProgress {
    /// When the host asks again. It may be up to a second earlier, together with a call about others.
    pub after: Duration,
    /// The note for the next call about the same object, such as the address of an operation. At most 4 KiB.
    pub resume: Option<String>,
}

impl InProgress {
    /// Asked again soon, without a note.
    pub const fn soon() -> Self {
        Self { after: POLL_INTERVAL, resume: None }
    }
}

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<R> {
    /// It wrote the whole resource, which is now as the cloud returned it.
    Whole(R),
    /// It began an operation, or took one of several steps. The resource is read again once the operation has ended, and
    /// written again if it doesn't match yet.
    Step(InProgress),
    /// The resource was removed before the write came. It is created by the next call.
    Gone,
}

/// The status of an operation.
#[must_use = "an operation that is running has not ended yet"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is in progress.
    Running(InProgress),
    /// It has succeeded, or no operation is known: the resource shows the result.
    Succeeded,
    /// It has failed.
    Failed(Error),
}

impl Status {
    /// It is in progress, and the resource shows how far it is. Asked again soon.
    pub const fn running() -> Self {
        Self::Running(InProgress::soon())
    }

    /// It is in progress. Asked again after this time, with this note.
    pub fn running_with(after: Duration, note: impl Into<String>) -> Self {
        Self::Running(InProgress { after, resume: Some(note.into()) })
    }

    /// It has failed, for the reason that the cloud gives.
    pub fn failed(reason: Option<&str>) -> Self {
        let reason = reason.unwrap_or("it doesn't say why");
        Self::Failed(Error::unavailable(format!("the cloud could not finish what it began: {reason}")))
    }

    /// Prefixes the error of a failed operation with what it is about.
    pub(crate) fn context(self, subject: &str) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.context(subject)),
            status => status,
        }
    }

    /// The progress to report for a change before anything is done for it. None if the change can go on. `resume` is the
    /// note of the last call.
    ///
    /// # Errors
    ///
    /// The failure of an operation that this change waited for. It is reported, and the change is retried after the host's
    /// delay. Without a note the change didn't wait for the operation, so it is tried again at once.
    pub fn progress<P: From<InProgress>>(self, resume: Option<&str>) -> Result<Option<P>, Error> {
        match self {
            Self::Running(progress) => Ok(Some(progress.into())),
            Self::Failed(error) if resume.is_some() => Err(error),
            Self::Succeeded | Self::Failed(_) => Ok(None),
        }
    }
}

/// The operation that a successful response says has begun: when to poll it, and its address if the cloud names it. None if the
/// response names no operation and its status isn't 202.
///
/// The address is the cloud's text. The gate denies a host without a grant, and counts the poll as a write unless a rule says
/// that it is an operation poll.
pub fn begun(response: &Response) -> Option<InProgress> {
    let is_accepted = response.status == StatusCode::ACCEPTED;
    let location = || response.header("location").filter(|url| is_accepted && url.starts_with("http"));
    let address = ADDRESS_HEADERS.iter().find_map(|name| response.header(name)).or_else(location);
    let after = || status::retry_after(&response.headers, host::now()).unwrap_or(POLL_INTERVAL);
    (is_accepted || address.is_some())
        .then(|| InProgress { after: after(), resume: address.map(str::to_owned) })
}

/// The status of a deletion, according to the response to it. It is running if the response says that an operation has
/// [begun], and otherwise complete, also if there was nothing to delete.
///
/// # Errors
///
/// As [`Response::or_absent`].
pub fn deletion_status(response: Response) -> Result<Status, Error> {
    let response = response.or_absent()?;
    Ok(response.as_ref().and_then(begun).map_or(Status::Succeeded, Status::Running))
}

/// Polls the operation whose address is the note of the last call, as [`Status::running_with`] left it, and returns the
/// progress to report. None if the change can go on, also if there is no note.
///
/// # Errors
///
/// As [`Status::progress`], and the errors of `poll`.
pub async fn follow<P: From<InProgress>>(
    resume: Option<&str>,
    poll: impl AsyncFnOnce(&str) -> Result<Status, Error>,
) -> Result<Option<P>, Error> {
    match resume {
        Some(note) => poll(note).await?.progress(resume),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Host, delete, get};
    use crate::{ErrorKind, RouteProgress, ServiceProgress, http};

    const URL: &str = "http://cloud.test/operations/7";

    /// Running while the cloud says 202.
    async fn poll(url: &str) -> Result<Status, Error> {
        let response = http::get(url).send().await?;
        Ok(match response.status.as_u16() {
            202 => Status::running_with(Duration::from_secs(5), url),
            500 => Status::Failed(Error::unavailable("the operation failed")),
            _ => Status::Succeeded,
        })
    }

    #[test]
    fn an_operation_is_polled_by_its_note_until_it_ends() {
        let running = ServiceProgress::in_progress_with(Duration::from_secs(5), URL);
        let rows = [
            ("running", 202, Ok(Some(running))),
            ("succeeded", 200, Ok(None)),
            ("forgotten", 404, Ok(None)),
            ("failed", 500, Err(ErrorKind::Unavailable(None))),
        ];
        for (name, status, expected) in rows {
            let host = Host::new().exchange(get(URL).status(status));
            let answer = host.run(follow(Some(URL), poll)).map_err(|error| error.kind);
            assert_eq!(answer, expected, "{name}");
        }
    }

    #[test]
    fn without_a_note_nothing_is_polled_and_a_failure_is_not_reported() {
        let host = Host::new();
        assert_eq!(host.run(follow::<RouteProgress>(None, poll)), Ok(None));
        let failed = Status::Failed(Error::unavailable("the operation failed"));
        assert_eq!(failed.clone().progress::<RouteProgress>(None), Ok(None));
        assert!(failed.progress::<RouteProgress>(Some("note")).is_err());
    }

    #[test]
    fn an_accepted_deletion_is_running_and_any_other_is_complete() {
        let operation =
            || delete(URL).status(202).header("azure-asyncoperation", "/7").header("retry-after", "9");
        let begun = |after, resume: Option<&str>| {
            let after = Duration::from_secs(after);
            Ok(Status::Running(InProgress { after, resume: resume.map(str::to_owned) }))
        };
        let rows = [
            (delete(URL).status(202), begun(1, None)),
            (operation(), begun(9, Some("/7"))),
            (delete(URL).header("azure-asyncoperation", "/7"), begun(1, Some("/7"))),
            (delete(URL).status(202).header("location", URL), begun(1, Some(URL))),
            (delete(URL).status(201).header("location", URL), Ok(Status::Succeeded)),
            (delete(URL).status(204), Ok(Status::Succeeded)),
            (delete(URL).status(404), Ok(Status::Succeeded)),
            (delete(URL).status(409), Err(ErrorKind::Conflict(None))),
        ];
        for (answer, expected) in rows {
            let host = Host::new().exchange(answer);
            let outcome = host.run(async { deletion_status(http::delete(URL).send().await?) });
            assert_eq!(outcome.map_err(|error| error.kind), expected);
        }
    }
}
