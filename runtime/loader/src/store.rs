//! The components on this machine, by digest, with what is needed to trust them again without a registry.
//!
//! ```text
//! components/HEX.wasm               by the digest of its bytes
//! artifacts/HEX-REPOSITORY.json     by the digest of the manifest: manifest, entry of an index, signatures
//! references/HASH.json              what a tag led to at last
//! pins/OWNER.json                   what runs, and what can be rolled back to
//! owners/OWNER.json                 what an owner keeps; the store doesn't interpret it
//! unfinished/                       what is being written
//! ```
//!
//! At each moment at which the process or the machine may stop, a file under its name is whole. A component is written
//! first, then its artifact, then the reference, and they are removed in the reverse order, so that each step leaves
//! something complete. Nothing in the store is trusted: each load computes the digests from the manifest to the component
//! again, and verifies the signatures again. What doesn't match is removed, and counts as missing.
//!
//! Several processes may share a folder. A read-only folder serves what it has.

mod budget;
#[cfg(test)]
mod crash;
mod download;
mod eviction;
mod folder;
mod record;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{ComponentLayer, MAX_COMPONENT};
use crate::reference::{Reference, Repository};
pub(crate) use download::Download;
pub(crate) use record::StoredArtifact;
use record::{MAX_RECORD, Pins, Resolved};

/// What is left of a write that was cut off this long ago isn't continued any more.
const MAX_UNFINISHED_AGE: Duration = Duration::from_hours(24);

/// The store's folder. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    budget: u64,
}

impl Store {
    /// Opens the folder, and creates it, accessible only to this user, where it doesn't exist. `budget` bounds the bytes of
    /// all components and records of artifacts; what is pinned stays even over it.
    ///
    /// # Errors
    /// [`Error::Store`] if the folder can't be created, is a link or a file, belongs to another user, or is writable by
    /// others.
    pub fn open(root: &Path, budget: u64) -> Result<Self, Error> {
        for folder in
            [root.to_owned(), root.join("components"), root.join("artifacts"), root.join("references")]
                .into_iter()
                .chain([root.join("pins"), root.join("owners"), root.join("unfinished")])
        {
            match folder::open(&folder) {
                // A folder that a read-only volume doesn't have is empty.
                Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && folder != root => {}
                opened => opened.map_err(|source| store_error("open", &folder, source))?,
            }
        }
        Ok(Self { root: root.to_owned(), budget })
    }

