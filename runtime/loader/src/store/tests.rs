use super::*;
use crate::trust::evidence::Evidence;

/// Room for two components of the tests, with their records.
pub(super) fn store(root: &Path) -> Store {
    Store::open(root, 2 * 1400).unwrap()
}

pub(super) fn component(version: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    bytes.extend(version.bytes().cycle().take(992));
    bytes
}

pub(super) fn manifest(version: &str) -> (Digest, StoredArtifact, ComponentLayer) {
    let digest = Digest::of(&component(version));
    let layer = ComponentLayer { digest, size: 1000 };
    let manifest = format!(
        r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/wasm","digest":"{digest}","size":1000}}]}}"#
    );
    let evidence = vec![Evidence::Bundle { text: "{}".to_owned() }];
    let digest = Digest::of(manifest.as_bytes());
    (digest, StoredArtifact { repository: "r.example/p".to_owned(), manifest, entry: None, evidence }, layer)
}

pub(super) fn repository() -> Repository {
    Repository { registry: "r.example".into(), name: "p".into() }
}

async fn put(store: &Store, version: &str) -> (Digest, ComponentLayer) {
    let (digest, artifact, layer) = manifest(version);
    let mut download = store.download(layer).unwrap();
    download.write(&component(version), version).await.unwrap();
    download.finish(version).await.unwrap();
    store.put_artifact(&artifact, digest).unwrap();
    (digest, layer)
}

#[tokio::test]
async fn what_was_cut_off_is_continued_and_hashed_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let (bytes, (.., layer)) = (component("one"), manifest("one"));
    let mut download = store.download(layer).unwrap();
    download.write(&bytes[..300], "").await.unwrap();
    download.keep().await;
    assert!(store.component(layer).is_none());
    let mut download = store.download(layer).unwrap();
    assert_eq!(download.written(), 300);
    download.write(&bytes[300..], "").await.unwrap();
    download.finish("").await.unwrap();
    assert_eq!(store.component(layer).unwrap(), bytes);

    // What is left of it may be wrong: it is noticed at the end, and not continued once more.
    let (bytes, (.., layer)) = (component("two"), manifest("two"));
    fs::write(store.root.join("unfinished").join(format!("{}.part", layer.digest.hex())), b"\0asm tampered")
        .unwrap();
    let mut download = store.download(layer).unwrap();
    let rest = usize::try_from(download.written()).unwrap();
    download.write(&bytes[rest..], "").await.unwrap();
    assert!(matches!(download.finish("layer of p:2").await, Err(Error::Corrupt { .. })));
    let mut download = store.download(layer).unwrap();
    assert_eq!(download.written(), 0);
    download.write(&bytes, "").await.unwrap();
    download.finish("").await.unwrap();
    assert!(store.component(layer).is_some());
}

#[tokio::test]
async fn more_than_announced_and_other_bytes_than_wasm_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let (.., layer) = manifest("one");
    let mut download = store.download(layer).unwrap();
    download.write(&component("one"), "").await.unwrap();
    assert!(matches!(download.write(b"x", "layer").await, Err(Error::TooLarge { limit: 1000, .. })));
    download.discard();
    // What has another digest says nothing about the artifact: a proxy may have answered.
    let archive = b"\x1f\x8b\x08\0 compressed";
    let layer = ComponentLayer { digest: Digest::of(archive), size: archive.len() as u64 };
    for (bytes, is_verified) in [(&archive[..], true), (b"<html>try again", false), (b"", false)] {
        let mut download = store.download(layer).unwrap();
        for part in bytes.chunks(2) {
            download.write(part, "layer").await.unwrap();
        }
        let error = download.finish("layer").await.unwrap_err();
        assert_eq!(matches!(error, Error::NotComponent { .. }), is_verified, "{error}");
        assert_eq!(error.retry() == crate::error::Retry::Never, is_verified, "{error}");
    }
    assert_eq!(store.files("unfinished").count(), 0);
}

#[tokio::test]
async fn two_processes_that_write_the_same_component_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let (bytes, (.., layer)) = (component("one"), manifest("one"));
    let mut first = store.download(layer).unwrap();
    first.write(&bytes[..500], "").await.unwrap();
    let mut second = store.download(layer).unwrap();
    assert_eq!(second.written(), 0);
    second.write(&bytes, "").await.unwrap();
    second.finish("").await.unwrap();
    assert_eq!(store.component(layer).unwrap(), bytes);
    first.write(&bytes[500..], "").await.unwrap();
    first.finish("").await.unwrap();
    assert_eq!(store.component(layer).unwrap(), bytes);
    assert_eq!(store.files("unfinished").count(), 0);
}

#[tokio::test]
async fn what_runs_is_never_evicted_and_the_rest_by_its_last_use() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let store = store(&root);
    let (one, one_layer) = put(&store, "one").await;
    store.pin("provider", &[one]).unwrap();
    let (two, _) = put(&store, "two").await;
    let (three, _) = put(&store, "three").await;
    let has = |digest| store.artifact(&repository(), digest).is_some();
    assert!(has(one) && !has(two) && has(three), "the unpinned one made room");
    store.pin("other", &[three]).unwrap();
    let (four, four_layer) = put(&store, "four").await;
    assert!(has(one) && has(three) && has(four), "over the budget rather than without what runs");
    store.pin("provider", &[]).unwrap();
    put(&store, "five").await;
    assert!(!has(one) && has(three), "an owner that released its artifact");
    assert!(store.component(one_layer).is_none());
    assert!(
        !has(four) && store.component(four_layer).is_none(),
        "there is room for one beside the pinned one"
    );
}

