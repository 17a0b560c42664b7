//! The connection to the API server, and the UID of the cluster.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::Instant;

use crate::error::Error;

/// How long a connection to the API server may be silent while a response is pending. The server ends a watch without
/// events within 5 minutes, so a longer silence means that the connection is lost.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// The pause before the UID is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long a refusal may be temporary. An API server that has just started refuses all requests for some seconds,
/// until it has read the RBAC rules.
const REFUSAL_PERIOD: Duration = Duration::from_secs(30);

/// The client configuration: the given kubeconfig, else those in `KUBECONFIG`, else the Pod's service account. Nothing
/// is sent yet. `user_agent` identifies this process in the cluster's audit log.
///
/// # Errors
/// [`Error::Kubeconfig`] if no usable configuration is found.
pub(crate) async fn config(path: Option<PathBuf>, user_agent: &str) -> Result<Config, Error> {
    let from_variable = || format!("in KUBECONFIG ({})", std::env::var("KUBECONFIG").unwrap_or_default());
    let named = path.as_ref().map_or_else(from_variable, |path| path.display().to_string());
    let invalid = |error: kube::config::KubeconfigError| {
        Error::Kubeconfig(format!("can't use the kubeconfig {named}: {error}"))
    };
    let kubeconfig = match &path {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(invalid)?),
        None => Kubeconfig::from_env().map_err(invalid)?,
    };
    let mut config = match kubeconfig {
        Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(invalid)?,
        None => Config::incluster()
            .map_err(|error| Error::Kubeconfig(format!("not in a Pod and no kubeconfig given: {error}")))?,
    };
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    if let Ok(agent) = HeaderValue::from_str(&format!("pileus/{} ({user_agent})", env!("CARGO_PKG_VERSION")))
    {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(config)
}

/// The UID of the namespace kube-system. It identifies the cluster, because many clusters have the same name. This
/// function retries until the API server answers. It returns none if the API server keeps refusing: resources that are
/// created without the UID can't be identified as this cluster's own, so a server that has just started gets time.
pub(crate) async fn uid(client: &Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut refused_since = None;
    loop {
        match namespaces.get("kube-system").await {
            Ok(namespace) => return namespace.metadata.uid,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                if refused_since.get_or_insert_with(Instant::now).elapsed() >= REFUSAL_PERIOD {
                    tracing::warn!(
                        error = %status.message,
                        "can't read namespace kube-system; cloud resources are created without the cluster's UID"
                    );
                    return None;
                }
                tracing::debug!(error = %status.message, "not allowed to read namespace kube-system; retrying");
            }
            Err(error) => {
                refused_since = None;
                tracing::debug!(%error, "can't read namespace kube-system; retrying");
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// The API server's own address, which providers may not reach. A loopback address, as in development, is left out:
/// loopback is denied as a whole unless a grant names it.
pub(crate) fn addresses(cluster: &Config) -> Vec<IpAddr> {
    let host = cluster.cluster_url.host().unwrap_or_default();
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .into_iter()
        .filter(|ip: &IpAddr| !ip.is_loopback())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// The UID from an API server that first answers with these codes, each so many times; and the number of requests.
    async fn uid_after(refusals: &[(u16, usize)]) -> (Option<String>, usize) {
        let codes: Vec<_> =
            refusals.iter().flat_map(|(code, count)| std::iter::repeat_n(*code, *count)).collect();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let api = tower::service_fn(move |_: Request<Body>| {
            let code = codes.get(counted.fetch_add(1, Ordering::Relaxed)).copied().unwrap_or(200);
            let body = match code {
                200 => json!({"metadata": {"name": "kube-system", "uid": "u-1"}}),
                code => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}),
            };
            let body = Body::from(body.to_string().into_bytes());
            let answer = Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        (uid(&Client::new(api, "default")).await, count.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn the_uid_is_none_only_after_refusals_for_a_while() {
        let known = Some("u-1".to_owned());
        assert_eq!(uid_after(&[]).await, (known.clone(), 1));
        assert_eq!(uid_after(&[(503, 1_000)]).await, (known.clone(), 1_001));
        assert_eq!(uid_after(&[(503, 1), (403, 5), (401, 1)]).await, (known.clone(), 8));
        assert_eq!(
            uid_after(&[(403, 9), (503, 1), (403, 9)]).await,
            (known, 20),
            "the API server has restarted"
        );
        assert_eq!(uid_after(&[(403, 1_000)]).await, (None, 16));
    }
}
