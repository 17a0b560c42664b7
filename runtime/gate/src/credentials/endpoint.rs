//! The way to a token endpoint: the gate's own dialer, with the same address filter and trust roots, on connections that
//! no request of a provider uses. What is asked is in no provider's hands, so no grant of the document, no limit and no
//! fence has a say; the URL, the ranges and the proxy of the operator do.
//!
//! Own code rather than the crate `oauth2`: of a client-credentials grant it would do the form, and it keeps whole
//! answers in its errors and secrets in plain strings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ipnet::IpNet;
use zeroize::Zeroizing;

use crate::credentials::acquire::{Failure, LONGEST_TRY};
use crate::credentials::declared::TokenUrl;
use crate::credentials::token;
use crate::credentials::token::Token;
use crate::dial::{Dialer, Timeouts};
use crate::error::BlockReason;
use crate::error::{Blocked, Error};
use crate::fence::Fence;
use crate::grants::Grant;
use crate::limits::retry_after;
use crate::network::Network;
use crate::pattern::HostPattern;
use crate::upstream::{behind, outgoing};

/// Tokens with many claims have some 10 KiB.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Proves to Azure's metadata service that its caller isn't a confused proxy.
const METADATA: HeaderName = HeaderName::from_static("metadata");

/// One token endpoint.
pub(crate) struct Endpoint {
    url: TokenUrl,
    dialer: Dialer,
}

impl Endpoint {
    /// The endpoint, with the ranges beyond the internet's that it may resolve to.
    pub(crate) fn new(url: &TokenUrl, addresses: Vec<IpNet>, network: Arc<Network>) -> Self {
        let request = &url.0;
        // Every request is made from the URL itself, below; the grant is for the dialer's look at host and addresses.
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

    /// Asks with a form.
    pub(crate) async fn post(&self, form: Zeroizing<String>) -> Result<Token, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        self.ask(Method::POST, None, headers, Bytes::from_owner(form)).await
    }

    /// Asks a metadata service.
    pub(crate) async fn get(&self, query: String) -> Result<Token, Failure> {
        let headers = HeaderMap::from_iter([(METADATA, HeaderValue::from_static("true"))]);
        self.ask(Method::GET, Some(query), headers, Bytes::new()).await
    }

    async fn ask(
        &self,
        method: Method,
        query: Option<String>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Token, Failure> {
        let mut request = self.url.0.clone();
        (request.method, request.query) = (method, query);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let failed = |error| failed(&error);
        let outgoing = behind(Fence::default(), outgoing(&request, headers, body).map_err(failed)?);
        let timeouts = Timeouts { connect: LONGEST_TRY, first_byte: LONGEST_TRY };
        let answer = self.dialer.send(&request.host, outgoing, timeouts).await.map_err(failed)?;
        let (head, incoming) = answer.into_parts();
        let body = gather(incoming).await?;
        let now = SystemTime::now();
        if head.status.is_success() {
            return token::read(&body, now)
                .map_err(|cause| Failure::new("malformed", format!("the answer of {} {cause}", self.url)));
        }
        let result = if head.status.is_client_error() { "refused" } else { "unavailable" };
        let cause = format!("{} {}", self.url, token::refusal(head.status, &body));
        Err(Failure { retry_after: retry_after(&head.headers, now), ..Failure::new(result, cause) })
    }
}

/// The text of the dialer's errors holds nothing of what was sent.
fn failed(error: &Error) -> Failure {
    match error {
        Error::AddressBlocked { host, grant: _, refused } => {
            Failure::new("unreachable", blocked(host, refused))
        }
        error => Failure::new("unreachable", error.to_string()),
    }
}

fn blocked(host: &str, refused: &[(IpAddr, BlockReason)]) -> String {
    let refused = Blocked(refused);
    format!(
        "every address of {host} is blocked ({refused}); to allow one, add its range to `addresses` of the \
         credential in the CloudProvider document"
    )
}

/// Gathers an answer, in one place that is overwritten afterwards.
async fn gather(mut incoming: Incoming) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut gathered = Zeroizing::new(Vec::with_capacity(LONGEST_ANSWER));
    while let Some(frame) = incoming.frame().await {
        let frame = frame
            .map_err(|error| Failure::new("unreachable", format!("the token endpoint broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len() + data.len() > LONGEST_ANSWER {
            return Err(Failure::new("malformed", "the answer of the token endpoint is over 64 KiB"));
        }
        gathered.extend_from_slice(&data);
    }
    Ok(gathered)
}
