//! The command line: where to listen, and what the cloud is like.

use std::net::SocketAddr;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;

use crate::credentials::Credentials;
use crate::quotas::Quotas;
use crate::refusal::Refusal;
use crate::server::Settings;
use crate::world::Place;

/// The end of the help: how to use a cloud that runs.
const AFTER_HELP: &str = r#"While it runs, / is a status page, and the admin API is under /admin:
  curl $CLOUD/admin/state                      everything in the cloud
  curl $CLOUD/admin/counters                   the number of calls by kind and outcome
  curl $CLOUD/admin/requests                   the last 100 requests
  curl -X PUT $CLOUD/admin/faults -d '{"operations": {"takesMs": 5000, "lateFailures": {"next": 1}}}'
  curl -X PUT $CLOUD/admin/quotas -d azure
A GET of faults or quotas shows all fields, a DELETE resets them. The README of the simulator describes the API."#;

/// Run a small HTTP cloud with machines, routes and load balancers, with slowness and faults on demand.
#[derive(Clone, Debug, Parser)]
#[command(name = "simulated-cloud", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// The address to listen on. Port 0 means a free port, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The region of all machines.
    #[arg(long, default_value = "sim-1", value_parser = NonEmptyStringValueParser::new())]
    pub region: String,
    /// The zones, separated by commas; machines are spread over them. By default the region followed by a, b and c.
    #[arg(long, value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub zones: Vec<String>,
    /// The number of machines at the start, named node-1 and so on.
    #[arg(long, default_value_t = 0)]
    pub machines: u32,
    /// The seed of random faults: the same seed and the same requests lead to the same faults.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Token buckets for reads and writes: `azure` (250 and 25 a second, 200 and 10 a second), or JSON as in
    /// {"read": {"burst": 250, "perSecond": 25}}. A missing bucket means no limit.
    #[arg(long, value_name = "QUOTAS", default_value = "{}")]
    pub quotas: Quotas,
    /// A file with the credentials of the only client, as JSON. With it, requests need a token.
    #[arg(long, value_name = "FILE", value_parser = read_credentials)]
    pub credentials: Option<Credentials>,
}

fn read_credentials(path: &str) -> Result<Credentials, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    text.parse().map_err(|refusal: Refusal| refusal.to_string())
}

impl Arguments {
    /// The settings of the server.
    pub fn settings(self) -> Settings {
        let Self { listen: _, region, zones, machines, seed, quotas, credentials } = self;
        Settings { place: Place::new(region, zones), machines, seed, quotas, credentials }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(arguments: &[&str]) -> Result<Vec<String>, clap::Error> {
        let all = ["simulated-cloud"].iter().chain(arguments);
        Ok(Arguments::try_parse_from(all)?.settings().place.zones().to_vec())
    }

    #[test]
    fn the_zones_follow_the_region_unless_they_are_given() {
        assert_eq!(zones(&[]).unwrap(), ["sim-1a", "sim-1b", "sim-1c"]);
        assert_eq!(zones(&["--region", "moon"]).unwrap(), ["moona", "moonb", "moonc"]);
        assert_eq!(zones(&["--zones", "x,y"]).unwrap(), ["x", "y"]);
    }

    #[test]
    fn an_empty_zone_is_refused() {
        assert!(zones(&["--zones", "x,,y"]).is_err());
    }
}
