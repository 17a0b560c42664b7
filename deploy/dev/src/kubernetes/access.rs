//! Access to the API server: keys, tokens and kubeconfigs, generated for each one.

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
    /// A member of `system:masters`, with all permissions.
    Admin,
    /// Pileus' service account. It has no permissions before `deploy/rbac.yaml` is applied, and exactly those afterwards:
    /// the API server identifies a service account by its name, regardless of where the token comes from.
    Pileus,
    /// The sender of all kubelets' requests, with all permissions. It is a user of its own, so that its writes can be told
    /// from those of a test. Its requests are not in the audit log.
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

    /// User name, UID and groups, as a line of the token file has them.
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

/// Writes the keys and tokens of an API server at `port`, and the kubeconfigs of its users.
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

/// The API server's flags for the files of [`issue`].
pub(super) fn flags(folder: &Path) -> [String; 5] {
    let at = |name: &str| folder.join(name).display().to_string();
    [
        // The API server generates a certificate here, and finds it again after a restart.
        format!("--cert-dir={}", at("certificates")),
        format!("--token-auth-file={}", at("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", at("service-account.pub")),
        format!("--service-account-signing-key-file={}", at("service-account.key")),
    ]
}

/// The path of a user's kubeconfig.
pub(super) fn kubeconfig(folder: &Path, user: User) -> PathBuf {
    folder.join(user.file())
}

/// A client of the kubeconfig at `path`, which ignores the kubeconfig and environment of this machine.
pub(super) async fn client(path: &Path) -> Result<Client, Error> {
    let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    Client::try_from(config.await.map_err(failed)?).map_err(Error::api("a client"))
}

/// The text of a kubeconfig, as JSON, which is valid YAML.
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
            // The certificate, followed by that of the authority that signed it.
            "certificate-authority": folder.join("certificates/apiserver.crt"),
        }}],
        "users": [{"name": name, "user": {"token": token}}],
    })
    .to_string()
}

/// A token that other users of this machine can't guess.
fn token() -> Result<String, Error> {
    let source = "/dev/urandom";
    let mut bytes = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::file(source))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
