//! Where a document comes from, which decides what of this node it may use. The operator's own file may name every file and
//! address. A document of the cluster may have another author, who must not be able to send this node's files anywhere or act
//! under its identity: it names files in one folder that the operator has set aside for this, or none, and reaches neither the
//! node's metadata service nor its loopback and link, unless the operator opens them.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;

use super::{cidr, non_empty};
use crate::error::Error;
use crate::secrets::Secrets;

/// The flag with the folder whose files documents of the cluster may name.
const FILES_FLAG: &str = "provider-files";
/// The flag that opens this node to documents of the cluster.
const NODE_FLAG: &str = "provider-node-access";

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
    /// Whether the documents may use the node's identity, loopback and link.
    has_node_access: bool,
}

impl ClusterOrigin {
    /// Documents of the cluster may name Secrets, and files in this folder. With `has_node_access`, they may also use the identity
    /// of this node, and reach what is on its loopback and link.
    ///
    /// # Errors
    /// [`Error::Flag`] if the folder does not exist.
    pub(crate) fn new(secrets: Secrets, files: Option<&Path>, has_node_access: bool) -> Result<Self, Error> {
        let canonical = |folder: &Path| {
            let found = folder.canonicalize().and_then(|path| path.read_dir().map(|_| path));
            found.map_err(|error| Error::Flag {
                flag: FILES_FLAG,
                value: folder.display().to_string(),
                problem: format!("can't read the folder: {error}"),
            })
        };
        Ok(Self { secrets, files: files.map(canonical).transpose()?, has_node_access })
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

    /// Whether the document may name what belongs to this node.
    fn is_open(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Cluster(origin) => origin.has_node_access,
        }
    }

    /// Checks that the document may use the identity of this node. The error says why not, and what to do.
    pub(super) fn node_identity(&self) -> Result<(), String> {
        if self.is_open() {
            return Ok(());
        }
        Err(format!(
            "a document of the cluster can't use the identity of the node; use workloadIdentity or a Secret, or start Pileus with \
             --{NODE_FLAG}"
        ))
    }

    /// A range of addresses to which the document lets requests lead.
    ///
    /// # Errors
    /// Why it can't be read, or that it opens this node.
    pub(super) fn addresses(&self, text: &str) -> Result<IpNet, String> {
        let range = cidr(text)?;
        if !self.is_open() && pileus_gate::opens_node(range) {
            return Err(format!(
                "{text} opens loopback, link-local or metadata addresses of the node, which a document of the cluster can't \
                 reach; remove it, or start Pileus with --{NODE_FLAG}"
            ));
        }
        Ok(range)
    }

    /// A registry, with or without a port and a path. The error says that it is this node.
    pub(super) fn registry(&self, text: &str) -> Result<String, String> {
        let place = text.split('/').next().unwrap_or_default();
        let host = match place.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => place.split(':').next().unwrap_or_default(),
        };
        let is_node = host == "localhost"
            || host.parse().is_ok_and(|address: IpAddr| pileus_gate::opens_node(address.into()));
        if is_node && !self.is_open() {
            return Err(format!(
                "{host} is the node itself, which a document of the cluster can't reach; name a registry that other machines \
                 reach, too, or start Pileus with --{NODE_FLAG}"
            ));
        }
        Ok(text.to_owned())
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
        let with_folder = ClusterOrigin::new(Secrets::default(), Some(&files), false).unwrap();
        let without = ClusterOrigin::new(Secrets::default(), None, false).unwrap();
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

