//! Who may speak to the API server: keys, tokens and kubeconfigs, made anew for each.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::write;
use crate::Error;

/// A user of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A member of `system:masters`, which may do everything.
    Admin,
    /// Pileus' service account. It has no rights before `deploy/rbac.yaml` is installed and exactly those afterwards,
    /// since the API server knows a service account by its name alone, wherever the token is from.
    Pileus,
    /// Whoever plays the kubelets of all Nodes, with all rights: a user of its own, so that what it writes is told from
    /// what a test does. Its requests are not in the audit log.
    Kubelets,
}

impl User {
    const ALL: [Self; 3] = [Self::Admin, Self::Pileus, Self::Kubelets];

    fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin.kubeconfig",
            Self::Pileus => "pileus.kubeconfig",
            Self::Kubelets => "kubelets.kubeconfig",
        }
    }

    /// User name and groups, in the form of a line of the token file.
    fn identity(self) -> &'static str {
        match self {
            Self::Admin => r#"admin,admin,"system:masters""#,
            Self::Pileus => {
                "system:serviceaccount:kube-system:pileus,pileus,\
                 \"system:serviceaccounts,system:serviceaccounts:kube-system\""
            }
            Self::Kubelets => r#"kubelets,kubelets,"system:masters""#,
        }
    }
}

/// Writes what an API server that listens at `port` needs, and the kubeconfigs of its users.
pub(super) fn issue(folder: &Path, port: u16) -> Result<(), Error> {
    let key = rcgen::KeyPair::generate()?;
    write(&folder.join("service-account.key"), &key.serialize_pem())?;
    write(&folder.join("service-account.pub"), &key.public_key_pem())?;
    let mut tokens = Vec::new();
    for user in User::ALL {
        let token = token()?;
        tokens.push(format!("{token},{}", user.identity()));
        write(&kubeconfig(folder, user), &kubeconfig_text(folder, port, user, &token))?;
    }
    write(&folder.join("tokens.csv"), &tokens.join("\n"))
}

/// The API server's flags for what [`issue`] wrote.
pub(super) fn flags(folder: &Path) -> [String; 5] {
    let at = |name: &str| folder.join(name).display().to_string();
    [
        // It makes itself a certificate here, and finds it again when it restarts.
        format!("--cert-dir={}", at("certificates")),
        format!("--token-auth-file={}", at("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", at("service-account.pub")),
        format!("--service-account-signing-key-file={}", at("service-account.key")),
    ]
}

/// Where the kubeconfig of `user` is.
pub(super) fn kubeconfig(folder: &Path, user: User) -> PathBuf {
    folder.join(user.file())
}

/// A client that uses the kubeconfig at `path`, and nothing of this machine's own.
pub(super) async fn client(path: &Path) -> Result<Client, Error> {
    let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    Client::try_from(config.await.map_err(failed)?).map_err(Error::api("a client"))
}

/// A kubeconfig. JSON, since every JSON document is YAML.
fn kubeconfig_text(folder: &Path, port: u16, user: User, token: &str) -> String {
    let name = "pileus-dev";
    // A Pod's namespace is that of its service account.
    let namespace = if matches!(user, User::Pileus) { "kube-system" } else { "default" };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            // The certificate followed by that of the authority that signed it.
            "certificate-authority": folder.join("certificates/apiserver.crt"),
        }}],
        "users": [{"name": name, "user": {"token": token}}],
    })
    .to_string()
}

/// A token that the machine's other users can't guess.
fn token() -> Result<String, Error> {
    let source = "/dev/urandom";
    let mut bytes = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::file(source))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
