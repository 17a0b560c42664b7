//! What to test, from the command line: a document, or a configuration and grants in flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pileus_gate::{Connection, Credential, Grant, Limit};
use pileus_host::Limits;
use pileus_loader::TrustPolicy;
use serde_json::Value;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::provider::component_file;
use crate::secrets::Secrets;

/// The component to test, with its configuration and access.
pub(crate) struct TestInput {
    /// The component file.
    pub(crate) component: PathBuf,
    /// What makes it trusted.
    pub(crate) trust: TrustPolicy,
    /// JSON text; none if none was given.
    pub(crate) configuration: Option<String>,
    pub(crate) access: Access,
}

/// What a document says about the way to the cloud.
#[derive(Default)]
pub(crate) struct Access {
    pub(crate) grants: Vec<Grant>,
    /// The operator's limits.
    pub(crate) limits: Vec<Limit>,
    pub(crate) credentials: Vec<Credential>,
    /// The facts that the provider may read, by name.
    pub(crate) identity: BTreeMap<String, String>,
    pub(crate) connection: Connection,
    /// What a call may use, with the deadlines of the document.
    pub(crate) call_limits: Limits,
}

impl TestInput {
    /// Combines the flags. A component on the command line overrides that of the document.
    ///
    /// # Errors
    /// [`Error::DocumentUnreadable`] and [`Error::Document`] for the document, [`Error::Flag`] for the configuration, and
    /// for a document whose source is an image.
    pub(crate) fn read(
        component: Option<PathBuf>,
        document: Option<&Path>,
        configuration: Option<&str>,
        grants: Vec<Grant>,
    ) -> Result<Self, Error> {
        let read = |path| CloudProvider::read(path, &Secrets::default());
        match (document.map(read).transpose()?, component) {
            (Some(document), component) => {
                let CloudProvider {
                    name,
                    source,
                    trust,
                    configuration,
                    grants,
                    limits,
                    credentials,
                    identity,
                    connection,
                    call_limits,
                    ..
                } = document;
                let access = Access { grants, limits, credentials, identity, connection, call_limits };
                // The policy is about the document's own component.
                let (component, trust) = match component {
                    Some(component) => (component, TrustPolicy::default()),
                    None => (component_file(&name, &source)?.to_owned(), trust),
                };
                Ok(Self { component, trust, configuration: Some(configuration), access })
            }
            (None, component) => Ok(Self {
                component: component.unwrap_or_default(), // the command line requires one of the two
                trust: TrustPolicy::default(),
                configuration: configuration.map(|given| configuration_text("config", given)).transpose()?,
                access: Access { grants, ..Access::default() },
            }),
        }
    }
}

/// Reads the configuration that a flag gives: JSON text, or a file of JSON or YAML.
///
/// # Errors
/// [`Error::Flag`].
pub(crate) fn configuration_text(flag: &'static str, given: &str) -> Result<String, Error> {
    let invalid = |problem: String| Error::Flag { flag, value: given.chars().take(80).collect(), problem };
    let (text, is_file) = if given.trim_start().starts_with('{') {
        (given.to_owned(), false)
    } else {
        (std::fs::read_to_string(given).map_err(|error| invalid(format!("can't read it: {error}")))?, true)
    };
    // Every JSON document is YAML.
    let value: Value = serde_saphyr::from_str(&text).map_err(|error| {
        let kind = if is_file { "YAML" } else { "JSON" };
        invalid(format!("invalid {kind}: {}", error.to_string().lines().next().unwrap_or_default()))
    })?;
    if value.is_object() { Ok(value.to_string()) } else { Err(invalid("expected an object".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_json_text_or_a_file() {
        assert_eq!(configuration_text("config", r#" {"a": [1]}"#).unwrap(), r#"{"a":[1]}"#);
        for text in ["{", "no-such-file", ""] {
            assert!(
                matches!(configuration_text("config", text), Err(Error::Flag { flag: "config", .. })),
                "{text}"
            );
        }
    }
}
