//! What the double does in the place of the host. Everything happens on the thread of the test.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use tracing::Level;

use super::exchange::{Exchange, Uses};
use super::{Line, Sent};
use crate::Error;
use crate::http::{Incoming, Outgoing};

/// How long after the soft deadline of a lookup the host gives up a request that it has taken.
const GRACE: Duration = Duration::from_secs(5);

thread_local! {
    static HERE: RefCell<Option<Rc<Double>>> = const { RefCell::new(None) };
}

/// Answers requests for which there is no script.
pub(super) type Cloud = Box<dyn FnMut(&Sent) -> Exchange>;

pub(super) struct Double {
    pub(super) document: RefCell<String>,
    pub(super) facts: RefCell<Vec<(String, String)>>,
    pub(super) remaining: Cell<Duration>,
    pub(super) now: Cell<SystemTime>,
    pub(super) level: Cell<Level>,
    pub(super) script: RefCell<Vec<Exchange>>,
    pub(super) cloud: RefCell<Option<Cloud>>,
    pub(super) sent: RefCell<Vec<Sent>>,
    pub(super) log: RefCell<Vec<Line>>,
    in_flight: Cell<usize>,
    pub(super) most_in_flight: Cell<usize>,
}

impl Default for Double {
    fn default() -> Self {
        Self {
            document: RefCell::new("{}".to_owned()),
            facts: RefCell::default(),
            // What the host gives a lookup.
            remaining: Cell::new(Duration::from_secs(10)),
            now: Cell::new(SystemTime::UNIX_EPOCH),
            level: Cell::new(Level::TRACE),
            script: RefCell::default(),
            cloud: RefCell::default(),
            sent: RefCell::default(),
            log: RefCell::default(),
            in_flight: Cell::default(),
            most_in_flight: Cell::default(),
        }
    }
}

/// Keeps a double in the place of the host for as long as it lives.
pub(super) struct Here;

/// Puts a double in the place of the host of this thread.
pub(super) fn enter(double: &Rc<Double>) -> Here {
    let before = HERE.replace(Some(Rc::clone(double)));
    assert!(before.is_none(), "a double runs one future at a time");
    Here
}

impl Drop for Here {
    fn drop(&mut self) {
        HERE.take();
    }
}

fn here() -> Rc<Double> {
    HERE.with_borrow(Clone::clone).expect("outside of a component a provider runs in `testing::Host::run`")
}

pub(crate) fn configuration() -> String {
    here().document.borrow().clone()
}

pub(crate) fn remaining() -> Duration {
    here().remaining.get()
}

pub(crate) fn identity(name: &str) -> Option<String> {
    here().facts.borrow().iter().find(|(fact, _)| fact == name).map(|(_, value)| value.clone())
}

pub(crate) fn now() -> SystemTime {
    here().now.get()
}

pub(crate) fn log_enabled(level: Level) -> bool {
    level <= here().level.get()
}

pub(crate) fn log(level: Level, target: &str, message: &str, fields: &[(String, String)]) {
    let line =
        Line { level, target: target.to_owned(), message: message.to_owned(), fields: fields.to_owned() };
    here().log.borrow_mut().push(line);
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    futures::executor::block_on(future)
}

pub(crate) async fn exchange(request: Outgoing) -> Result<Incoming, Error> {
    let double = here();
    let subject = request.subject();
    let exchange = double.take(sent(request));
    double.in_flight.update(|count| count + 1);
    double.most_in_flight.update(|most| most.max(double.in_flight.get()));
    turn().await;
    double.in_flight.update(|count| count - 1);
    if exchange.hangs {
        double.pass(double.remaining.get() + GRACE);
        return Err(Error::deadline(&subject));
    }
    double.pass(exchange.takes);
    exchange.answer()
}

impl Double {
    /// Lets time pass.
    fn pass(&self, time: Duration) {
        self.remaining.update(|remaining| remaining.saturating_sub(time));
        self.now.update(|now| now + time);
    }

    /// Finds the exchange that a request belongs to and uses it up by one.
    fn take(&self, sent: Sent) -> Exchange {
        let mut script = self.script.borrow_mut();
        let found = script.iter_mut().find(|exchange| exchange.matches(&sent));
        let exchange = found.map(|exchange| {
            if let Uses::Exactly(left) = &mut exchange.left {
                *left -= 1;
            }
            exchange.clone()
        });
        let exchange = exchange
            .or_else(|| sent.is_for_the_cache().then(|| Exchange::not_cached(&sent.method, &sent.url)));
        let exchange = exchange.or_else(|| self.cloud.borrow_mut().as_mut().map(|cloud| cloud(&sent)));
        let missing = format!("{} {} is not in the script", sent.method, sent.url);
        self.sent.borrow_mut().push(sent);
        exchange.expect(&missing)
    }

    pub(super) fn unused(&self) -> Vec<Exchange> {
        self.script.borrow().iter().filter(|exchange| exchange.is_unused()).cloned().collect()
    }
}

fn sent(request: Outgoing) -> Sent {
    let Outgoing { method, uri, headers, body } = request;
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Sent {
        method: method.to_string(),
        url: uri.to_string(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: body.unwrap_or_default(),
    }
}

/// Lets everybody else run once, so that what runs side by side in a component does so here.
async fn turn() {
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
