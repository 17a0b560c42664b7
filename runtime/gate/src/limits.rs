//! The turn of a request: each waits here until the limits of its cloud let it through, or is answered in the cloud's
//! place where that would be too late. Who goes when is decided in `decide`; here are the clock, the waiting, and what
//! is given back when a caller goes away.

mod answer;
mod bucket;
mod buckets;
mod closures;
mod decide;
mod gauges;
mod handover;
mod known;
mod learned;
mod permit;
mod queue;
mod refusal;
mod supply;
mod throughput;
mod urgency;
mod window;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    error::Error,
    record::Metrics,
    request::Request,
    rules::{Effect, Meaning, Rules},
};
pub(crate) use answer::retry_after;
use closures::Resource;
use decide::{State, Verdict, Wanted};
pub(crate) use gauges::Gauges;
use known::Known;
pub(crate) use known::problems;
pub use known::{Limit, LimitState, LimitsState, Rate};
pub(crate) use permit::Permit;
use queue::Ticket;
pub(crate) use refusal::HeldBack;
use refusal::Refusal;
use supply::{Reason, Taken};
pub use urgency::Urgency;

/// Makes the names of resources, which a cloud or a provider can't foresee. One for all gates, so that what is closed
/// can be handed from one to the next.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The limits of one provider.
#[derive(Debug)]
pub(crate) struct Limiter {
    shared: Arc<Shared>,
}

/// What a request is, to its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) request: &'a Request,
    pub(crate) meaning: &'a Meaning,
    pub(crate) urgency: Urgency,
    /// What it holds in memory while it waits.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Shared {
    provider: Arc<str>,
    known: Known,
    metrics: Metrics,
    inner: Mutex<Inner>,
    /// Tells whoever serves the queue that there is something to do earlier than it knew.
    earlier: Notify,
}

#[derive(Debug)]
struct Inner {
    state: State,
    waiting: HashMap<Ticket, oneshot::Sender<Outcome>>,
    /// Until when whoever serves the queue sleeps; none while nobody does.
    served_at: Option<Instant>,
}

type Outcome = Result<Taken, Refusal>;

impl Limiter {
    /// The limits that the rules name and that provider and operator declare. All buckets are empty at first: what they
    /// would hold may just have been spent, by the process or the version of the provider before.
    pub(crate) fn new(
        provider: Arc<str>,
        rules: &Rules,
        declared: Vec<Limit>,
        operator: Vec<Limit>,
        metrics: Metrics,
    ) -> Self {
        let known = Known::new(rules, declared, operator);
        let state = State::new(known.most(), Instant::now().into_std());
        let inner = Mutex::new(Inner { state, waiting: HashMap::new(), served_at: None });
        let shared = Arc::new(Shared { provider, known, metrics, inner, earlier: Notify::new() });
        shared.metrics.gauges().add(&shared);
        Self { shared }
    }

    /// Empties all buckets.
    pub(crate) fn empty(&self) {
        self.shared.change(State::empty);
    }

    /// What the limits are like now.
    pub(crate) fn state(&self) -> LimitsState {
        self.shared.state()
    }

    /// Waits for the turn of a request, at most until its soft deadline. It has its place from this call on; dropping
    /// the future gives it up, and nothing is taken then.
    ///
    /// # Errors
    /// [`Error::DeadlinePassed`] where no limit is to blame that it isn't sent.
    pub(crate) fn turn(
        &self,
        turn: Turn<'_>,
        soft: Instant,
    ) -> impl Future<Output = Result<Result<Permit, HeldBack>, Error>> + Send + use<'_> {
        let Turn { request, meaning, urgency, bytes } = turn;
        let limits = self.shared.known.of(&meaning.limits, &request.host);
        let resource = resource(request, meaning);
        let wanted = Wanted { urgency, limits: &limits, resource, bytes, soft: soft.into_std() };
        let (begun, asked) = (Instant::now(), self.shared.ask(wanted));
        // What waits holds nothing of all this.
        let shared = &self.shared;
        async move {
            let outcome = match asked {
                Asked::Goes(permit) => Ok(permit),
                Asked::Refused(refusal) => Err(refusal),
                Asked::Waits(mut place) => {
                    place.wait(soft).await.map(|taken| Permit::new(shared.clone(), taken))
                }
            };
            shared.metrics.waited(&shared.provider, urgency, begun.elapsed());
            let refusal = match outcome {
                Ok(permit) => return Ok(Ok(permit)),
                Err(Refusal { reason: Reason::Late, .. }) => return Err(Error::DeadlinePassed),
                Err(refusal) => refusal,
            };
            let limit = shared.known.label(refusal.limit);
            shared.metrics.held_back(&shared.provider, limit.clone(), refusal.reason.label());
            Ok(Err(HeldBack::new(limit, refusal)))
        }
    }

    /// What is told to a write that isn't sent since another one of its resource isn't over, where that will be after
    /// this time for sure.
    pub(crate) fn unfinished(&self, after: Duration) -> HeldBack {
        let (shared, reason) = (&self.shared, Reason::Unfinished);
        let limit = shared.known.label(None);
        shared.metrics.held_back(&shared.provider, limit.clone(), reason.label());
        HeldBack::new(limit, Refusal { limit: None, reason, after })
    }
}

