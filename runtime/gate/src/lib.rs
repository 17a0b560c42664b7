//! The only way from a provider to its cloud. Every HTTP request of a provider passes [`Gate::send`], which decides
//! what the request is, what it means, whether the operator granted it and which addresses it may be carried to, then
//! carries it and counts it. Nothing here knows of wasm or Kubernetes, so all of it is tested with plain requests.
//!
//! A request passes, in this order: `request` gives it its one canonical form, `grants` the permission, `rules` its
//! meaning, `cache` spares the cloud a question, `limits` are its turn, `credentials` say to the cloud who asks. `way`,
//! `dial` and `network` do the sending and the connecting, to an `address` that the grant opens, by the `proxy` and
//! with the `trust` that the operator's `connection` names; a `stand_in` may answer in the cloud's place, and a
//! `rehearsal` does that for all writes. `headers` and `body` bound and clean what is carried, and an `echo` of the
//! credential is no answer. `record` counts, `recent` keeps the last ones for a page, and `failures` keeps a flood from
//! the log.
//!
//! `fence` and `under_way` keep changes from being begun or given up at the wrong moment, and `writes` finishes those
//! whose callers have gone. `pattern` and `path` hold the small languages in which operators and providers write hosts,
//! methods, paths and keys, and a `problem` says where something in these is wrong.

mod address;
mod body;
mod cache;
mod connection;
mod credentials;
mod deadlines;
mod dial;
mod echo;
mod error;
mod failures;
mod fence;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod grants;
mod headers;
mod limits;
mod network;
mod path;
mod pattern;
mod problem;
mod proxy;
mod recent;
mod record;
mod rehearsal;
mod request;
mod rules;
mod stand_in;
mod trust;
mod under_way;
mod way;
mod writes;

pub use address::Reason;
pub use body::Body;
pub use cache::{CacheState, Evidence, View};
pub use connection::{Connection, Login, Proxy, ProxyUrl};
pub use credentials::{
    Credential, CredentialKind, CredentialState, Failing, OAuthClient, Secret, SecretFile, SecretSource,
    TokenUrl,
};
pub use deadlines::Deadlines;
pub use error::{Error, Missing, Phase};
pub use fence::{Fence, Fenced};
pub use gate::{Config, Gate};
pub use grants::{Coverage, Endpoint, Grant};
pub use limits::{Limit, LimitState, LimitsState, Rate, Urgency};
pub use network::Resolve;
pub use path::{KeyPattern, PathPattern, PathPrefix};
pub use pattern::{HostPattern, MethodPattern, TextPattern};
pub use problem::Problem;
pub use proxy::NoTunnel;
pub use recent::{Seen, Source};
pub use record::Metrics;
pub use rehearsal::{Rehearsal, WantedWrite, WantedWrites};
pub use request::{Host, Request};
pub use rules::{Effect, LimitKey, Limits, Meaning, Operation, Page, Place, Rule, Rules};
pub use secrecy::{ExposeSecret, SecretString};
pub use stand_in::{Course, StandIn};
