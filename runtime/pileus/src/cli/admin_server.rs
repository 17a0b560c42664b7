//! Flags of the admin server.

use std::net::SocketAddr;

use clap::Args;

/// Flags of the admin server.
#[derive(Debug, Clone, Args)]
pub struct AdminServer {
    /// Serve /livez, /readyz and /metrics here, over plain HTTP; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10258")]
    pub admin_address: SocketAddr,

    /// Serve /debug/gate and /debug/gate.json here: limits, cache, credentials (without secrets) and the last requests
    /// of the provider. Must be a loopback address; `kubectl port-forward` reaches it in a Pod [default:
    /// --admin-address, if that is a loopback address]
    #[arg(long, value_name = "LOOPBACK:PORT", value_parser = loopback)]
    pub debug_address: Option<SocketAddr>,
}

/// Parses a loopback address.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse::<SocketAddr>()
        .map_err(|error| format!("{error}; write an IP address and a port, as in 127.0.0.1:10259"))?;
    if address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err("not a loopback address; /debug/gate may be reachable only from this machine, so use 127.0.0.1:10259, for example"
            .to_owned())
    }
}