fn resource(request: &Request, meaning: &Meaning) -> Resource {
    let Request { method: _, tls, host, port, path, query: _ } = request;
    let folded = meaning.fold_case.then(|| path.to_ascii_lowercase());
    let path = folded.as_ref().unwrap_or(path);
    NAMES.hash_one((tls, host, port, path, meaning.effect == Effect::Write))
}

enum Asked {
    Goes(Permit),
    Refused(Refusal),
    Waits(Place),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that holds it can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> LimitsState {
        let now = Instant::now().into_std();
        self.known.describe(now, &mut self.lock().state)
    }

    fn ask(self: &Arc<Self>, wanted: Wanted<'_>) -> Asked {
        let mut inner = self.lock();
        let asked = match inner.state.ask(Instant::now().into_std(), wanted) {
            Verdict::Go(taken) => Asked::Goes(Permit::new(self.clone(), taken)),
            Verdict::Refuse(refusal) => Asked::Refused(refusal),
            Verdict::Wait(ticket) => {
                let (sender, outcome) = oneshot::channel();
                inner.waiting.insert(ticket, sender);
                self.metrics.waiting(&self.provider, wanted.urgency, 1);
                Asked::Waits(Place { shared: self.clone(), ticket, outcome, is_over: false })
            }
        };
        self.follow_up(&mut inner);
        if inner.served_at.is_none() && !inner.waiting.is_empty() {
            inner.served_at = Some(Instant::now());
            // Where there is no runtime, what was asked for is given back, for which the lock is needed.
            drop(inner);
            tokio::spawn(Serving { shared: self.clone(), is_over: false }.serve());
        }
        asked
    }

    /// Tells the limits something, and everybody what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut State, std::time::Instant) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner.state, Instant::now().into_std());
        self.follow_up(&mut inner);
        result
    }

    fn follow_up(&self, inner: &mut Inner) {
        for (ticket, outcome) in inner.state.served() {
            if let Some(waiting) = inner.waiting.remove(&ticket) {
                // A place that is given up is taken out of the queue first, so somebody is there to hear it.
                let _heard = waiting.send(outcome);
            }
        }
        if inner.waiting.is_empty() {
            // Who serves a queue that is empty ends, or the limits would live until the time for which it sleeps.
            self.earlier.notify_waiters();
        }
        let next = inner.state.next().map(Instant::from_std);
        if inner.served_at.zip(next).is_some_and(|(known, next)| next < known) {
            self.earlier.notify_one();
        }
    }
}

/// Serves the queue while anybody waits.
struct Serving {
    shared: Arc<Shared>,
    is_over: bool,
}

impl Serving {
    async fn serve(mut self) {
        loop {
            let next = {
                let mut inner = self.shared.lock();
                inner.state.serve(Instant::now().into_std());
                self.shared.follow_up(&mut inner);
                if inner.waiting.is_empty() {
                    // Under the same lock: whoever comes next must not take it that he is served.
                    inner.served_at = None;
                    self.is_over = true;
                    return;
                }
                // Whoever waits has a time at which his turn comes, if nothing changes.
                let next = inner.state.next().map_or_else(Instant::now, Instant::from_std);
                inner.served_at = Some(next);
                next
            };
            let _whichever = timeout_at(next, self.shared.earlier.notified()).await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Where its runtime ends: the next request that waits starts another.
        if !self.is_over {
            self.shared.lock().served_at = None;
        }
    }
}

/// A place in the queue.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Outcome>,
    is_over: bool,
}

