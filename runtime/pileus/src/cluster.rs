//! The way to the cluster: where its API server is, and as whom it is asked.

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

/// How long a connection to the API server may be silent while something is expected on it. A watch without events is
/// ended by the server within 5 minutes; one that is silent for longer has lost its other end.
const SILENCE: Duration = Duration::from_secs(330);

/// When the API server is asked again that didn't answer.
const AGAIN: Duration = Duration::from_secs(2);

/// How long a refusal is doubted. An API server that has just started refuses everything until it has read who has which
/// rights, which takes some seconds.
const REFUSED: Duration = Duration::from_secs(30);

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

/// The UID of the namespace kube-system, by which what belongs to this cluster is told from what belongs to others, of
/// which many bear the same name. It is asked for until the API server answers; none where it doesn't let us read it, and
/// goes on not to: what is made without the UID is nobody's, so one that has just started is given its time.
pub(crate) async fn uid(client: &Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut refused_since = None;
    loop {
        match namespaces.get("kube-system").await {
            Ok(namespace) => return namespace.metadata.uid,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                if refused_since.get_or_insert_with(Instant::now).elapsed() >= REFUSED {
                    tracing::warn!(
                        error = %status.message,
                        "the UID of namespace kube-system can't be read, so what this cluster creates isn't marked as its own"
                    );
                    return None;
                }
                tracing::debug!(error = %status.message, "the UID of namespace kube-system is refused as yet");
            }
            Err(error) => {
                refused_since = None;
                tracing::debug!(%error, "the UID of namespace kube-system is not known yet");
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server that answers so many requests with each of these codes, and then tells the UID. How often it was asked.
    async fn asked(refusals: &[(u16, usize)]) -> (Option<String>, usize) {
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
    async fn the_uid_is_given_up_only_if_it_is_refused_for_a_while() {
        let known = Some("u-1".to_owned());
        assert_eq!(asked(&[]).await, (known.clone(), 1));
        assert_eq!(asked(&[(503, 1_000)]).await, (known.clone(), 1_001));
        assert_eq!(asked(&[(503, 1), (403, 5), (401, 1)]).await, (known.clone(), 8));
        assert_eq!(asked(&[(403, 9), (503, 1), (403, 9)]).await, (known, 20), "it has started once more");
        assert_eq!(asked(&[(403, 1_000)]).await, (None, 16));
    }
}
