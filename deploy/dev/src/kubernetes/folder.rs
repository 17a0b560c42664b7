//! The folder of one stack, 120 MB with etcd's preallocated log. It goes away with its owner, and where an owner was
//! killed, the next stack that starts takes the folder away.

use std::{
    fs::{self, File},
    path::Path,
};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "pileus-kubernetes-";
/// Locked for as long as the owner lives: the operating system lets go of the lock, however the owner ends.
const LOCK: &str = "lock";

/// A temporary folder. Removed when dropped.
pub(super) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// A new folder among the system's temporary ones, after removing those that nobody owns any more.
    pub(super) fn new() -> Result<Self, Error> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> Result<Self, Error> {
        remove_abandoned(parent);
        let folder = TempDir::with_prefix_in(PREFIX, parent).map_err(Error::file(parent))?;
        // Locked before it has its name, so that nobody can find it unlocked.
        let [unnamed, named] = ["lock.new", LOCK].map(|name| folder.path().join(name));
        let lock = File::create(&unnamed).map_err(Error::file(&unnamed))?;
        lock.lock().map_err(Error::file(&unnamed))?;
        fs::rename(&unnamed, &named).map_err(Error::file(&named))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what killed owners have left. What can't be read or removed belongs to somebody else.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let lock = || File::open(entry.path().join(LOCK)).ok();
        if is_ours && lock().is_some_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_without_an_owner_are_taken_away() {
        let parent = TempDir::new().unwrap();
        let owned = Folder::new_in(parent.path()).unwrap();
        let Folder { folder, _lock: lock } = Folder::new_in(parent.path()).unwrap();
        let abandoned = folder.keep();
        let foreign = parent.path().join("pileus-kubernetes-notes");
        fs::create_dir(&foreign).unwrap();

        drop(lock);
        let _other = Folder::new_in(parent.path()).unwrap();
        assert!(owned.path().exists());
        assert!(foreign.exists());
        assert!(!abandoned.exists());
    }
}
