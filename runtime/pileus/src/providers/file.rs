//! The document of `--provider FILE`, followed: a file that is replaced, as in a mounted ConfigMap, takes effect.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use super::{DocumentChange, PresentDocument};
use crate::document::{CloudProvider, DocumentOrigin};
use crate::error::Error;
use crate::secrets::Secrets;

/// How often the file is read. A mounted ConfigMap follows its object within a minute.
const PERIOD: Duration = Duration::from_secs(5);

/// A document in a file.
pub(crate) struct FollowedFile {
    path: PathBuf,
    secrets: Secrets,
    /// The text that was read last.
    text: String,
    /// What is not reported yet.
    unread: Option<CloudProvider>,
    /// Whether it was said that there is nothing else.
    is_listed: bool,
    name: String,
}

impl FollowedFile {
    /// Reads the document for the first time.
    ///
    /// # Errors
    /// [`Error::DocumentUnreadable`], [`Error::Document`].
    pub(crate) fn read(path: PathBuf, secrets: Secrets) -> Result<Self, Error> {
        let document = CloudProvider::read(&path, &secrets)?;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let name = document.name.clone();
        Ok(Self { path, secrets, text, unread: Some(document), is_listed: false, name })
    }

    /// The document as it was read first.
    pub(crate) fn document(&self) -> Option<&CloudProvider> {
        self.unread.as_ref()
    }

    /// What references in the document are resolved with.
    pub(super) fn origin(&self) -> DocumentOrigin {
        DocumentOrigin::File { document: self.path.clone(), secrets: self.secrets.clone() }
    }

    /// The document, and then each valid one that differs from it.
    pub(super) async fn next(&mut self) -> DocumentChange {
        if self.unread.is_none() && !self.is_listed {
            self.is_listed = true;
            return DocumentChange::Listed;
        }
        let document = self.next_document().await;
        DocumentChange::Present(Box::new(PresentDocument {
            name: self.name.clone(),
            uid: None,
            created_at: Timestamp::UNIX_EPOCH,
            document: Ok(document),
            generation: None,
            recorded: None,
            order: None,
        }))
    }

    /// As [`FollowedFile::next`], for a process whose only document this is.
    pub(crate) async fn next_document(&mut self) -> CloudProvider {
        match self.unread.take() {
            Some(document) => document,
            None => self.changed().await,
        }
    }

    /// Lets [`FollowedFile::next_document`] return the document again, also where it doesn't change.
    pub(crate) fn report_again(&mut self) {
        self.text.clear();
    }

    async fn changed(&mut self) -> CloudProvider {
        loop {
            tokio::time::sleep(PERIOD).await;
            // A file that is being replaced may be missing for a moment.
            let Ok(text) = tokio::fs::read_to_string(&self.path).await else { continue };
            if text == self.text {
                continue;
            }
            self.text = text;
            match CloudProvider::read(&self.path, &self.secrets) {
                Ok(document) if document.name == self.name => return document,
                Ok(document) => tracing::warn!(
                    file = %self.path.display(), was = %self.name, is = %document.name,
                    "the document has another name: restart Pileus to use it; the former document stays in use"
                ),
                Err(error) => tracing::warn!(
                    file = %self.path.display(), %error, "the document has changed and is invalid; the former one stays in use"
                ),
            }
        }
    }
}
