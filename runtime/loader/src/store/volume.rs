//! The store on volumes that refuse: a full one, and one that is mounted read-only. Both are real: a small file system in
//! memory, in a mount namespace of a child process.

use std::process::Command;

use super::tests::{component, manifest, repository, store};
use super::*;

/// The folder of the child.
const FOLDER: &str = "PILEUS_LOADER_VOLUME_FOLDER";

/// Only a child of the test below does something here.
#[tokio::test]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let root = Path::new(&folder).join("store");
    let here = store(&root);
    let (digest, artifact, layer) = manifest("one");
    let mut download = here.download(layer).unwrap();
    download.write(&component("one"), "").await.unwrap();
    download.finish("").await.unwrap();
    here.put_artifact(&artifact, digest).unwrap();

    // Full.
    fs::write(Path::new(&folder).join("other"), vec![0; 1 << 20]).unwrap_err();
    let (.., next) = manifest("two");
    let failed = match here.download(next) {
        Ok(mut download) => {
            let written = download.write(&component("two"), "").await;
            match written {
                Ok(()) => download.finish("").await.unwrap_err(),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    assert!(failed.to_string().contains("free space on the volume"), "{failed}");
    assert_eq!(failed.retry(), crate::error::Retry::Later(None));
    assert_eq!(here.component(layer), Some(component("one")), "what is there still loads");
    assert!(here.component(next).is_none());

    // Read-only, also after a restart.
    let status = Command::new("mount").args(["-o", "remount,ro", &folder]).status().unwrap();
    assert!(status.success());
    let here = Store::open(&root, 2000).unwrap();
    assert!(here.artifact(&repository(), digest).is_some());
    assert_eq!(here.component(layer), Some(component("one")));
    let failed = here.put_resolved(&"r.example/p:1".parse().unwrap(), digest).unwrap_err();
    assert!(failed.to_string().contains("mount it writable"), "{failed}");
    let failed = here.download(next).err().unwrap();
    assert!(failed.to_string().contains("mount it writable"), "{failed}");
    println!("all of it was tried");
}

#[test]
fn a_full_and_a_read_only_volume_are_named_and_what_is_there_still_loads() {
    let folder = tempfile::tempdir().unwrap();
    let test = r#"mount -t tmpfs -o size=64k,mode=700 none "$0" && exec "$@""#;
    let child = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", test])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "store::volume::child", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(output.contains("all of it was tried"), "needs user namespaces with mounts: {output}{errors}");
}
