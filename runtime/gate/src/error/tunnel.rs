//! Why a proxy opened no tunnel.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::error::address::{BlockReason, Blocked};

/// Why a proxy opened no tunnel.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TunnelError {
    /// Its name has no address.
    #[error("can't resolve its name: {0}; check the name and the cluster's DNS")]
    Unresolved(Arc<io::Error>),
    /// It has only addresses that aren't opened for it: each, and why it isn't dialed.
    #[error(
        "every address of it is blocked ({}); to allow one, add its range to `addresses` of the proxy in the \
         CloudProvider document",
        Blocked(.0)
    )]
    Blocked(Vec<(IpAddr, BlockReason)>),
    /// None of its addresses accepted a connection.
    #[error("can't connect to it: {0}")]
    Unconnected(Arc<io::Error>),
    /// Its password can't be read.
    #[error("can't read its password from {place}: {cause}")]
    Password {
        /// Where the password was to be read from.
        place: String,
        /// The source's error.
        cause: Arc<io::Error>,
    },
    /// It wants a login, or another one.
    #[error("it answered 407; check `username` and `password` of the proxy in the CloudProvider document")]
    Login,
    /// It refused, or didn't reach the host itself.
    #[error("it answered {0} instead of opening a tunnel; ask its operator whether the host is allowed")]
    Answered(StatusCode),
    /// The connection broke, or what came back isn't HTTP.
    #[error("it broke off: {0}")]
    Broke(Arc<io::Error>),
    /// It took too long.
    #[error("it opened no tunnel within {0:?}")]
    Late(Duration),
}
