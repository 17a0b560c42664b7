//! What happens outside of a provider's releases, and what of it the state machine is told.

use std::sync::Arc;

use pileus_host::swap::{Event, Order};

use super::job::Done;
use super::{MEASURE_PERIOD, Releases};
use crate::document::CloudProvider;
use crate::error::Error;
use crate::leading::Leading;
use crate::recorded::Recorded;

/// What happens outside.
pub(crate) enum Input {
    /// The document is so. Without a generation, it counts as changed where it differs from the one before.
    Document { generation: Option<u64>, document: Arc<CloudProvider> },
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
                self.on_event(event).await
            }
            Input::Recorded(recorded) => Box::pin(self.on_recorded(*recorded)).await,
            Input::Ordered(order) => self.on_event(Event::Ordered(order)).await,
            Input::Leads(leading) => {
                self.leads = true;
                self.working.lead(leading);
                Box::pin(self.decide()).await
            }
        }
    }

    /// The generation of a document that no API server counts.
    fn generation(&self, document: &CloudProvider) -> u64 {
        let known = self.document.as_ref().map(|known| known.identity()).or(self.recorded.document);
        let observed = self.state.status().map_or(0, |status| status.observed_generation);
        let last = self.last_generation.max(observed);
        if known == Some(document.identity()) { last } else { last + 1 }
    }

    pub(super) async fn on_recorded(&mut self, recorded: Recorded) -> Result<(), Error> {
        self.learn(&recorded);
        if recorded.revision >= self.recorded.revision {
            self.recorded = recorded.clone();
        }
        let Recorded { revision, status, .. } = recorded;
        self.on_event(Event::Status { revision, status }).await?;
        Box::pin(self.decide()).await
    }

    /// Keeps what other replicas know about releases.
    fn learn(&mut self, recorded: &Recorded) {
        let Recorded { settings, versions, .. } = recorded.clone();
        self.settings.extend(settings);
        self.versions.extend(versions);
    }

    /// Tells the state machine whether this replica decides: the leader does, and for a record of its own each replica while
    /// nothing is active, since then there is nothing to swap from.
    pub(super) async fn decide(&mut self) -> Result<(), Error> {
        let has_active = self.recorded.status.active.is_some();
        let decides = self.leads || (self.record.is_own() && !has_active);
        if decides == self.decides {
            return Ok(());
        }
        self.decides = decides;
        if !decides {
            return self.on_event(Event::Follows).await;
        }
        // A leader never works from an older status than the one that it finds.
        match self.record.read(&self.recorded).await {
            Ok(recorded) => {
                self.learn(&recorded);
                self.recorded = recorded.clone();
                let Recorded { revision, status, .. } = recorded;
                self.on_event(Event::Leads { revision, status }).await
            }
            Err(error) => {
                tracing::warn!(provider = %self.name, %error, "can't read the status of the provider; trying again");
                self.decides = false;
                self.jobs.spawn(async {
                    tokio::time::sleep(MEASURE_PERIOD).await;
                    Done::of(Event::Woke)
                });
                Ok(())
            }
        }
    }
}
