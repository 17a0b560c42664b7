//! Which requests the cache knows, and what it has to know of them.

use std::sync::Arc;

use http::HeaderMap;

use crate::cache::key::{Keys, List};
use crate::cache::scopes::Scope;
use crate::cache::view::View;
use crate::cache::wish::Wish;
use crate::limits::Urgency;
use crate::request::{Host, Request};
use crate::rules::{Classification, Effect};

/// The longest body of a request that may be answered from the cache, in bytes: a query of an API that reads by POST has
/// some kilobytes.
const LONGEST_BODY: usize = 64 << 10;

/// A read that may be answered from the cache.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(super) keys: Keys,
    pub(super) scope: Scope,
    pub(super) wish: Wish,
    pub(super) urgency: Urgency,
    pub(super) host: Host,
}

impl Read {
    /// The read that a request is; `None` if the cache isn't to know of it, which the view hears of.
    pub(crate) fn new(
        request: &Request,
        headers: &HeaderMap,
        body: &[u8],
        classification: &Classification,
        (urgency, view): (Urgency, &View),
    ) -> Option<Self> {
        if classification.effect != Effect::Read {
            return None;
        }
        if body.len() > LONGEST_BODY {
            view.seen().is_torn |= classification.page.is_some();
            return None;
        }
        let keys = Keys::of(request, headers, body, classification);
        let Some(wish) = Wish::read(headers) else {
            if let Some(List { key, is_first }) = keys.list {
                view.seen().passes_by(key, is_first);
            }
            return None;
        };
        let scope = scope(classification);
        Some(Self { keys, scope, wish, urgency, host: request.host.clone() })
    }
}

/// What a request reads or changes as a whole.
pub(super) fn scope(classification: &Classification) -> Scope {
    classification.cache_scope.as_deref().map(Arc::from)
}
