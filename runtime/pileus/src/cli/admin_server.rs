//! The flags of the admin server.

use std::net::SocketAddr;

use clap::Args;

/// Flags of the admin server.
#[derive(Debug, Clone, Args)]
pub struct AdminServer {
    /// Where to serve /livez, /readyz and /metrics, over plain HTTP; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10258")]
    pub admin_address: SocketAddr,

    /// Where to serve /debug/gate: the limits, the cache, the credentials (without their secrets) and the last requests
    /// of the provider, for curl; /debug/gate.json for machines. It must be a loopback address; in a Pod `kubectl
    /// port-forward` reaches it. Without this flag it is served on --admin-address if that is loopback, else nowhere
    #[arg(long, value_name = "LOOPBACK:PORT", value_parser = loopback)]
    pub debug_address: Option<SocketAddr>,
}

/// An address that only this machine reaches.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address =
        text.parse::<SocketAddr>().map_err(|error| format!("{error}; write it as in 127.0.0.1:10259"))?;
    if address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err("what it shows is for this machine alone; choose a loopback address, as in 127.0.0.1:10259"
            .to_owned())
    }
}
