//! The requests of a call that had no answer in time, for the error and the metric of the call. The provider only sees that its
//! time is up, and says no more than that it has to be called again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pileus_gate::{Error, Phase};
use tokio::time::Instant;

/// The requests of one call without an answer. Clones share one record.
#[derive(Clone, Default)]
pub(crate) struct UnansweredRequests(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    /// The request that was given up first, and how long it had no answer.
    first: Option<(String, Duration)>,
    /// Those that wait for an answer, the oldest first.
    waiting: Vec<(u64, String, Instant)>,
    last_id: u64,
}

/// A request that waits for an answer. Dropping it gives the request up.
pub(crate) struct WaitingRequest {
    record: UnansweredRequests,
    id: u64,
}

impl UnansweredRequests {
    /// Begins to wait for the answer to a request, for instance `GET https://cloud.example/machines`.
    pub(crate) fn wait_for(&self, request: String) -> WaitingRequest {
        self.change(|record| {
            record.last_id += 1;
            record.waiting.push((record.last_id, request, Instant::now()));
            WaitingRequest { record: self.clone(), id: record.last_id }
        })
    }

    /// Records that a request that began at this time had no answer, or only a part of it, if this error says so.
    pub(crate) fn on_error(&self, request: &str, begun: Instant, error: &Error) {
        let Error::Timeout { phase, after, .. } = error else { return };
        let is_for_head = matches!(phase, Phase::Connect | Phase::FirstByte);
        self.record(request, if is_for_head { *after } else { begun.elapsed() });
    }

    fn record(&self, request: &str, after: Duration) {
        self.change(|record| {
            record.first.get_or_insert_with(|| (request.to_owned(), after));
        });
    }

    /// Which request had no answer, and for how long. `None` if each had one.
    pub(crate) fn explain(&self) -> Option<String> {
        self.change(|record| {
            let waiting =
                record.waiting.first().map(|(_, request, since)| (request.clone(), since.elapsed()));
            let (request, after) = record.first.clone().or(waiting)?;
            // Rounded, since the deadlines are whole seconds.
            let seconds = after.as_secs() + u64::from(after.subsec_millis() >= 500);
            Some(format!("{request} had no answer for {seconds} s"))
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> T {
        // No code that holds it can panic halfway through a change.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WaitingRequest {
    /// Ends the wait: an answer or an error has come.
    pub(crate) fn end(self) {
        self.record.change(|record| record.waiting.retain(|(id, ..)| *id != self.id));
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.record.change(|record| {
            let Some(at) = record.waiting.iter().position(|(id, ..)| *id == self.id) else { return };
            let (_, request, since) = record.waiting.remove(at);
            record.first.get_or_insert((request, since.elapsed()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_request_without_an_answer_is_named() {
        let seconds = Duration::from_secs;
        let requests = UnansweredRequests::default();
        let answered = requests.wait_for("GET /a".to_owned());
        assert_eq!(requests.explain().as_deref(), Some("GET /a had no answer for 0 s"));
        answered.end();
        assert_eq!(requests.explain(), None);
        let waits = requests.wait_for("GET /b".to_owned());
        tokio::time::advance(seconds(3)).await;
        let dropped = requests.wait_for("GET /c".to_owned());
        tokio::time::advance(seconds(4)).await;
        assert_eq!(requests.explain().as_deref(), Some("GET /b had no answer for 7 s"), "it still waits");
        drop(dropped);
        requests.record("GET /d", seconds(9));
        assert_eq!(requests.explain().as_deref(), Some("GET /c had no answer for 4 s"), "the first given up");
        waits.end();
        assert_eq!(requests.explain().as_deref(), Some("GET /c had no answer for 4 s"));
    }
}
