//! The folder of one stack: 120 MB, with etcd's preallocated log. Its owner removes it. If the owner was killed, the next
//! stack that starts removes it.

use std::{
    fs::{self, File},
    path::Path,
};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "pileus-kubernetes-";
/// The file that is locked for as long as the owner lives. The operating system releases the lock when the owner ends.
const LOCK: &str = "lock";

/// A temporary folder. Removed when dropped.
pub(super) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Creates a folder in the system's temporary folder, and removes those whose owner has ended.
    pub(super) fn new() -> Result<Self, Error> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> Result<Self, Error> {
        remove_abandoned(parent);
        let folder = TempDir::with_prefix_in(PREFIX, parent).map_err(Error::file(parent))?;
        // Locked before it is renamed, so that no other process can find it unlocked.
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

/// Removes the folders of owners that were killed. Folders that can't be read or removed belong to another user.
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
    fn only_folders_without_an_owner_are_removed() {
        let parent = TempDir::new().unwrap();
        let owned = Folder::new_in(parent.path()).unwrap();
        let Folder { folder, _lock: lock } = Folder::new_in(parent.path()).unwrap();
        let abandoned = folder.keep();
        let foreign = parent.path().join("pileus-kubernetes-notes");
        fs::create_dir(&foreign).unwrap();

        // Closing the file isn't enough: a process that another test starts right now still has it open.
        lock.unlock().unwrap();
        let _other = Folder::new_in(parent.path()).unwrap();
        assert!(owned.path().exists());
        assert!(foreign.exists());
        assert!(!abandoned.exists());
    }
}
