//! The command line: where to listen, and what the project has at the start.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clap::Parser;
use ipnet::Ipv4Net;
use simulated_cloud::credentials::Credentials;
use simulated_cloud::quotas::Quotas;

use crate::server::Settings;

/// The rate limit of a project: 3,600 requests an hour, of which one is refilled each second.
const PROJECT_QUOTA: &str = r#"{"all": {"burst": 3600, "perSecond": 1}}"#;

/// How long a token is valid, in seconds. It has no effect: the configured token never expires.
const UNUSED_LIFETIME: u32 = 3_600;

/// The end of the help: how to use a cloud that runs.
const AFTER_HELP: &str = r#"While it runs, / is a status page, and the admin API is under /admin:
  curl $CLOUD/admin/state                      everything in the project
  curl $CLOUD/admin/requests                   the last 100 requests
  curl $CLOUD/admin/servers -d '{"count": 3, "network": 1000001}'
  curl -X PUT $CLOUD/admin/faults -d '{"operations": {"takesMs": 5000, "lateFailures": {"next": 1}}}'
The README of the simulator describes the API."#;

/// Run a simulator of the Hetzner Cloud API, with slowness and faults on demand.
#[derive(Clone, Debug, Parser)]
#[command(name = "hetzner-cloud", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// The address to listen on. Port 0 means a free port, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The number of servers at the start, named node-1 and so on, attached to the network if there is one.
    #[arg(long, default_value_t = 0)]
    pub servers: u32,
    /// The IP range of a network at the start, named `network`, with one subnet: the first /16 of the range.
    #[arg(long, value_name = "CIDR")]
    pub network: Option<Ipv4Net>,
    /// The location of the servers at the start.
    #[arg(long, default_value = "fsn1")]
    pub location: String,
    /// The only API token that is valid. Without it, requests need no token.
    #[arg(long)]
    pub token: Option<String>,
    /// The seed of random faults: the same seed and the same requests lead to the same faults.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The rate limit as a token bucket, in JSON; `{}` means unlimited.
    #[arg(long, value_name = "QUOTAS", default_value = PROJECT_QUOTA)]
    pub quotas: Quotas,
}

impl Arguments {
    /// The settings of the server.
    pub fn settings(self) -> Settings {
        let Self { listen: _, servers, network, location, token, seed, quotas } = self;
        Settings { servers, network, location, seed, quotas, credentials: token.map(credentials) }
    }
}

/// A client with this token only.
pub fn credentials(token: String) -> Credentials {
    Credentials {
        client_id: "project".to_owned(),
        secret: None,
        assertions: BTreeSet::new(),
        tokens: BTreeSet::from([token]),
        expires_in_seconds: UNUSED_LIFETIME,
    }
}
