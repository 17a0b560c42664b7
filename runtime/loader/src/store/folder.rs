//! Files that appear whole or not at all, in a folder that belongs only to this user. A component in the store becomes code
//! that this process runs, so the rules are those of compiled code: no links, no other owner, no other user who may write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::store::crash_point;

/// Creates a folder that only this user can access, and checks one that exists.
pub(super) fn open(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        // On a read-only volume, a folder that exists can be read.
        Err(error) if !folder.exists() => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() {
        return Err(refused("it is a link or a file, not a folder"));
    }
    check_owner(&metadata)
}

fn check_owner(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refused("others can write to it; `chmod go-w` it"));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

/// Options that never follow a link in the last part of a path.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .mode(0o600)
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// Reads a file of at most `limit` bytes. `None` if the file doesn't exist.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file"));
    }
    check_owner(&metadata)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(limit)).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(io::Error::other(format!("it has more than {limit} bytes")))
    } else {
        Ok(Some(bytes))
    }
}

/// Writes a file by way of `unfinished`, a folder on the same volume.
pub(super) fn write(unfinished: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().suffix(".new").tempfile_in(unfinished)?;
    crash_point();
    file.write_all(bytes)?;
    crash_point();
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    crash_point();
    sync_parent(path)
}

/// Gives a finished file its name.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    crash_point();
    sync_parent(to)
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    crash_point();
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
