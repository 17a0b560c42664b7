//! Where a document comes from, which decides the files that it may name. The operator's own file may name every file. A
//! document of the cluster may have another author, who must not be able to send this machine's files anywhere: it names
//! files in one folder that the operator has set aside for this, or none.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::non_empty;
use crate::error::Error;
use crate::secrets::Secrets;

/// The flag with the folder whose files documents of the cluster may name.
const FILES_FLAG: &str = "provider-files";

/// What references in a document are resolved with.
pub(super) enum Origin<'a> {
    /// A file of the operator.
    File {
        /// Its folder, for relative paths.
        folder: &'a Path,
        /// The Kubernetes Secrets.
        secrets: &'a Secrets,
    },
    /// A resource of the API server.
    Cluster(&'a ClusterOrigin),
}

/// Where the documents of a provider come from.
#[derive(Clone)]
pub(crate) enum DocumentOrigin {
    /// The operator's file.
    File {
        /// The document, in whose folder relative paths begin.
        document: PathBuf,
        /// The Kubernetes Secrets.
        secrets: Secrets,
    },
    /// Resources of the API server.
    Cluster(Arc<ClusterOrigin>),
}

impl DocumentOrigin {
    pub(super) fn borrow(&self) -> Origin<'_> {
        match self {
            Self::File { document, secrets } => {
                Origin::File { folder: document.parent().unwrap_or(Path::new("")), secrets }
            }
            Self::Cluster(origin) => Origin::Cluster(origin),
        }
    }
}

/// What references in documents of the cluster are resolved with.
pub(crate) struct ClusterOrigin {
    secrets: Secrets,
    /// Absolute, without symbolic links.
    files: Option<PathBuf>,
}

impl ClusterOrigin {
    /// Documents of the cluster may name Secrets, and files in this folder.
    ///
    /// # Errors
    /// [`Error::Flag`] if the folder does not exist.
    pub(crate) fn new(secrets: Secrets, files: Option<&Path>) -> Result<Self, Error> {
        let canonical = |folder: &Path| {
            let found = folder.canonicalize().and_then(|path| path.read_dir().map(|_| path));
            found.map_err(|error| Error::Flag {
                flag: FILES_FLAG,
                value: folder.display().to_string(),
                problem: format!("can't read the folder: {error}"),
            })
        };
        Ok(Self { secrets, files: files.map(canonical).transpose()? })
    }

    /// The path of a file in the folder. It may lead through symbolic links, as in a mounted ConfigMap, but not out of the
    /// folder. The path itself is kept, so that a mount that is replaced is read anew.
    fn file(&self, text: &str) -> Result<PathBuf, String> {
        let Some(folder) = &self.files else {
            return Err(format!(
                "a document of the cluster can't name a file; refer to a Secret instead, or start Pileus with --{FILES_FLAG} \
                 FOLDER and put the file there"
            ));
        };
        let outside = || {
            format!(
                "the path leads out of {}, the folder of --{FILES_FLAG}; a document of the cluster can name only files in it",
                folder.display()
            )
        };
        let path = Path::new(text);
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(outside());
        }
        let path = folder.join(path);
        // Before anything outside is looked at.
        if !path.starts_with(folder) {
            return Err(outside());
        }
        let real = path.canonicalize().map_err(|error| {
            format!(
                "can't find the file {}: {error}; put it into the folder of --{FILES_FLAG}",
                path.display()
            )
        })?;
        if real.starts_with(folder) { Ok(path) } else { Err(outside()) }
    }
}