    /// Says which artifacts of an owner, such as a provider, run or can be rolled back to. They replace those of its last
    /// call, and stay in the store even over its budget, also after a restart. An owner without digests is forgotten.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn pin(&self, owner: &str, digests: &[Digest]) -> Result<(), Error> {
        let path = self.owned("pins", owner);
        let pins = Pins { owner: owner.to_owned(), digests: digests.to_vec(), until: None };
        if read_json::<Pins>(&path).is_some_and(|stored| stored == pins) {
            return Ok(());
        }
        if digests.is_empty() {
            return folder::remove(&path).map_err(|source| store_error("remove", &path, source));
        }
        self.write_json(&path, &pins)
    }

    /// As [`Store::pin`], for an owner that pins its artifacts itself before this time. A read-only store removes nothing, so
    /// nothing is noted there.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn pin_until(&self, owner: &str, digests: &[Digest], until: Timestamp) -> Result<(), Error> {
        let pins = Pins { owner: owner.to_owned(), digests: digests.to_vec(), until: Some(until) };
        match self.write_json(&self.owned("pins", owner), &pins) {
            Err(Error::Store { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            written => written,
        }
    }

    /// What an owner, such as a provider, has to remember about its components. `None` before the first write.
    ///
    /// # Errors
    /// [`Error::Store`] if it can't be read, is a link, belongs to another user, or is writable by others.
    pub fn record(&self, owner: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.owned("owners", owner);
        folder::read(&path, MAX_RECORD).map_err(|source| store_error("read", &path, source))
    }

    /// Replaces the record of an owner. Another process sees the one before or all of this one.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn put_record(&self, owner: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write(&self.owned("owners", owner), bytes)
    }

    /// The file of an owner's record, for messages.
    pub fn record_path(&self, owner: &str) -> PathBuf {
        self.owned("owners", owner)
    }

    /// What a reference led to when the registry was asked last.
    pub fn resolved(&self, reference: &Reference) -> Option<Digest> {
        let found: Resolved = read_json(&self.reference_path(reference))?;
        (found.reference == reference.to_string()).then_some(found.digest)
    }

    pub(crate) fn put_resolved(&self, reference: &Reference, digest: Digest) -> Result<(), Error> {
        if self.resolved(reference) == Some(digest) {
            return Ok(());
        }
        self.write_json(
            &self.reference_path(reference),
            &Resolved { reference: reference.to_string(), digest },
        )
    }

    /// An artifact, if it is here and undamaged.
    pub(crate) fn artifact(&self, repository: &Repository, digest: Digest) -> Option<StoredArtifact> {
        let path = self.artifact_path(&repository.to_string(), digest);
        let found: StoredArtifact = read_json(&path)?;
        if found.repository != repository.to_string() || found.layer(digest).is_err() {
            drop_damaged(&path);
            return None;
        }
        // For the budget. Where the time can't be set, the order of eviction is less exact.
        let touched =
            folder::options().read(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        touched
            .unwrap_or_else(|error| tracing::debug!(path = %path.display(), %error, "last use not recorded"));
        Some(found)
    }

    pub(crate) fn put_artifact(&self, artifact: &StoredArtifact, digest: Digest) -> Result<(), Error> {
        let path = self.artifact_path(&artifact.repository, digest);
        let record =
            serde_json::to_vec(artifact).map_err(|error| store_error("write", &path, error.into()))?;
        // Its component is here already.
        let component = artifact.layer(digest).ok().map(|layer| layer.digest);
        self.make_room(record.len() as u64, component)?;
        let failed = |source| store_error("write", &path, source);
        folder::write(&self.root.join("unfinished"), &path, &record).map_err(failed)
    }

    /// The bytes of a component, if they are here and undamaged.
    pub(crate) fn component(&self, layer: ComponentLayer) -> Option<Vec<u8>> {
        let path = self.component_path(layer.digest);
        match folder::read(&path, MAX_COMPONENT) {
            Ok(Some(bytes)) if Digest::of(&bytes) == layer.digest => return Some(bytes),
            Ok(None) => return None,
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "component in the store can't be read");
            }
        }
        drop_damaged(&path);
        None
    }

    /// Begins or continues to write a component, after it has made room for it.
    pub(crate) fn download(&self, layer: ComponentLayer) -> Result<Download, Error> {
        self.make_room(layer.size, None)?;
        Download::open(&self.root.join("unfinished"), self.component_path(layer.digest), layer)
    }

    /// The files of a folder with their sizes and the times of their last use.
    fn files(&self, folder: &str) -> impl Iterator<Item = (PathBuf, u64, SystemTime)> + use<> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().map_while(Result::ok);
        entries.filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((entry.path(), metadata.len(), metadata.modified().ok()?))
        })
    }

    fn component_path(&self, digest: Digest) -> PathBuf {
        self.root.join("components").join(format!("{}.wasm", digest.hex()))
    }

    /// Signatures may be bound to a repository, so each repository with the same artifact has a record of its own.
    fn artifact_path(&self, repository: &str, digest: Digest) -> PathBuf {
        let repository = Digest::of(repository.as_bytes()).short();
        self.root.join("artifacts").join(format!("{}-{repository}.json", digest.hex()))
    }

    /// The file of an owner in a folder that has one for each.
    fn owned(&self, folder: &str, owner: &str) -> PathBuf {
        self.root.join(folder).join(format!("{}.json", Digest::of(owner.as_bytes()).short()))
    }

    fn reference_path(&self, reference: &Reference) -> PathBuf {
        let name = Digest::of(reference.to_string().as_bytes()).hex();
        self.root.join("references").join(format!("{name}.json"))
    }

    fn write_json(&self, path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
        let bytes = serde_json::to_vec(value).map_err(|error| store_error("write", path, error.into()))?;
        self.write(path, &bytes)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        folder::write(&self.root.join("unfinished"), path, bytes)
            .map_err(|source| store_error("write", path, source))
    }
}

/// Reads a record. A damaged one is removed.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = match folder::read(path, MAX_RECORD) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "record in the store can't be read");
            return None;
        }
    };
    let read = serde_json::from_slice(&bytes).ok();
    if read.is_none() {
        drop_damaged(path);
    }
    read
}

fn drop_damaged(path: &Path) {
    let removed = folder::remove(path).is_ok();
    tracing::warn!(path = %path.display(), removed, "a file in the store is damaged; fetching it again");
}

/// The digest that a file's name begins with.
fn digest_in_name(path: &Path) -> Option<Digest> {
    let hex = path.file_name()?.to_str()?.get(..64)?;
    format!("sha256:{hex}").parse().ok()
}

fn store_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Store { action, path: path.to_owned(), source }
}

/// Where a test may end the process, as kill -9 would.
#[cfg(test)]
use crash::crash_point;

#[cfg(not(test))]
const fn crash_point() {}
