//! The trait that every provider implements.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Description, Settings};

/// A problem with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the wrong field, as in `zones[2].name`. Empty for the document as a whole.
    pub path: String,
    /// What is wrong and what would be right, in one sentence.
    pub message: String,
}

impl Problem {
    /// A problem at a path of the configuration.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}

/// A provider: a value that is made from a configuration and knows one cloud's API. It keeps no state.
///
/// Each call gets a fresh value, so `configure` runs at the start of each. `configure` and `settings` are pure: the host
/// refuses requests made there.
pub trait Provider: Sized {
    /// What the operator writes under `configuration`. Reading is strict: an unknown field is a problem. The provider
    /// publishes the JSON Schema of this type, so operators read the doc comments of its fields.
    type Configuration: DeserializeOwned + JsonSchema;

    /// Describes the provider.
    fn describe() -> Description;

    /// Makes the provider from a configuration.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the configuration beyond its form.
    fn configure(configuration: Self::Configuration) -> Result<Self, Vec<Problem>>;

    /// What follows from the configuration: hosts, the meaning of requests and error codes, and limits.
    fn settings(&self) -> Settings;

    /// The form in which provider IDs are compared: two with the same form are of the same instance. The default is the
    /// provider ID itself. Override it for a cloud that returns an ID in several spellings, for example in different case.
    fn canonical_id(provider_id: &str) -> Cow<'_, str> {
        Cow::Borrowed(provider_id)
    }
}
