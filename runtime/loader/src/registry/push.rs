//! Writes to a repository: what `pileus push` needs, a blob or two and a manifest.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode};

use crate::digest::Digest;
use crate::error::Error;
use crate::media_type;
use crate::progress::Progress;
use crate::registry::exchange::Call;
use crate::registry::session::Session;

impl Session<'_> {
    /// Uploads a blob, unless the repository has it.
    pub(crate) async fn put_blob(&self, bytes: &Bytes, progress: Option<Progress>) -> Result<(), Error> {
        let digest = Digest::of(bytes);
        match self.send(&Call::new(Method::HEAD), &format!("/blobs/{digest}")).await {
            Ok(_) => return Ok(()),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let begun = self.send(&Call::new(Method::POST), "/blobs/uploads/").await?;
        if begun.status != StatusCode::ACCEPTED {
            return Err(begun.into_error("the beginning of an upload".to_owned()).await);
        }
        let location = begun.header(LOCATION.as_str()).unwrap_or_default();
        let uploads = self.origin.at(format!("/v2/{}/blobs/uploads/", self.repository.name));
        let mut target = uploads.follow(location).map_err(|cause| self.misled(location, cause))?;
        let separator = if target.path.contains('?') { '&' } else { '?' };
        target.path = format!("{}{separator}digest={digest}", target.path);
        let mut call =
            Call::new(Method::PUT).with(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        call.body = bytes.clone();
        call.progress = progress;
        self.send_once(&call, target).await.map(drop)
    }

    /// Uploads a manifest under a tag, or under its digest.
    pub(crate) async fn put_manifest(&self, wanted: &str, manifest: Vec<u8>) -> Result<Digest, Error> {
        let digest = Digest::of(&manifest);
        let mut call =
            Call::new(Method::PUT).with(CONTENT_TYPE, HeaderValue::from_static(media_type::MANIFEST));
        call.body = manifest.into();
        let answer = self.send(&call, &format!("/manifests/{wanted}")).await?;
        match answer.header("docker-content-digest") {
            Some(stored) if stored != digest.to_string() => Err(Error::Protocol {
                registry: self.repository.registry.clone(),
                cause: format!("it stored the manifest {digest} as {stored}"),
            }),
            _ => Ok(digest),
        }
    }
}
