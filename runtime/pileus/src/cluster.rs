//! The way to the cluster: where its API server is, and as whom it is asked.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::error::Error;

/// How long a connection to the API server may be silent while something is expected on it. A watch without events is
/// ended by the server within 5 minutes; one that is silent for longer has lost its other end.
const SILENCE: Duration = Duration::from_secs(330);

/// How to reach the API server: the kubeconfig that was named, else those in `KUBECONFIG`, else the Pod's service account.
/// Nothing is sent yet: one that doesn't answer shows in `/readyz`, and is asked again. The cluster's audit log knows who
/// asks by `who`.
pub(crate) async fn config(path: Option<PathBuf>, who: &str) -> Result<Config, Error> {
    let of_variable = || format!("in KUBECONFIG ({})", std::env::var("KUBECONFIG").unwrap_or_default());
    let named = path.as_ref().map_or_else(of_variable, |path| path.display().to_string());
    let wrong = |error: kube::config::KubeconfigError| {
        Error::Kubeconfig(format!("can't use the kubeconfig {named}: {error}"))
    };
    let kubeconfig = match &path {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(wrong)?),
        None => Kubeconfig::from_env().map_err(wrong)?,
    };
    let mut config = match kubeconfig {
        Some(kubeconfig) => {
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::incluster()
            .map_err(|error| Error::Kubeconfig(format!("not in a Pod and no kubeconfig given: {error}")))?,
    };
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    if let Ok(agent) = HeaderValue::from_str(&format!("pileus/{} ({who})", env!("CARGO_PKG_VERSION"))) {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(config)
}

/// The API server's own address, which a provider has no business with. On loopback, where only a developer's is, it
/// is denied with everything there unless a grant names it.
pub(crate) fn addresses(cluster: &Config) -> Vec<IpAddr> {
    let host = cluster.cluster_url.host().unwrap_or_default();
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .into_iter()
        .filter(|ip: &IpAddr| !ip.is_loopback())
        .collect()
}
