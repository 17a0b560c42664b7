//! HTTP requests to the cloud. Every request passes the host's gate, which attaches credentials, waits for the cloud's
//! limits and answers from its cache. So a provider signs nothing and retries nothing.
//!
//! At most [`MAX_IN_FLIGHT`] requests are in flight at a time; others wait. Once the soft deadline of the call has passed,
//! no request is sent, and requests in flight get a little longer. An author needs no code for either: the error
//! [says so](Error::is_past_deadline), and the SDK answers that the item is not known yet.
//!
//! ```no_run
//! # async fn example() -> Result<(), pileus_guest::Error> {
//! # #[derive(serde::Deserialize)] struct Machine { id: String }
//! use pileus_guest::http;
//!
//! let response = http::get("https://cloud.example/v1/machines/m-1").send().await?;
//! let machine: Option<Machine> = match response.or_absent()? {
//!     Some(response) => Some(response.json()?),
//!     None => None,
//! };
//! # Ok(())
//! # }
//! ```
//!
//! # The host's cache
//!
//! If a rule of the provider says that a request is a read, its response may come from the host's cache. The purpose of
//! the call limits its age: 30 s for Nodes that join, 5 s for refreshes, and never older than the call where a deletion is
//! confirmed. A provider needs no code for that. It can ask for newer responses with [`Request::max_age`] or
//! [`Request::no_cache`]. A call that makes changes reads from the cache only what a request allows with
//! [`Request::max_age`]: data that changes rarely, such as a list of networks. A call that removes something never does.
//! With [`Request::send_if_cached`] it uses a cached response if there is one, and can send another request otherwise:
//!
//! ```no_run
//! # async fn example(id: &str) -> Result<(), pileus_guest::Error> {
//! # #[derive(serde::Deserialize)] struct Machine { id: String }
//! use pileus_guest::http;
//!
//! let all = http::get("https://cloud.example/v1/machines");
//! let listed = match all.send_if_cached().await? {
//!     Some(response) => response.json::<Vec<Machine>>()?.into_iter().find(|machine| machine.id == id),
//!     None => None,
//! };
//! let machine = match listed {
//!     Some(machine) => machine,
//!     None => http::get(format!("https://cloud.example/v1/machines/{id}")).send().await?.json()?,
//! };
//! # drop(machine);
//! # Ok(())
//! # }
//! ```

mod base_url;
pub(crate) mod codes;
mod collection;
mod document;
mod envelope;
pub(crate) mod failure;
mod members;
mod numeric_id;
mod pages;
mod raw;
mod request;
mod response;
mod slots;
pub(crate) mod status;

use ::http::Uri;
pub use ::http::{HeaderMap, Method, StatusCode};
pub use base_url::BaseUrl;
pub use codes::{CodePlace, Codes, Meaning};
pub use collection::{Collection, MAX_SINGLE_READS};
pub use document::{Document, Edit};
pub use members::{MemberDigest, MemberSet};
pub use numeric_id::NumericId;
pub use pages::read_pages;
pub use raw::Raw;
pub use request::Request;
pub use response::Response;

/// The maximum number of requests in flight. The host gives a call a connection for each. More requests would only fill
/// the gate's queue.
pub const MAX_IN_FLIGHT: usize = 64;

/// The `Cache-Control` directive of a request that only the host's cache may answer.
pub(crate) const ONLY_IF_CACHED: &str = "only-if-cached";

/// Where a response may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the cloud, or from the host's cache if it has one that is new enough.
    Cloud,
    /// From the host's cache only, without a request to the cloud.
    Cache,
}

/// A request, as the SDK sends it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// A response, as the SDK receives it.
pub(crate) struct Incoming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Outgoing {
    /// The request's name in messages. It leaves out the query, which may hold a secret.
    pub(crate) fn subject(&self) -> String {
        let Self { method, uri, .. } = self;
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        format!("{method} {scheme}://{authority}{}", uri.path())
    }
}

/// A `GET` of a URL.
pub fn get(url: impl Into<String>) -> Request {
    Request::new(Method::GET, url)
}

/// A `POST` to a URL.
pub fn post(url: impl Into<String>) -> Request {
    Request::new(Method::POST, url)
}

/// A `PUT` to a URL.
pub fn put(url: impl Into<String>) -> Request {
    Request::new(Method::PUT, url)
}

/// A `PATCH` of a URL.
pub fn patch(url: impl Into<String>) -> Request {
    Request::new(Method::PATCH, url)
}

/// A `DELETE` of a URL.
pub fn delete(url: impl Into<String>) -> Request {
    Request::new(Method::DELETE, url)
}
