//! Where secret values come from. A source is read again for each acquisition: to change a secret, the operator changes it
//! where it is stored, and this process keeps no copies except those in use. A source shows where it reads from, so that
//! messages can name it; a value has no `Debug` and no `Display`.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use http::HeaderValue;
use secrecy::SecretString;
use tokio::fs;
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

/// A certificate with its chain and a key take some 20 KiB.
const MAX_SIZE: u64 = 64 * 1024;

/// One secret value that is stored elsewhere: in a file, or under a key of a Kubernetes Secret.
///
/// `Display` names it in messages, as in `file /etc/pileus/secret`. Neither `Display` nor `Debug` may show the value.
pub trait SecretSource: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads the current value as UTF-8 text; white space around it is ignored. Never called in the path of a request: once
    /// for each token, and every 10 s if the value is used as it is. An error's text must not hold the value. Dropping the
    /// future gives up, which the caller does after 10 s.
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>>;
}

/// A source, shared.
pub type Secret = Arc<dyn SecretSource>;

/// A secret in a file. The path is resolved at each read: a mount that swaps symbolic links, as Kubernetes does, and a
/// replaced file work like a file that is overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    /// The file at this path. It is opened when the secret is first needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.0.display())
    }
}

impl SecretSource for SecretFile {
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
        Box::pin(async {
            // Checked before it is opened: opening a pipe without a writer would block a thread forever.
            if !fs::metadata(&self.0).await?.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let file = fs::File::open(&self.0).await?;
            // The whole capacity at once: growing would leave copies behind.
            let mut bytes = Zeroizing::new(Vec::with_capacity(1 + usize::try_from(MAX_SIZE).unwrap_or(0)));
            file.take(MAX_SIZE + 1).read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > MAX_SIZE {
                return Err(io::Error::other("it is over 64 KiB"));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
            Ok(SecretString::from(text))
        })
    }
}

/// A header value that has no readable `Debug` and is overwritten after its last use. `None` if it can't be sent.
pub(crate) fn sensitive(text: Zeroizing<String>) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(text)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_each_time_even_if_links_are_swapped() {
        let folder = tempfile::tempdir().unwrap();
        let (link, one, other) =
            (folder.path().join("secret"), folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "first\n").unwrap();
        std::fs::write(&other, "second\n").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let source = SecretFile::new(&link);
        assert_eq!(source.read().await.unwrap().expose_secret(), "first\n");
        std::fs::remove_file(&link).unwrap();
        assert_eq!(source.read().await.unwrap_err().kind(), io::ErrorKind::NotFound);
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(source.read().await.unwrap().expose_secret(), "second\n");
    }

    #[tokio::test]
    async fn a_folder_a_long_file_and_binary_data_are_refused_without_repeating_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (bytes, cause) in
            [(vec![b'x'; 65_537], "it is over 64 KiB"), (b"planted\xff".to_vec(), "it is not UTF-8 text")]
        {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(SecretFile::new(&path).read().await.unwrap_err().to_string(), cause);
        }
        let folder = SecretFile::new(folder.path()).read().await.unwrap_err();
        assert_eq!(folder.to_string(), "it is not a regular file");
    }
}
