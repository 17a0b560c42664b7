//! Compiled code on disk: native code that is only loaded from where no other user can have written it (attack row 20).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pileus_host::{CodeCache, CodeOrigin, Compiler, Component, Engine, Limits, Metrics};
use pileus_loader::Verified;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::fixture::{configured, gate, guest};

/// Loads the hostile provider with the cache in this folder. Returns whether its code came from there.
async fn is_cached(folder: &Path) -> bool {
    let engine = Engine::start(Some(CodeCache::open(folder).unwrap()), Compiler::InProcess).unwrap();
    let component =
        Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test")).await.unwrap();
    matches!(component.code_origin, CodeOrigin::Cached(_))
}

fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("one file is expected: {files:?}") };
    file.clone()
}

#[tokio::test]
async fn row_20_code_is_compiled_once_and_damaged_or_untrusted_code_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("compiled");
    assert!(!is_cached(&folder).await, "the first start compiles");
    assert!(is_cached(&folder).await, "the second doesn't");
    let file = only_file(&folder);
    let whole = fs::read(&file).unwrap();

    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let half = whole.get(..whole.len() / 2).unwrap().to_vec();
    for damaged in [flipped, half, Vec::new(), b"short".to_vec()] {
        fs::write(&file, damaged).unwrap();
        assert!(!is_cached(&folder).await);
        assert_eq!(fs::read(&file).unwrap().len(), whole.len(), "it is written again");
    }

    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!is_cached(&folder).await, "others could have written it");

    let elsewhere = folder.with_file_name("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(!is_cached(&folder).await, "a link is not followed");
    assert!(!fs::symlink_metadata(&file).unwrap().is_symlink(), "it is replaced");
}

#[tokio::test]
async fn the_code_of_one_component_is_not_used_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = CodeCache::open(&folder.path().join("compiled")).unwrap();
    let load = async || {
        let engine = Engine::start(Some(compiled.clone()), Compiler::InProcess).unwrap();
        let mut is_cached = Vec::new();
        for name in ["hostile_provider", "simulated_provider"] {
            let component =
                Component::load(&engine, Verified::from_operator(guest(name), "test")).await.unwrap();
            is_cached.push(matches!(component.code_origin, CodeOrigin::Cached(_)));
        }
        is_cached
    };
    assert_eq!(load().await, [false, false]);
    assert_eq!(load().await, [true, true]);
    let files = fs::read_dir(folder.path().join("compiled")).unwrap().map(|entry| entry.unwrap().path());
    let [one, other] = files.collect::<Vec<_>>().try_into().unwrap();
    let aside = folder.path().join("aside");
    for (from, to) in [(&one, &aside), (&other, &one), (&aside, &other)] {
        fs::rename(from, to).unwrap();
    }
    assert_eq!(load().await, [false, false], "both files are whole, but belong to the other component");
    assert_eq!(load().await, [true, true]);
}

#[tokio::test]
async fn code_is_mapped_from_its_file_and_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("compiled");
    for is_cached in [false, true] {
        let engine = Engine::start(Some(CodeCache::open(&folder).unwrap()), Compiler::InProcess).unwrap();
        let verified = Verified::from_operator(guest("hostile_provider"), "test");
        let component = Component::load(&engine, verified).await.unwrap();
        assert_eq!(matches!(component.code_origin, CodeOrigin::Cached(_)), is_cached);
        let file = only_file(&folder);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_code = |line: &&str| line.ends_with(file.to_str().unwrap()) && line.contains(" r-xp ");
        assert_eq!(maps.lines().filter(is_code).count(), 1, "{} in {maps}", file.display());

        let aside = folder.with_file_name("aside");
        fs::rename(&file, &aside).unwrap();
        fs::copy(&aside, &file).unwrap();
        fs::remove_file(&aside).unwrap();
        component.describe(&Limits::default(), &Metrics::register(&mut Registry::default())).await.unwrap();
    }
}

#[tokio::test]
async fn row_20_cache_results_are_counted_and_an_unfinished_file_does_no_harm() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("compiled");
    CodeCache::open(&folder).unwrap();
    fs::write(folder.join(".tmpA1b2C3.cwasm.unfinished"), "half of some co").unwrap();
    let start = async || {
        let compiled = CodeCache::open(&folder).unwrap();
        let engine = Engine::start(Some(compiled), Compiler::InProcess).unwrap();
        configured(&engine, "{}", gate(Vec::new()), Limits::default(), &metrics).await;
    };
    start().await;
    start().await;
    start().await;
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")) {
        fs::write(file, "damaged").unwrap();
    }
    start().await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (result, times) in [("hit", 2), ("miss", 1), ("invalid", 1)] {
        let line = format!(r#"compiled_code_total{{provider="hostile",result="{result}"}} {times}"#);
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn unused_code_is_removed_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("compiled");
    let long_ago = SystemTime::now() - Duration::from_hours(31 * 24);
    let age = |path: &Path| fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
    CodeCache::open(&folder).unwrap();
    let (former, digest) = ("0".repeat(64), "f".repeat(64));
    let ours = [format!("{former}-0123456789ab.cwasm"), ".tmpA1b2C3.cwasm.unfinished".to_owned()];
    // The operator may have chosen a folder that holds other files.
    let theirs = ["thesis.odt", ".bashrc", "other.cwasm", "a-b.cwasm", ".tmpA1b2C3"];
    for name in ours.iter().map(String::as_str).chain(theirs) {
        fs::write(folder.join(name), "").unwrap();
        age(&folder.join(name));
    }
    fs::create_dir(folder.join("folder")).unwrap();
    age(&folder.join("folder"));
    let recent = folder.join(format!("{digest}-0123456789ab.cwasm"));
    fs::write(&recent, "").unwrap();
    assert!(!is_cached(&folder).await);
    assert!(recent.exists());
    assert!(ours.iter().all(|name| !folder.join(name).exists()));
    for name in theirs.into_iter().chain(["folder"]) {
        assert!(folder.join(name).exists(), "{name} is gone");
        let _removed = fs::remove_file(folder.join(name));
    }

    fs::remove_dir(folder.join("folder")).unwrap();
    fs::remove_file(recent).unwrap();
    let file = only_file(&folder);
    age(&file);
    assert!(is_cached(&folder).await);
    let age = SystemTime::now().duration_since(fs::metadata(&file).unwrap().modified().unwrap());
    assert!(age.unwrap() < Duration::from_hours(1), "its use updates its age");
}

#[tokio::test]
async fn a_folder_that_others_can_write_or_a_link_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let open = parent.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(CodeCache::open(&open).unwrap_err().to_string().contains("chmod 700"));
    let link = parent.path().join("link");
    symlink(parent.path(), &link).unwrap();
    assert!(CodeCache::open(&link).is_err());
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(CodeCache::open(&file).is_err());
}
