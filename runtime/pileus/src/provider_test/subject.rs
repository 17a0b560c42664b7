//! What is tested and with what, from the command line: a document, or a configuration and grants given one by one.

use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_json_on_the_line_or_a_file() {
        assert_eq!(configuration_text(r#" {"a": [1]}"#).unwrap(), r#"{"a":[1]}"#);
        for text in ["{", "no-such-file", ""] {
            assert!(matches!(configuration_text(text), Err(Error::Flag { flag: "config", .. })), "{text}");
        }
    }
}
