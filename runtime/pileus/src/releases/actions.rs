//! Does what the state machine of a swap decides. What takes time becomes a job, whose end is an event.

use std::sync::Arc;
use std::time::Duration;

use pileus_host::swap::{Action, Ended, Event, Failure, Follow, Release, Stage, Status};
use pileus_loader::Verified;

use super::Releases;
use super::job::{Done, Made, Write};
use super::prepare::{self, failure};
use crate::document::CloudProvider;
use crate::error::Error;
use crate::recorded::Recorded;
use crate::working::Conditions;

impl Releases {
    /// Does one action.
    ///
    /// # Errors
    /// As [`Releases::run`].
    pub(super) async fn perform(&mut self, action: Action) -> Result<(), Error> {
        match action {
            Action::Resolve(follow) => self.resolve(follow),
            Action::Prepare { stage, release } => self.prepare(stage, release),
            Action::Compare { candidate, active } => self.compare(candidate, active),
            Action::WriteStatus { replaces, status } => self.write(replaces, *status),
            Action::Switch(release) => self.switch(release).await?,
            Action::Canary(canary) => {
                let share = canary.map(|canary| canary.share);
                tracing::info!(provider = %self.name, share, "share of the lookups that the candidate answers");
            }
            Action::Drain { release, .. } => {
                let serving = self.serving.clone();
                self.spawn(async move {
                    serving.drained(release).await;
                    Done::of(Event::Drained(release))
                });
            }
            Action::Abort(release) => self.serving.abort(release),
            Action::Unload(release) => {
                self.serving.remove(release);
                self.prepared.remove(&release);
            }
        }
        Ok(())
    }

    fn spawn(&mut self, job: impl Future<Output = Done> + Send + 'static) {
        self.jobs.spawn(job);
    }

