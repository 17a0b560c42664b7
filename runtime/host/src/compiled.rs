//! Compiled code on disk, so that a restart and a take-over don't wait for the compiler.
//!
//! A compiled component is native code that the process will run: whoever can change the file can do all that the host
//! may. So it is only ever read from a folder that nobody else can write, it is bound to the component and to the exact
//! engine that made it, and whatever is not as it should be is a miss: it is compiled again.

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use crate::digest::Digest;

/// A folder of compiled code that belongs to this process's user alone.
#[derive(Debug, Clone)]
pub struct CompiledCode {
    folder: PathBuf,
}

/// Code that no start has asked for in this time goes: it is a former version's, or what a killed process left behind.
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// Every file begins with this many bytes of SHA-256 over what follows, which shows truncation and decay.
const SUM: usize = 32;

impl CompiledCode {
    /// Opens the folder, and makes it, readable by this user only, where it isn't there.
    ///
    /// # Errors
    /// Where it can't be made, is a link or no folder, belongs to somebody else, or can be written by others.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let found = fs::symlink_metadata(folder)?;
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
        if !found.is_dir() {
            return refuse("it is a link or a file, not a folder");
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return refuse("it belongs to another user");
        }
        if found.mode() & 0o022 != 0 {
            return refuse("others can write to it; `chmod 700` it");
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The component with this digest as this engine compiled it earlier; `None` where there is no such file or it
    /// isn't whole.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, digest: &Digest) -> Option<Component> {
        let path = self.path(engine, digest);
        let stored = match read(&path) {
            Ok(stored) => stored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled code not read; compiling again");
                return None;
            }
        };
        let (sum, code) = stored.split_at_checked(SUM)?;
        if Sha256::digest(code).as_slice() != sum {
            tracing::warn!(path = %path.display(), "compiled code is damaged; compiling again");
            return None;
        }
        match deserialize(engine, code) {
            Ok(component) => {
                let now = SystemTime::now();
                if let Err(error) = File::open(&path).and_then(|file| file.set_modified(now)) {
                    tracing::debug!(path = %path.display(), %error, "use of compiled code not noted");
                }
                Some(component)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled code does not fit; compiling again");
                None
            }
        }
    }

    /// Keeps a compiled component. A reader sees the whole file or none, also after a crash.
    pub(crate) fn store(
        &self,
        engine: &wasmtime::Engine,
        digest: &Digest,
        component: &Component,
    ) -> io::Result<()> {
        let code = component.serialize().map_err(io::Error::other)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&Sha256::digest(&code))?;
        file.write_all(&code)?;
        file.as_file().sync_all()?;
        file.persist(self.path(engine, digest)).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()?;
        self.prune(SystemTime::now())
    }

    /// Removes what hasn't been used for long.
    fn prune(&self, now: SystemTime) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let used = entry.metadata()?.modified()?;
            if now.duration_since(used).is_ok_and(|age| age > UNUSED) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The name holds all that the code depends on: the component, and wasmtime's version, settings and processor.
    fn path(&self, engine: &wasmtime::Engine, digest: &Digest) -> PathBuf {
        let mut hash = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hash);
        let engine = Digest::from_bytes(hash.0.finalize().into());
        self.folder.join(format!("{}-{}.cwasm", digest.hex(), engine.short()))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it could have been written by others"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[expect(
    unsafe_code,
    reason = "the one place where native code comes from a file; see the module's first paragraph"
)]
fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes were written by this program's `store`: the folder and the file belong to this user and nobody
    // else may write them, the sum shows that they are whole, and wasmtime checks that version and settings are ours.
    unsafe { Component::deserialize(engine, code) }
}

/// Lets the engine's compatibility hash flow into SHA-256, whose result is stable over processes and versions of std.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // the whole sum is taken instead
    }
}
