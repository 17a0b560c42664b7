//! A response of the cloud, and its interpretation.

use std::rc::Rc;

use ::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::codes::{self, Code, Meaning};
use super::slots::Slot;
use super::{Incoming, status};
use crate::{Error, host};

/// A complete response of the cloud.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub bytes: Vec<u8>,
    pub(super) subject: String,
    code: Code,
    /// Held until the body of a page has been read.
    turn: Option<Rc<Slot>>,
}

impl Response {
    /// A response of a host. `subject` is the request's name in messages.
    pub(super) fn new(incoming: Incoming, subject: String, host: &str, turn: Option<Slot>) -> Self {
        let Incoming { status, headers, bytes } = incoming;
        let mut response =
            Self { status, headers, bytes, subject, code: Code::default(), turn: turn.map(Rc::new) };
        let is_failed = status.is_client_error() || status.is_server_error();
        if is_failed && !response.headers.contains_key(status::GATE) {
            let header = |name: &str| response.header(name).map(str::to_owned);
            response.code = codes::read(&codes::tables(), host, status, header, &response.bytes);
        }
        response
    }

    /// The cloud's error code: in the place that [`Settings::codes`](crate::Settings::codes) names, or else where most APIs
    /// have it. None for a success.
    pub fn code(&self) -> Option<&str> {
        self.code.text.as_deref()
    }

    pub(super) const fn meaning(&self) -> Option<Meaning> {
        self.code.meaning
    }

    /// The text of a header. None if it is missing or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The response, if its status is a success.
    ///
    /// # Errors
    ///
    /// The error kind that [`Settings::codes`](crate::Settings::codes) gives to the response's code, or else that of its
    /// status: `throttled` for 429, `denied` for 401, 403 and 407, `conflict` for 409,
    /// 412 and 423, `invalid` for 400 and 422, `unavailable` for 408, 425 and 5xx, and `broken` for all others, with the
    /// time that `Retry-After` names. The message includes the cloud's own message, if it is found.
    pub fn error_for_status(self) -> Result<Self, Error> {
        match status::kind(self.status, self.meaning(), &self.headers, host::now()) {
            None => Ok(self),
            Some(kind) => Err(status::error(kind, &self)),
        }
    }

    /// The response, if its status is a success. None for 404, 410, and a code that means [`Meaning::Absent`]. Use it only where these statuses are about the
    /// resource that was asked for: a list that doesn't exist is a mistake, not an empty list.
    ///
    /// # Errors
    ///
    /// As [`error_for_status`](Self::error_for_status).
    pub fn or_absent(self) -> Result<Option<Self>, Error> {
        match (self.status, self.meaning()) {
            (_, Some(Meaning::Absent)) | (StatusCode::NOT_FOUND | StatusCode::GONE, None) => Ok(None),
            _ => self.error_for_status().map(Some),
        }
    }

    /// The body of a successful response, read as JSON.
    ///
    /// # Errors
    ///
    /// As [`error_for_status`](Self::error_for_status), and `broken` if the body doesn't match the type.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        self.parse(|bytes| serde_json::from_slice(bytes))
    }

    /// The body of a successful response, as a function reads it.
    pub(super) fn parse<T>(self, read: impl FnOnce(&[u8]) -> serde_json::Result<T>) -> Result<T, Error> {
        let Self { bytes, subject, turn: _turn, .. } = self.error_for_status()?;
        read(&bytes).map_err(|error| Error::broken(format!("{subject} sent an unexpected body: {error}")))
    }
}
