//! Changes that a cloud takes its time for. It says that an operation has begun; whoever wants to know more asks again,
//! the operation by its address or the thing itself for its state.
//!
//! A provider doesn't wait. It answers that the change is in progress, leaves a note for itself, and is called again with
//! it. The note is a hint that may be lost at any time: without it the provider looks at the thing and sees what an
//! operation has made of it, or that one is under way.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use pileus_guest::{Error, Service, ServiceProgress, http};
//! use pileus_guest::operation::{self, State};
//!
//! # struct Cloud;
//! # impl Cloud {
//! async fn ensure(&self, service: &Service, resume: Option<&str>) -> Result<ServiceProgress, Error> {
//!     if let Some(progress) = operation::follow(resume, async |url| self.poll(url).await).await? {
//!         return Ok(progress);
//!     }
//!     // Nothing is under way: look at what is there, and write where it isn't as it should be.
//! #   Ok(ServiceProgress::gone())
//! }
//!
//! async fn poll(&self, url: &str) -> Result<State, Error> {
//!     let Some(response) = http::get(url).send().await?.or_absent()? else { return Ok(State::Ended) };
//!     Ok(match response.header("x-status") {
//!         Some("failed") => State::Failed(Error::unavailable("the cloud gave up")),
//!         Some("running") => State::running(Duration::from_secs(5), url),
//!         _ => State::Ended,
//!     })
//! }
//! # }
//! ```

use std::time::Duration;

use crate::Error;

/// A change that has begun, or could not begin before the soft deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProgress {
    /// Asked again after this time.
    pub after: Duration,
    /// Given back with the next call about the same thing: the address of an operation, say. At most 4 KiB.
    pub resume: Option<String>,
}

/// How an operation is getting on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The cloud is at it.
    Running(InProgress),
    /// It has ended well, or there is none: what the thing is now tells the rest.
    Ended,
    /// It has failed.
    Failed(Error),
}

impl State {
    /// The cloud is at it: to be asked again after this time, with this note.
    pub fn running(after: Duration, note: impl Into<String>) -> Self {
        Self::Running(InProgress { after, resume: Some(note.into()) })
    }

    /// What to answer about a change, of a Service or of a route, before anything is done for it; none where the way is
    /// free. `resume` is the note of the last call.
    ///
    /// # Errors
    ///
    /// The failure of an operation that this change has waited for, so that it is told, and tried again after the host's
    /// delay. Without a note it is nobody's news, and may be tried again at once.
    pub fn answer<P: From<InProgress>>(self, resume: Option<&str>) -> Result<Option<P>, Error> {
        match self {
            Self::Running(progress) => Ok(Some(progress.into())),
            Self::Failed(error) if resume.is_some() => Err(error),
            Self::Ended | Self::Failed(_) => Ok(None),
        }
    }
}

/// Asks how the operation of the last call's note is getting on, and says what to answer; none where the way is free,
/// also because there is no note.
///
/// # Errors
///
/// As [`State::answer`], and what `poll` fails with.
pub async fn follow<P: From<InProgress>>(
    resume: Option<&str>,
    poll: impl AsyncFnOnce(&str) -> Result<State, Error>,
) -> Result<Option<P>, Error> {
    match resume {
        Some(note) => poll(note).await?.answer(resume),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Host, get};
    use crate::{ErrorKind, Progress, ServiceProgress, http};

    const URL: &str = "http://cloud.test/operations/7";

    /// Running while the cloud says 202.
    async fn poll(url: &str) -> Result<State, Error> {
        let response = http::get(url).send().await?;
        Ok(match response.status.as_u16() {
            202 => State::running(Duration::from_secs(5), url),
            500 => State::Failed(Error::unavailable("the operation failed")),
            _ => State::Ended,
        })
    }

    #[test]
    fn an_operation_is_asked_for_by_its_note_until_it_has_ended() {
        let running = ServiceProgress::in_progress_with(Duration::from_secs(5), URL);
        let rows = [
            ("running", 202, Ok(Some(running))),
            ("ended", 200, Ok(None)),
            ("forgotten", 404, Ok(None)),
            ("failed", 500, Err(ErrorKind::Unavailable)),
        ];
        for (name, status, expected) in rows {
            let host = Host::new().exchange(get(URL).status(status));
            let answer = host.run(follow(Some(URL), poll)).map_err(|error| error.kind);
            assert_eq!(answer, expected, "{name}");
        }
    }

    #[test]
    fn a_lost_note_costs_no_more_than_another_look() {
        let host = Host::new();
        assert_eq!(host.run(follow::<Progress>(None, poll)), Ok(None));
        let failed = State::Failed(Error::unavailable("the operation failed"));
        assert_eq!(failed.clone().answer::<Progress>(None), Ok(None));
        assert!(failed.answer::<Progress>(Some("note")).is_err());
    }
}
