//! From a reference to trusted bytes: the order of the steps, and nothing else.
//!
//! A fetch asks a place for the manifest, checks its digest, collects the signatures, decides, and only then downloads the
//! component, by digest: what was verified is what is fetched, even if the tag moves in between. At the end it loads from
//! the store like every later start, which verifies all of it again.

use std::path::Path;

use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::task::spawn_blocking;

use crate::artifact::{TrustedArtifact, artifact, not_component, require_policy, trusted, untrusted};
use crate::digest::Digest;
use crate::error::{Distrust, Error};
use crate::manifest::MAX_COMPONENT;
use crate::reference::{Reference, Repository, Source};
use crate::registry::{Access, BoxFuture, Place, Registries};
use crate::store::Store;
use crate::trust::policy::TrustPolicy;
use crate::trust::verify::{Trust, verify};
use crate::verified::Verified;

/// Fetches, stores and loads components. Clones share store and registries.
#[derive(Debug, Clone)]
pub struct Loader {
    store: Store,
    registries: Registries,
}

impl Loader {
    /// A loader with a store of its own or a shared one.
    pub fn new(store: Store, registries: Registries) -> Self {
        Self { store, registries }
    }

    /// The store, to pin what runs.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Asks the registry for the digest that a reference has now. A pinned reference has its own, without a request.
    ///
    /// # Errors
    /// Those of the registry. The digest isn't trusted.
    pub async fn resolve(&self, reference: &Reference) -> Result<Digest, Error> {
        let Some(tag) = reference.tag.as_deref().filter(|_| reference.digest.is_none()) else {
            return reference.digest.ok_or_else(|| Error::NotFound { place: reference.to_string() });
        };
        let ask = |place| -> BoxFuture<'_, _> {
            Box::pin(async move { self.registries.session(&place, Access::Pull).await?.resolve(tag).await })
        };
        self.registries.ask_each(reference, ask).await
    }

    /// Fetches what a reference points to, verifies and stores it.
    ///
    /// # Errors
    /// Those of the registry and of the store, [`Error::NotComponent`], and [`Error::Untrusted`].
    pub async fn fetch(
        &self,
        reference: &Reference,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Verified, Error> {
        let digest = self.fetch_wanted(reference, &reference.wanted(), policy, now).await?;
        let (store, resolved) = (self.store.clone(), reference.clone());
        blocking(reference, move || store.put_resolved(&resolved, digest)).await?;
        self.load(reference, digest, policy, now).await
    }

    /// Fetches the tag or digest of a reference's repository into the store.
    async fn fetch_wanted(
        &self,
        reference: &Reference,
        wanted: &str,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Digest, Error> {
        require_policy(reference, policy)?;
        let ask = |place| -> BoxFuture<'_, _> {
            Box::pin(async move { self.fetch_from(&place, reference, wanted, policy, now).await })
        };
        self.registries.ask_each(reference, ask).await
    }

    /// The tags of a repository.
    ///
    /// # Errors
    /// Those of the registry.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<String>, Error> {
        let any = Reference { repository: repository.clone(), tag: None, digest: None };
        let ask = |place| -> BoxFuture<'_, _> {
            Box::pin(async move { self.registries.session(&place, Access::Pull).await?.tags().await })
        };
        self.registries.ask_each(&any, ask).await
    }

    /// Fetches the artifact with this digest, to which a reference was resolved, verifies and stores it. The digest adds no
    /// trust: without a pinned one, signatures have to.
    ///
    /// # Errors
    /// As [`Loader::fetch`].
    pub async fn fetch_resolved(
        &self,
        reference: &Reference,
        digest: Digest,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Verified, Error> {
        if let Some(verified) = self.stored(reference, Some(digest), policy, now).await {
            return Ok(verified);
        }
        self.fetch_wanted(reference, &digest.to_string(), policy, now).await?;
        self.load(reference, digest, policy, now).await
    }

    /// What a start needs: what the reference led to at last, from the store, or else from the registry. Without a registry,
    /// a start succeeds if an earlier one did.
    ///
    /// # Errors
    /// Those of [`Loader::fetch`].
    pub async fn obtain(
        &self,
        reference: &Reference,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Verified, Error> {
        let digest = reference.digest.or_else(|| self.store.resolved(reference));
        match self.stored(reference, digest, policy, now).await {
            Some(verified) => Ok(verified),
            None => self.fetch(reference, policy, now).await,
        }
    }

    /// What the store has, where that is trusted. After any error, the registry is asked.
    async fn stored(
        &self,
        reference: &Reference,
        digest: Option<Digest>,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Option<Verified> {
        self.load(reference, digest?, policy, now).await.ok()
    }

    /// Loads an artifact from the store, without a registry. Its digests are computed and its signatures verified again.
    ///
    /// # Errors
    /// [`Error::NotStored`] if the store lacks it or it is damaged, [`Error::Untrusted`].
    pub async fn load(
        &self,
        reference: &Reference,
        digest: Digest,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Verified, Error> {
        let (store, reference, policy) = (self.store.clone(), reference.clone(), policy.clone());
        // Reading and hashing 64 MiB takes a tenth of a second.
        blocking(&reference.clone(), move || load(&store, &reference, digest, &policy, now)).await
    }

    /// Reads a file of the operator.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::TooLarge`], [`Error::Policy`] if the policy has keys, and [`Error::Untrusted`] if it pins
    /// another digest.
    pub async fn read_file(path: &Path, policy: &TrustPolicy) -> Result<Verified, Error> {
        if policy.needs_signatures() {
            let problem =
                "keys and identities can't be checked for a file, which has no signatures; pin its digest, or push it"
                    .to_owned();
            return Err(Error::Policy { problems: vec![problem] });
        }
        let source = Source::File(path.to_owned()).to_string();
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = tokio::fs::File::open(path).await.map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_COMPONENT + 1).read_to_end(&mut bytes).await.map_err(failed)?;
        if bytes.len() as u64 > MAX_COMPONENT {
            return Err(Error::TooLarge { place: source, limit: MAX_COMPONENT });
        }
        let digest = Digest::of(&bytes);
        if let Some(pinned) = policy.digest.filter(|pinned| *pinned != digest) {
            let cause = Box::new(Distrust::OtherDigest { pinned });
            return Err(Error::Untrusted { source_name: source, digest: Some(digest), cause });
        }
        let trust = if policy.digest.is_some() { Trust::Digest } else { Trust::File };
        Ok(Verified { bytes, source, digest, trust })
    }

    async fn fetch_from(
        &self,
        place: &Place,
        reference: &Reference,
        wanted: &str,
        policy: &TrustPolicy,
        now: Timestamp,
    ) -> Result<Digest, Error> {
        let session = self.registries.session(place, Access::Pull).await?;
        let TrustedArtifact { digest, stored, layer, .. } =
            trusted(&session, reference, wanted, policy, now).await?;
        let store = self.store.clone();
        // A damaged component in the store is replaced.
        let begin = move || store.component(layer).is_none().then(|| store.download(layer)).transpose();
        let begun = blocking(reference, begin).await?;
        if let Some(download) = begun {
            session.component(download, layer).await?;
        }
        let store = self.store.clone();
        blocking(reference, move || store.put_artifact(&stored, digest)).await?;
        Ok(digest)
    }
}

/// Does what waits for a disk.
async fn blocking<T: Send + 'static>(
    reference: &Reference,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    // It ends without a result only if it panics.
    spawn_blocking(work).await.unwrap_or_else(|_| Err(Error::NotStored { place: reference.to_string() }))
}

fn load(
    store: &Store,
    reference: &Reference,
    digest: Digest,
    policy: &TrustPolicy,
    now: Timestamp,
) -> Result<Verified, Error> {
    let missing = || Error::NotStored { place: reference.pinned(digest).to_string() };
    let stored = store.artifact(&reference.repository, digest).ok_or_else(missing)?;
    let trust = verify(artifact(reference, digest), policy, &stored.evidence, now)
        .map_err(|distrust| untrusted(reference, Some(digest), distrust))?;
    let layer = stored.layer(digest).map_err(|cause| not_component(reference, cause))?;
    let bytes = store.component(layer).ok_or_else(missing)?;
    Ok(Verified { bytes, source: reference.to_string(), digest, trust })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What compiles is the test: callers spawn these.
    #[expect(dead_code, reason = "it is compiled, and not called")]
    fn futures_can_be_sent_to_another_thread(loader: &Loader, of: &Reference, policy: &TrustPolicy) {
        fn is_send(_: &impl Send) {}
        is_send(&loader.resolve(of));
        is_send(&loader.fetch(of, policy, Timestamp::UNIX_EPOCH));
        is_send(&loader.obtain(of, policy, Timestamp::UNIX_EPOCH));
        is_send(&loader.load(of, Digest::of(b""), policy, Timestamp::UNIX_EPOCH));
        is_send(&Loader::read_file(Path::new(""), policy));
    }
}
