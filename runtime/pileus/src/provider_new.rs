//! `pileus provider new`: writes a provider in Rust that builds and passes its tests as it is. `template` has its files. They
//! are written to a temporary folder beside the wanted one, which is renamed once it is complete: a failure leaves no
//! incomplete crate, and nothing is overwritten.

mod template;

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use crate::cli;
use crate::error::Error;
use template::TemplateFile;

/// Writes a provider, and prints what to do next.
///
/// # Errors
/// [`Error::Flag`] for a folder that exists or an SDK that isn't there, [`Error::ProviderNotWritten`] if the files can't be
/// written.
pub(crate) fn run(arguments: cli::ProviderNew) -> Result<(), Error> {
    let cli::ProviderNew { name, load_balancers, folder, sdk } = arguments;
    let folder = folder.unwrap_or_else(|| PathBuf::from(&name));
    let refused = |problem: &str| flag("folder", &folder, problem);
    let not_written = |source: io::Error| Error::ProviderNotWritten { folder: folder.clone(), source };
    let Some(last) = folder.file_name() else {
        return Err(refused("expected the path of a new folder, as in ../my-cloud"));
    };
    // The parent of a path with one component is the empty path.
    let parent = Path::new(".").join(folder.parent().unwrap_or(Path::new("")));
    let parent = parent.canonicalize().map_err(not_written)?;
    let sdk = sdk_in(&sdk, &parent)?;
    let files = template::files(&name, load_balancers, &sdk);
    write(&parent, Path::new(last), &files).map_err(|source| match source.kind() {
        ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            refused("it exists and is not an empty folder; choose another one")
        }
        _ => not_written(source),
    })?;
    // A reader that closes the pipe early isn't an error.
    let _closed = io::stdout().write_all(next_steps(&name, &folder).as_bytes());
    Ok(())
}

fn flag(flag: &'static str, folder: &Path, problem: &str) -> Error {
    Error::Flag { flag, value: folder.display().to_string(), problem: problem.to_owned() }
}

/// The path of the SDK in a folder, for a crate that `parent` will hold.
fn sdk_in(folder: &Path, parent: &Path) -> Result<PathBuf, Error> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    if !manifest.lines().any(|line| line == "name = \"pileus-guest\"") {
        let problem =
            "it has no Cargo.toml of pileus-guest; name the folder guest-sdk of a checkout of Pileus";
        return Err(flag("sdk", folder, problem));
    }
    let absolute = folder.canonicalize().map_err(|error| flag("sdk", folder, &error.to_string()))?;
    Ok(relative(parent, &absolute))
}

/// The path that leads from one folder to another. Both paths are absolute and without `..`.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

/// Writes files to a folder of this name, which is new or empty.
fn write(parent: &Path, name: &Path, files: &[TemplateFile]) -> io::Result<()> {
    // All permissions, less those that the user's umask takes from any new folder.
    let permissions = Permissions::from_mode(0o777);
    let draft =
        tempfile::Builder::new().prefix(".pileus-provider-").permissions(permissions).tempdir_in(parent)?;
    for TemplateFile { path, content } in files {
        let path = draft.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, content)?;
    }
    fs::rename(draft.path(), parent.join(name))?;
    // It is no longer there to be removed.
    let _renamed = draft.keep();
    Ok(())
}

fn next_steps(name: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Wrote the provider {name} to {folder}\n\nNext:\n  cd {folder}\n  cargo build --release --target wasm32-wasip2\n  \
         cargo test\n\nREADME.md there says how to test it against the contract and how to push it.\n"
    )
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::document::CloudProvider;
    use crate::secrets::Secrets;

    fn arguments(folder: &Path) -> cli::ProviderNew {
        let folder = Some(folder.to_owned());
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk");
        cli::ProviderNew { name: "tiny-sky".to_owned(), load_balancers: true, folder, sdk }
    }

    fn entries(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_provider_is_written_to_a_new_or_an_empty_folder() {
        let parent = TempDir::new().unwrap();
        fs::create_dir(parent.path().join("empty")).unwrap();
        fs::create_dir(parent.path().join("plain")).unwrap();
        for name in ["new", "empty"] {
            let folder = parent.path().join(name);
            run(arguments(&folder)).unwrap();
            let expected = [".gitignore", "Cargo.toml", "README.md", "provider.yaml", "src"];
            assert_eq!(entries(&folder), expected);
            assert_eq!(entries(&folder.join("src")), ["lib.rs", "load_balancer.rs"]);
            let mode = |folder: &str| fs::metadata(parent.path().join(folder)).unwrap().permissions().mode();
            assert_eq!(mode(name), mode("plain"), "as for any new folder");
        }
        assert_eq!(entries(parent.path()), ["empty", "new", "plain"]);
    }

    #[test]
    fn its_document_is_valid() {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("tiny-sky");
        run(arguments(&folder)).unwrap();
        let document = CloudProvider::read(&folder.join("provider.yaml"), &Secrets::default()).unwrap();
        assert_eq!(document.name, "tiny-sky");
    }

    #[test]
    fn what_exists_is_never_overwritten() {
        let parent = TempDir::new().unwrap();
        let path = |name: &str| parent.path().join(name);
        fs::create_dir(path("folder")).unwrap();
        fs::write(path("folder/mine"), "mine").unwrap();
        fs::write(path("file"), "mine").unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("link")).unwrap();
        for name in ["folder", "file", "link"] {
            let error = run(arguments(&path(name))).unwrap_err().to_string();
            assert!(error.contains("--folder") && error.contains("choose another"), "{name}: {error}");
        }
        assert_eq!(entries(parent.path()), ["file", "folder", "link"]);
        assert_eq!(entries(&path("folder")), ["mine"]);
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "mine");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let parent = TempDir::new().unwrap();
        let file = |path| TemplateFile { path, content: String::new() };
        let result = write(parent.path(), Path::new("new"), &[file("a"), file("a/b")]);
        assert!(result.is_err());
        assert!(entries(parent.path()).is_empty(), "{:?}", entries(parent.path()));
        let error = run(arguments(&parent.path().join("missing/new"))).unwrap_err();
        assert!(matches!(error, Error::ProviderNotWritten { .. }), "{error}");
        assert!(entries(parent.path()).is_empty());
    }

    #[test]
    fn the_folder_has_a_name() {
        for folder in [".", "..", "/", ""] {
            let error = run(arguments(Path::new(folder))).unwrap_err().to_string();
            assert!(error.contains("path of a new folder"), "{folder}: {error}");
        }
    }

    #[test]
    fn the_sdk_is_named_by_a_relative_path() {
        let rows = [
            ("/home/a/new", "/home/a/pileus/guest-sdk", "../pileus/guest-sdk"),
            ("/home/a", "/home/a/pileus/guest-sdk", "pileus/guest-sdk"),
            ("/tmp", "/home/a/pileus/guest-sdk", "../home/a/pileus/guest-sdk"),
            ("/home/ab", "/home/a", "../a"),
            ("/home/a/b/c", "/home/a", "../.."),
        ];
        for (from, to, expected) in rows {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(expected), "{from} {to}");
        }
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sdk = sdk_in(&checkout.join("guest-sdk"), &checkout.canonicalize().unwrap()).unwrap();
        assert_eq!(sdk, Path::new("guest-sdk"));
        for wrong in [checkout.clone(), checkout.join("nowhere")] {
            let error = sdk_in(&wrong, &checkout).unwrap_err().to_string();
            assert!(error.contains("--sdk") && error.contains("guest-sdk of a checkout"), "{error}");
        }
    }
}
