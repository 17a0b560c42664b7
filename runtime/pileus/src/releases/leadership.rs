//! Whose word about the status counts: for a replica that stands by, what the record says; for the leader, what it wrote itself.
//! Only the leader writes the status, so a change by another hand is written back, and chooses nothing that runs.

use pileus_host::swap::Event;

use super::job::{Done, Write};
use super::{MEASURE_PERIOD, Releases};
use crate::error::Error;
use crate::recorded::Recorded;

impl Releases {
    /// The record was read.
    pub(super) async fn on_recorded(&mut self, recorded: Recorded) -> Result<(), Error> {
        let is_newer = recorded.revision > self.recorded.revision;
        if self.decides && !self.record.is_own() && is_newer && recorded.owner == self.recorded.owner {
            // The answer to a write says what the record is then.
            if self.writes > 0 {
                self.unread = Some(recorded);
                return Ok(());
            }
            if recorded.status != self.recorded.status {
                return self.write_back(recorded.revision).await;
            }
        }
        self.learn(&recorded);
        if recorded.revision >= self.recorded.revision {
            self.recorded = recorded.clone();
        }
        let Recorded { revision, status, .. } = recorded;
        self.on_event(Event::Status { revision, status }).await?;
        Box::pin(self.decide()).await
    }

    /// A write of the status has ended.
    pub(super) fn on_write_result(&mut self, result: Write) {
        self.writes = self.writes.saturating_sub(1);
        match result {
            Write::Written(recorded) => self.recorded = recorded,
            Write::Conflict(found) => {
                let unread = self.unread.take().filter(|unread| unread.revision > found.revision);
                self.unread = Some(unread.unwrap_or(found));
            }
            Write::Failed => {}
        }
    }

    /// Considers what was read while a write was under way.
    pub(super) async fn read_on(&mut self) -> Result<(), Error> {
        match self.unread.take() {
            Some(unread) => Box::pin(self.on_recorded(unread)).await,
            None => Ok(()),
        }
    }

    /// Replaces the status that another hand wrote as this revision by the one that this leader wrote last.
    async fn write_back(&mut self, revision: u64) -> Result<(), Error> {
        tracing::warn!(
            provider = %self.name,
            "the status of the provider was changed by another hand: it is written back; only Pileus may write it"
        );
        self.recorded.revision = revision;
        let status = self.recorded.status.clone();
        self.on_event(Event::Status { revision, status: status.clone() }).await?;
        if self.writes == 0 {
            // Two writers that contradict each other don't keep the API server busy.
            self.write_after(MEASURE_PERIOD, revision, status);
        }
        Ok(())
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
