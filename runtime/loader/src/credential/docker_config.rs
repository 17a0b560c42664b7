//! Reads a Docker configuration: which of its entries is for a repository. The longest matching entry wins, as in podman and
//! in the kubelet, so that two teams can have different passwords for one registry. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::credential::CredentialKind;
use crate::reference::Repository;

/// What a configuration has for a repository.
pub(super) enum Entry {
    /// The credential itself.
    Credential {
        kind: CredentialKind,
        /// The entry's own name.
        key: String,
    },
    /// A program that has the credential.
    Helper { name: String, server: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    /// Name and password in base64.
    #[serde(rename = "auth", deserialize_with = "wiped")]
    login: Zeroizing<String>,
    username: String,
    #[serde(deserialize_with = "wiped")]
    password: Zeroizing<String>,
    #[serde(deserialize_with = "wiped")]
    identitytoken: Zeroizing<String>,
    #[serde(deserialize_with = "wiped")]
    registrytoken: Zeroizing<String>,
}

fn wiped<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(from).map(Zeroizing::new)
}

/// Finds the entry for a repository. The error says what is wrong and holds no part of the text.
pub(super) fn find(text: &str, of: &Repository) -> Result<Option<Entry>, &'static str> {
    // The parser's error may contain a part of the text.
    let config: Config =
        serde_json::from_str(text).map_err(|_| "it is not a Docker configuration, JSON with `auths`")?;
    let helper =
        |name: &String, server: &str| Entry::Helper { name: name.clone(), server: server.to_owned() };
    if let Some((key, name)) = config.cred_helpers.iter().find(|(key, _)| normal(key) == registry(of)) {
        return Ok(Some(helper(name, key)));
    }
    let whole = format!("{}/{}", registry(of), of.name);
    let matches = |key: &str| {
        let rest = whole.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found =
        config.auths.iter().filter(|(key, _)| matches(&normal(key))).max_by_key(|(key, _)| normal(key).len());
    if let Some((key, auth)) = found
        && let Some(kind) = credential(auth)?
    {
        return Ok(Some(Entry::Credential { kind, key: key.clone() }));
    }
    // With a store, `auths` has empty entries.
    let server = found.map_or_else(|| server(of), |(key, _)| key.clone());
    Ok(config.creds_store.as_ref().filter(|name| !name.is_empty()).map(|name| helper(name, &server)))
}

fn credential(auth: &Auth) -> Result<Option<CredentialKind>, &'static str> {
    const WRONG: &str = "an `auth` is not NAME:PASSWORD in base64";
    if !auth.identitytoken.is_empty() {
        return Ok(Some(CredentialKind::Identity(auth.identitytoken.clone())));
    }
    if !auth.registrytoken.is_empty() {
        return Ok(Some(CredentialKind::Bearer(auth.registrytoken.clone())));
    }
    if !auth.username.is_empty() {
        let password = auth.password.clone();
        return Ok(Some(CredentialKind::Basic { username: auth.username.clone(), password }));
    }
    if auth.login.is_empty() {
        return Ok(None);
    }
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(auth.login.trim()).map_err(|_| WRONG)?);
    let (username, password) =
        std::str::from_utf8(&decoded).ok().and_then(|text| text.split_once(':')).ok_or(WRONG)?;
    // Some versions of Docker end it with a zero byte.
    let password = Zeroizing::new(password.trim_end_matches('\0').to_owned());
    Ok(Some(CredentialKind::Basic { username: username.to_owned(), password }))
}

/// The registry's name in a configuration. Docker's own has a special one.
fn registry(of: &Repository) -> &str {
    if of.registry == "docker.io" { "index.docker.io" } else { &of.registry }
}

/// The name under which a store keeps a registry's credential.
fn server(of: &Repository) -> String {
    if of.registry == "docker.io" { "https://index.docker.io/v1/".to_owned() } else { of.registry.clone() }
}

/// An entry's name without what tools add to it.
fn normal(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    let key = if key == "docker.io" { "index.docker.io" } else { key };
    key.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, registry: &str, name: &str) -> String {
        match find(text, &Repository { registry: registry.into(), name: name.into() }) {
            Err(cause) => format!("error: {cause}"),
            Ok(None) => "nothing".to_owned(),
            Ok(Some(Entry::Helper { name, server })) => format!("helper {name} for {server}"),
            Ok(Some(Entry::Credential { kind, key })) => match kind {
                CredentialKind::Basic { username, password } => format!("{username}:{} by {key}", *password),
                CredentialKind::Identity(token) => format!("identity {} by {key}", *token),
                CredentialKind::Bearer(token) => format!("bearer {} by {key}", *token),
            },
        }
    }

    #[test]
    fn the_longest_entry_that_matches_a_repository_is_used() {
        let config = r#"{"auths": {
            "r.example": {"auth": "YTpi"},
            "r.example/team": {"username": "team", "password": "c:d"},
            "https://index.docker.io/v1/": {"auth": "aHViOnB3AA=="},
            "http://plain.example:5000/": {"auth": "eDp5OnoK"},
            "acr.example": {"auth": "MDAwMDo=", "identitytoken": "refresh"},
            "token.example": {"registrytoken": "bearer"},
            "empty.example": {}
        }, "credHelpers": {"ecr.example": "ecr-login"}}"#;
        for (registry, name, expected) in [
            ("r.example", "p", "a:b by r.example"),
            ("r.example", "team", "team:c:d by r.example/team"),
            ("r.example", "team/p", "team:c:d by r.example/team"),
            ("r.example", "teams/p", "a:b by r.example"),
            ("evil-r.example", "p", "nothing"),
            ("r.example.evil", "p", "nothing"),
            ("docker.io", "library/p", "hub:pw by https://index.docker.io/v1/"),
            ("plain.example:5000", "p", "x:y:z\n by http://plain.example:5000/"),
            ("plain.example", "p", "nothing"),
            ("acr.example", "p", "identity refresh by acr.example"),
            ("token.example", "p", "bearer bearer by token.example"),
            ("empty.example", "p", "nothing"),
            ("ecr.example", "p", "helper ecr-login for ecr.example"),
        ] {
            assert_eq!(shown(config, registry, name), expected, "{registry}/{name}");
        }
        let with_store = r#"{"auths": {"https://r.example": {}}, "credsStore": "pass"}"#;
        assert_eq!(shown(with_store, "r.example", "p"), "helper pass for https://r.example");
        assert_eq!(shown(with_store, "docker.io", "p"), "helper pass for https://index.docker.io/v1/");
        for (wrong, expected) in [
            ("planted", "error: it is not a Docker configuration, JSON with `auths`"),
            (
                r#"{"auths": {"r.example": {"auth": "planted"}}}"#,
                "error: an `auth` is not NAME:PASSWORD in base64",
            ),
            ("{}", "nothing"),
        ] {
            assert_eq!(shown(wrong, "r.example", "p"), expected);
        }
    }
}
