//! Where secret values come from. A source is read anew for each acquisition, so a secret is changed by changing it where
//! it lies, and the only copies in this process are the ones in use. What a source says of itself is where it looks, so
//! that messages can name it; the value never gets a name, a `Debug` or a `Display`.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::{fmt, io};

use secrecy::SecretString;
use tokio::fs;
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

/// A certificate with its chain and a key take some 20 KiB.
const LONGEST: u64 = 64 * 1024;

/// One secret value that lies elsewhere: in a file, or under a key of a Kubernetes Secret.
///
/// `Display` names it in messages, as in `file /etc/pileus/secret`. Neither `Display` nor `Debug` may show the value.
pub trait SecretSource: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads the value as it is now, as UTF-8 text; white space around it doesn't matter. Never called in the path of a
    /// request: once for each token, and every 10 s where the value is used as it is. A failure's text may not hold the
    /// value. Dropping the future gives up, and so does the caller after 10 s.
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>>;
}

/// A source, shared.
pub type Secret = Arc<dyn SecretSource>;

/// A secret in a file. The path is looked up at each reading, so a mount that swaps symbolic links, as those of
/// Kubernetes do, and a file that is replaced by another are seen like one that is written over.
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
            // Asked before it is opened: opening a pipe that nobody writes to would hold a thread for ever.
            if !fs::metadata(&self.0).await?.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            let file = fs::File::open(&self.0).await?;
            // All of the capacity at once: growing would leave copies behind.
            let mut bytes = Zeroizing::new(Vec::with_capacity(1 + usize::try_from(LONGEST).unwrap_or(0)));
            file.take(LONGEST + 1).read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > LONGEST {
                return Err(io::Error::other("it is over 64 KiB"));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| io::Error::other("it holds no UTF-8 text"))?;
            Ok(SecretString::from(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[tokio::test]
    async fn a_file_is_read_anew_each_time_also_where_links_are_swapped() {
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
    async fn what_is_no_file_no_text_or_too_long_is_refused_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (bytes, cause) in
            [(vec![b'x'; 65_537], "it is over 64 KiB"), (b"planted\xff".to_vec(), "it holds no UTF-8 text")]
        {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(SecretFile::new(&path).read().await.unwrap_err().to_string(), cause);
        }
        let folder = SecretFile::new(folder.path()).read().await.unwrap_err();
        assert_eq!(folder.to_string(), "it is no regular file");
    }
}