    /// An error ends the process where the document is the operator's file. Providers of the cluster leave each other alone.
    pub(super) fn own_error(&self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error) if !self.record.is_own() => {
                tracing::warn!(provider = %self.name, %error, "no controller works for the provider");
                Ok(())
            }
            result => result,
        }
    }

    fn resolve(&mut self, follow: Follow) {
        let (deps, document) = (Arc::clone(&self.deps), self.document.clone());
        self.spawn(async move {
            let Some(document) = document else {
                let error = Error::Settings { problem: "the document isn't read yet".to_owned() };
                return Done::of(Event::Resolved { follow, result: Err(failure(&error)) });
            };
            match prepare::resolve(&deps, &document.source).await {
                Ok(digest) => Done::of(Event::Resolved { follow, result: Ok(digest) }),
                Err(error) => {
                    let resolved = Event::Resolved { follow, result: Err(failure(&error)) };
                    // A registry may come back; a file that is missing at the start is a mistake.
                    let refusal = (!document.is_image()).then_some(error);
                    Done { refusal, ..Done::of(resolved) }
                }
            }
        });
    }

    fn prepare(&mut self, stage: Stage, release: Release) {
        let document = self.document_of(release);
        let (deps, gates) = (Arc::clone(&self.deps), self.gates.clone());
        let prepared = self.prepared.entry(release).or_default();
        let (verified, component) = (prepared.verified.clone(), prepared.component.clone());
        let distrust = prepared.distrust.take();
        let compiled = component.or_else(|| {
            let mut same = self.prepared.iter().filter(|(other, _)| other.component == release.component);
            same.find_map(|(_, prepared)| prepared.component.clone())
        });
        let active = self.state.roles().serving.filter(|active| *active != release);
        let active = active.and_then(|active| self.ready(active)).cloned();
        let check_candidate = self.candidate_check(release);
        self.spawn(async move {
            let made = async {
                let document = document.await?;
                match stage {
                    Stage::Fetch => fetched(prepare::fetch(&deps, release, &document).await),
                    Stage::Verify => match (distrust, verified) {
                        (Some(distrust), _) => Err(distrust),
                        (None, Some(_)) => Ok(None),
                        (None, None) => {
                            prepare::fetch(&deps, release, &document).await.map(|it| Some(Made::Verified(it)))
                        }
                    },
                    Stage::Compile => {
                        let component = prepare::compile(&deps, release, &document, compiled.ok_or(verified));
                        Ok(Some(Made::Component(component.await?)))
                    }
                    Stage::Check => {
                        let component = prepare::compile(&deps, release, &document, compiled.ok_or(verified));
                        let beside = (&gates, active.as_ref());
                        let ready = prepare::check(&deps, component.await?, document, beside).await?;
                        check_candidate(&ready)?;
                        Ok(Some(Made::Ready(Box::new(ready))))
                    }
                }
            };
            let ended = |result| Event::Prepared(Ended { release, stage, result });
            match made.await {
                Ok(made) => Done { made: made.map(|made| (release, made)), ..Done::of(ended(Ok(()))) },
                Err(error) => {
                    let failure = failure(&error);
                    let refusal = failure.is_permanent.then_some(error);
                    Done { refusal, ..Done::of(ended(Err(failure))) }
                }
            }
        });
    }

    /// The document that a release runs under: the present one, or one made of the settings that are kept for it.
    fn document_of(
        &self,
        release: Release,
    ) -> impl Future<Output = Result<Arc<CloudProvider>, Error>> + Send + use<> {
        let digest = release.settings;
        let present = self.document.clone().filter(|document| document.settings.digest == digest);
        let known = self.settings.get(&digest).cloned();
        let (name, record, origin) = (self.name.clone(), self.record.clone(), self.origin.clone());
        async move {
            if let Some(document) = present {
                return Ok(document);
            }
            let unread = |cause: String| {
                Error::FormerSettings(format!("{} of a former release: {cause}", digest.short()))
            };
            let missing = || unread("they are not kept any more".to_owned());
            let kept = match known {
                Some(spec) => Some(spec),
                None => record.settings(digest).await.map_err(|error| unread(error.to_string()))?,
            };
            let spec = kept.ok_or_else(missing)?;
            let document = CloudProvider::of_settings(&name, &spec, release.component, &origin)?;
            // A record in the store may have been written by another hand.
            if document.settings.digest == digest { Ok(Arc::new(document)) } else { Err(missing()) }
        }
    }

    fn compare(&mut self, candidate: Release, active: Release) {
        let releases = (self.ready(candidate).cloned(), self.ready(active).cloned());
        let (comparison, deps, leads) = (self.comparison.clone(), Arc::clone(&self.deps), self.leads);
        // On a thread of its own, because calls of a dry run can't move between threads.
        let handle = tokio::runtime::Handle::current();
        let run = tokio::task::spawn_blocking(move || match releases {
            // A replica that doesn't lead sends nothing to the cloud that might change it.
            (Some(candidate), Some(active)) if leads => {
                handle.block_on(comparison.run(&candidate, &active, &deps.metrics))
            }
            _ => Err(Failure {
                message: "the releases aren't ready on this replica".to_owned(),
                is_permanent: false,
            }),
        });
        self.spawn(async move {
            let failed = |panic: tokio::task::JoinError| Failure {
                message: format!("the dry run ended unexpectedly: {panic}"),
                is_permanent: false,
            };
            let result = run.await.map_err(failed).and_then(|result| result);
            Done::of(Event::Compared { candidate, active, result })
        });
    }

    fn write(&mut self, replaces: u64, status: Status) {
        self.write_after(Duration::ZERO, replaces, status);
    }

    /// Writes the status after a pause. Until it ends, what is read of the record has to wait.
    pub(super) fn write_after(&mut self, pause: Duration, replaces: u64, status: Status) {
        let document = self.document.as_ref().map(|document| document.identity());
        let (settings, versions) = (self.settings.clone(), self.versions.clone());
        let owner = self.recorded.owner.clone();
        let recorded =
            Recorded { revision: replaces, status: status.clone(), owner, document, versions, settings };
        let (record, known, name) = (self.record.clone(), self.recorded.clone(), self.name.clone());
        self.writes += 1;
        self.spawn(async move {
            tokio::time::sleep(pause).await;
            let error = match record.write(recorded).await {
                Ok(recorded) => return Done::written(recorded),
                Err(error) => error,
            };
            // The answer may have been lost, or another write came first.
            match record.read(&known).await {
                Ok(found) if found.revision > replaces && found.status == status => Done::written(found),
                Ok(found) if found.revision > replaces => {
                    Done { write: Some(Write::Conflict(found)), ..Done::of(Event::Woke) }
                }
                _ => {
                    tracing::warn!(provider = %name, %error, "the status of the provider can't be written; trying again");
                    Done { write: Some(Write::Failed), ..Done::of(Event::WriteFailed { replaces }) }
                }
            }
        });
    }

    /// Lets a release serve calls. Controllers that were made for another declaration end first, so that none of them calls it.
    async fn switch(&mut self, release: Release) -> Result<(), Error> {
        let (Some(ready), Some(declaration)) =
            (self.ready(release).cloned(), self.serving.declaration(release))
        else {
            return Ok(());
        };
        let conditions = Conditions::new(declaration, &ready.document);
        let continues = self.working.conditions() == Some(&conditions);
        if !continues {
            self.working.stop().await;
        }
        ready.gate.take_over();
        self.serving.assign(self.state.roles());
        tracing::info!(
            provider = %self.name, version = %ready.description.version, digest = %release.component,
            settings = %release.settings.short(),
            controllers = if continues { "go on" } else { "begin" }, "release serves calls"
        );
        if continues {
            self.working.renew(ready.gate);
            return Ok(());
        }
        let provider = self.serving.provider(&conditions.declaration);
        let started = self.working.start(conditions, provider, ready.gate).await;
        self.own_error(started)
    }
}

/// A component that isn't trusted is fetched, as far as the status is concerned.
fn fetched(result: Result<Verified, Error>) -> Result<Option<Made>, Error> {
    match result {
        Ok(verified) => Ok(Some(Made::Verified(verified))),
        Err(error @ Error::Source(pileus_loader::Error::Untrusted { .. })) => Ok(Some(Made::Distrust(error))),
        Err(error) => Err(error),
    }
}
