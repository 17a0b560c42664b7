//! The CloudProvider documents of the demo, as an operator would write them.

use std::fs;
use std::path::{Path, PathBuf};

use pileus_dev::{Error, artifact};

/// A CloudProvider document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document<'a> {
    /// The operator's name for it.
    pub(crate) name: &'a str,
    /// The package that its component is built from.
    pub(crate) package: &'a str,
    /// One field of its configuration, as `name: value`.
    pub(crate) configuration: &'a str,
    /// The loopback port that the provider may reach. `None` grants nothing.
    pub(crate) granted: Option<&'a str>,
}

impl Document<'_> {
    /// Writes the document to `NAME.yaml` in a folder.
    pub(crate) fn write(self, folder: &Path) -> Result<PathBuf, Error> {
        let path = folder.join(self.name).with_extension("yaml");
        let component = artifact::component(self.package)?;
        let text = self.text(&format!("file: {}", component.display()));
        fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
        Ok(path)
    }

    /// The same document for a component in a registry, with a canary that suits a demo.
    pub(crate) fn of_image(self, image: &str) -> String {
        self.text(&format!("image: {image}")) + SWAP
    }

    fn text(self, source: &str) -> String {
        let Self { name, package: _, configuration, granted } = self;
        let document = format!(
            "apiVersion: pileus.dev/v1alpha1
kind: CloudProvider
metadata:
  name: {name}
spec:
  source:
    {source}
  configuration:
    {configuration}
"
        );
        document + &granted.map(grant).unwrap_or_default()
    }
}

/// The demo signs nothing, which a document has to allow.
const SWAP: &str = "  trust:
    insecure: true
  swap:
    canary: {share: 50, duration: 3s}
";

/// Grants all of the simulated cloud's API except for creating machines, and nothing of its administrative API.
pub(crate) fn grant(port: &str) -> String {
    format!(
        "  grants:
    - host: 127.0.0.1
      port: {port}
      tls: false
      methods: [GET, PUT, DELETE]
      paths: [/v1/]
      addresses: [127.0.0.0/8]
"
    )
}