impl Origin<'_> {
    /// The Kubernetes Secrets.
    pub(super) fn secrets(&self) -> &Secrets {
        match self {
            Self::File { secrets, .. } => secrets,
            Self::Cluster(origin) => &origin.secrets,
        }
    }

    /// The path of a file that the document names.
    ///
    /// # Errors
    /// Why it may not name this file, and what to do.
    pub(super) fn file(&self, text: &str) -> Result<PathBuf, String> {
        let text = non_empty(text)?;
        match self {
            Self::File { folder, .. } => Ok(folder.join(text)),
            Self::Cluster(origin) => origin.file(&text),
        }
    }

    /// As [`Origin::file`], for files that no document of the cluster may name: `instead` says what to do there.
    pub(super) fn file_of_operator(&self, text: &str, instead: &str) -> Result<PathBuf, String> {
        match self {
            Self::File { .. } => self.file(text),
            Self::Cluster(_) => Err(format!("a document of the cluster can't name this file; {instead}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use pileus_gate::Problem;
    use serde_json::{Value, json};

    use super::*;
    use crate::document::CloudProvider;

    /// A document that names a file wherever it can, and the pointers to these places. Those of the first list may name files
    /// of the folder.
    fn places() -> (Value, Vec<&'static str>, Vec<&'static str>) {
        let document = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "cloud"},
            "spec": {
                "source": {
                    "image": "ghcr.io/example/provider:1.2",
                    "registries": [{"registry": "ghcr.io", "caBundle": "FILE"}],
                },
                "trust": {"insecure": true},
                "grants": [{"host": "*.cloud.example"}],
                "credentials": [
                    {"name": "a", "hosts": ["a.cloud.example"], "bearer": {"token": {"file": "FILE"}}},
                    {"name": "b", "hosts": ["b.cloud.example"], "basic": {"username": "u", "password": {"file": "FILE"}}},
                    {"name": "c", "hosts": ["c.cloud.example"], "header": {"name": "X-Token", "value": {"file": "FILE"}}},
                    {"name": "d", "hosts": ["d.cloud.example"], "clientSecret": {
                        "tokenURL": "https://login.example/t", "clientID": "c", "scope": "s", "secret": {"file": "FILE"}}},
                    {"name": "e", "hosts": ["e.cloud.example"], "clientCertificate": {
                        "tokenURL": "https://login.example/t", "clientID": "c", "scope": "s",
                        "certificate": {"file": "FILE"}, "key": {"file": "FILE"}}},
                    {"name": "f", "hosts": ["f.cloud.example"], "workloadIdentity": {
                        "tokenURL": "https://login.example/t", "clientID": "c", "scope": "s", "token": {"file": "FILE"}}},
                    {"name": "g", "hosts": ["g.cloud.example"], "awsSigV4": {
                        "region": "r", "service": "s", "accessKeyID": {"file": "FILE"},
                        "secretAccessKey": {"file": "FILE"}, "sessionToken": {"file": "FILE"}}},
                ],
                "connection": {
                    "caBundle": "FILE",
                    "proxy": {"url": "http://proxy.corp:3128", "username": "u", "password": {"file": "FILE"}},
                },
            }
        });
        let of_folder = vec![
            "/spec/source/registries/0/caBundle",
            "/spec/credentials/0/bearer/token/file",
            "/spec/credentials/1/basic/password/file",
            "/spec/credentials/2/header/value/file",
            "/spec/credentials/3/clientSecret/secret/file",
            "/spec/credentials/4/clientCertificate/certificate/file",
            "/spec/credentials/4/clientCertificate/key/file",
            "/spec/credentials/5/workloadIdentity/token/file",
            "/spec/credentials/6/awsSigV4/accessKeyID/file",
            "/spec/credentials/6/awsSigV4/secretAccessKey/file",
            "/spec/credentials/6/awsSigV4/sessionToken/file",
            "/spec/connection/caBundle",
            "/spec/connection/proxy/password/file",
        ];
        let never = vec!["/spec/source/dockerConfig", "/spec/source/file"];
        (document, of_folder, never)
    }

    /// `spec.grants[0].host` of `/spec/grants/0/host`.
    fn path_of(pointer: &str) -> String {
        pointer.split('/').skip(1).fold(String::new(), |path, part| match part.parse::<usize>() {
            Ok(index) => format!("{path}[{index}]"),
            Err(_) if path.is_empty() => part.to_owned(),
            Err(_) => format!("{path}.{part}"),
        })
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files");
        fs::create_dir_all(files.join("..2026/below")).unwrap();
        fs::write(folder.path().join("outside"), "planted").unwrap();
        fs::create_dir(folder.path().join("files-2")).unwrap();
        fs::write(folder.path().join("files-2/near"), "planted").unwrap();
        fs::write(files.join("..2026/below/token"), "x").unwrap();
        // As the kubelet mounts a ConfigMap.
        symlink("..2026", files.join("..data")).unwrap();
        symlink("..data/below/token", files.join("token")).unwrap();
        symlink("/etc/shadow", files.join("shadow")).unwrap();
        symlink(folder.path().join("outside"), files.join("link")).unwrap();
        symlink("/", files.join("root")).unwrap();
        folder
    }

    fn problems(document: &Value, origin: &ClusterOrigin) -> Vec<Problem> {
        CloudProvider::from_resource(document, origin).err().unwrap_or_default()
    }

    const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

    #[test]
    fn a_document_of_the_cluster_names_only_files_of_the_operators_folder() {
        let folder = folder();
        let files = folder.path().join("files");
        let (inside, near) = (files.join("token"), folder.path().join("files-2/near"));
        let with_folder = ClusterOrigin::new(Secrets::default(), Some(&files)).unwrap();
        let without = ClusterOrigin::new(Secrets::default(), None).unwrap();
        let (document, of_folder, never) = places();
        let with = |file: &str| {
            let mut document = document.clone();
            for pointer in &of_folder {
                *document.pointer_mut(pointer).expect(pointer) = json!(file);
            }
            document
        };
        for good in ["token", inside.to_str().unwrap(), "./token", "..data/below/token"] {
            assert_eq!(problems(&with(good), &with_folder), [], "{good}");
        }
        let outside = [
            "/etc/shadow",
            SERVICE_ACCOUNT,
            "../outside",
            "x/../../outside",
            "..2026/../../outside",
            "..data/../token",
            "shadow",
            "link",
            "root/etc/hostname",
            near.to_str().unwrap(),
            "/proc/self/environ",
            "missing",
            "",
        ];
        for (origin, files) in [(&with_folder, outside.as_slice()), (&without, &["token", "/etc/shadow"])] {
            for file in files {
                let found = problems(&with(file), origin);
                let paths: Vec<_> = found.iter().map(|problem| problem.path.clone()).collect();
                let mut expected: Vec<_> = of_folder.iter().map(|pointer| path_of(pointer)).collect();
                let mut sorted = paths.clone();
                sorted.sort();
                expected.sort();
                assert_eq!(sorted, expected, "{file}");
                for Problem { path, message } in &found {
                    let advises = file.is_empty() || message.contains("--provider-files");
                    assert!(advises && !message.contains("planted"), "{file}: {path}: {message}");
                }
            }
        }
        for pointer in never {
            let mut document = with("token");
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[name] = json!("token");
            let found = problems(&document, &with_folder);
            let expected = path_of(pointer);
            let refused = found.iter().find(|problem| problem.path == expected);
            let message = &refused.unwrap_or_else(|| panic!("{expected}: {found:?}")).message;
            assert!(message.contains("a document of the cluster can't name this file; "), "{message}");
        }
    }

    #[test]
    fn the_operators_folder_must_exist() {
        let missing = ClusterOrigin::new(Secrets::default(), Some(Path::new("/no/such/folder")));
        let error = missing.err().unwrap().to_string();
        assert!(error.starts_with("--provider-files \"/no/such/folder\": can't read the folder"), "{error}");
    }
}