impl Place {
    async fn wait(&mut self, soft: Instant) -> Outcome {
        let told = timeout_at(soft, &mut self.outcome).await;
        let outcome = if let Ok(outcome) = told {
            outcome.expect("a sender is kept until it has sent")
        } else {
            let ticket = self.ticket;
            match self.shared.change(|state, now| state.expire(now, ticket)) {
                Some(refusal) => Err(refusal),
                None => self.outcome.try_recv().expect("who doesn't wait any more has been told"),
            }
        };
        self.is_over = true;
        outcome
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { shared, ticket, outcome, is_over } = self;
        shared.metrics.waiting(&shared.provider, ticket.urgency, -1);
        let mut inner = shared.lock();
        inner.waiting.remove(ticket);
        if *is_over {
            return;
        }
        let now = Instant::now().into_std();
        match outcome.try_recv() {
            Ok(Ok(taken)) => inner.state.put_back(now, &taken),
            Ok(Err(_)) => {}
            Err(_) => inner.state.cancel(now, *ticket),
        }
        shared.follow_up(&mut inner);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::rules::Rule;

    /// A limiter with one limit for everything.
    fn limiter(burst: u32, per_second: f64) -> Limiter {
        let rule = Rule {
            host: "*.example".parse().unwrap(),
            method: "*".parse().unwrap(),
            path: "/**".parse().unwrap(),
            operation: None,
            effect: Effect::Read,
            limits: vec!["reads".parse().unwrap()],
            cache_scope: None,
            fold_case: false,
            page: None,
        };
        let rules = Rules::new(vec![rule]).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let limits = vec![Limit::new("reads", burst, per_second).unwrap()];
        Limiter::new("test".into(), &rules, limits, Vec::new(), metrics)
    }

    async fn turn(limiter: &Limiter, urgency: Urgency, patience: Duration) -> Result<Permit, HeldBack> {
        let request = Request::parse(&http::Method::GET, &"https://a.example/".parse().unwrap()).unwrap();
        let limits = crate::rules::Limits::AllOfHost;
        let meaning =
            Meaning { effect: Effect::Read, limits, cache_scope: None, fold_case: false, page: None };
        let soft = Instant::now() + patience;
        limiter.turn(Turn { request: &request, meaning: &meaning, urgency, bytes: 100 }, soft).await.unwrap()
    }

    fn waiting(limiter: &Limiter) -> usize {
        limiter.state().waiting.iter().map(|(_, count)| count).sum()
    }

    const LONG: Duration = Duration::from_mins(10);

    #[tokio::test(start_paused = true)]
    async fn everybody_has_his_turn_at_the_rate_of_the_limit() {
        let limiter = limiter(1, 10.0);
        let begun = Instant::now();
        let turns: FuturesUnordered<_> =
            (0..100).map(|_| turn(&limiter, Urgency::Background, LONG)).collect();
        let permits: Vec<_> = turns.map(|permit| permit.map(|mut permit| permit.sending())).collect().await;
        assert!(permits.iter().all(Result::is_ok));
        let took = begun.elapsed().as_secs_f64();
        assert!((10.0..10.2).contains(&took), "{took}");
        assert_eq!(limiter.shared.lock().served_at, None, "nobody serves an empty queue");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_serves_a_queue_that_everybody_has_left() {
        let limiter = limiter(1, 0.001);
        {
            let mut waits = pin!(turn(&limiter, Urgency::User, LONG * 6));
            assert!(waits.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert_eq!((limiter.shared.lock().served_at, Arc::strong_count(&limiter.shared)), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_dropped_unseen_takes_nothing() {
        let limiter = limiter(1, 1.0);
        tokio::time::advance(Duration::from_secs(1)).await;
        let request = Request::parse(&http::Method::GET, &"https://a.example/".parse().unwrap()).unwrap();
        let limits = crate::rules::Limits::AllOfHost;
        let meaning =
            Meaning { effect: Effect::Read, limits, cache_scope: None, fold_case: false, page: None };
        let wanted = Turn { request: &request, meaning: &meaning, urgency: Urgency::User, bytes: 100 };
        for _ in 0..9 {
            drop(limiter.turn(wanted, Instant::now()));
        }
        assert!(limiter.turn(wanted, Instant::now()).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_request_passes_a_thousand_others() {
        let limiter = limiter(1, 10.0);
        let mut others: FuturesUnordered<_> =
            (0..1000).map(|_| turn(&limiter, Urgency::Background, LONG)).collect();
        assert!(others.next().now_or_never().is_none());
        let begun = Instant::now();
        let mut urgent = turn(&limiter, Urgency::User, LONG).await.unwrap();
        urgent.sending();
        assert!(begun.elapsed() < Duration::from_millis(110), "{:?}", begun.elapsed());
        assert_eq!(waiting(&limiter), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_leaves_nothing_behind() {
        let limiter = limiter(1, 1.0);
        {
            let mut first = pin!(turn(&limiter, Urgency::User, LONG));
            let mut second = pin!(turn(&limiter, Urgency::User, LONG));
            assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
            assert_eq!(waiting(&limiter), 2);
            // The first has its token by now, and never hears of it.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            assert_eq!(waiting(&limiter), 1);
        }
        assert_eq!(waiting(&limiter), 0);
        assert!(turn(&limiter, Urgency::User, LONG).now_or_never().is_some(), "its token is there again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_gives_its_token_back_unless_the_request_may_have_left() {
        let limiter = limiter(1, 1.0);
        let dns = Error::Dns { host: String::new(), source: Arc::new(std::io::Error::other("x")) };
        let reset = Error::Protocol { host: String::new(), source: Arc::new(std::io::Error::other("x")) };
        let permit = turn(&limiter, Urgency::User, LONG).await.unwrap();
        drop(permit);
        let mut permit = turn(&limiter, Urgency::User, LONG).now_or_never().unwrap().unwrap();
        permit.sending();
        permit.failed(&dns);
        let mut permit = turn(&limiter, Urgency::User, LONG).now_or_never().unwrap().unwrap();
        permit.sending();
        permit.failed(&reset);
        assert!(turn(&limiter, Urgency::User, LONG).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_successor_goes_on_with_what_was_learned_and_closed_and_with_the_tokens() {
        let (old, new) = (limiter(100, 10.0), limiter(100, 10.0));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut permit = turn(&old, Urgency::User, LONG).await.unwrap();
        permit.sending();
        let mut headers = http::HeaderMap::new();
        headers.insert("retry-after", 30.into());
        headers.insert("ratelimit-remaining", 0.into());
        permit.answered(http::StatusCode::TOO_MANY_REQUESTS, &headers);
        let waits = old.state();
        assert!(new.state().limits[0].closed_for.is_none());
        new.take_over(&old);
        let taken = new.state();
        assert_eq!(
            (taken.limits[0].learned, taken.limits[0].closed_for),
            (waits.limits[0].learned, Some(Duration::from_secs(30)))
        );
        assert!(taken.limits[0].learned.is_some());
        assert_eq!(taken.closed_resources, 1);
        let refused = turn(&new, Urgency::User, Duration::from_secs(5)).now_or_never().unwrap();
        assert!(refused.is_err(), "the cloud is known to refuse");
        assert!(turn(&new, Urgency::User, LONG).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_successor_and_its_predecessor_together_send_no_more_than_one() {
        let (old, new) = (limiter(100, 1.0), limiter(100, 1.0));
        tokio::time::sleep(Duration::from_secs(50)).await;
        new.take_over(&old);
        let send = |limiter: &Limiter| {
            turn(limiter, Urgency::User, LONG)
                .now_or_never()
                .and_then(Result::ok)
                .map(|mut permit| permit.sending())
        };
        let at_once = |limiter| std::iter::from_fn(|| send(limiter)).count();
        assert_eq!((at_once(&old), at_once(&new)), (0, 50));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_overtaken_until_his_time_is_up_is_told_when_to_come_again() {
        let limiter = limiter(1, 1.0);
        let patience = Duration::from_millis(1500);
        let late = async {
            let begun = Instant::now();
            (turn(&limiter, Urgency::Background, patience).await, begun.elapsed())
        };
        let others = async {
            for _ in 0..10 {
                let mut permit = turn(&limiter, Urgency::User, LONG).await.unwrap();
                permit.sending();
            }
        };
        let ((late, after), ()) = tokio::join!(late, others);
        assert!(late.is_err() && (1.5..1.51).contains(&after.as_secs_f64()), "{late:?} {after:?}");
        let at_once = turn(&limiter, Urgency::Background, Duration::from_millis(500)).now_or_never().unwrap();
        let response = at_once.unwrap_err().into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
