//! How the cloud answered the requests of one call of a provider. A caller that draws a conclusion from what is missing in
//! the provider's answer learns here whether the cloud said so: an instance is absent, a list is empty and a deletion is done
//! only where the cloud was asked and answered.
//!
//! A request that is sent again is the same request: its last answer counts. So a read that a provider repeats until it
//! succeeds has succeeded. Requests are the same if method, URL, body and the headers that name an operation are.

mod observed;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;

use crate::body::Body;
use crate::effect::Effect;
use crate::recent::Source;
use crate::refusals::RefusalMeaning;
use crate::request::Request;
use crate::rules::{Classification, Place, Rules};
use observed::ObservedBody;

/// The most requests that are told apart: far more than a call can send in its time. What exceeds them counts as failed.
const MAX_REQUESTS: usize = 65_536;

/// The bytes of a body by which requests are told apart. No read has a longer one.
const MAX_HASHED: usize = 64 << 10;

/// How the requests of one call were answered. Clones are the same record.
#[derive(Debug, Clone, Default)]
pub struct Replies(Arc<Mutex<State>>);

/// The requests of one call, counted by their last answers. Requests that are sent again count once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyCounts {
    /// Reads that were answered 2xx, and whose body the provider read to its end.
    pub complete: usize,
    /// Reads that were answered 404 or 410, or with a refusal that means absence.
    pub gone: usize,
    /// Reads that were answered 2xx, and whose body the provider didn't read to its end.
    pub incomplete: usize,
    /// Changes and polls of operations that were answered 2xx, 404 or 410, or with a refusal that means absence.
    pub changed: usize,
    /// Requests that the cloud refused with another status below 500 that says that the request itself is wrong.
    pub refused: usize,
    /// Requests without an answer of the cloud that says anything: denied, not sent, timed out, cut off, still in flight, or
    /// answered 401, 403, 407, 408, 425, 429 or 5xx, or with a refusal that means throttling, a lock, or later. What an interceptor answers doesn't come from the cloud.
    pub failed: usize,
}

#[derive(Debug, Default)]
struct State {
    requests: HashMap<u64, Reply>,
    /// Requests without a known answer: in flight, or failed before they could be told apart.
    unknown: usize,
}

/// The last answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Complete,
    Gone,
    Incomplete,
    Changed,
    Refused,
    Failed,
}

impl Replies {
    /// The counts so far.
    pub fn counts(&self) -> ReplyCounts {
        let state = self.state();
        let mut counts = ReplyCounts { failed: state.unknown, ..ReplyCounts::default() };
        for reply in state.requests.values() {
            let count = match reply {
                Reply::Complete => &mut counts.complete,
                Reply::Gone => &mut counts.gone,
                Reply::Incomplete => &mut counts.incomplete,
                Reply::Changed => &mut counts.changed,
                Reply::Refused => &mut counts.refused,
                Reply::Failed => &mut counts.failed,
            };
            *count += 1;
        }
        counts
    }

    /// Notes a request that will come to the gate. It has failed until then, and for good if it never comes.
    #[must_use]
    pub fn expect(&self) -> ExpectedReply {
        self.state().unknown += 1;
        ExpectedReply(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds it can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, key: u64, reply: Reply) {
        let mut state = self.state();
        let is_full = state.requests.len() >= MAX_REQUESTS;
        match state.requests.entry(key) {
            // A later request that the provider gives up, or whose body it doesn't read, takes nothing back.
            Entry::Occupied(mut last) => {
                if reply != Reply::Incomplete || !matches!(last.get(), Reply::Complete | Reply::Gone) {
                    last.insert(reply);
                }
            }
            Entry::Vacant(_) if is_full => state.unknown += 1,
            Entry::Vacant(vacant) => {
                vacant.insert(reply);
            }
        }
    }
}

/// A request that is on its way to the gate.
#[derive(Debug)]
pub struct ExpectedReply(Replies);

impl ExpectedReply {
    /// The request comes to the gate now.
    pub fn arrive(self) {
        self.0.state().unknown -= 1;
    }
}

/// A request whose answer isn't known. Dropped without one, it has failed.
#[derive(Debug)]
pub(crate) struct PendingReply {
    replies: Option<Replies>,
    request: Option<RequestKey>,
}

#[derive(Debug, Clone, Copy)]
struct RequestKey {
    key: u64,
    is_read: bool,
}

impl PendingReply {
    /// Begins a request. Without replies nothing is recorded.
    pub(crate) fn begin(replies: Option<&Replies>) -> Self {
        if let Some(replies) = replies {
            replies.state().unknown += 1;
        }
        Self { replies: replies.cloned(), request: None }
    }

