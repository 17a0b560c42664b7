//! The paths of the programs and components that cargo has built in this workspace.
//!
//! Cargo tells a test the paths of its own package's programs only. The others are in the same target folder.

use std::{
    env, io,
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
