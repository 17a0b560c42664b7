//! Compiled code on disk, so that a restart and a change of leader don't wait for the compiler.
//!
//! A compiled component is native code that this process runs: a user who can change the file can do all that the host
//! may. So it is only read from a folder that no other user can write, and it is bound to the component and to the exact
//! engine that it was made for. Anything wrong with it counts as a miss: the component is compiled again.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pileus_loader::Digest;
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use crate::compiler::{deserialize, deserialize_file};

/// A folder of compiled code that belongs only to this process's user.
#[derive(Debug, Clone)]
pub struct CodeCache {
    folder: PathBuf,
}

/// What the cache has for a component.
pub(crate) enum CachedCode {
    /// Its code.
    Hit(Component),
    /// Nothing.
    Miss,
    /// A file that can't be trusted to be its code.
    Invalid,
}

/// Code that no start has loaded for this long is removed: it belongs to a former version, or a killed process left it.
const MAX_UNUSED_AGE: Duration = Duration::from_hours(30 * 24);

/// The suffix of a file with code.
const SUFFIX: &str = ".cwasm";

/// The suffix of a file that is being written, or whose writer was killed.
const UNFINISHED_SUFFIX: &str = ".cwasm.unfinished";

/// Every file ends with a SHA-256 checksum of this many bytes over its name and the code. It detects truncation and
/// corruption, and code that was written for another component or another engine. The code is first, so that wasmtime can map
/// the file.
const CHECKSUM_BYTES: usize = 32;

/// How much of a file is in memory while its checksum is computed.
const READ_BYTES: usize = 64 << 10;

impl CodeCache {
    /// Opens the folder. Creates it, accessible only to this user, where it doesn't exist.
    ///
    /// # Errors
    /// Where the folder can't be created, is a link or a file, belongs to another user, or is writable by others.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let metadata = fs::symlink_metadata(folder)?;
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
        if !metadata.is_dir() {
            return refuse("it is a link or a file, not a folder");
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return refuse("it belongs to another user");
        }
        if metadata.mode() & 0o022 != 0 {
            return refuse("others can write to it; `chmod 700` it");
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Loads the component with this digest as it was compiled for this engine earlier.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, digest: &Digest) -> CachedCode {
        let name = file_name(engine, digest);
        let path = self.folder.join(&name);
        let invalid = |error: &dyn std::fmt::Display| {
            tracing::warn!(path = %path.display(), %error, "compiled code can't be used; compiling again");
            CachedCode::Invalid
        };
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return CachedCode::Miss,
            Err(error) => return invalid(&error),
        };
        match is_intact(&file, &name) {
            Ok(true) => {}
            Ok(false) => return invalid(&"the file is damaged or belongs to another component"),
            Err(error) => return invalid(&error),
        }
        // A file system that is mounted with `noexec` maps no code.
        let copied = |_unmapped| deserialize(engine, &read(&file)?);
        let component = match deserialize_file(engine, &file).or_else(copied) {
            Ok(component) => component,
            Err(error) => return invalid(&error),
        };
        let now = SystemTime::now();
        if let Err(error) = file.set_modified(now) {
            tracing::debug!(path = %path.display(), %error, "last use of compiled code not recorded");
        }
        CachedCode::Hit(component)
    }

    /// Stores a component's code. A reader sees the whole file or no file, even after a crash.
    pub(crate) fn store(&self, engine: &wasmtime::Engine, digest: &Digest, code: &[u8]) -> io::Result<()> {
        let name = file_name(engine, digest);
        let mut file = tempfile::Builder::new().suffix(UNFINISHED_SUFFIX).tempfile_in(&self.folder)?;
        file.write_all(code)?;
        file.write_all(&checksum(&name, code)?)?;
        file.as_file().sync_all()?;
        file.persist(self.folder.join(name)).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()?;
        self.prune(SystemTime::now());
        Ok(())
    }

    /// Removes files of this cache that were last used long ago. A file that can't be removed does no harm, and another
    /// process may have removed it already.
    fn prune(&self, now: SystemTime) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().map_while(Result::ok) {
            let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            if is_ours(&entry.file_name()) && now.duration_since(used).is_ok_and(|age| age > MAX_UNUSED_AGE) {
                let path = entry.path();
                if let Err(error) = fs::remove_file(&path) {
                    tracing::debug!(path = %path.display(), %error, "unused compiled code not removed");
                }
            }
        }
    }
}

