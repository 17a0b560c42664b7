//! `/debug/gate`: the state of the provider's gate, for an operator who looks for the cause of a problem. It is a table
//! of text, or JSON at `/debug/gate.json` and with an `Accept` header.
//!
//! The page shows URLs of cloud resources, so it is served on loopback only: to users who may run a process on this
//! machine or in this Pod, or forward a port to it. Pages in their browsers are refused. Requests of such pages have an
//! `Origin` header, or, after DNS rebinding, the page's own name in the `Host` header.

mod json;
mod table;
mod text;
mod view;

use std::net::IpAddr;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

use crate::providers::Gates;
use crate::terminal;
use view::View;

/// The gates of the providers that serve calls, by name.
pub(super) type GatesReceiver = watch::Receiver<Gates>;

/// Whose gate to show.
#[derive(Debug, Default, serde::Deserialize)]
struct Which {
    /// The provider; needed where there are several.
    provider: Option<String>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The routes of the debug pages.
pub(super) fn router(gates: GatesReceiver) -> Router {
    Router::new()
        .route("/debug/gate", get(page))
        .route("/debug/gate.json", get(json_page))
        .layer(middleware::from_fn(refuse_browsers))
        .with_state(gates)
}

async fn page(
    State(gates): State<GatesReceiver>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Response {
    let accepts = |value: &header::HeaderValue| value.to_str().is_ok_and(|value| value.contains(JSON));
    answer(&gates, &which, if headers.get_all(header::ACCEPT).iter().any(accepts) { JSON } else { TEXT })
}

async fn json_page(State(gates): State<GatesReceiver>, Query(which): Query<Which>) -> Response {
    answer(&gates, &which, JSON)
}

fn answer(gates: &GatesReceiver, which: &Which, kind: &'static str) -> Response {
    let gates = gates.borrow().clone();
    let mut names: Vec<_> = gates.keys().map(String::as_str).collect();
    let gate = match &which.provider {
        Some(name) => gates.get(name),
        None if gates.len() > 1 => None,
        None => gates.values().next(),
    };
    let Some(gate) = gate else {
        if names.is_empty() {
            let reason = "there is no gate yet: the provider is being loaded\n";
            return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
        }
        names.sort_unstable();
        let reason = format!(
            "name a provider, as in ?provider={}: {}\n",
            names.first().unwrap_or(&""),
            names.join(", ")
        );
        return (StatusCode::NOT_FOUND, reason).into_response();
    };
    let view = View::of(gate);
    let body = if kind == JSON { terminal::json(&json::object(&view)) } else { text::page(&view) };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

async fn refuse_browsers(request: Request, next: Next) -> Response {
    match browser_problem(request.headers()) {
        None => next.run(request).await,
        Some(why) => {
            let advice = "use curl with a loopback address or localhost";
            (StatusCode::FORBIDDEN, format!("refused: the request {why}; {advice}\n")).into_response()
        }
    }
}

/// Why a request may come from a page in a browser, as a verb phrase; none if it doesn't.
fn browser_problem(headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(header::ORIGIN) {
        return Some("comes from a page in a browser");
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, other) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
    match (host, other) {
        (Some(host), None) if is_loopback(host) => None,
        _ => Some("isn't addressed to this machine"),
    }
}

/// Whether a `Host` header names a loopback address or localhost.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use pileus_gate::Gate;
    use prometheus_client::registry::Registry;
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;

    fn gate() -> Gate {
        let config = pileus_gate::Config {
            refusals: Vec::new(),
            limits: vec![pileus_gate::Limit::new("reads", 10, 1.0).unwrap()],
            ..pileus_gate::Config::new("test")
        };
        Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
    }

    async fn ask(gate: Option<Gate>, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        ask_of(gate.map(|gate| ("test".to_owned(), gate)).into_iter().collect(), path, headers).await
    }

    async fn ask_of(gates: Gates, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let (_sender, shown) = watch::channel(gates);
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = router(shown).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let kind = answer.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_page_is_a_table_or_json_on_request() {
        let host = ("host", "127.0.0.1:10258");
        let (status, kind, text) = ask(Some(gate()), "/debug/gate", &[host, ("accept", "*/*")]).await;
        assert_eq!((status, kind.as_str()), (200, TEXT));
        assert!(text.starts_with("provider test, ") && text.contains("reads    1 (10)"), "{text}");
        for (path, accept) in [("/debug/gate.json", "*/*"), ("/debug/gate", "text/csv, application/json")] {
            let (status, kind, json) = ask(Some(gate()), path, &[host, ("accept", accept)]).await;
            assert_eq!((status, kind.as_str()), (200, JSON), "{path}");
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!((&json["provider"], &json["limits"][0]["key"]), (&"test".into(), &"reads".into()));
        }
        let (status, _, text) = ask(None, "/debug/gate", &[host]).await;
        assert_eq!((status, text.as_str()), (503, "there is no gate yet: the provider is being loaded\n"));
    }

    #[tokio::test]
    async fn one_of_several_providers_has_to_be_named() {
        let host = [("host", "127.0.0.1:10258")];
        let gates: Gates = ["b", "a"].map(|name| (name.to_owned(), gate())).into();
        let (status, _, text) = ask_of(gates.clone(), "/debug/gate", &host).await;
        assert_eq!((status, text.as_str()), (404, "name a provider, as in ?provider=a: a, b\n"));
        assert_eq!(ask_of(gates.clone(), "/debug/gate?provider=b", &host).await.0, 200);
        assert_eq!(ask_of(gates, "/debug/gate.json?provider=c", &host).await.0, 404);
    }

    #[tokio::test]
    async fn pages_in_a_browser_are_refused() {
        let rows: [(&[(&str, &str)], u16); 15] = [
            (&[("host", "127.0.0.1:10258")], 200),
            (&[("host", "127.9.9.9")], 200),
            (&[("host", "localhost:10258")], 200),
            (&[("host", "LOCALHOST")], 200),
            (&[("host", "[::1]:10258")], 200),
            (&[("host", "[::1]")], 200),
            (&[("host", "evil.example:10258")], 403),
            (&[("host", "localhost.evil.example:10258")], 403),
            (&[("host", "127.0.0.1.evil.example")], 403),
            (&[("host", "10.0.0.1:10258")], 403),
            (&[("host", "localhost:evil")], 403),
            (&[("host", "localhost"), ("host", "evil.example")], 403),
            (&[], 403),
            (&[("host", "localhost"), ("origin", "https://evil.example")], 403),
            (&[("host", "localhost"), ("origin", "null")], 403),
        ];
        for (headers, expected) in rows {
            for path in ["/debug/gate", "/debug/gate.json"] {
                let (status, _, body) = ask(Some(gate()), path, headers).await;
                assert_eq!(status, expected, "{headers:?} {body}");
                assert!(status == 200 || !body.contains("reads"), "{body}");
            }
        }
    }
}
