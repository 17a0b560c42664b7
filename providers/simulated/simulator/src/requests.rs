//! The most recent requests as the cloud received them. Tests check here which client called, and that it sent no credential.
//! So the names of all headers are kept, but not their values, except for the user agent.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::call::Kind;

/// How many requests are kept: enough for a test that checks right after its calls, few enough to read.
pub const MAX_ENTRIES: usize = 100;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it arrived, since the start of the cloud.
    #[serde(rename = "atMs", serialize_with = "milliseconds")]
    pub at: Duration,
    /// Its kind; `None` for a path or a method that the API doesn't have.
    pub kind: Option<Kind>,
    /// The method.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The status of the response; `None` where the response was lost.
    pub status: Option<u16>,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
    /// The names of all headers, lower case, sorted.
    pub headers: Vec<String>,
}

fn milliseconds<S: serde::Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(at.as_millis()).unwrap_or(u64::MAX))
}

/// The last [`MAX_ENTRIES`] requests, in the order in which they were answered.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    entries: VecDeque<Entry>,
}

impl Requests {
    /// Adds a request. Removes the oldest where there are too many.
    pub fn push(&mut self, entry: Entry) {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// All kept requests, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_requests_are_removed() {
        let mut requests = Requests::default();
        for n in 0..150_u16 {
            requests.push(Entry {
                at: Duration::from_millis(n.into()),
                kind: None,
                method: "GET".to_owned(),
                path: format!("/{n}"),
                status: Some(404),
                user_agent: None,
                headers: Vec::new(),
            });
        }
        let paths: Vec<_> = requests.entries().map(|entry| entry.path.as_str()).collect();
        assert_eq!((paths.len(), paths[0], paths[99]), (MAX_ENTRIES, "/50", "/149"));
    }
}