/// Whether this cache gives a file such a name. The operator chooses the folder, and it may hold other files.
fn is_ours(name: &OsStr) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(name) = name.to_str() else { return false };
    let code = name.strip_suffix(SUFFIX).and_then(|stem| stem.split_once('-'));
    name.ends_with(UNFINISHED_SUFFIX)
        || code.is_some_and(|(digest, engine)| digest.len() == 64 && is_hex(digest) && is_hex(engine))
}

/// The name holds all that the code depends on: the component, and wasmtime's version, settings and processor.
fn file_name(engine: &wasmtime::Engine, digest: &Digest) -> String {
    let mut hash = Sha256Hasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hash);
    let engine = Digest::from(<[u8; 32]>::from(hash.0.finalize()));
    format!("{}-{}{SUFFIX}", digest.hex(), engine.short())
}

/// The checksum over a file's name and its code.
fn checksum(name: &str, code: impl io::Read) -> io::Result<[u8; CHECKSUM_BYTES]> {
    let mut hash = Sha256::new().chain_update(name);
    let mut code = BufReader::with_capacity(READ_BYTES, code);
    loop {
        let bytes = code.fill_buf()?;
        if bytes.is_empty() {
            return Ok(hash.finalize().into());
        }
        hash.update(bytes);
        let read = bytes.len();
        code.consume(read);
    }
}

/// Opens a file that only this user can write.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file is writable by others or belongs to another user",
        ));
    }
    Ok(file)
}

/// Reads all of a file.
fn read(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file ends with the checksum of this name and its code.
fn is_intact(mut file: &File, name: &str) -> io::Result<bool> {
    let Some(bytes) = file.metadata()?.len().checked_sub(CHECKSUM_BYTES as u64) else { return Ok(false) };
    let actual = checksum(name, file.take(bytes))?;
    let mut expected = [0; CHECKSUM_BYTES];
    file.read_exact(&mut expected)?;
    Ok(actual == expected)
}

/// Feeds the engine's compatibility hash to SHA-256, whose result is the same in every process and with every version of
/// the standard library.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // the whole digest is used instead
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::ModuleVersionStrategy;

    use super::*;
    use crate::config::config;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn code_for_other_settings_or_another_version_is_a_miss_and_under_the_right_name_invalid() {
        let engine = wasmtime::Engine::new(&config()).unwrap();
        let mut fuelled = config();
        fuelled.consume_fuel(true);
        let mut newer = config();
        newer.module_version(ModuleVersionStrategy::Custom("48.0.9".to_owned())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("compiled");
        let cache = CodeCache::open(&folder).unwrap();
        let digest = Digest::of(EMPTY);
        for other in [fuelled, newer] {
            let other = wasmtime::Engine::new(&other).unwrap();
            let code = other.precompile_component(EMPTY).unwrap();
            cache.store(&other, &digest, &code).unwrap();
            assert!(matches!(cache.load(&other, &digest), CachedCode::Hit(_)));
            assert!(matches!(cache.load(&engine, &digest), CachedCode::Miss));

            // The checksum is right, so wasmtime has to detect it.
            let ours = folder.join(file_name(&engine, &digest));
            let whole = [&code, &checksum(&file_name(&engine, &digest), &code[..]).unwrap()[..]].concat();
            fs::write(&ours, whole).unwrap();
            assert!(matches!(cache.load(&engine, &digest), CachedCode::Invalid));
            fs::remove_file(ours).unwrap();
        }
    }
}
