//! Ends a process between two steps of the store, as kill -9 would, and looks at what is left.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use super::tests::{component, manifest, store};
use super::*;
use crate::trust::evidence::Evidence;

/// The folder of the child, and the number of the step at which it ends.
const FOLDER: &str = "PILEUS_LOADER_CRASH_FOLDER";
const STEP: &str = "PILEUS_LOADER_CRASH_STEP";

pub(super) fn crash_point() {
    static REACHED: AtomicU32 = AtomicU32::new(0);
    let Ok(step) = std::env::var(STEP) else { return };
    if REACHED.fetch_add(1, Ordering::SeqCst).to_string() == step {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

/// All that a process does with a store: fetch two versions, pin them, and evict the first for a third.
async fn work(root: &Path) {
    let store = store(root);
    for version in ["one", "two", "three"] {
        let (bytes, (digest, artifact, layer)) = (component(version), manifest(version));
        let mut download = store.download(layer).unwrap();
        // What a crash has left is continued.
        let rest = &bytes[usize::try_from(download.written()).unwrap()..];
        let (first, second) = rest.split_at(rest.len() / 2);
        download.write(first, version).await.unwrap();
        crash_point();
        download.write(second, version).await.unwrap();
        download.finish(version).await.unwrap();
        store.put_artifact(&artifact, digest).unwrap();
        crash_point();
        store.put_resolved(&"r.example/p:1".parse().unwrap(), digest).unwrap();
        store.pin("provider", &[digest]).unwrap();
    }
}

/// Only a child of the test below does something here.
#[tokio::test]
async fn child() {
    if let Ok(folder) = std::env::var(FOLDER) {
        work(Path::new(&folder)).await;
    }
}

/// What holds after any crash.
fn check(root: &Path, step: u32) {
    let store = store(root);
    let versions = ["one", "two", "three"].map(manifest);
    for entry in fs::read_dir(root.join("components")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(
            digest_in_name(&path),
            Some(Digest::of(&bytes)),
            "step {step}: a part of a component is visible"
        );
    }
    let repository = versions[0].1.repository.clone();
    for entry in fs::read_dir(root.join("artifacts")).unwrap() {
        let path = entry.unwrap().path();
        let found: StoredArtifact = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let layer = found.layer(digest_in_name(&path).unwrap()).unwrap();
        assert!(store.component(layer).is_some(), "step {step}: an artifact lacks its component");
        assert_eq!((&found.repository, found.evidence.len()), (&repository, 1), "step {step}");
        assert!(matches!(&found.evidence[0], Evidence::Bundle { .. }));
    }
    if let Some(resolved) = store.resolved(&"r.example/p:1".parse().unwrap()) {
        let (_, artifact, _) = versions.iter().find(|version| version.0 == resolved).unwrap();
        assert!(artifact.layer(resolved).is_ok(), "step {step}");
        let repository = Repository { registry: "r.example".into(), name: "p".into() };
        assert!(store.artifact(&repository, resolved).is_some(), "step {step}: a reference leads nowhere");
    }
    for (path, ..) in store.files("pins") {
        let pins: Pins = read_json(&path).unwrap();
        let repository = Repository { registry: "r.example".into(), name: "p".into() };
        assert!(
            store.artifact(&repository, pins.digests[0]).is_some(),
            "step {step}: a pinned artifact was evicted"
        );
    }
}

#[tokio::test]
async fn kill_9_between_any_two_steps_leaves_only_whole_files_and_the_next_start_goes_on() {
    let mut steps = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let child = || {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "store::crash::child"]).env(FOLDER, &root);
            child
        };
        let ended = child().env(STEP, steps.to_string()).output().unwrap();
        check(&root, steps);
        let again = child().output().unwrap();
        assert!(again.status.success(), "step {steps}: {}", String::from_utf8_lossy(&again.stdout));
        check(&root, steps);
        let left: Vec<_> = store(&root).files("unfinished").map(|(path, ..)| path).collect();
        // A temporary file of a record may be left; it goes after a day. A component is continued and so leaves nothing.
        assert!(
            left.len() <= 1 && left.iter().all(|path| path.extension().is_some_and(|kind| kind == "new")),
            "{left:?}"
        );
        if ended.status.success() {
            break;
        }
        steps += 1;
    }
    assert!(steps > 30, "only {steps} steps were tried");
}
