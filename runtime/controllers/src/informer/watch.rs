//! The watch of one kind of objects. Several informers may share it, each of which keeps what matters to it.
//!
//! It also asks the API server for its present version, since a watch that began in the future of a restored store is silent, and
//! looks like one of a cluster in which nothing happens.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::version::NewestVersion;
use super::{Informer, InformerStore, StoreHistory, with_timeout};
use crate::error::{Error, describe};
use crate::metrics::Metrics;

/// The number of objects in a page of a list. Each page is held as text and as objects before it becomes facts. Nodes have
/// 12 kB each with their images, so a page is 1.2 MB of text; the 500 of Kubernetes' own clients would be 6 MB.
const PAGE_SIZE: u32 = 100;

/// The pause before the version is asked for when a list begins, from which the answer may be compared, and after the watch was
/// interrupted. A restored store interrupts all watches, and the longer the question waits, the more the versions of the new
/// history may exceed those of the old one.
const QUESTION_PAUSE: Duration = Duration::from_secs(1);

/// How many questions for the version have to fail in a row before the health check fails. A single one may be bad luck.
const MAX_FAILURES: u32 = 2;

/// Why nothing is deleted for missing objects after the store went back.
const WENT_BACK: &str = "the API server's store went back to an older state, so nothing is deleted from the cloud for objects that \
                         are missing: restart Pileus when the cluster is complete again";

/// The watch of one kind.
pub(crate) struct Watch<S: InformerStore> {
    /// The kind's name in the plural.
    pub(super) kind: &'static str,
    api: Api<S::Object>,
    metrics: Metrics,
    history: StoreHistory,
    /// The field selector of the objects; all without one.
    fields: Option<String>,
    newest: Mutex<NewestVersion>,
    informers: Mutex<Vec<Weak<Informer<S>>>>,
    /// The version has to be asked for soon.
    question: Notify,
    /// Everything has to be listed again.
    relist: Notify,
}

impl<S: InformerStore> Watch<S> {
    /// A watch that begins with [`Watch::run`]. The watches of a process share the history.
    pub(crate) fn new(
        kind: &'static str,
        api: Api<S::Object>,
        metrics: &Metrics,
        history: &StoreHistory,
    ) -> Self {
        Self {
            kind,
            api,
            metrics: metrics.clone(),
            history: history.clone(),
            fields: None,
            newest: Mutex::default(),
            informers: Mutex::default(),
            question: Notify::new(),
            relist: Notify::new(),
        }
    }

    /// Watches only the objects that this field selector selects.
    pub(crate) fn selecting(self, fields: String) -> Self {
        Self { fields: Some(fields), ..self }
    }

