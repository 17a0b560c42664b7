//! Secret values in Kubernetes Secrets of the namespace that Pileus runs in: that of its Pod, or of the kubeconfig's
//! context.
//!
//! When the gate needs a value, this module reads that one Secret by `get`: for each new token, and every 10 s for a
//! value that is used directly. A watch would show changes at once, but needs a connection for each Secret, two more
//! verbs in the role and a lasting copy of all keys. Here the Secret is wiped as soon as the key is extracted.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource as _};
use pileus_gate::{SecretSource, SecretString};
use zeroize::{Zeroize as _, Zeroizing};

/// The key of a pull secret.
const PULL_SECRET_KEY: &str = ".dockerconfigjson";

/// The Secrets of one namespace. Clones share the client, which may be set after the document was read.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    client: Arc<OnceLock<(Client, String)>>,
}

/// A key of a Secret.
struct Entry {
    secrets: Secrets,
    name: String,
    key: String,
}

impl Secrets {
    /// The source for the value of a key.
    pub(crate) fn source(&self, name: &str, key: &str) -> pileus_gate::Secret {
        Arc::new(Entry { secrets: self.clone(), name: name.to_owned(), key: key.to_owned() })
    }

    /// The source for a Secret of type `kubernetes.io/dockerconfigjson`.
    pub(crate) fn pull_secret(&self, name: &str) -> Arc<dyn pileus_loader::SecretSource> {
        Arc::new(Entry { secrets: self.clone(), name: name.to_owned(), key: PULL_SECRET_KEY.to_owned() })
    }

    /// Sets the client and the namespace. Later calls have no effect.
    pub(crate) fn connect(&self, client: Client, namespace: &str) {
        let _first = self.client.set((client, namespace.to_owned()));
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secrets, name, key } = self;
        match secrets.client.get() {
            Some((_, namespace)) => write!(f, "key {key} of Secret {namespace}/{name}"),
            None => write!(f, "key {key} of Secret {name}"),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SecretSource for Entry {
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
        Box::pin(async {
            let Self { secrets, name, key } = self;
            let Some((client, namespace)) = secrets.client.get() else {
                return Err(io::Error::other(
                    "only `pileus run` and `pileus plan` can read Kubernetes Secrets; use a file here",
                ));
            };
            let path = Secret::url_path(&(), Some(namespace));
            let request = Request::new(path).get(name, &GetParams::default()).map_err(io::Error::other)?;
            let answer = client.request_text(request.map(Into::into)).await;
            let text = answer.map(Zeroizing::new).map_err(|error| refusal(&error, namespace, name))?;
            // The parser's error may contain a part of the text.
            let secret: Secret = serde_json::from_str(&text)
                .map_err(|_| io::Error::other("the API server's answer is not a Secret"))?;
            value(secret, key)
        })
    }
}

impl pileus_loader::SecretSource for Entry {
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
        SecretSource::read(self)
    }
}

/// Extracts one value, and wipes all values of the Secret.
fn value(secret: Secret, key: &str) -> io::Result<SecretString> {
    let mut data = secret.data.unwrap_or_default();
    let value = if let Some(value) = data.get(key) {
        let text = std::str::from_utf8(&value.0).map(SecretString::from);
        text.map_err(|_| io::Error::other("the value is not UTF-8 text"))
    } else {
        let keys: Vec<_> = data.keys().map(String::as_str).collect();
        let has = if keys.is_empty() { "is empty".to_owned() } else { format!("has {}", keys.join(", ")) };
        Err(io::Error::new(io::ErrorKind::NotFound, format!("the Secret does not have this key; it {has}")))
    };
    for value in data.values_mut() {
        value.0.zeroize();
    }
    value
}

/// The error of a failed request, with advice for the operator.
fn refusal(error: &kube::Error, namespace: &str, name: &str) -> io::Error {
    let code = match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    match code {
        403 => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "Pileus isn't allowed to read the Secret; give its service account a Role in namespace \
                 {namespace} with the rule {{apiGroups: [\"\"], resources: [secrets], resourceNames: [{name}], verbs: \
                 [get]}}, as at the end of deploy/rbac.yaml"
            ),
        ),
        404 => io::Error::new(
            io::ErrorKind::NotFound,
            format!("Secret {namespace}/{name} does not exist; create it, or name another one"),
        ),
        _ => io::Error::other(pileus_controllers::describe(error)),
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use pileus_gate::ExposeSecret as _;

    use super::*;

    fn answers(status: u16, body: &'static str) -> Secrets {
        let api = tower::service_fn(move |request: http::Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/clouds/secrets/main");
            assert_eq!(request.method(), http::Method::GET);
            let answer = http::Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        });
        let secrets = Secrets::default();
        secrets.connect(Client::new(api, "default"), "clouds");
        secrets
    }

    #[tokio::test]
    async fn a_value_is_one_key_of_one_secret() {
        let found =
            r#"{"kind": "Secret", "apiVersion": "v1", "data": {"token": "cGxhbnRlZA==", "b": "/w=="}}"#;
        let secrets = answers(200, found);
        let token = secrets.source("main", "token");
        assert_eq!(token.read().await.unwrap().expose_secret(), "planted");
        assert_eq!(format!("{token} {token:?}"), ["key token of Secret clouds/main"; 2].join(" "));
    }

    #[tokio::test]
    async fn errors_name_what_is_missing_and_what_to_do_and_never_a_value() {
        let denied = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}"#;
        let missing = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}"#;
        let broken = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "etcd is away"}"#;
        let rows = [
            (
                200,
                r#"{"data": {"other": "cGxhbnRlZA==", "and": ""}}"#,
                "does not have this key; it has and, other",
            ),
            (200, r#"{"data": {}}"#, "does not have this key; it is empty"),
            (200, r#"{"data": {"token": "/w=="}}"#, "not UTF-8 text"),
            (200, r#"{"data": {"token": "planted"}}"#, "answer is not a Secret"),
            (
                403,
                denied,
                "resources: [secrets], resourceNames: [main], verbs: [get]}, as at the end of deploy/rbac",
            ),
            (404, missing, "Secret clouds/main does not exist; create it"),
            (500, broken, "etcd is away"),
        ];
        for (status, body, expected) in rows {
            let error = answers(status, body).source("main", "token").read().await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("planted"), "{body}: {error}");
        }
        let nowhere = Secrets::default().source("main", "token").read().await.unwrap_err().to_string();
        assert!(nowhere.contains("only `pileus run` and `pileus plan`"), "{nowhere}");
    }
}
