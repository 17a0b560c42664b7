//! The trait that every provider implements.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Description, Settings};

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as in `zones[2].name`; empty for the document as a whole.
    pub path: String,
    /// What is wrong and what would be right, in one sentence.
    pub message: String,
}

impl Problem {
    /// A problem at a place of the configuration.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}

/// A provider: a value that is made from a configuration, knows one cloud's API, and remembers nothing.
///
/// A call gets a fresh value, so `configure` runs at the start of each. It and `settings` are pure: the host refuses
/// requests made there.
pub trait Provider: Sized {
    /// What the operator writes under `configuration`. It is read strictly, a field that it doesn't have is a problem,
    /// and its JSON Schema is what the provider publishes, so doc comments on its fields reach operators.
    type Configuration: DeserializeOwned + JsonSchema;

    /// Says what the provider is.
    fn describe() -> Description;

    /// Makes the provider from a configuration, or lists all that is wrong with it beyond its form.
    fn configure(configuration: Self::Configuration) -> Result<Self, Vec<Problem>>;

    /// Says what follows from the configuration: hosts, the meaning of requests, limits.
    fn settings(&self) -> Settings;
}
