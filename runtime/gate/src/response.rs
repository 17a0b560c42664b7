//! A response on its way back to the provider: where it came from, its head and its body. Every stage that can answer a
//! request makes one, and `gate` hands it to the provider and to the record.

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use tokio::time::Instant;

use crate::body::{self, BodyLimits, CloudBody};
use crate::budget::MemoryBudget;
use crate::deadlines::Deadlines;
use crate::echo::EchoDetector;
use crate::error::Error;
use crate::headers;
use crate::recent::Source;
use crate::record::Record;
use crate::refusals::RefusalMeaning;
use crate::request::Host;
use crate::upstream::CloudResponse;

/// A response, and where it came from.
pub(crate) struct Response {
    pub(crate) from: Source,
    pub(crate) head: http::response::Parts,
    pub(crate) body: ResponseBody,
    /// What it means, if it is a refusal of the cloud whose meaning the provider declares.
    pub(crate) meaning: Option<RefusalMeaning>,
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// It is in memory, since it didn't come over a connection of this request.
    Whole(Bytes),
    /// It still comes from the cloud, within these limits.
    Stream(CloudBody, BodyLimits),
}

impl Response {
    /// A response that is in memory.
    pub(crate) fn whole(from: Source, response: http::Response<Bytes>) -> Self {
        let (head, body) = response.into_parts();
        Self { from, head, body: ResponseBody::Whole(body), meaning: None }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Takes the head of the cloud's response to a request for this host, without what a provider must not see.
    ///
    /// # Errors
    /// [`Error::ResponseTooLarge`] if the body announces that it is; [`Error::Unsearchable`] and [`Error::CredentialEchoed`]
    /// if the request carried a credential and the body can't be searched for it, or a header shows it.
    pub(crate) fn from_cloud(
        host: &Host,
        response: CloudResponse,
        echo: EchoDetector,
        deadlines: Deadlines,
        record: &mut Record,
    ) -> Result<Self, Error> {
        let host = host.to_string();
        let CloudResponse { mut head, body: incoming, meaning } = response;
        if incoming.size_hint().lower() > body::MAX_RESPONSE_BODY {
            return Err(body::body_too_large(&host, body::MAX_RESPONSE_BODY));
        }
        if echo.is_on()
            && let Some(cause) = headers::unsearchable(head.status, &head.headers)
        {
            return Err(Error::Unsearchable { host, cause });
        }
        let (headers, stripped) = headers::edit_response(head.headers);
        if echo.is_in(&headers) {
            return Err(Error::CredentialEchoed { host });
        }
        head.headers = headers;
        // The HTTP library leaves handles of the connection here, which would outlive the body, and the reason phrase, which
        // could show the credential.
        head.extensions = http::Extensions::new();
        record.stripped += stripped;
        let between = deadlines.clamp(deadlines.between_bytes, Instant::now());
        let limits = BodyLimits { host, bytes: body::MAX_RESPONSE_BODY, between, hard: deadlines.hard, echo };
        Ok(Self { from: Source::Cloud, head, body: ResponseBody::Stream(incoming, limits), meaning })
    }

    /// Counts a body from the cache against the budget of the call that gets it. What comes over a connection isn't held, and
    /// what several requests get at once counts for them all.
    ///
    /// # Errors
    /// [`Error::ResponseTooLarge`] over the budget.
    pub(crate) fn charged(mut self, budget: Option<&MemoryBudget>) -> Result<Self, Error> {
        if let (Source::Cache, Some(budget), ResponseBody::Whole(body)) = (self.from, budget, &mut self.body)
        {
            let charge = budget.charge(body.len()).map_err(|excess| Error::ResponseTooLarge {
                host: "the cache".to_owned(),
                part: "body, with all that the call holds,",
                limit: format!("{} MiB", excess.limit >> 20),
            })?;
            *body = charge.hold(std::mem::take(body));
        }
        Ok(self)
    }

    /// Hands the response to the provider. Its record ends with its body.
    pub(crate) fn deliver(self, mut record: Record) -> http::Response<body::Body> {
        record.respond(self.from, self.status(), self.meaning);
        let body = match self.body {
            ResponseBody::Whole(body) => body::whole(body),
            ResponseBody::Stream(incoming, limits) => body::streamed(incoming, limits, record),
        };
        http::Response::from_parts(self.head, body)
    }
}
