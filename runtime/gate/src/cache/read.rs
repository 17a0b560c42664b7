//! The requests that the cache can answer, and what it has to know of them.

use std::sync::Arc;

use http::HeaderMap;

use crate::cache::directives::CacheDirectives;
use crate::cache::key::{Keys, List};
use crate::cache::scopes::Scope;
use crate::cache::view::View;
use crate::effect::Effect;
use crate::limits::Urgency;
use crate::request::{Host, Request};
use crate::rules::Classification;

/// The longest body of a request that the cache can answer, in bytes. A query of an API that reads by POST has some
/// kilobytes.
const LONGEST_BODY: usize = 64 << 10;

/// A read that the cache can answer.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(super) keys: Keys,
    pub(super) scope: Scope,
    pub(super) directives: CacheDirectives,
    pub(super) urgency: Urgency,
    pub(super) host: Host,
}

impl Read {
    /// The read that a request is. None if it bypasses the cache, which the view records.
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
            view.history().is_torn |= classification.page.is_some();
            return None;
        }
        let keys = Keys::of(request, headers, body, classification);
        let directives = CacheDirectives::read(headers).filter(|directives| view.admits(directives));
        let Some(directives) = directives else {
            if let Some(List { key, is_first }) = keys.list {
                view.history().on_bypass(key, is_first);
            }
            return None;
        };
        let scope = scope(classification);
        Some(Self { keys, scope, directives, urgency, host: request.host.clone() })
    }
}

/// Whether a read with these headers may be answered from the cache under a view.
pub(crate) fn may_read(view: &View, headers: &HeaderMap) -> bool {
    CacheDirectives::read(headers).is_some_and(|directives| view.admits(&directives))
}

/// The cache scope that a request reads or changes.
pub(super) fn scope(classification: &Classification) -> Scope {
    classification.cache_scope.as_deref().map(Arc::from)
}
