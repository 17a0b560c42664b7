//! How the API server is reached, and the UID of the cluster.

mod client;
mod proxy;
mod transport;
mod tunnel;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use pileus_controllers::{Health, HealthCheck, Metrics, describe};
use pileus_gate::{ExposeSecret as _, SecretString};
use pileus_loader::Proxy;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::cli;
use crate::error::Error;
use crate::sources::environment_proxies;

/// How long a connection to the API server may be silent while a response is pending. The server ends a watch without
/// events within 5 minutes, so a longer silence means that the connection is lost.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// How long an exchange may take, as for the requests of controllers. The API server's own limit for a request is a minute. A user
/// waits for a plan, and a swap and a return to the previous release wait for their status, so a connection that was lost
/// silently must show that sooner than by [`READ_TIMEOUT`].
pub(crate) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The health check of the cluster's UID. It exists only where the UID can't be read at once.
const UID_CHECK: &str = "cluster-uid";

/// How long the request for the UID may take.
const UID_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the log repeats that the UID can't be read.
const UID_LOG_PERIOD: Duration = Duration::from_mins(1);

/// What follows where the UID stays unknown.
const NO_GUARD: &str = "namespace kube-system can't be read, so cloud resources are created without the cluster's UID, and deletions \
                        in the cloud are not guarded against an API server of another cluster: allow this service account to \
                        get the namespace kube-system, as in deploy/rbac.yaml, and restart Pileus";

/// The pause before the UID is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long a refusal may be temporary. An API server that has just started refuses all requests for some seconds,
/// until it has read the RBAC rules.
const REFUSAL_PERIOD: Duration = Duration::from_secs(30);

/// How the API server is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClusterConfig {
    /// What kube takes care of.
    pub(crate) config: Config,
    /// The proxy in between.
    proxy: Option<Proxy>,
    /// The file of the token. It wins over `token`.
    token_file: Option<PathBuf>,
    /// The token of the kubeconfig.
    token: Option<String>,
    /// The files of the client certificate and its key.
    identity_files: Vec<PathBuf>,
}

/// Finds the API server: by the given kubeconfig, else by those in `KUBECONFIG`, else by the Pod's service account. Nothing
/// is sent yet. `user_agent` identifies this process in the cluster's audit log.
///
/// # Errors
/// [`Error::Kubeconfig`] if no usable configuration is found.
pub(crate) async fn config(path: Option<PathBuf>, user_agent: &str) -> Result<ClusterConfig, Error> {
    reach((path, None), false, user_agent).await
}

/// As [`config`], by the rules of kubectl: also from `~/.kube/config`, and in another context than the current one.
///
/// # Errors
/// As [`config`].
pub(crate) async fn operator_config(access: cli::Access, user_agent: &str) -> Result<ClusterConfig, Error> {
    reach((access.kubeconfig, access.context), true, user_agent).await
}

async fn reach(
    (path, context): (Option<PathBuf>, Option<String>),
    as_kubectl: bool,
    user_agent: &str,
) -> Result<ClusterConfig, Error> {
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    let own = own.filter(|file| as_kubectl && std::env::var_os("KUBECONFIG").is_none() && file.exists());
    let path = path.or(own);
    let from_variable = || format!("in KUBECONFIG ({})", std::env::var("KUBECONFIG").unwrap_or_default());
    let named = path.as_ref().map_or_else(from_variable, |path| path.display().to_string());
    let invalid = |error: kube::config::KubeconfigError| {
        Error::Kubeconfig(format!("can't use the kubeconfig {named}: {}", describe(&error)))
    };
    let kubeconfig = match &path {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(invalid)?),
        None => Kubeconfig::from_env().map_err(invalid)?,
    };
    let mut proxy_url = None;
    let config = match kubeconfig {
        Some(mut kubeconfig) => {
            if context.is_some() {
                kubeconfig.current_context = context;
            }
            let root_file = prepare(&mut kubeconfig, &mut proxy_url);
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(invalid)?;
            config.root_cert_file = root_file;
            config
        }
        None => Config::incluster()
            .map_err(|error| Error::Kubeconfig(format!("not in a Pod and no kubeconfig given: {error}")))?,
    };
    let mut cluster = ClusterConfig::of(config);
    let environment = environment_proxies();
    let found = proxy::of_server(&cluster.config.cluster_url, proxy_url.as_deref(), &environment);
    if let Some((origin, proxy)) = found.map_err(Error::Proxy)? {
        tracing::info!(%proxy, origin, "the API server is reached through a proxy");
        cluster.proxy = Some(proxy);
    }
    if let Ok(agent) = HeaderValue::from_str(&format!("pileus/{} ({user_agent})", env!("CARGO_PKG_VERSION")))
    {
        cluster.config.headers.push((USER_AGENT, agent));
    }
    Ok(cluster)
}

