//! The permission to send one request, and what happens to its tokens when the request is sent, answered, fails or is
//! given up.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::error::Error;
use crate::limits::capacity::TokenSet;
use crate::limits::feedback::Feedback;
use crate::limits::limit::Rate;
use crate::limits::shared::LimiterShared;
use crate::refusals::RefusalMeaning;

/// The tokens of one request. Dropping it puts them back, unless the request may have been sent.
#[derive(Debug)]
pub(crate) struct Permit {
    shared: Arc<LimiterShared>,
    tokens: Option<TokenSet>,
    is_sent: bool,
}

impl Permit {
    pub(super) fn new(shared: Arc<LimiterShared>, tokens: TokenSet) -> Self {
        Self { shared, tokens: Some(tokens), is_sent: false }
    }

    /// Notes that the request may be sent from now on.
    pub(crate) fn on_sending(&mut self) {
        self.is_sent = true;
    }

    /// A second permit for the same request, to be taken when the request is sent again.
    pub(crate) fn for_resend(&self) -> Option<ResendPermit> {
        let tokens = self.tokens.clone()?;
        Some(ResendPermit { shared: Arc::clone(&self.shared), tokens })
    }

    /// Learns from the cloud's answer, and from its meaning where that is declared, what it says about limits.
    pub(crate) fn on_answer(
        mut self,
        status: StatusCode,
        headers: &HeaderMap,
        meaning: Option<RefusalMeaning>,
    ) {
        let Some(tokens) = self.tokens.take() else { return };
        let LimiterShared { provider, table, metrics, .. } = &*self.shared;
        let feedback = Feedback::read((status, meaning), headers, table.told(), SystemTime::now());
        for paused in self.shared.change(|state, now| state.on_answer(now, &tokens, &feedback)) {
            let limit = table.label(Some(paused.limit));
            let Rate { burst, per_second } = paused.learned;
            tracing::info!(
                %provider, %limit, paused_seconds = rounded(paused.lasts).as_secs_f64(), burst, per_second,
                "throttled by the cloud; limit paused and lowered"
            );
            metrics.closed(provider, limit);
        }
    }

    /// Notes that the request failed. Its tokens are spent unless the request was not sent.
    pub(crate) fn on_failure(mut self, error: &Error) {
        self.is_sent = !error.is_before_sending();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(tokens) = self.tokens.take() else { return };
        let is_sent = self.is_sent;
        self.shared.change(
            |state, now| {
                if is_sent { state.on_lost(now, &tokens) } else { state.put_back(now, &tokens) }
            },
        );
    }
}

/// The permission to send a request a second time.
///
/// Taking it does not wait: the request has waited once, and its caller waits for the answer. Its tokens are taken even
/// where there are none left, and later requests wait for those as well. So no more is sent over time than a limit lets
/// through.
#[derive(Debug)]
pub(crate) struct ResendPermit {
    shared: Arc<LimiterShared>,
    tokens: TokenSet,
}

impl ResendPermit {
    /// Takes the permit. None where a limit or the resource has been paused since.
    pub(crate) fn take(self) -> Option<Permit> {
        let Self { shared, tokens } = self;
        let tokens = shared.change(|state, now| state.capacity.take_again(now, &tokens))?;
        Some(Permit::new(shared, tokens))
    }
}

/// Log lines show whole milliseconds.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
