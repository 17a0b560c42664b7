//! Who stands in for the cloud, in a conformance test or a rehearsal: it sees every request that was granted, with what
//! it means, right before it would be dialled, and says what becomes of it. Everything before that, and the record
//! after it, is as in earnest.

use std::fmt;

use bytes::Bytes;
use http::Response;

use crate::{error::Error, request::Request, rules::Meaning};

/// Stands between a gate and the cloud. See [`Gate::with_stand_in`](crate::Gate::with_stand_in).
pub trait StandIn: fmt::Debug + Send + Sync {
    /// Says what becomes of a request with this body. Called once a request, before anything of it was sent.
    fn decide(&self, request: &Request, body: &[u8], meaning: &Meaning) -> Course;
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Course {
    /// It is carried to the cloud.
    Carry,
    /// It is answered with this, and the cloud never hears of it.
    Answer(Response<Bytes>),
    /// It fails with this, and the cloud never hears of it.
    Fail(Error),
    /// Nobody answers: it fails when the time that it may take is over.
    Silence,
}