    /// Checks that changes to a good document are refused at this path exactly where they are near the node and nothing opens it.
    fn check_access(changes: &Value, path: &str, is_near: bool) {
        let mut document = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "cloud"},
            "spec": {"source": {"image": "ghcr.io/a/b:1"}, "trust": {"insecure": true}, "grants": [{"host": "*.cloud.example"}]},
        });
        for (name, value) in changes.as_object().unwrap() {
            document["spec"][name] = value.clone();
        }
        let says = |problem: &Problem| problem.message.contains("--provider-node-access");
        let closed = ClusterOrigin::new(Secrets::default(), None, false).unwrap();
        let found = problems(&document, &closed);
        let is_refused = found.len() == 1 && found[0].path == path && says(&found[0]);
        assert!(if is_near { is_refused } else { found.is_empty() }, "{changes}: {found:?}");
        let opened = ClusterOrigin::new(Secrets::default(), None, true).unwrap();
        assert!(!problems(&document, &opened).iter().any(says), "{changes}");
    }

    const NEAR: [&str; 17] = [
        "127.0.0.1",
        "127.0.0.0/8",
        "127.1.2.0/24",
        "0.0.0.0/0",
        "0.0.0.0",
        "169.254.169.254",
        "169.254.0.0/16",
        "169.254.3.4",
        "168.63.129.16/32",
        "100.100.100.200",
        "::1",
        "::/0",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::/96",
    ];

    const FAR: [&str; 6] =
        ["10.0.0.0/8", "100.64.0.0/10", "fc00::/7", "192.168.1.1", "20.1.2.3/32", "2603:1030::/32"];

    #[test]
    fn a_document_of_the_cluster_opens_no_address_of_the_node_unless_the_operator_does() {
        let client = json!({"tokenURL": "https://login.example/t", "clientID": "c", "scope": "s",
            "secret": {"secret": {"name": "a", "key": "b"}}});
        for (range, is_near) in NEAR.map(|range| (range, true)).into_iter().chain(FAR.map(|it| (it, false))) {
            let of = json!([range]);
            let grants = json!([{"host": "*.cloud.example", "addresses": of}]);
            check_access(&json!({"grants": grants}), "spec.grants[0].addresses[0]", is_near);
            let credentials = json!([
                {"name": "a", "hosts": ["a.cloud.example"], "addresses": of, "clientSecret": client},
            ]);
            check_access(&json!({"credentials": credentials}), "spec.credentials[0].addresses[0]", is_near);
            let connection = json!({"proxy": {"url": "http://proxy.corp:3128", "addresses": of}});
            check_access(&json!({"connection": connection}), "spec.connection.proxy.addresses[0]", is_near);
            let registries = json!([{"registry": "ghcr.io", "addresses": of}]);
            let source = json!({"source": {"image": "ghcr.io/a/b:1", "registries": registries}});
            check_access(&source, "spec.source.registries[0].addresses[0]", is_near);
        }
    }

    #[test]
    fn a_document_of_the_cluster_uses_no_identity_and_registry_of_the_node_unless_the_operator_opens_it() {
        let managed = json!({"endpoint": "http://169.254.169.254/t", "resource": "r"});
        let credentials = json!([{"name": "a", "hosts": ["a.cloud.example"], "managedIdentity": managed}]);
        check_access(&json!({"credentials": credentials}), "spec.credentials[0].managedIdentity", true);
        let metadata = json!({
            "credentials": [{"name": "a", "hosts": ["169.254.169.254"], "metadata": {"flavor": "aws"}}],
            "grants": [{"host": "169.254.169.254", "tls": false}],
        });
        check_access(&metadata, "spec.credentials[0].metadata", true);
        for (host, is_near) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("169.254.1.1", true),
            ("10.0.0.1:5000", false),
            ("ghcr.io", false),
        ] {
            let image = format!("{host}/a");
            check_access(&json!({"source": {"image": format!("{image}:1")}}), "spec.source.image", is_near);
            let range = json!({"source": {"image": image, "versions": "1"}});
            check_access(&range, "spec.source.image", is_near);
            let source = |registries| json!({"source": {"image": "ghcr.io/a:1", "registries": [registries]}});
            let settings = source(json!({"registry": host}));
            check_access(&settings, "spec.source.registries[0].registry", is_near);
            let mirrored = source(json!({"registry": "quay.io", "mirrors": [image]}));
            check_access(&mirrored, "spec.source.registries[0].mirrors[0]", is_near);
        }
        let registries = json!([{"registry": "ghcr.io", "tokenHosts": ["127.0.0.1"]}]);
        let source = json!({"source": {"image": "ghcr.io/a:1", "registries": registries}});
        check_access(&source, "spec.source.registries[0].tokenHosts[0]", true);
    }

    #[test]
    fn the_operators_folder_must_exist() {
        let missing = ClusterOrigin::new(Secrets::default(), Some(Path::new("/no/such/folder")), false);
        let error = missing.err().unwrap().to_string();
        assert!(error.starts_with("--provider-files \"/no/such/folder\": can't read the folder"), "{error}");
    }
}
