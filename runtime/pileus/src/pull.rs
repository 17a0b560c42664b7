//! `pileus pull`: fetches a component, verifies it, and writes it to a file.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pileus_loader::Repository;
use serde_json::json;

use crate::error::Error;
use crate::sources::{Artifact, trust_json, trust_text};
use crate::{cli, terminal};

/// Writes a component and prints its pinned reference.
///
/// # Errors
/// [`Error::Source`], [`Error::Output`].
pub(crate) async fn run(arguments: cli::Pull) -> Result<(), Error> {
    let cli::Pull { reference, output, flags } = arguments;
    let cli::ComponentFlags { json, source, store } = flags;
    let artifact = Artifact::new(reference.parse()?, &source)?;
    let output = output.unwrap_or_else(|| file_name(&artifact.reference.repository));
    let verified = artifact.fetch(store).await?;
    write(&output, verified.bytes()).map_err(|source| Error::Output { path: output.clone(), source })?;
    let pinned = artifact.pinned(verified.digest());
    let text = if json {
        terminal::json(&json!({
            "reference": pinned,
            "digest": verified.digest().to_string(),
            "trust": trust_json(verified.trust()),
            "file": output.display().to_string(),
            "sizeBytes": verified.bytes().len(),
        }))
    } else {
        format!("{pinned}\n{}: {}\n", output.display(), trust_text(verified.trust()))
    };
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// The file in the current folder for a component of this repository.
fn file_name(repository: &Repository) -> PathBuf {
    let last = repository.name.rsplit('/').next().unwrap_or_default();
    format!("{last}.wasm").into()
}

/// Writes a file at once: a reader sees the one before or all of this one.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any program makes a file; the user's mask decides what of it stays.
    let permissions = Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().prefix(".pileus-").permissions(permissions).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("provider.wasm");
        std::fs::write(&path, "before").unwrap();
        write(&path, b"after").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"after");
        // A folder can't be replaced by a file, and nothing is left beside it.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        assert!(write(&taken, b"after").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_file_is_named_like_the_repository() {
        for (name, expected) in [("provider", "provider.wasm"), ("example/a.b/hetzner", "hetzner.wasm")] {
            let repository = Repository { registry: "r.example".to_owned(), name: name.to_owned() };
            assert_eq!(file_name(&repository), Path::new(expected));
        }
    }
}
