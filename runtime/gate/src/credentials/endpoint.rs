//! The client of a token endpoint. It uses the gate's own dialer, with the same address filter and trust roots, on
//! connections that no request of a provider uses. A provider does not influence these requests, so grants, limits and
//! the fence do not apply; the operator's URL, address ranges and proxy do.
//!
//! Own code rather than the crate `oauth2`: that would build the form, but keeps whole answers in its errors and
//! secrets in plain strings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ipnet::IpNet;
use zeroize::Zeroizing;

use crate::credentials::acquire::{AcquireError, LONGEST_TRY};
use crate::credentials::token::Token;
use crate::credentials::token_url::TokenUrl;
use crate::credentials::{metadata, token};
use crate::dial::{Dialer, Timeouts};
use crate::error::{BlockReason, Blocked, Error};
use crate::fence::Fence;
use crate::grants::Grant;
use crate::limits::retry_after;
use crate::network::Network;
use crate::pattern::HostPattern;
use crate::upstream::{behind, outgoing};

/// The longest answer: tokens with many claims have some 10 KiB.
const LONGEST_ANSWER: usize = 64 * 1024;

/// One token endpoint.
pub(crate) struct Endpoint {
    url: TokenUrl,
    dialer: Dialer,
}

impl Endpoint {
    /// The endpoint, with the non-public address ranges that it may resolve to.
    pub(crate) fn new(url: &TokenUrl, addresses: Vec<IpNet>, network: Arc<Network>) -> Self {
        let request = &url.0;
        // Every request is made from the URL itself, below; the grant is only for the dialer's check of host and
        // addresses.
        let grant = Grant {
            tls: request.tls,
            host: HostPattern::Exact(request.host.clone()),
            port: request.port,
            methods: Vec::new(),
            paths: Vec::new(),
            addresses,
        };
        Self { url: url.clone(), dialer: Dialer::new(Arc::new(grant), network) }
    }

    /// Requests a token with a form.
    pub(crate) async fn post(&self, form: Zeroizing<String>) -> Result<Token, AcquireError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        self.ask(Method::POST, None, headers, Bytes::from_owner(form)).await
    }

    /// Requests a token of the machine's identity from a metadata service.
    pub(crate) async fn get(&self, query: String) -> Result<Token, AcquireError> {
        self.ask(Method::GET, Some(query), HeaderMap::from_iter([metadata::AZURE]), Bytes::new()).await
    }

    /// Requests a token for AWS's metadata service from the service itself.
    pub(crate) async fn put(&self) -> Result<Token, AcquireError> {
        let answer = self.exchange(Method::PUT, None, metadata::token_request(), Bytes::new()).await;
        let (head, body) = answer?;
        metadata::read_token(&head.headers, &body).ok_or_else(|| {
            AcquireError::new("malformed", format!("the answer of {} is not a token", self.url))
        })
    }

    async fn ask(
        &self,
        method: Method,
        query: Option<String>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Token, AcquireError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let (_, body) = self.exchange(method, query, headers, body).await?;
        token::read(&body, SystemTime::now())
            .map_err(|cause| AcquireError::new("malformed", format!("the answer of {} {cause}", self.url)))
    }

    /// Sends a request and reads the answer.
    async fn exchange(
        &self,
        method: Method,
        query: Option<String>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(http::response::Parts, Zeroizing<Vec<u8>>), AcquireError> {
        let mut request = self.url.0.clone();
        (request.method, request.query) = (method, query);
        let failed = |error| failed(&error);
        let outgoing = behind(Fence::default(), outgoing(&request, headers, body).map_err(failed)?);
        let timeouts = Timeouts { connect: LONGEST_TRY, first_byte: LONGEST_TRY };
        let answer = self.dialer.send(&request.host, outgoing, timeouts).await.map_err(failed)?;
        let (head, incoming) = answer.into_parts();
        let body = gather(incoming).await?;
        if head.status.is_success() {
            return Ok((head, body));
        }
        let now = SystemTime::now();
        let result = if head.status.is_client_error() { "refused" } else { "unavailable" };
        let cause = format!("{} {}", self.url, token::refusal(head.status, &body));
        Err(AcquireError { retry_after: retry_after(&head.headers, now), ..AcquireError::new(result, cause) })
    }
}

/// The dialer's errors contain nothing of what was sent.
fn failed(error: &Error) -> AcquireError {
    match error {
        Error::AddressBlocked { host, grant: _, refused } => {
            AcquireError::new("unreachable", blocked(host, refused))
        }
        error => AcquireError::new("unreachable", error.to_string()),
    }
}

fn blocked(host: &str, refused: &[(IpAddr, BlockReason)]) -> String {
    let refused = Blocked(refused);
    format!(
        "every address of {host} is blocked ({refused}); to allow one, add its range to `addresses` of the \
         credential in the CloudProvider document"
    )
}

/// Reads an answer into one buffer, which is overwritten afterwards.
async fn gather(mut incoming: Incoming) -> Result<Zeroizing<Vec<u8>>, AcquireError> {
    let mut gathered = Zeroizing::new(Vec::with_capacity(LONGEST_ANSWER));
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| {
            AcquireError::new("unreachable", format!("the token endpoint closed the connection: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len() + data.len() > LONGEST_ANSWER {
            return Err(AcquireError::new("malformed", "the answer of the token endpoint is over 64 KiB"));
        }
        gathered.extend_from_slice(&data);
    }
    Ok(gathered)
}
