//! Lists what refers to an artifact: signatures, bills of materials, provenance.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{Descriptor, MAX_MANIFEST, Manifest};
use crate::media_type;
use crate::registry::exchange::Call;
use crate::registry::session::Session;

impl Session<'_> {
    /// The manifests that refer to an artifact: by the API for referrers, or by the tag that stands in where a registry lacks
    /// it. Of a list in pages, the first one. The list has at most `MAX_MANIFEST` bytes.
    pub(crate) async fn referrers(&self, digest: Digest) -> Result<Vec<Descriptor>, Error> {
        let path = format!("/v2/{}/referrers/{digest}", self.repository.name);
        let call = Call::new(Method::GET).with(ACCEPT, HeaderValue::from_static(media_type::INDEX));
        let target = self.origin.at(path);
        let place = format!("list of referrers of {digest} in {}", self.repository);
        let (call, target, place) = (&call, &target, &place);
        let listed = self
            .repeat(|| {
                Box::pin(async move {
                    let answer = self.send_once(call, target.clone()).await?;
                    // A registry without the API may answer with a page for people.
                    let is_index = answer
                        .header(CONTENT_TYPE.as_str())
                        .is_some_and(|kind| kind.starts_with(media_type::INDEX));
                    if is_index {
                        answer.bytes(MAX_MANIFEST, place).await
                    } else {
                        Err(Error::NotFound { place: place.clone() })
                    }
                })
            })
            .await;
        let text = match listed {
            Ok(bytes) => bytes,
            Err(Error::NotFound { .. } | Error::Answer { status: 400..=499, .. }) => {
                match self.manifest(&format!("sha256-{}", digest.hex())).await {
                    Ok(manifest) => manifest.text.into_bytes(),
                    Err(Error::NotFound { .. }) => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        // An index that can't be read has nothing that could be found.
        Ok(Manifest::parse(&text).map_or(Vec::new(), Manifest::into_manifests))
    }
}
