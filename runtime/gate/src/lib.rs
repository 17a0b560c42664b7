//! The only path from a provider to its cloud: every HTTP request of a provider passes [`Gate::send`]. The gate decides
//! what a request is, whether the operator granted it, what it does in the cloud and which addresses it may go to; then
//! it attaches the credential, dials and counts. It knows neither wasm nor Kubernetes, so plain requests test all of it.
//!
//! # The path of a request
//!
//! `gate/prepare.rs` and `gate/pipeline.rs` name these stages in order; each decides alone, in its own file.
//!
//! ```text
//!    http::Request                        from the provider
//! 1  canonical form   request, headers    one reading of the URL; credentials of the provider are removed
//! 2  grant            grants              which of the operator's grants allows it; none: denied
//! 3  rule             rules, effect       read, write or poll of an operation; its limits and cache scope
//!    PreparedRequest
//!    (interceptor)    interceptor         a dry run (dry_run) or a test may answer here
//! 4  cache            cache               reads only: a kept response, or one exchange for equal requests
//! 5  limit            limits              waits by urgency, or 429; before it, writes waits for detached writes
//! 6  credential       credentials         the host's credential is attached; once more after a 401
//! 7  dial             upstream, dial      a write behind its fence (writes, fence); body scanned for its credential (echo)
//!                     network, proxy      addresses are resolved, filtered (address) and dialed, or a tunnel is opened
//!    Response
//! 8  record           record              counts the request, logs its failure (failure_log), keeps it for a page (recent)
//!    http::Response                       to the provider
//! ```
//!
//! `refusals` says what a refusal of the cloud means where its status misleads; limits, record and replies follow it.
//!
//! `replies` says how the requests of one call were answered, for a caller that draws conclusions from what is missing.
//!
//! `body` bounds what is carried, `budget` what is held for a call, `cpu_account` what is computed for it, `deadlines` how
//! long. `connection` and `trust` are the operator's network: proxy and
//! certificates. `shutdown` and `writes` end a gate without giving up a write halfway; see `gate` for what happens at
//! SIGTERM.
//!
//! `pattern` and `path` are the small languages in which operators and providers write hosts, methods, paths and keys. A
//! `problem` says where one of these is wrong. `metrics` registers the metric families of all stages, `error` has what can
//! fail, and `secret` reads secrets from where they are.

mod address;
mod body;
mod budget;
mod cache;
mod connection;
mod cpu_account;
mod credentials;
mod deadlines;
mod dial;
mod dry_run;
mod echo;
mod effect;
mod error;
mod failure_log;
mod families;
mod fence;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod grants;
mod headers;
mod interceptor;
mod limits;
mod metrics;
mod network;
mod path;
mod pattern;
mod problem;
mod proxy;
mod recent;
mod record;
mod refusals;
mod replies;
mod request;
mod response;
mod rules;
mod secret;
mod shutdown;
mod trust;
mod upstream;
mod writes;

pub use address::{check_output, opens_node};
pub use body::Body;
pub use budget::{MemoryBudget, MemoryCharge, MemoryExcess};
pub use cache::{CacheState, Evidence, View};
pub use connection::{Connection, Login, Proxy, ProxyUrl};
pub use cpu_account::{CpuAccount, thread_clock};
pub use credentials::problems as credential_problems;
pub use credentials::{
    Credential, CredentialKind, CredentialState, Failing, IdentityId, MetadataFlavor, OAuthClient,
    TokenTarget, TokenUrl,
};
pub use deadlines::Deadlines;
pub use dry_run::{DryRun, WantedWrite, WantedWrites};
pub use effect::Effect;
pub use error::{BlockReason, Error, MissingGrant, Phase, TunnelError};
pub use fence::{Fence, FencedBody};
pub use gate::{Config, Gate, GateFamily};
pub use grants::{Coverage, DeniedRequests, Endpoint, Grant, MissingPart};
pub use interceptor::{Interception, Interceptor};
pub use limits::{Limit, LimitScope, LimitState, LimitsState, Rate, RequestKind, Urgency, uncounted};
pub use metrics::Metrics;
pub use network::Resolve;
pub use path::{KeyPattern, PathPattern, PathPrefix};
pub use pattern::{HostPattern, MethodPattern, TextPattern};
pub use problem::Problem;
pub use recent::{RecentRequest, Source};
pub use refusals::{CodePlace, Refusal, RefusalMeaning};
pub use replies::{ExpectedReply, Replies, ReplyCounts};
pub use request::{Host, Request};
pub use rules::{Classification, LimitKey, Limits, Operation, Page, Place, Rule, Rules, contradictions};
pub use secrecy::{ExposeSecret, SecretString};
pub use secret::{Secret, SecretFile, SecretSource};
