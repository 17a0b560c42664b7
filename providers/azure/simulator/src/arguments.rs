//! The command line: where to listen, and what the cloud has at the start.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::seed::{Arrangement, NewNodes, Seed};
use crate::state::Quotas;
use crate::token::Directory;

/// The end of the help: how to use a cloud that runs.
const AFTER_HELP: &str = r#"While it runs, / is a status page, and the admin API is under /admin:
  curl $CLOUD/admin/state                      the resources and what refers to what
  curl $CLOUD/admin/journal                    the requests
  curl $CLOUD/admin/nodes -d '{"count": 3, "arrangement": "flexible"}'
  curl $CLOUD/admin/machines -d '{"machines": ["aks-nodes0-vmss000000"], "action": "stop"}'
  curl -X PUT $CLOUD/admin/behavior -d '{"pageSize": 10}'
  curl -X PUT $CLOUD/admin/faults -d '{"operations": {"takesMs": 5000}}'
The README of the simulator describes the API."#;

/// Run a simulator of Azure Resource Manager, with slowness and faults on demand.
#[derive(Clone, Debug, Parser)]
#[command(name = "azure-simulator", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// The address to listen on. Port 0 means a free port, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Serve TLS at that address, with a certificate whose authority is written to DIRECTORY/ca.pem.
    #[arg(long, value_name = "DIRECTORY")]
    pub tls: Option<PathBuf>,
    /// More names and addresses of the certificate, separated by commas, besides localhost and the address.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub names: Vec<String>,
    /// Also serve plain HTTP at this address, as the metadata service does.
    #[arg(long, value_name = "ADDRESS")]
    pub metadata: Option<SocketAddr>,
    /// The ID of the subscription.
    #[arg(long, default_value = "11111111-1111-1111-1111-111111111111")]
    pub subscription: String,
    /// The ID of the tenant.
    #[arg(long, default_value = "22222222-2222-2222-2222-222222222222")]
    pub tenant: String,
    /// The seed of random faults and IDs: the same seed and the same requests lead to the same responses.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The rate limits: `azure`, `none` or JSON.
    #[arg(long, value_name = "QUOTAS", default_value = "azure")]
    pub quotas: Quotas,
    /// A file with the clients and identities that get tokens, as JSON. Without it, requests need no token.
    #[arg(long, value_name = "FILE", value_parser = read::<Directory>)]
    pub credentials: Option<Directory>,
    /// A file with subscriptions, nodes and resources at the start, as JSON.
    #[arg(long, value_name = "FILE", value_parser = read::<Seed>)]
    pub resources: Option<Seed>,
    /// What to create at the start.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to create at the start.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Create resources at the start.
    #[command(subcommand)]
    Create(Create),
}

/// The resources that have a command of their own.
#[derive(Clone, Debug, Subcommand)]
pub enum Create {
    /// Create node machines with their network.
    Nodes(NodesArguments),
}

/// Node machines.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct NodesArguments {
    /// How many.
    pub count: u32,
    /// The number of scale sets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub scale_sets: u32,
    /// Use flexible orchestration in the scale sets.
    #[arg(long, conflicts_with_all = ["standalone", "availability_sets"])]
    pub flex: bool,
    /// Use no sets.
    #[arg(long, conflicts_with = "availability_sets")]
    pub standalone: bool,
    /// Use this many availability sets.
    #[arg(long, value_name = "N")]
    pub availability_sets: Option<u32>,
    /// What names begin with.
    #[arg(long, default_value = "aks-nodes")]
    pub prefix: String,
    /// The resource group.
    #[arg(long, default_value = "nodes")]
    pub resource_group: String,
    /// The region.
    #[arg(long, default_value = "eastus")]
    pub location: String,
    /// Use no zones.
    #[arg(long)]
    pub no_zones: bool,
    /// Give each machine an address of IPv6.
    #[arg(long)]
    pub dual_stack: bool,
    /// Give each machine a public address.
    #[arg(long)]
    pub public_addresses: bool,
}

impl NodesArguments {
    fn nodes(self) -> NewNodes {
        let (arrangement, sets) = match (self.flex, self.standalone, self.availability_sets) {
            (true, ..) => (Arrangement::Flexible, self.scale_sets),
            (_, true, _) => (Arrangement::Standalone, 1),
            (_, _, Some(sets)) => (Arrangement::AvailabilitySets, sets),
            _ => (Arrangement::Uniform, self.scale_sets),
        };
        NewNodes {
            count: self.count,
            arrangement,
            sets,
            prefix: self.prefix,
            group: self.resource_group,
            location: self.location,
            zones: !self.no_zones,
            dual_stack: self.dual_stack,
            public_addresses: self.public_addresses,
            ..NewNodes::default()
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &str) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    // The message has the position and the field, but no value: the file may have secrets.
    serde_json::from_str(&text)
        .map_err(|error| format!("is invalid in line {}, column {}", error.line(), error.column()))
}

impl Arguments {
    /// What the cloud gets at the start.
    pub fn resources(&self) -> Seed {
        let mut seed = self.resources.clone().unwrap_or_default();
        if let Some(Command::Create(Create::Nodes(nodes))) = self.command.clone() {
            seed.nodes.push(nodes.nodes());
        }
        seed
    }
}
