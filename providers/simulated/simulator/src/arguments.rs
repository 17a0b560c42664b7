//! The command line: where to listen and which cloud to play.

use std::net::SocketAddr;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;

use crate::credentials::Credentials;
use crate::quotas::Quotas;
use crate::refusal::Refusal;
use crate::server::Settings;
use crate::world::Place;

/// What the help says of a cloud that runs.
const WHILE_IT_RUNS: &str = r#"While it runs, / is a page for people, and the operator's side is under /admin:
  curl $CLOUD/admin/state                      all that there is
  curl $CLOUD/admin/counters                   how many calls of each kind had which outcome
  curl $CLOUD/admin/requests                   the last 100 of them
  curl -X PUT $CLOUD/admin/faults -d '{"operations": {"takesMs": 5000, "lateFailures": {"next": 1}}}'
  curl -X PUT $CLOUD/admin/quotas -d azure
A GET of faults or quotas shows all that can be set, a DELETE sets nothing. The README of the simulator has the API."#;

/// Plays a small HTTP cloud with machines, routes and load balancers, on demand a slow, busy, forgetful or faulty one.
#[derive(Clone, Debug, Parser)]
#[command(name = "simulated-cloud", version, after_help = WHILE_IT_RUNS)]
pub struct Arguments {
    /// The address to listen on. Port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The region that all machines are in.
    #[arg(long, default_value = "sim-1", value_parser = NonEmptyStringValueParser::new())]
    pub region: String,
    /// The zones, separated by commas; machines take them in turn. By default the region with a, b and c behind it.
    #[arg(long, value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub zones: Vec<String>,
    /// How many machines there are from the start, named node-1 and so on.
    #[arg(long, default_value_t = 0)]
    pub machines: u32,
    /// What the dice of the faults are seeded with: the same seed and requests meet the same faults.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Token buckets for reads and writes: `azure` (250 and 25 a second, 200 and 10 a second), or JSON as in
    /// {"read": {"burst": 250, "perSecond": 25}}. What is left out is unlimited.
    #[arg(long, value_name = "QUOTAS", default_value = "{}")]
    pub quotas: Quotas,
    /// A file with the credentials of the only client, as JSON. With it, requests need a token; without it nobody does.
    #[arg(long, value_name = "FILE", value_parser = read_credentials)]
    pub credentials: Option<Credentials>,
}

fn read_credentials(path: &str) -> Result<Credentials, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    text.parse().map_err(|refusal: Refusal| refusal.to_string())
}

impl Arguments {
    /// What the server needs to know of it.
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
