//! What is tested and with what, from the command line: a document, or a configuration and grants given one by one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use http::Uri;
use ipnet::IpNet;
use pileus_cloud::ProviderId;
use pileus_gate::{Connection, Credential, Grant};
use serde_json::Value;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::secrets::Secrets;

/// What the author gave.
pub(crate) struct Given {
    /// The component file.
    pub(crate) component: PathBuf,
    /// JSON text; none where none was given.
    pub(crate) configuration: Option<String>,
    pub(crate) access: Access,
}

/// What it may reach, as whom, and on which way.
#[derive(Default)]
pub(crate) struct Access {
    pub(crate) grants: Vec<Grant>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) connection: Connection,
}

impl Given {
    /// Puts together what the flags say. The component on the command line beats the document's.
    ///
    /// # Errors
    /// [`Error::Document`] and its like, [`Error::Flag`] for a configuration that can't be read.
    pub(crate) fn read(
        component: Option<PathBuf>,
        document: Option<&Path>,
        configuration: Option<&str>,
        grants: Vec<Grant>,
    ) -> Result<Self, Error> {
        let read = |path| CloudProvider::read(path, &Secrets::default());
        match (document.map(read).transpose()?, component) {
            (Some(document), component) => {
                let CloudProvider { component: own, configuration, grants, credentials, connection, .. } =
                    document;
                let access = Access { grants, credentials, connection };
                let component = component.unwrap_or(own);
                Ok(Self { component, configuration: Some(configuration), access })
            }
            (None, component) => Ok(Self {
                component: component.unwrap_or_default(), // the command line demands one of the two
                configuration: configuration.map(configuration_text).transpose()?,
                access: Access { grants, ..Access::default() },
            }),
        }
    }
}

fn configuration_text(given: &str) -> Result<String, Error> {
    let wrong =
        |problem: String| Error::Flag { flag: "config", value: given.chars().take(80).collect(), problem };
    let (text, is_file) = if given.trim_start().starts_with('{') {
        (given.to_owned(), false)
    } else {
        (std::fs::read_to_string(given).map_err(|error| wrong(format!("can't read it: {error}")))?, true)
    };
    // Every JSON document is YAML.
    let value: Value = serde_saphyr::from_str(&text).map_err(|error| {
        let kind = if is_file { "YAML" } else { "JSON" };
        wrong(format!("this is not {kind}: {}", error.to_string().lines().next().unwrap_or_default()))
    })?;
    if value.is_object() { Ok(value.to_string()) } else { Err(wrong("expected fields".to_owned())) }
}

/// Reads a Node that the cloud knows: `NAME` or `NAME=PROVIDER-ID`.
pub(crate) fn node(text: &str) -> Result<(String, Option<ProviderId>), String> {
    let (name, id) = match text.split_once('=') {
        Some((name, id)) => (name, Some(provider_id(id)?)),
        None => (text, None),
    };
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_empty() || name.len() > 253 || !name.chars().all(good) {
        return Err(format!("{name:?} is no name of a Node; expected NAME or NAME=PROVIDER-ID"));
    }
    Ok((name.to_owned(), id))
}

/// Reads a provider ID.
pub(crate) fn provider_id(text: &str) -> Result<ProviderId, String> {
    ProviderId::parse(text).map_err(|error| error.to_string())
}

/// Reads a grant: all methods to a host, on the paths below the URL's.
pub(crate) fn grant(text: &str) -> Result<Grant, String> {
    let wrong = "expected a URL, as in https://api.cloud.example or http://127.0.0.1:8080";
    let uri: Uri = text.parse().map_err(|_| wrong.to_owned())?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong.to_owned()),
    };
    let (host, authority) = uri.host().zip(uri.authority()).ok_or(wrong)?;
    let default = if tls { 443 } else { 80 };
    // What is neither a host alone nor a host and a port is a user's name or a port that is none.
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

/// The addresses that naming a host on the command line opens: its own.
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
    fn a_grant_is_a_url_and_opens_what_it_names() {
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
    fn a_node_has_a_name_and_perhaps_a_provider_id() {
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

    #[test]
    fn a_configuration_is_json_on_the_line_or_a_file() {
        assert_eq!(configuration_text(r#" {"a": [1]}"#).unwrap(), r#"{"a":[1]}"#);
        for text in ["{", "no-such-file", ""] {
            assert!(matches!(configuration_text(text), Err(Error::Flag { flag: "config", .. })), "{text}");
        }
    }
}
