//! Answers that an operator writes for the next requests that match: any status, code and headers, for what has no fault of its
//! own. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use crate::request::{Request, Response};

/// An answer to some of the next requests, which are not carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Script {
    /// The method; any where it is missing.
    #[serde(default)]
    pub method: Option<String>,
    /// A part of the path, without case; any path where it is empty.
    #[serde(default)]
    pub path: String,
    /// How many requests it answers. Counts down, and the script is removed at 0.
    #[serde(default = "once")]
    pub times: u32,
    /// How many matching requests pass before.
    #[serde(default)]
    pub skip: u32,
    /// The status.
    pub status: u16,
    /// The error code; the body is `body` where it is missing.
    #[serde(default)]
    pub code: Option<String>,
    /// The message of the error.
    #[serde(default)]
    pub message: String,
    /// The body in place of an error; none where both are missing.
    #[serde(default)]
    pub body: Option<Value>,
    /// Headers of the response.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

fn once() -> u32 {
    1
}

impl Script {
    fn matches(&self, request: &Request) -> bool {
        let is_method =
            self.method.as_deref().is_none_or(|method| request.method.as_str().eq_ignore_ascii_case(method));
        is_method && request.path.to_lowercase().contains(&self.path.to_lowercase())
    }

    fn response(&self) -> Response {
        let Self { status, code, message, body, headers, .. } = self;
        let error = code.as_ref().map(|code| json!({"error": {"code": code, "message": message}}));
        let body = error.or_else(|| body.clone());
        let headers = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
        Response { status: *status, headers, body }
    }
}

impl State {
    /// The scripts that wait for requests.
    pub fn scripts(&self) -> &[Script] {
        &self.scripts
    }

    /// Replaces all scripts.
    pub fn set_scripts(&mut self, scripts: Vec<Script>) {
        self.scripts = scripts;
    }

    pub(super) fn scripted(&mut self, request: &Request) -> Option<Response> {
        let script = self.scripts.iter_mut().find(|script| script.matches(request))?;
        if script.skip > 0 {
            script.skip -= 1;
            return None;
        }
        let response = script.response();
        script.times = script.times.saturating_sub(1);
        self.scripts.retain(|script| script.times > 0);
        Some(response)
    }
}