    /// Tells the request apart from others.
    pub(crate) fn set_request(
        &mut self,
        request: &Request,
        headers: &HeaderMap,
        body: &[u8],
        classification: &Classification,
        rules: &Rules,
    ) {
        if self.replies.is_none() {
            return;
        }
        let mut hasher = DefaultHasher::new();
        request.hash(&mut hasher);
        body.len().hash(&mut hasher);
        body.get(..MAX_HASHED).unwrap_or(body).hash(&mut hasher);
        for operation in rules.iter().filter_map(|rule| rule.operation.as_ref()) {
            if let Place::Header(name) = &operation.place {
                headers.get_all(name).iter().for_each(|value| value.hash(&mut hasher));
            }
        }
        // Without a rule a `GET` counts as a write for the limits, but no cloud changes anything by one.
        let is_read = match classification.effect {
            Effect::Read => true,
            Effect::Write => matches!(*request.method(), Method::GET | Method::HEAD),
            Effect::OperationPoll => false,
        };
        self.request = Some(RequestKey { key: hasher.finish(), is_read });
    }

    /// Records the answer with its meaning, and observes whether its body is read.
    pub(crate) fn respond(
        mut self,
        (from, meaning): (Source, Option<RefusalMeaning>),
        response: http::Response<Body>,
    ) -> http::Response<Body> {
        let (Some(replies), Some(request)) = (self.replies.take(), self.request) else { return response };
        replies.state().unknown -= 1;
        let Some(reply) = reply((from, meaning), response.status(), request.is_read) else { return response };
        replies.set(request.key, reply);
        if reply != Reply::Incomplete {
            return response;
        }
        response.map(|body| ObservedBody::new(body, replies, request.key).boxed_unsync())
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        let (Some(replies), Some(RequestKey { key, .. })) = (self.replies.take(), self.request) else {
            return;
        };
        let mut state = replies.state();
        // A copy of it may have been answered.
        if state.requests.contains_key(&key) || state.requests.len() < MAX_REQUESTS {
            state.unknown -= 1;
            state.requests.entry(key).or_insert(Reply::Failed);
        }
    }
}

/// What a status says, or a declared meaning. None where the cloud wasn't asked and the provider knows that, or where the answer
/// is elsewhere.
fn reply(
    (from, meaning): (Source, Option<RefusalMeaning>),
    status: StatusCode,
    is_read: bool,
) -> Option<Reply> {
    let status = match (meaning, status.as_u16()) {
        (Some(RefusalMeaning::Absent), _) => 404,
        (Some(RefusalMeaning::Throttled | RefusalMeaning::Locked | RefusalMeaning::Later), _) => 429,
        // Not what its status usually means.
        (Some(RefusalMeaning::Other), 404 | 410) => 400,
        (_, status) => status,
    };
    let reply = match (from, status) {
        (Source::NotCached, _) | (_, 300..400) => return None,
        (Source::Interceptor | Source::Limit | Source::Unanswered, _)
        | (_, 401 | 403 | 407 | 408 | 425 | 429) => Reply::Failed,
        (_, 200..300) if is_read => Reply::Incomplete,
        (_, 404 | 410) if is_read => Reply::Gone,
        (_, 200..300 | 404 | 410) => Reply::Changed,
        (_, 400..500) => Reply::Refused,
        _ => Reply::Failed,
    };
    Some(reply)
}
