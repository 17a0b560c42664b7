//! The first stages of a request: its canonical form, the grant that allows it, and the rule that says what it does. They
//! turn what a provider sends into a [`PreparedRequest`]; a request that fails here never waits and never leaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use super::in_force::RuledLimits;
use super::{Gate, Inner};
use crate::budget::MemoryBudget;
use crate::cpu_account::CpuAccount;
use crate::deadlines::Deadlines;
use crate::effect::Effect;
use crate::error::Error;
use crate::limits::{LimitRequest, Urgency};
use crate::record::Record;
use crate::request::Request;
use crate::rules::{Classification, Rules};
use crate::upstream::Upstream;
use crate::writes::{Write, Writes};
use crate::{body, grants, headers};

/// The longest body that is read for its operation where the request is handled, in bytes: it takes a fraction of a
/// millisecond.
const MAX_READ_AT_ONCE: usize = 64 << 10;

/// A request that a grant allows, with everything that the later stages decide on.
pub(super) struct PreparedRequest {
    /// The grant that allows it, and the connections under that grant.
    pub(super) upstream: Upstream,
    pub(super) canonical: Arc<Request>,
    /// Without what a provider must not say, and so far without a credential.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) classification: Classification,
    /// The limits that it counts against.
    pub(super) limits: Arc<RuledLimits>,
    /// The same with the limits that the rules of those say, where these are not the gate's own.
    counted: Option<Box<Classification>>,
    pub(super) urgency: Urgency,
    pub(super) deadlines: Deadlines,
    pub(super) account: Option<CpuAccount>,
}

impl PreparedRequest {
    /// What the limits have to know of it.
    pub(super) fn as_limit_request(&self) -> LimitRequest<'_> {
        let Self { canonical: request, classification, counted, urgency, .. } = self;
        let classification = counted.as_deref().unwrap_or(classification);
        LimitRequest { request, classification, urgency: *urgency, bytes: self.bytes() }
    }

    /// What other writes have to know of it, if it is a write.
    pub(super) fn as_write(&self, writes: &Writes) -> Option<Write> {
        let Self { canonical, classification, body, .. } = self;
        let is_write = classification.effect == Effect::Write;
        is_write.then(|| writes.write(canonical, classification, body, self.bytes()))
    }

    /// How many bytes it holds in memory.
    fn bytes(&self) -> usize {
        let Request { path, query, .. } = &*self.canonical;
        self.body.len() + headers::size(&self.headers) + path.len() + query.as_ref().map_or(0, String::len)
    }
}

impl Gate {
    /// Canonical request, grant, rule.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`], [`Error::HeadersTooLarge`], [`Error::Denied`], [`Error::BodyTooLarge`] and
    /// [`Error::DeadlinePassed`].
    pub(super) async fn prepare<B>(
        &self,
        request: Box<http::Request<B>>,
        deadlines: &Deadlines,
        record: &mut Record,
    ) -> Result<Box<PreparedRequest>, Error>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        self.inner.family.shutdown.check()?;
        let (canonical, headers, body) = canonicalize(request, record)?;
        let canonical = Arc::new(canonical);
        record.set_request(&canonical);

        let upstream = self.granted(&canonical)?.clone();
        record.set_grant(&upstream.label);

        // Some APIs name the operation in the body. The body of a request without a grant isn't worth the memory.
        let body = gather_until(deadlines.soft, body, self.budget.as_ref()).await?;
        let limits = self.inner.family.in_force.get(&self.inner.limits);
        let classified = self.classify(&canonical, headers, &body, (&limits, deadlines.soft)).await?;
        let Classified { headers, classification, counted } = classified;
        record.set_effect(classification.effect);

