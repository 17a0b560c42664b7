//! What happens outside of a provider's releases, and what of it the state machine is told.

use std::sync::Arc;

use pileus_host::swap::{Event, Order, Status};

use super::Releases;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::leading::Leading;
use crate::recorded::Recorded;

/// What happens outside.
pub(crate) enum Input {
    /// The document is so. Without a generation, it counts as changed where it differs from the one before.
    Document { generation: Option<u64>, document: Arc<CloudProvider> },
    /// The document has changed and can't be used: why.
    InvalidDocument(String),
    /// The shared record was read.
    Recorded(Box<Recorded>),
    /// The operator's order was read.
    Ordered(Order),
    /// This replica leads from now on.
    Leads(Leading),
}

impl Releases {
    pub(super) async fn on_input(&mut self, input: Input) -> Result<(), Error> {
        match input {
            Input::Document { generation, document } => {
                self.settings.insert(document.settings.digest, document.settings.spec.clone());
                let generation = generation.unwrap_or_else(|| self.generation(&document));
                let event = Event::Spec(document.followed(generation));
                self.last_generation = generation;
                self.document = Some(document);
                self.forget_settings();
                self.narrow();
                self.on_event(event).await
            }
            Input::InvalidDocument(problems) => self.on_event(Event::InvalidSpec(problems)).await,
            Input::Recorded(recorded) => Box::pin(self.on_recorded(*recorded)).await,
            Input::Ordered(order) => self.on_event(Event::Ordered(order)).await,
            Input::Leads(leading) => {
                self.leads = true;
                self.working.lead(leading);
                Box::pin(self.decide()).await
            }
        }
    }

    /// Drops the settings that neither the status nor the document names, so that no status returns to them.
    fn forget_settings(&mut self) {
        let status = self.state.status().into_iter().flat_map(Status::releases);
        let present = self.document.as_ref().map(|document| document.settings.digest);
        let named: Vec<_> = status.map(|release| release.settings).chain(present).collect();
        self.settings.retain(|digest, _| named.contains(digest));
    }

    /// The generation of a document that no API server counts.
    fn generation(&self, document: &CloudProvider) -> u64 {
        let known = self.document.as_ref().map(|known| known.identity()).or(self.recorded.document);
        let observed = self.state.status().map_or(0, |status| status.observed_generation);
        let last = self.last_generation.max(observed);
        if known == Some(document.identity()) { last } else { last + 1 }
    }
}
