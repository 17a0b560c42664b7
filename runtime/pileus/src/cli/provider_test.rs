//! Arguments of `pileus provider test`, and the parsers of their values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::Args;
use http::Uri;
use ipnet::IpNet;
use pileus_cloud::ProviderId;
use pileus_gate::Grant;

use super::{Compiled, EXIT_CODES};

const PROVIDER_TEST: &str = "\
Example, for a component and a cloud (or its simulator) on this machine, with two instances, and the provider ID of a
third that was deleted:

  pileus provider test provider.wasm --config '{\"endpoint\": \"http://127.0.0.1:8080\"}' \\
      --grant http://127.0.0.1:8080 --node node-1 --node node-2 --gone mycloud://m-000003

The component runs as in a cluster: in its sandbox, behind the gate, with access only to what is granted. Requests that
may change something don't reach the cloud. A check that lacks an argument is reported as not run, with the argument to
pass; it never counts as passed, and the last line says that the test is not complete. The checks of a failing cloud are
answered by the test itself, so the cloud sees almost none of their requests. The whole test takes about 15 seconds,
mostly waiting for a cloud that doesn't answer.

With --allow-changes the test changes the cloud, so use a project, a subscription or an account for tests. It creates, for
the Nodes of --node and for a cluster and Services with random UIDs:
  - two load balancers, for the Services pileus-conformance/first (port 80) and pileus-conformance/second (port 443);
  - two routes, for the halves of a random /24 of 10.0.0.0/8, unless the table has another route to a part of it.
It creates them, repeats that, changes one without the other, moves them to other Nodes, deletes them, repeats that, and
removes one as an orphan. Each step may take up to ten minutes, as some clouds need minutes for a load balancer. The test
removes everything at its end, also after a failed check, Ctrl-C or SIGTERM, and names what it could not remove.";

/// Arguments of `pileus provider test`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PROVIDER_TEST}\n\n{EXIT_CODES}"))]
pub struct ProviderTest {
    /// Test this component [default: the one that the document of --provider names]
    #[arg(value_name = "FILE.wasm", required_unless_present = "provider")]
    pub component: Option<PathBuf>,

    /// Take configuration, grants and credentials from this CloudProvider document
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["config", "grant"])]
    pub provider: Option<PathBuf>,

    /// Configure the provider with JSON text that starts with {, or with a file of JSON or YAML
    #[arg(long, value_name = "FILE|JSON")]
    pub config: Option<String>,

    /// Let it reach this host, as in https://api.cloud.example, with all methods and all paths below the given one. An IP
    /// address or localhost opens that address. May be repeated
    #[arg(long, value_name = "URL", value_parser = grant)]
    pub grant: Vec<Grant>,

    /// Look up this Node, which has an instance in the cloud, and expect this provider ID. May be repeated; some checks
    /// need two Nodes
    #[arg(long, value_name = "NAME[=PROVIDER-ID]", value_parser = node)]
    pub node: Vec<(String, Option<ProviderId>)>,

    /// Look up this provider ID of an instance that is gone or never existed
    #[arg(long, value_name = "PROVIDER-ID", value_parser = provider_id)]
    pub gone: Option<ProviderId>,

    /// Create two load balancers and two routes in the cloud, test the provider with them, and remove them
    #[arg(long)]
    pub allow_changes: bool,

    /// Fail unless every check ran: for CI, where an argument that got lost must not pass as a test
    #[arg(long)]
    pub require_all: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Log these entries to standard error, as in `provider=debug` for the provider's own log
    #[arg(long, value_name = "FILTER", default_value = "off", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}

/// Parses `NAME` or `NAME=PROVIDER-ID`.
fn node(text: &str) -> Result<(String, Option<ProviderId>), String> {
    let (name, id) = match text.split_once('=') {
        Some((name, id)) => (name, Some(provider_id(id)?)),
        None => (text, None),
    };
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_empty() || name.len() > 253 || !name.chars().all(good) {
        return Err(format!("invalid Node name {name:?}; expected NAME or NAME=PROVIDER-ID"));
    }
    Ok((name.to_owned(), id))
}

fn provider_id(text: &str) -> Result<ProviderId, String> {
    ProviderId::parse(text).map_err(|error| error.to_string())
}

/// Parses a URL as a grant: all methods, and all paths below that of the URL.
fn grant(text: &str) -> Result<Grant, String> {
    let wrong = "expected a URL, as in https://api.cloud.example or http://127.0.0.1:8080";
    let uri: Uri = text.parse().map_err(|_| wrong.to_owned())?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong.to_owned()),
    };
    let (host, authority) = uri.host().zip(uri.authority()).ok_or(wrong)?;
    let default = if tls { 443 } else { 80 };
    // An authority that is neither the host alone nor a host with a port has user information or an invalid port.
    let port = uri.port_u16().or((authority.as_str() == host).then_some(default)).ok_or(wrong)?;
    let parsed = |error: pileus_gate::Error| error.to_string();
    Ok(Grant {
        tls,
        host: host.parse().map_err(parsed)?,
        port,
        methods: vec!["*".parse().map_err(parsed)?],
        paths: vec![uri.path().parse().map_err(parsed)?],
        addresses: addresses(host),
    })
}

/// The addresses that a grant for a host opens: that of an IP literal, or loopback for localhost.
fn addresses(host: &str) -> Vec<IpNet> {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => vec![address.into()],
        Err(_) if host == "localhost" => {
            vec![IpAddr::from(Ipv4Addr::LOCALHOST).into(), IpAddr::from(Ipv6Addr::LOCALHOST).into()]
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_opens_the_addresses_that_its_url_names() {
        for (text, label, addresses) in [
            ("https://api.cloud.example", "api.cloud.example", &[][..]),
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080", &["127.0.0.1/32"]),
            ("http://[::1]:8080", "http://[::1]:8080", &["::1/128"]),
            ("http://localhost", "http://localhost:80", &["127.0.0.1/32", "::1/128"]),
        ] {
            let grant = grant(text).unwrap();
            assert_eq!(grant.label(), label);
            assert_eq!(
                grant.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                addresses,
                "{text}"
            );
        }
        for text in ["", "api.cloud.example", "ftp://a.example", "https://", "http://a.example:99999"] {
            assert!(grant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_provider_id_may_follow_the_name_of_a_node() {
        assert_eq!(node("node-1").unwrap(), ("node-1".to_owned(), None));
        let (name, id) = node("node-1=azure:///subscriptions/a=b").unwrap();
        assert_eq!(
            (name.as_str(), id.unwrap().to_string().as_str()),
            ("node-1", "azure:///subscriptions/a=b")
        );
        for text in ["", "Node", "a b", "node-1=", "node-1=nothing", "=azure://1"] {
            assert!(node(text).is_err(), "{text}");
        }
    }
}
