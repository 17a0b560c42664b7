//! The test double's implementation of the host's functions. Everything happens on the test's thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use tracing::Level;

use super::exchange::{Exchange, Uses};
use super::{LogLine, SentRequest};
use crate::Error;
use crate::http::{Incoming, Outgoing};

/// How long after the soft deadline of a lookup the host aborts a request in flight.
const GRACE: Duration = Duration::from_secs(5);

thread_local! {
    static CURRENT: RefCell<Option<Rc<Double>>> = const { RefCell::new(None) };
}

/// Answers requests that aren't in the script.
pub(super) type Cloud = Box<dyn FnMut(&SentRequest) -> Exchange>;

pub(super) struct Double {
    pub(super) document: RefCell<String>,
    pub(super) facts: RefCell<Vec<(String, String)>>,
    pub(super) remaining: Cell<Duration>,
    pub(super) now: Cell<SystemTime>,
    pub(super) level: Cell<Level>,
    pub(super) script: RefCell<Vec<Exchange>>,
    pub(super) cloud: RefCell<Option<Cloud>>,
    pub(super) sent: RefCell<Vec<SentRequest>>,
    pub(super) log: RefCell<Vec<LogLine>>,
    in_flight: Cell<usize>,
    pub(super) max_in_flight: Cell<usize>,
    bytes_in_flight: Cell<usize>,
    pub(super) max_bytes_in_flight: Cell<usize>,
}

impl Default for Double {
    fn default() -> Self {
        Self {
            document: RefCell::new("{}".to_owned()),
            facts: RefCell::default(),
            // The default for lookups in the host.
            remaining: Cell::new(Duration::from_secs(10)),
            now: Cell::new(SystemTime::UNIX_EPOCH),
            level: Cell::new(Level::TRACE),
            script: RefCell::default(),
            cloud: RefCell::default(),
            sent: RefCell::default(),
            log: RefCell::default(),
            in_flight: Cell::default(),
            max_in_flight: Cell::default(),
            bytes_in_flight: Cell::default(),
            max_bytes_in_flight: Cell::default(),
        }
    }
}

/// Keeps a double in the place of the host. Dropping it ends that.
pub(super) struct Entered;

/// Puts a double in the place of the host of this thread.
pub(super) fn enter(double: &Rc<Double>) -> Entered {
    crate::http::codes::install(Vec::new);
    let before = CURRENT.replace(Some(Rc::clone(double)));
    assert!(before.is_none(), "a double runs one future at a time");
    Entered
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.take();
    }
}

fn current() -> Rc<Double> {
    CURRENT.with_borrow(Clone::clone).expect("outside of a component a provider runs in `testing::Host::run`")
}

pub(crate) fn configuration() -> String {
    current().document.borrow().clone()
}

pub(crate) fn remaining() -> Duration {
    current().remaining.get()
}

pub(crate) fn identity(name: &str) -> Option<String> {
    current().facts.borrow().iter().find(|(fact, _)| fact == name).map(|(_, value)| value.clone())
}

pub(crate) fn now() -> SystemTime {
    current().now.get()
}

pub(crate) fn log_enabled(level: Level) -> bool {
    level <= current().level.get()
}

pub(crate) fn log(level: Level, target: &str, message: &str, fields: &[(String, String)]) {
    let line =
        LogLine { level, target: target.to_owned(), message: message.to_owned(), fields: fields.to_owned() };
    current().log.borrow_mut().push(line);
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    futures::executor::block_on(future)
}

pub(crate) async fn exchange<T>(
    request: Outgoing,
    before_body: impl AsyncFnOnce(Option<usize>) -> T,
) -> Result<(Incoming, T), Error> {
    let double = current();
    let subject = request.subject();
    let exchange = double.take(sent(request));
    double.in_flight.update(|count| count + 1);
    double.max_in_flight.update(|most| most.max(double.in_flight.get()));
    yield_once().await;
    double.in_flight.update(|count| count - 1);
    if exchange.hangs {
        double.advance(double.remaining.get() + GRACE);
        return Err(Error::deadline(&subject));
    }
    double.advance(exchange.delay);
    let incoming = exchange.response()?;
    let size = incoming.bytes.len();
    let before = before_body(Some(size)).await;
    double.bytes_in_flight.update(|bytes| bytes + size);
    double.max_bytes_in_flight.update(|most| most.max(double.bytes_in_flight.get()));
    yield_once().await;
    double.bytes_in_flight.update(|bytes| bytes - size);
    Ok((incoming, before))
}

impl Double {
    /// Moves the clock on.
    fn advance(&self, time: Duration) {
        self.remaining.update(|remaining| remaining.saturating_sub(time));
        self.now.update(|now| now + time);
    }

    /// Finds the exchange for a request, and uses it once.
    fn take(&self, sent: SentRequest) -> Exchange {
        let mut script = self.script.borrow_mut();
        let found = script.iter_mut().find(|exchange| exchange.matches(&sent));
        let exchange = found.map(|exchange| {
            if let Uses::Exactly(left) = &mut exchange.left {
                *left -= 1;
            }
            exchange.clone()
        });
        let exchange =
            exchange.or_else(|| sent.is_cache_only().then(|| Exchange::not_cached(&sent.method, &sent.url)));
        let exchange = exchange.or_else(|| self.cloud.borrow_mut().as_mut().map(|cloud| cloud(&sent)));
        let missing = format!("{} {} is not in the script", sent.method, sent.url);
        self.sent.borrow_mut().push(sent);
        exchange.expect(&missing)
    }

    pub(super) fn unused(&self) -> Vec<Exchange> {
        self.script.borrow().iter().filter(|exchange| exchange.is_unused()).cloned().collect()
    }
}

fn sent(request: Outgoing) -> SentRequest {
    let Outgoing { method, uri, headers, body } = request;
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    SentRequest {
        method: method.to_string(),
        url: uri.to_string(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: body.unwrap_or_default(),
    }
}

/// Yields to the other futures once, so that requests run concurrently as they do in a component.
async fn yield_once() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
