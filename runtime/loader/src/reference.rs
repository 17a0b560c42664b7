//! Where a component comes from: a reference to a registry, or a file. The forms are those of other tools, except that a
//! reference names its registry and its tag or digest: a default for these would decide which code runs. A name of one part at
//! Docker Hub is one in `library`, as it is for Docker. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::digest::Digest;
use crate::error::Error;

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An artifact in a registry, as in `ghcr.io/example/provider:1.2`; `oci://` before it is ignored.
    Registry(Reference),
    /// A file, as in `file:provider.wasm` or `file:///providers/provider.wasm`.
    File(PathBuf),
}

/// A repository: a registry and a name in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository {
    /// Host and optional port of the registry, in lower case.
    pub registry: String,
    /// The name of the repository in the registry.
    pub name: String,
}

/// A reference to an artifact in a registry. It has a tag, a digest, or both; with both, the digest decides, and the tag is
/// for the reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Where the artifact is.
    pub repository: Repository,
    /// The tag.
    pub tag: Option<String>,
    /// The digest of the manifest.
    pub digest: Option<Digest>,
}

impl Reference {
    /// What the registry is asked for: the digest, or else the tag.
    pub(crate) fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => String::new(), // the parser refuses it
        }
    }

    /// The same artifact, pinned to a digest.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> Self {
        Self { repository: self.repository.clone(), tag: self.tag.clone(), digest: Some(digest) }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some(path) = text.strip_prefix("file:") else { return text.parse().map(Self::Registry) };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('\0') {
            return Err(wrong(text, "it names no file; write it as in file:provider.wasm"));
        }
        Ok(Self::File(path.into()))
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let reference = parse(text)?;
        if reference.tag.is_none() && reference.digest.is_none() {
            return Err(wrong(text, "it has no version: add a tag or, better, a digest"));
        }
        Ok(reference)
    }
}

impl FromStr for Repository {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Reference { repository, tag, digest } = parse(text)?;
        if tag.is_some() || digest.is_some() {
            return Err(wrong(text, "a repository has neither a tag nor a digest; leave them out"));
        }
        Ok(repository)
    }
}

/// Reads a reference that may lack both tag and digest.
fn parse(text: &str) -> Result<Reference, Error> {
    let rest = text.strip_prefix("oci://").unwrap_or(text);
    if rest.contains("://") {
        return Err(wrong(text, "only oci:// and file: are known; leave the scheme out"));
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.parse().map_err(|cause| wrong(text, cause))?)),
        None => (rest, None),
    };
    let (registry, rest) = rest.split_once('/').ok_or_else(|| {
        wrong(
            text,
            "it names no registry; write it as in ghcr.io/example/provider:1.2, or docker.io/NAME:TAG for Docker Hub",
        )
    })?;
    let (name, tag) = match rest.split_once(':') {
        Some((name, tag)) => (name, Some(tag.to_owned())),
        None => (rest, None),
    };
    let registry = registry.to_ascii_lowercase();
    if !is_registry(&registry) {
        let cause = "what comes before the first slash is not a registry; write it as in ghcr.io/example/provider:1.2, \
                     or docker.io/NAME:TAG for Docker Hub";
        return Err(wrong(text, cause));
    }
    if !is_name(name) {
        let cause =
            "the name of a repository has lower-case letters and digits, between them `.`, `_`, `-` and `/`";
        return Err(wrong(text, cause));
    }
    if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
        return Err(wrong(text, "a tag has 1 to 128 letters, digits, `.`, `_` and `-`"));
    }
    Ok(Reference { repository: repository(registry, name), tag, digest })
}

/// A repository, where Docker Hub has one name and a namespace for names of one part.
fn repository(registry: String, name: &str) -> Repository {
    let is_hub = matches!(&*registry, "docker.io" | "index.docker.io");
    let registry = if is_hub { "docker.io".to_owned() } else { registry };
    let name = if is_hub && !name.contains('/') { format!("library/{name}") } else { name.to_owned() };
    Repository { registry, name }
}

