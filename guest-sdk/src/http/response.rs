//! An answer of the cloud, and what an author makes of it.

use ::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::status;
use crate::{Error, host};

/// An answer of the cloud, whole.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub bytes: Vec<u8>,
    pub(super) subject: String,
}

impl Response {
    /// The text of a header; none where it is missing or no text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The answer, if its status is a success.
    ///
    /// # Errors
    ///
    /// What the status means in the contract's words: `throttled` for 429 with the time that `Retry-After` names,
    /// `denied` for 401, 403 and 407, `conflict` for 409, 412 and 423, `invalid` for 400 and 422, `unavailable` for 408,
    /// 425 and 5xx, and `broken` for all others. The message holds the cloud's own, as far as it is found.
    pub fn error_for_status(self) -> Result<Self, Error> {
        match status::kind(self.status, &self.headers, host::now()) {
            None => Ok(self),
            Some(kind) => Err(status::error(kind, &self)),
        }
    }

    /// The answer, if its status is a success, and none for 404 and 410. Only the author knows whether these speak of
    /// the thing that was asked for: a list that isn't there is a mistake somewhere, not an empty list.
    ///
    /// # Errors
    ///
    /// As [`error_for_status`](Self::error_for_status).
    pub fn or_absent(self) -> Result<Option<Self>, Error> {
        match self.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => self.error_for_status().map(Some),
        }
    }

    /// The body of a successful answer, read as JSON, and its headers, in which a cloud may name the operation that it has
    /// begun.
    ///
    /// # Errors
    ///
    /// As [`json`](Self::json).
    pub fn parts<T: DeserializeOwned>(self) -> Result<(T, HeaderMap), Error> {
        let mut answer = self.error_for_status()?;
        let headers = std::mem::take(&mut answer.headers);
        Ok((answer.json()?, headers))
    }

    /// The body of a successful answer, read as JSON.
    ///
    /// # Errors
    ///
    /// As [`error_for_status`](Self::error_for_status), and `broken` where the body is not what the type expects.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let Self { bytes, subject, .. } = self.error_for_status()?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::broken(format!("{subject} answered what isn't understood: {error}")))
    }
}