    /// Adds an informer until it is dropped. Everything is listed again for it; others see no change by that.
    pub(super) fn join(&self, informer: &Arc<Informer<S>>) {
        self.informers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(informer));
        self.relist.notify_one();
    }

    /// The informers that exist.
    fn informers(&self) -> Vec<Weak<Informer<S>>> {
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        informers.retain(|informer| informer.strong_count() > 0);
        informers.clone()
    }

    /// Lists and watches the objects until `stop`, while there are informers. Where the API server's store turns out to be
    /// older than what this process has seen in any of its watches, everything is listed again.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.ask_for_versions() => {}
            () = self.follow_rollbacks(self.history.subscribe()) => {}
            () = async {
                loop {
                    self.list_and_watch().await;
                }
            } => {}
        }
    }

    /// Lists once and watches, until everything has to be listed again or there are no informers any more.
    async fn list_and_watch(&self) {
        // One that joins from here on gets the next list, and no event before that.
        let _ = self.relist.notified().now_or_never();
        let informers = self.informers();
        if informers.is_empty() {
            return self.relist.notified().await;
        }
        self.question.notify_one();
        let config = watcher::Config { field_selector: self.fields.clone(), ..watcher::Config::default() };
        // The stream has some kilobytes, which would be a part of every future that holds this one.
        let mut events = Box::pin(watcher(self.api.clone(), config.page_size(PAGE_SIZE)).default_backoff());
        loop {
            tokio::select! {
                () = self.relist.notified() => return,
                event = events.next() => {
                    let informers = present(&informers);
                    match event {
                        _ if informers.is_empty() => return,
                        Some(Ok(event)) => distribute(&informers, event),
                        Some(Err(error)) => self.on_interruption(&informers, &error),
                        None => {
                            fail(&informers, &format!("the watch of {} has ended", self.kind));
                        }
                    }
                }
            }
        }
    }

    fn on_interruption(&self, informers: &[Arc<Informer<S>>], error: &watcher::Error) {
        let (kind, error) = (self.kind, describe(error));
        tracing::warn!(kind, %error, "watch interrupted; trying again");
        self.question.notify_one();
        for informer in informers {
            informer.on_interruption(format!("the watch of {kind} is interrupted: {error}"));
        }
    }

    /// Asks for the API server's version again and again, and never returns. Where it doesn't answer, the silence of the watch
    /// means nothing either.
    async fn ask_for_versions(&self) {
        let mut failures = 0_u32;
        loop {
            tokio::select! {
                () = sleep(self.history.version_period) => {}
                () = self.question.notified() => sleep(QUESTION_PAUSE).await,
            }
            let informers = present(&self.informers());
            if informers.is_empty() {
                continue;
            }
            match self.ask_for_version().await {
                Ok(()) => {
                    let recovered = failures >= MAX_FAILURES;
                    for informer in informers.iter().filter(|informer| recovered && informer.is_synced()) {
                        informer.pass();
                    }
                    failures = 0;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures >= MAX_FAILURES {
                        fail(&informers, &format!("the version of {} can't be read: {error}", self.kind));
                    }
                    if failures >= MAX_FAILURES && failures.is_power_of_two() {
                        tracing::warn!(kind = self.kind, %error, failures, "can't ask the API server whether the watch is up to date");
                    }
                }
            }
        }
    }

    /// See [`Informer::confirm_history`].
    pub(super) async fn confirm_history(&self) -> Result<(), Error> {
        self.ask_for_version().await?;
        match self.remark() {
            Some(why) => Err(Error::Refused(why.to_owned())),
            None => Ok(()),
        }
    }

    async fn ask_for_version(&self) -> Result<(), Error> {
        // The answer is compared with what was known before it was asked for.
        let asked = self.newest();
        let params = ListParams { field_selector: self.fields.clone(), ..ListParams::default().limit(1) };
        let listed = with_timeout(self.api.list_metadata(&params)).await?;
        self.on_present_version(asked, &listed.metadata.resource_version.unwrap_or_default());
        Ok(())
    }

    fn on_present_version(&self, asked: NewestVersion, found: &str) {
        let went_back = self.newest.lock().unwrap_or_else(PoisonError::into_inner).on_present(asked, found);
        if !went_back {
            return;
        }
        let known = asked.number();
        tracing::warn!(
            kind = self.kind,
            %known,
            found,
            "the API server's store went back to an older state, as a restored backup does: everything is listed again, and \
             nothing is deleted from the cloud for objects that are missing, until Pileus restarts"
        );
        self.history.went_back();
    }

    /// Lists everything again each time the store went back, whichever watch noticed it, and never returns.
    async fn follow_rollbacks(&self, mut rollbacks: watch::Receiver<u32>) {
        while rollbacks.changed().await.is_ok() {
            self.newest.lock().unwrap_or_else(PoisonError::into_inner).forget();
            let informers = present(&self.informers());
            if informers.is_empty() {
                continue;
            }
            for informer in informers {
                informer.forget_versions();
            }
            self.metrics.count_rollback(self.kind);
            self.relist.notify_one();
        }
    }

    /// Records the version of an object.
    pub(super) fn observe_version(&self, version: &str) {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).observe(version);
    }

    /// What users have to know although the watch works.
    pub(super) fn remark(&self) -> Option<&'static str> {
        self.history.has_gone_back().then_some(WENT_BACK)
    }

    fn newest(&self) -> NewestVersion {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of the informers that still exist.
fn present<S: InformerStore>(informers: &[Weak<Informer<S>>]) -> Vec<Arc<Informer<S>>> {
    informers.iter().filter_map(Weak::upgrade).collect()
}

/// Shows at all informers why the watch doesn't work.
fn fail<S: InformerStore>(informers: &[Arc<Informer<S>>], reason: &str) {
    for informer in informers {
        informer.fail(reason.to_owned());
    }
}

/// Gives an event to all informers. The last one gets the event itself: most watches have one informer, and an object has up to a
/// megabyte.
fn distribute<S: InformerStore>(informers: &[Arc<Informer<S>>], event: watcher::Event<S::Object>) {
    if let Some((last, others)) = informers.split_last() {
        for informer in others {
            informer.on_event(event.clone());
        }
        last.on_event(event);
    }
}
