//! Compiled code on disk, so that a restart and a take-over don't wait for the compiler.
//!
//! A compiled component is native code that the process will run: whoever can change the file can do all that the host
//! may. So it is only ever read from a folder that nobody else can write, it is bound to the component and to the exact
//! engine that it was made for, and whatever is not as it should be is a miss: it is compiled again.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use crate::digest::Digest;
use crate::native::deserialize;

/// A folder of compiled code that belongs to this process's user alone.
#[derive(Debug, Clone)]
pub struct CompiledCode {
    folder: PathBuf,
}

/// What the folder has of a component.
pub(crate) enum Found {
    /// Its code.
    Hit(Component),
    /// Nothing.
    Miss,
    /// Something that can't be trusted to be its code.
    Invalid,
}

/// Code that no start has asked for in this time goes: it is a former version's, or what a killed process left behind.
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// How the name of a file with code ends.
const FINISHED: &str = ".cwasm";

/// How the name of one ends that is being written, or whose writer was killed.
const UNFINISHED: &str = ".cwasm.unfinished";

/// Every file begins with this many bytes of SHA-256 over its name and what follows. That shows truncation and decay, and
/// that it was written as the code of this component for this engine and not of another.
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

    /// The component with this digest as it was compiled for this engine earlier.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, digest: &Digest) -> Found {
        let name = name(engine, digest);
        let path = self.folder.join(&name);
        let invalid = |error: &dyn std::fmt::Display| {
            tracing::warn!(path = %path.display(), %error, "compiled code can't be used; compiling again");
            Found::Invalid
        };
        let stored = match read(&path) {
            Ok(stored) => stored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Miss,
            Err(error) => return invalid(&error),
        };
        let code = match stored.split_at_checked(SUM) {
            Some((found, code)) if found == sum(&name, code) => code,
            _ => return invalid(&"it is damaged, or another component's"),
        };
        let component = match deserialize(engine, code) {
            Ok(component) => component,
            Err(error) => return invalid(&error),
        };
        let now = SystemTime::now();
        if let Err(error) = File::open(&path).and_then(|file| file.set_modified(now)) {
            tracing::debug!(path = %path.display(), %error, "use of compiled code not noted");
        }
        Found::Hit(component)
    }

    /// Keeps a component's code. A reader sees the whole file or none, also after a crash.
    pub(crate) fn store(&self, engine: &wasmtime::Engine, digest: &Digest, code: &[u8]) -> io::Result<()> {
        let name = name(engine, digest);
        let mut file = tempfile::Builder::new().suffix(UNFINISHED).tempfile_in(&self.folder)?;
        file.write_all(&sum(&name, code))?;
        file.write_all(code)?;
        file.as_file().sync_all()?;
        file.persist(self.folder.join(name)).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()?;
        self.prune(SystemTime::now());
        Ok(())
    }

    /// Removes of our files what hasn't been used for long. What can't be removed does no harm, and another process may
    /// have been quicker.
    fn prune(&self, now: SystemTime) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().map_while(Result::ok) {
            let Ok(used) = entry.metadata().and_then(|found| found.modified()) else { continue };
            if is_ours(&entry.file_name()) && now.duration_since(used).is_ok_and(|age| age > UNUSED) {
                let path = entry.path();
                if let Err(error) = fs::remove_file(&path) {
                    tracing::debug!(path = %path.display(), %error, "unused compiled code not removed");
                }
            }
        }
    }
}

/// Whether a file's name is one that we give. The folder is the operator's choice, and may hold anything else.
fn is_ours(name: &OsStr) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(name) = name.to_str() else { return false };
    let code = name.strip_suffix(FINISHED).and_then(|stem| stem.split_once('-'));
    name.ends_with(UNFINISHED)
        || code.is_some_and(|(digest, engine)| digest.len() == 64 && is_hex(digest) && is_hex(engine))
}

/// The name holds all that the code depends on: the component, and wasmtime's version, settings and processor.
fn name(engine: &wasmtime::Engine, digest: &Digest) -> String {
    let mut hash = Sha256Hasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hash);
    let engine = Digest::from_bytes(hash.0.finalize().into());
    format!("{}-{}{FINISHED}", digest.hex(), engine.short())
}

fn sum(name: &str, code: &[u8]) -> [u8; SUM] {
    Sha256::new().chain_update(name).chain_update(code).finalize().into()
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

#[cfg(test)]
mod tests {
    use wasmtime::ModuleVersionStrategy;

    use super::*;
    use crate::engine::config;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn code_for_other_settings_or_by_another_version_is_a_miss_and_under_our_name_it_is_invalid() {
        let engine = wasmtime::Engine::new(&config()).unwrap();
        let mut fuelled = config();
        fuelled.consume_fuel(true);
        let mut newer = config();
        newer.module_version(ModuleVersionStrategy::Custom("48.0.9".to_owned())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("compiled");
        let compiled = CompiledCode::open(&folder).unwrap();
        let digest = Digest::of(EMPTY);
        for other in [fuelled, newer] {
            let other = wasmtime::Engine::new(&other).unwrap();
            let code = other.precompile_component(EMPTY).unwrap();
            compiled.store(&other, &digest, &code).unwrap();
            assert!(matches!(compiled.load(&other, &digest), Found::Hit(_)));
            assert!(matches!(compiled.load(&engine, &digest), Found::Miss));

            // The sum fits, so that it is wasmtime that has to notice.
            let ours = folder.join(name(&engine, &digest));
            let whole = [&sum(&name(&engine, &digest), &code)[..], &code].concat();
            fs::write(&ours, whole).unwrap();
            assert!(matches!(compiled.load(&engine, &digest), Found::Invalid));
            fs::remove_file(ours).unwrap();
        }
    }
}
