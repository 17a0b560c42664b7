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

use crate::http::{HeaderMap, Response, StatusCode, status};
use crate::{Error, host};

/// The note of a change that waits for what was written for its Service alone, as [`Wish`](crate::Wish) leaves it. A space
/// and the operation's address follow where the cloud named one.
pub const WRITTEN: &str = "written";

/// The note of a change that waits for a deletion.
pub const DELETED: &str = "deleted";

/// The note of a change that waits for what was written to a document that Services share.
pub const SHARED: &str = "shared";

/// When to look again how an operation is getting on, where the cloud doesn't say.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// The longest note that the host keeps, in bytes.
const LONGEST: usize = 4 << 10;

/// The headers in which clouds name an operation that they have begun.
const ADDRESSES: [&str; 2] = ["azure-asyncoperation", "operation-location"];

/// A change that has begun, or could not begin before the soft deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProgress {
    /// Asked again after this time, or up to a second sooner where a call about others is made then.
    pub after: Duration,
    /// Given back with the next call about the same thing: the address of an operation, say. At most 4 KiB.
    pub resume: Option<String>,
}

/// How an operation is getting on.
#[must_use = "an operation that is under way has not ended yet"]
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

    /// The cloud is at it, and what it says of the thing tells how far it is: to be asked again soon.
    pub const fn busy() -> Self {
        Self::Running(InProgress { after: AGAIN, resume: None })
    }

    /// It has failed, for the reason that the cloud gives.
    pub fn failed(why: Option<&str>) -> Self {
        let why = why.unwrap_or("it doesn't say why");
        Self::Failed(Error::unavailable(format!("the cloud could not finish what it began: {why}")))
    }

    /// The same, its failure led by what it is about.
    pub(crate) fn about(self, subject: &str) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.about(subject)),
            state => state,
        }
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

    /// The same for a change that waits for a step, which its note names. The address of the operation stays in the note for
    /// as long as the cloud is at it, also where only the answer to the write named it. One that is too long is left out: with
    /// the step a failure would be lost, and the change be tried again at once for ever.
    pub(crate) fn answer_at<P: From<InProgress>>(
        self,
        step: &str,
        resume: Option<&str>,
    ) -> Result<Option<P>, Error> {
        let state = match self {
            Self::Running(InProgress { after, resume: named }) => {
                let known = address(resume).filter(|_| is_at(step, resume)).map(str::to_owned);
                let note = named.or(known).map(|address| format!("{step} {address}"));
                Self::running(
                    after,
                    note.filter(|note| note.len() <= LONGEST).unwrap_or_else(|| step.to_owned()),
                )
            }
            state => state,
        };
        state.answer(resume)
    }
}

/// Whether a note says that its change waits for this step.
pub(crate) fn is_at(step: &str, resume: Option<&str>) -> bool {
    resume.and_then(|note| note.split(' ').next()) == Some(step)
}

/// The address of the operation that a change waits for, by the note that [`Wish`](crate::Wish) or
/// [`shared`](crate::shared) left; none where the cloud named none. It is what the cloud wrote: the gate refuses a host that
/// isn't granted, and takes what no rule calls an operation poll for a write.
pub fn address(resume: Option<&str>) -> Option<&str> {
    resume?.split_once(' ').map(|(_, address)| address)
}

/// The operation that an answer of the cloud says it has begun, by its headers: after which time to look again, and its
/// address, where it names them.
pub fn begun(answer: &HeaderMap) -> InProgress {
    let after = status::retry_after(answer, host::now()).unwrap_or(AGAIN);
    let named = ADDRESSES.iter().find_map(|name| answer.get(*name)?.to_str().ok());
    InProgress { after, resume: named.map(str::to_owned) }
}

/// How a deletion is getting on, by the answer to it: begun where that is 202, and ended otherwise, also because there was
/// nothing to delete.
///
/// # Errors
///
/// As [`Response::or_absent`].
pub fn deleted(answer: Response) -> Result<State, Error> {
    Ok(match answer.or_absent()? {
        Some(answer) if answer.status == StatusCode::ACCEPTED => State::Running(begun(&answer.headers)),
        _ => State::Ended,
    })
}

/// Asks how the operation is getting on whose address is the note of the last call, as [`State::running`] left it, and says
/// what to answer; none where the way is free, also because there is no note.
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
    use crate::testing::{Host, delete, get};
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

    #[test]
    fn the_address_of_an_operation_stays_in_the_note_of_its_step() {
        let at = |step: &str, named: Option<&str>, resume: Option<&str>| {
            let state = State::Running(InProgress { after: AGAIN, resume: named.map(str::to_owned) });
            match state.answer_at::<Progress>(step, resume) {
                Ok(Some(Progress::InProgress(InProgress { resume: Some(note), .. }))) => note,
                other => panic!("{other:?}"),
            }
        };
        let rows = [
            (None, None, "written"),
            (None, Some("written"), "written"),
            (Some("/7"), None, "written /7"),
            (None, Some("written /7"), "written /7"),
            (Some("/8"), Some("written /7"), "written /8"),
            (None, Some("deleted /7"), "written"),
        ];
        for (named, resume, note) in rows {
            assert_eq!(at(WRITTEN, named, resume), note, "{named:?} {resume:?}");
        }
        let (fits, too_long) = ("u".repeat(LONGEST - "written ".len()), "u".repeat(LONGEST));
        assert_eq!(at(WRITTEN, Some(&fits), None), format!("written {fits}"));
        assert_eq!(at(WRITTEN, Some(&too_long), None), "written");
        assert_eq!([None, Some("written"), Some("written /7")].map(address), [None, None, Some("/7")]);
    }

    #[test]
    fn a_deletion_that_was_accepted_has_begun_and_any_other_has_ended() {
        let operation =
            || delete(URL).status(202).header("azure-asyncoperation", "/7").header("retry-after", "9");
        let begun = |after, resume: Option<&str>| {
            let after = Duration::from_secs(after);
            Ok(State::Running(InProgress { after, resume: resume.map(str::to_owned) }))
        };
        let rows = [
            (delete(URL).status(202), begun(1, None)),
            (operation(), begun(9, Some("/7"))),
            (delete(URL).status(204), Ok(State::Ended)),
            (delete(URL).status(404), Ok(State::Ended)),
            (delete(URL).status(409), Err(ErrorKind::Conflict)),
        ];
        for (answer, expected) in rows {
            let host = Host::new().exchange(answer);
            let told = host.run(async { deleted(http::delete(URL).send().await?) });
            assert_eq!(told.map_err(|error| error.kind), expected);
        }
    }
}