        let (urgency, deadlines, account) = (self.urgency, *deadlines, self.account.clone());
        let request = PreparedRequest {
            upstream,
            canonical,
            headers,
            body,
            classification,
            limits,
            counted,
            urgency,
            deadlines,
            account,
        };
        Ok(Box::new(request))
    }

    /// Says what a granted request does. A long body is read in a thread that no other request needs.
    async fn classify(
        &self,
        request: &Arc<Request>,
        headers: HeaderMap,
        body: &Bytes,
        (limits, soft): (&RuledLimits, Instant),
    ) -> Result<Classified, Error> {
        let Inner { rules, reading, .. } = &*self.inner;
        let of_limits = (!Arc::ptr_eq(&limits.rules, rules)).then(|| Arc::clone(&limits.rules));
        let reads_body = |rules: &Arc<Rules>| rules.read_body_of(request);
        if body.len() <= MAX_READ_AT_ONCE
            || !(reads_body(rules) || of_limits.as_ref().is_some_and(reads_body))
        {
            return Ok(Classified::by(rules, of_limits.as_deref(), request, headers, body));
        }
        let turn = timeout_at(soft, Arc::clone(reading).acquire_owned()).await;
        let turn = turn.map_err(|_| Error::DeadlinePassed)?.map_err(|_| Error::Closed)?;
        let account = self.account.clone().unwrap_or_else(|| CpuAccount::new(Duration::MAX));
        let (rules, request, body) = (Arc::clone(rules), Arc::clone(request), body.clone());
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            account.run(|| Classified::by(&rules, of_limits.as_deref(), &request, headers, &body))
        });
        read.await.map_err(|_| Error::Closed)
    }

    /// The upstream of the first grant that allows a request, unless it asks for an identity of this machine or the present
    /// document doesn't allow it any more.
    fn granted(&self, request: &Request) -> Result<&Upstream, Error> {
        let Inner { upstreams, credentials, present, .. } = &*self.inner;
        let granted = grants::decide(upstreams, request);
        let checked = granted.and_then(|upstream| {
            credentials.check(request)?;
            present.check(request, upstream.as_ref()).map(|()| upstream)
        });
        checked.map_err(|missing| self.inner.denied(request, missing))
    }
}

/// What the rules say about a request.
struct Classified {
    headers: HeaderMap,
    classification: Classification,
    counted: Option<Box<Classification>>,
}

impl Classified {
    /// By the gate's own rules, and where other limits are in force, by the rules of those.
    fn by(
        rules: &Rules,
        of_limits: Option<&Rules>,
        request: &Request,
        headers: HeaderMap,
        body: &Bytes,
    ) -> Self {
        let classification = rules.classify(request, &headers, body);
        let counted = of_limits.map(|of_limits| {
            let limits = of_limits.classify(request, &headers, body).limits;
            Box::new(Classification { limits, ..classification.clone() })
        });
        Self { headers, classification, counted }
    }
}

/// Takes a request apart, so that a request that waits keeps no more in memory than what is sent.
#[expect(clippy::boxed_local, reason = "the box is to be gone when this returns")]
fn canonicalize<B>(
    request: Box<http::Request<B>>,
    record: &mut Record,
) -> Result<(Request, HeaderMap, B), Error> {
    let (head, body) = (*request).into_parts();
    let request = Request::parse(&head.method, &head.uri)?;
    let (headers, stripped) = headers::edit_request(head.headers)?;
    record.stripped += stripped;
    Ok((request, headers, body))
}

/// Gathers the body while new requests are still taken. A request whose body was late isn't sent.
async fn gather_until<B>(soft: Instant, body: B, budget: Option<&MemoryBudget>) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let body = timeout_at(soft, body::gather(body, budget)).await.map_err(|_| Error::DeadlinePassed)??;
    // A body that was ready at once beats the timer.
    if Instant::now() >= soft { Err(Error::DeadlinePassed) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_late_body_or_a_past_deadline_sends_nothing() {
        let soft = Instant::now() + Duration::from_secs(1);
        let never = http_body_util::StreamBody::new(futures::stream::pending::<
            Result<http_body::Frame<Bytes>, Error>,
        >());
        assert!(matches!(gather_until(soft, never, None).await, Err(Error::DeadlinePassed)));
        let ready = Full::new(Bytes::from("ready"));
        assert!(matches!(gather_until(Instant::now(), ready, None).await, Err(Error::DeadlinePassed)));
    }
}
