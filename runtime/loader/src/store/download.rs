//! A component on its way to the store: hashed while it is written, and resumed where it was cut off. Until all of its bytes
//! are there and right, it has no name that a reader would look for.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::task::spawn_blocking;

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::ComponentLayer;
use crate::store::{crash_point, folder, store_error};

/// How every component begins.
const WASM_HEADER: &[u8] = b"\0asm";

/// A component that is being written.
pub(crate) struct Download {
    file: tokio::fs::File,
    unfinished: PathBuf,
    finished: PathBuf,
    layer: ComponentLayer,
    hasher: Sha256,
    written: u64,
    begin: Vec<u8>,
    /// Whether another process writes the same component, so that this one has a file of its own.
    is_private: bool,
}

impl Download {
    /// Continues what an earlier attempt has left, or begins.
    pub(super) fn open(unfinished: &Path, finished: PathBuf, layer: ComponentLayer) -> Result<Self, Error> {
        let mut path = unfinished.join(format!("{}.part", layer.digest.hex()));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| store_error("write", &path, source)
        };
        let open = |path: &Path| folder::options().read(true).write(true).create(true).open(path);
        let mut file = open(&path).map_err(failed(&path))?;
        // Another process may have finished the file and given it its name since it was opened.
        let is_still_there = || is_same(&file, &path).unwrap_or(false);
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_private = !is_locked || !is_still_there();
        if is_private {
            let own =
                tempfile::Builder::new().prefix(&layer.digest.hex()).suffix(".part").tempfile_in(unfinished);
            let (own, kept) =
                own.and_then(|own| own.keep().map_err(|error| error.error)).map_err(failed(unfinished))?;
            (file, path) = (own, kept);
        }
        crash_point();
        let (hasher, written, begin) = read_again(&mut file, layer.size).map_err(failed(&path))?;
        let file = tokio::fs::File::from_std(file);
        Ok(Self { file, unfinished: path, finished, layer, hasher, written, begin, is_private })
    }

    /// How many bytes are there already.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Begins anew: the source can't continue in the middle.
    pub(crate) async fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).await.map_err(|source| store_error("write", &self.unfinished, source))?;
        self.file.rewind().await.map_err(|source| store_error("write", &self.unfinished, source))?;
        (self.hasher, self.written) = (Sha256::new(), 0);
        self.begin.clear();
        Ok(())
    }

    /// Appends bytes. More than announced are refused.
    pub(crate) async fn write(&mut self, bytes: &[u8], place: &str) -> Result<(), Error> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        if self.written > self.layer.size {
            return Err(Error::TooLarge { place: place.to_owned(), limit: self.layer.size });
        }
        let missing = WASM_HEADER.len().saturating_sub(self.begin.len());
        self.begin.extend(bytes.iter().take(missing));
        self.hasher.update(bytes);
        self.file.write_all(bytes).await.map_err(|source| store_error("write", &self.unfinished, source))
    }

    /// Checks the bytes and gives the file its name. Wrong bytes are removed, so that nothing continues them.
    pub(crate) async fn finish(mut self, place: &str) -> Result<(), Error> {
        self.file.flush().await.map_err(|source| store_error("write", &self.unfinished, source))?;
        let found = Digest::finish(self.hasher);
        let is_wasm = self.begin == WASM_HEADER;
        if found != self.layer.digest || !is_wasm {
            folder::remove(&self.unfinished)
                .map_err(|source| store_error("remove", &self.unfinished, source))?;
            let (place, expected) = (place.to_owned(), self.layer.digest.to_string());
            // Only bytes with the right digest say what the artifact is.
            if found != self.layer.digest {
                return Err(Error::Corrupt { place, expected, found });
            }
            let cause = "its bytes are not WebAssembly; it may be an archive or compressed".to_owned();
            return Err(Error::NotComponent { place, cause });
        }
        crash_point();
        self.file.sync_all().await.map_err(|source| store_error("write", &self.unfinished, source))?;
        crash_point();
        let (from, to) = (self.unfinished, self.finished);
        let renamed = spawn_blocking(move || {
            folder::rename(&from, &to).map_err(|source| store_error("write", &to, source))
        });
        renamed.await.unwrap_or_else(|_| Err(Error::NotStored { place: place.to_owned() }))
    }

    /// Removes what can't be continued.
    pub(crate) fn discard(self) {
        let _already_gone = folder::remove(&self.unfinished);
    }

    /// Keeps what was written for another attempt.
    pub(crate) async fn keep(mut self) {
        let flushed = self.file.flush().await;
        // Closing it isn't enough: a child process that is just being started may have a copy.
        let _closing_unlocks_later = flock(&self.file, FlockOperation::Unlock);
        if self.is_private || flushed.is_err() {
            self.discard();
        }
    }
}

/// Whether a path still leads to a file that was opened.
fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, found) = (file.metadata()?, std::fs::symlink_metadata(path)?);
    Ok((opened.dev(), opened.ino()) == (found.dev(), found.ino()))
}

/// Hashes what an earlier attempt has left. What is longer than the component is dropped.
fn read_again(file: &mut File, size: u64) -> io::Result<(Sha256, u64, Vec<u8>)> {
    if file.metadata()?.len() > size {
        file.set_len(0)?;
    }
    let (mut hasher, mut written, mut begin) = (Sha256::new(), 0, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    file.rewind()?;
    loop {
        let count = file.read(&mut buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        if read.is_empty() {
            return Ok((hasher, written, begin));
        }
        begin.extend(read.iter().take(WASM_HEADER.len().saturating_sub(begin.len())));
        hasher.update(read);
        written += read.len() as u64;
    }
}