#[tokio::test]
async fn records_of_one_component_stay_within_the_budget_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let (digest, layer) = put(&store, "one").await;
    for number in 0..20 {
        let (.., artifact, _) = manifest("one");
        let artifact = StoredArtifact { repository: format!("r.example/{number}"), ..artifact };
        store.put_artifact(&artifact, digest).unwrap();
        let size: u64 =
            ["components", "artifacts"].iter().flat_map(|it| store.files(it)).map(|(_, size, _)| size).sum();
        assert!(size <= store.budget, "{number}: {size}");
        let repository = Repository { registry: "r.example".into(), name: number.to_string() };
        assert!(
            store.artifact(&repository, digest).is_some() && store.component(layer).is_some(),
            "{number}"
        );
    }
}

#[tokio::test]
async fn tampered_truncated_linked_and_partial_files_are_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let store = store(&root);
    let (digest, layer) = put(&store, "one").await;
    let (component_path, artifact_path) =
        (store.component_path(layer.digest), store.artifact_path(&repository().to_string(), digest));
    let (bytes, record) = (fs::read(&component_path).unwrap(), fs::read(&artifact_path).unwrap());
    let mut swapped = bytes.clone();
    swapped[500] ^= 1;
    for wrong in [&swapped[..], &bytes[..999], &[], &[&bytes[..], b"x"].concat()] {
        fs::write(&component_path, wrong).unwrap();
        assert!(store.component(layer).is_none());
        assert!(!component_path.exists(), "what is damaged is removed");
    }
    // The right bytes in a file that others control.
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, &bytes).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &component_path).unwrap();
    assert!(store.component(layer).is_none());
    fs::write(&component_path, &bytes).unwrap();
    fs::set_permissions(&component_path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(store.component(layer).is_none());

    for wrong in [&record[..record.len() - 1], b"", b"{}", &record.replace(b"1000", b"1001")] {
        fs::write(&artifact_path, wrong).unwrap();
        assert!(store.artifact(&repository(), digest).is_none(), "{}", String::from_utf8_lossy(wrong));
    }
    fs::write(&artifact_path, &record).unwrap();
    assert!(store.artifact(&repository(), digest).is_some());
}

#[tokio::test]
async fn a_pin_with_a_time_ends_by_itself_and_its_file_goes() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    let (one, _) = put(&store, "one").await;
    let in_an_hour = Timestamp::now() + Duration::from_hours(1);
    store.pin_until("warm", &[one], in_an_hour).unwrap();
    let has = |digest| store.artifact(&repository(), digest).is_some();
    put(&store, "two").await;
    put(&store, "three").await;
    put(&store, "four").await;
    assert!(has(one), "it would be the first to go");
    // An owner that pins it as well keeps it beyond that time.
    store.pin_until("warm", &[one], Timestamp::now()).unwrap();
    store.pin("provider", &[one]).unwrap();
    put(&store, "five").await;
    assert!(has(one) && store.files("pins").count() == 1);
    store.pin_until("warm", &[one], Timestamp::now()).unwrap();
    store.pin("provider", &[]).unwrap();
    put(&store, "six").await;
    put(&store, "seven").await;
    put(&store, "eight").await;
    assert!(!has(one) && store.files("pins").count() == 0);
}

#[test]
fn a_record_is_replaced_whole_and_only_its_user_may_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("store"));
    assert_eq!(store.record("a").unwrap(), None);
    store.put_record("a", b"first").unwrap();
    store.put_record("b", b"other").unwrap();
    store.put_record("a", b"second").unwrap();
    assert_eq!(store.record("a").unwrap().as_deref(), Some(&b"second"[..]));
    assert_eq!(store.files("unfinished").count(), 0);
    let path = store.record_path("a");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o622)).unwrap();
    let error = store.record("a").unwrap_err().to_string();
    assert!(error.contains("can't read") && error.contains("others can write to it"), "{error}");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(store.record_path("b"), &path).unwrap();
    assert!(store.record("a").is_err(), "a link is not followed");
    store.put_record("a", b"third").unwrap();
    assert_eq!(store.record("b").unwrap().as_deref(), Some(&b"other"[..]), "nor written through");
}

trait Replace {
    fn replace(&self, from: &[u8], to: &[u8]) -> Vec<u8>;
}

impl Replace for Vec<u8> {
    fn replace(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let (from, to) = (std::str::from_utf8(from).unwrap(), std::str::from_utf8(to).unwrap());
        str::replace(std::str::from_utf8(self).unwrap(), from, to).into_bytes()
    }
}

#[test]
fn a_folder_that_others_control_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    Store::open(&real, 0).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let error = Store::open(&link, 0).unwrap_err().to_string();
    assert!(error.contains("it is a link or a file"), "{error}");
    fs::set_permissions(&real, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let error = Store::open(&real, 0).unwrap_err().to_string();
    assert!(error.contains("others can write to it"), "{error}");
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(Store::open(&folder.path().join("file"), 0).is_err());
}