fn wrong(text: &str, cause: &'static str) -> Error {
    // The text may come from another user, and a path in it could be long.
    Error::Reference { text: text.chars().take(300).collect(), cause }
}

/// Whether a text names a registry: a host with a dot, a port, or `localhost`, as other tools tell it from a repository.
pub(crate) fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("an.address", if port.is_empty() { None } else { Some(port.strip_prefix(':').unwrap_or("")) })
        }
        Some(_) => return false,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    let is_host = host.len() <= 253 && host.split('.').all(is_label);
    is_host && port.is_none_or(is_port) && (host.contains('.') || port.is_some() || host == "localhost")
}

/// Whether a text names a repository: parts of letters and digits, with single `.`, one or two `_`, or any `-` between.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_separator =
            |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
        part.bytes().next().is_some_and(is_plain)
            && part.bytes().next_back().is_some_and(is_plain)
            && separators.into_iter().all(is_separator)
    };
    name.len() <= 255 && name.split('/').all(is_part)
}

pub(crate) fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.repository.fmt(f)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(f),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_read_and_written_the_same() {
        for text in [
            "ghcr.io/example/provider:1.2",
            "localhost/provider:v1",
            "localhost:5000/a/b/c:latest",
            "127.0.0.1:5000/x__y/z-a--b.c:A_b.c-d",
            "[::1]:5000/provider:1",
            "registry.example/provider@sha256:HEX",
            "registry.example/provider:1.2@sha256:HEX",
        ] {
            let text = text.replace("HEX", HEX);
            let read: Source = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(format!("oci://{text}").parse::<Source>().unwrap(), read);
        }
        let both: Reference = format!("GHCR.io/a/b:1@sha256:{HEX}").parse().unwrap();
        assert_eq!(both.repository.registry, "ghcr.io");
        assert_eq!(both.wanted(), format!("sha256:{HEX}"));
        assert_eq!("ghcr.io/a/b".parse::<Repository>().unwrap(), both.repository);
        assert!("ghcr.io/a/b:1".parse::<Repository>().unwrap_err().to_string().contains("neither a tag"));
        for (text, expected) in [
            ("docker.io/provider:1", "docker.io/library/provider:1"),
            ("docker.io/example/provider:1", "docker.io/example/provider:1"),
            ("index.docker.io/provider:1", "docker.io/library/provider:1"),
            ("docker.io:443/provider:1", "docker.io:443/provider:1"),
            ("mirror.corp/provider:1", "mirror.corp/provider:1"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), expected);
        }
        for (text, path) in [("file:a.wasm", "a.wasm"), ("file:///a/b.wasm", "/a/b.wasm"), ("file:/c", "/c")]
        {
            assert_eq!(text.parse::<Source>().unwrap(), Source::File(path.into()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_reference_is_said() {
        for (text, expected) in [
            ("", "names no registry"),
            ("provider:1", "names no registry"),
            ("provider:1", "docker.io/NAME:TAG"),
            ("example/provider:1", "not a registry"),
            ("example/provider:1", "docker.io/NAME:TAG"),
            ("user:pw@ghcr.io/a:1", "a digest is"),
            ("https://ghcr.io/a:1", "only oci:// and file:"),
            ("ghcr.io/a", "no version"),
            ("ghcr.io/A:1", "lower-case"),
            ("ghcr.io/a/:1", "lower-case"),
            ("ghcr.io/a/../b:1", "lower-case"),
            ("ghcr.io/a?b:1", "lower-case"),
            ("ghcr.io/a___b:1", "lower-case"),
            ("ghcr.io/a:", "a tag has"),
            ("ghcr.io/a:-1", "a tag has"),
            ("ghcr.io/a:1@sha256:abc", "a digest is"),
            ("ghcr.io/a:1@md5:abc", "a digest is"),
            ("ghcr.io:0/a:1", "not a registry"),
            ("ghcr.io:99999/a:1", "not a registry"),
            ("ghcr..io/a:1", "not a registry"),
            ("169.254.169.254 /a:1", "not a registry"),
            ("[::g]:1/a:1", "not a registry"),
            ("file:", "names no file"),
        ] {
            let error = text.parse::<Source>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
