//! An interceptor sees every request that was granted and classified, right before the cache, and may answer it instead of
//! the cloud. A dry run answers all writes this way, and a conformance test plays the cloud. The stages before it and the
//! record after it work as always.

use std::fmt;

use bytes::Bytes;
use http::Response;

use crate::error::Error;
use crate::request::Request;
use crate::rules::Classification;

/// Stands between a gate and the cloud. See [`Gate::with_interceptor`](crate::Gate::with_interceptor).
pub trait Interceptor: fmt::Debug + Send + Sync {
    /// Decides what happens to a request with this body. Called once for each request, before anything of it is sent.
    fn intercept(&self, request: &Request, body: &[u8], classification: &Classification) -> Interception;
}

/// What an interceptor does with a request.
#[derive(Debug)]
pub enum Interception {
    /// Sends it to the cloud.
    Forward,
    /// Answers it with this response; the cloud never gets it.
    Respond(Response<Bytes>),
    /// Fails it with this error; the cloud never gets it.
    Fail(Error),
    /// Lets it time out, as if the cloud didn't answer.
    NoResponse,
}