/// Prepares a kubeconfig for kube: takes out the proxy's URL of the current cluster, and removes line breaks in base64, which
/// tools put there and Go ignores. Returns the file of the certificate authorities, which is read again while it is used.
fn prepare(kubeconfig: &mut Kubeconfig, proxy_url: &mut Option<String>) -> Option<PathBuf> {
    let joined = |text: &mut String| text.retain(|c| !c.is_ascii_whitespace());
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.client_certificate_data.iter_mut().for_each(joined);
        if let Some(key) = &mut user.client_key_data {
            let mut text = Zeroizing::new(key.expose_secret().to_owned());
            joined(&mut text);
            *key = SecretString::from(text.as_str());
        }
    }
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.certificate_authority_data.iter_mut().for_each(joined);
    }
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let named = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    let cluster = named.cluster.as_ref()?;
    proxy_url.clone_from(&cluster.proxy_url);
    let file =
        cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none());
    file.map(PathBuf::from)
}

impl ClusterConfig {
    /// Without a proxy.
    fn of(mut config: Config) -> Self {
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        config.proxy_url = None;
        let user = &mut config.auth_info;
        let token_file = user.token_file.take().map(PathBuf::from);
        let token = user.token.as_ref().map(|token| token.expose_secret().trim().to_owned());
        // kube prefers the token where there are both; client-go prefers the file.
        user.token = token.as_deref().filter(|_| token_file.is_none()).map(SecretString::from);
        let of = |data: bool, file: &Option<String>| file.as_ref().filter(|_| !data).map(PathBuf::from);
        let identity_files = [
            of(user.client_certificate_data.is_some(), &user.client_certificate),
            of(user.client_key_data.is_some(), &user.client_key),
        ];
        let identity_files = identity_files.into_iter().flatten().collect();
        Self { config, proxy: None, token_file, token, identity_files }
    }
}

/// Gives up an exchange with the API server after [`EXCHANGE_TIMEOUT`]. `error` makes an error of the reason. A write that was
/// given up may have been done all the same.
pub(crate) async fn in_time<T, E>(
    exchange: impl Future<Output = Result<T, E>>,
    error: impl FnOnce(String) -> E,
) -> Result<T, E> {
    let reason = || format!("no answer within {} s", EXCHANGE_TIMEOUT.as_secs());
    timeout(EXCHANGE_TIMEOUT, exchange).await.unwrap_or_else(|_elapsed| Err(error(reason())))
}

/// The UID of the namespace kube-system. It identifies the cluster, because many clusters have the same name. This
/// function retries until the API server answers; a health check and the log say so meanwhile. It returns none if the API
/// server keeps refusing: resources that are created without the UID can't be identified as this cluster's own, so a server
/// that has just started gets time.
pub(crate) async fn uid(client: &Client, health: &Health, metrics: &Metrics) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (mut refused_since, mut waiting): (_, Option<(HealthCheck, Instant)>) = (None, None);
    loop {
        let (error, is_refused) = match timeout(UID_TIMEOUT, namespaces.get("kube-system")).await {
            Ok(Ok(namespace)) => {
                metrics.set_cluster_guard(true);
                if let Some((check, _)) = waiting {
                    tracing::info!("namespace kube-system can be read");
                    check.pass();
                }
                return namespace.metadata.uid;
            }
            Ok(Err(error)) => {
                let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
                (describe(&error), matches!(code, 401 | 403 | 404))
            }
            Err(_elapsed) => (format!("no answer within {} s", UID_TIMEOUT.as_secs()), false),
        };
        if !is_refused {
            refused_since = None;
        } else if refused_since.get_or_insert_with(Instant::now).elapsed() >= REFUSAL_PERIOD {
            metrics.set_cluster_guard(false);
            tracing::warn!(%error, "{NO_GUARD}");
            let check = waiting.map_or_else(|| health.check(UID_CHECK, ""), |(check, _)| check);
            check.pass_with_remark(NO_GUARD);
            return None;
        }
        let now = Instant::now();
        if waiting.as_ref().is_none_or(|(_, logged)| now.duration_since(*logged) >= UID_LOG_PERIOD) {
            tracing::warn!(%error, "can't read namespace kube-system; the service and route controllers wait");
            let check = waiting.map_or_else(|| health.check(UID_CHECK, ""), |(check, _)| check);
            check.fail(format!(
                "the service and route controllers wait: can't read namespace kube-system: {error}"
            ));
            waiting = Some((check, now));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// The API server's own address, which providers may not reach. A loopback address, as in development, is left out:
/// loopback is denied as a whole unless a grant names it.
pub(crate) fn addresses(cluster: &ClusterConfig) -> Vec<IpAddr> {
    let host = cluster.config.cluster_url.host().unwrap_or_default();
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
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
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
        let (health, mut registry) = (Health::default(), Registry::default());
        let metrics = Metrics::register(&mut registry);
        let found = uid(&Client::new(api, "default"), &health, &metrics).await;
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let is_on = format!("pileus_cluster_guard {}", u8::from(found.is_some()));
        assert!(text.contains(&is_on), "{text}");
        let (sum, report) =
            (refusals.iter().map(|(_, count)| count).sum::<usize>(), health.report(Instant::now()));
        let says = match report.as_slice() {
            [] => "nothing",
            [(_, Ok(None))] => "ok",
            [(_, Ok(Some(remark)))] if remark == NO_GUARD => "no guard",
            _ => panic!("{report:?}"),
        };
        let expected = if found.is_none() {
            "no guard"
        } else if sum > 0 {
            "ok"
        } else {
            "nothing"
        };
        assert_eq!(says, expected, "what /readyz says after {refusals:?}");
        (found, count.load(Ordering::Relaxed))
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
