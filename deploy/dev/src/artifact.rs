//! The paths of the programs and components that cargo has built in this workspace.
//!
//! Cargo tells a test the paths of its own package's programs only. The others are in the same target folder.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::Error;

/// The path of a program, built with the profile of the running one.
pub fn program(name: &str) -> Result<PathBuf, Error> {
    let profile = profile_folder()?;
    existing(profile.join(name), format!("cargo build -p {name}"))
}

/// The path of the component that a package builds.
pub fn component(package: &str) -> Result<PathBuf, Error> {
    let profile = profile_folder()?;
    let target = profile.parent().unwrap_or(&profile);
    existing(
        target.join("wasm32-wasip2/guest").join(package.replace('-', "_")).with_extension("wasm"),
        format!("cargo build --target wasm32-wasip2 --profile guest -p {package}"),
    )
}

/// The bytes of the component that a package builds, as another build of the same code would have them: with a mark, of at most
/// 100 bytes, that makes the digest another one.
pub fn rebuilt(package: &str, mark: &str) -> Result<Vec<u8>, Error> {
    let path = component(package)?;
    let mut bytes = fs::read(&path).map_err(Error::file(&path))?;
    let length = u8::try_from(mark.len()).ok().filter(|length| *length <= 100);
    let too_long = || Error::file(&path)(io::Error::other("a mark has at most 100 bytes"));
    let length = length.ok_or_else(too_long)?;
    // A custom section: its number, the length of what follows, the length of its name, the name.
    bytes.extend([0, length + 1, length]);
    bytes.extend(mark.as_bytes());
    Ok(bytes)
}

/// `target/PROFILE`. Programs are in that folder itself, tests are in `deps` below it.
fn profile_folder() -> Result<PathBuf, Error> {
    let own = env::current_exe().map_err(Error::file("the running program"))?;
    let folder = own.parent().filter(|folder| !folder.ends_with("deps")).or(own.ancestors().nth(2));
    folder
        .map(Path::to_owned)
        .ok_or_else(|| Error::file(&own)(io::Error::other("not in a target folder of cargo")))
}

fn existing(path: PathBuf, command: String) -> Result<PathBuf, Error> {
    if path.is_file() { Ok(path) } else { Err(Error::ArtifactMissing { path, command }) }
}
