//! Reads from a repository: manifests, components and signatures. Everything that has a digest is hashed; everything has a
//! largest size.

use http::header::{ACCEPT, CONTENT_RANGE, RANGE};
use http::{HeaderValue, Method, StatusCode};

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{ComponentLayer, Descriptor, MAX_MANIFEST, Manifest};
use crate::media_type;
use crate::reference::is_tag;
use crate::registry::exchange::Call;
use crate::registry::session::{MAX_PAUSE, PAUSE, Session, may_pass};
use crate::store::Download;
use crate::trust::evidence::{Evidence, MAX_EVIDENCE, MAX_SIGNATURE};

/// The annotation with a signature under a tag.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Attempts to download a component without any progress.
const IDLE_ATTEMPTS: u32 = 3;

/// Tags in one answer.
const TAGS_PAGE: usize = 1000;
/// The most tags that are read.
const MAX_TAGS: usize = 20_000;

/// A page of a repository's tags.
#[derive(serde::Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
}

/// A manifest as it was fetched.
pub(crate) struct FetchedManifest {
    /// JSON text.
    pub(crate) text: String,
    pub(crate) digest: Digest,
}

impl Session<'_> {
    /// Asks which digest a tag has, without its manifest.
    pub(crate) async fn resolve(&self, tag: &str) -> Result<Digest, Error> {
        let call = Call::new(Method::HEAD).with(ACCEPT, HeaderValue::from_static(media_type::ACCEPT));
        let answer = self.send(&call, &format!("/manifests/{tag}")).await?;
        match answer.header("docker-content-digest").map(str::parse) {
            Some(Ok(digest)) => Ok(digest),
            // Not all registries answer this; the manifest has it in any case.
            _ => Ok(self.manifest(tag).await?.digest),
        }
    }

    /// All tags of the repository, at most [`MAX_TAGS`].
    pub(crate) async fn tags(&self) -> Result<Vec<String>, Error> {
        let (mut tags, mut after) = (Vec::<String>::new(), String::new());
        let place = format!("tags of {}", self.repository);
        while tags.len() < MAX_TAGS {
            let path = format!("/tags/list?n={TAGS_PAGE}{after}");
            let answer = self.send(&Call::new(Method::GET), &path).await?;
            let has_more = answer.header("link").is_some();
            let page = answer.bytes(MAX_MANIFEST, &place).await?;
            let page: TagList = serde_json::from_slice(&page).map_err(|error| Error::Protocol {
                registry: self.repository.registry.clone(),
                cause: format!("its list of tags can't be read: {error}"),
            })?;
            let Some(last) =
                page.tags.iter().flatten().next_back().cloned().filter(|last| has_more && is_tag(last))
            else {
                tags.extend(page.tags.into_iter().flatten());
                break;
            };
            tags.extend(page.tags.into_iter().flatten());
            after = format!("&last={last}");
        }
        Ok(tags)
    }

    /// Fetches a manifest or an index by tag or digest. A digest is checked.
    pub(crate) async fn manifest(&self, wanted: &str) -> Result<FetchedManifest, Error> {
        let call = Call::new(Method::GET).with(ACCEPT, HeaderValue::from_static(media_type::ACCEPT));
        let place = format!("manifest {wanted} of {}", self.repository);
        let (asked, what) = (&call, &place);
        let (bytes, announced) = self
            .repeat(|| {
                Box::pin(async move {
                    let target = self.origin.at(format!("/v2/{}/manifests/{wanted}", self.repository.name));
                    let answer = self.send_once(asked, target).await?;
                    let announced = answer.header("docker-content-digest").map(str::to_owned);
                    Ok((answer.bytes(MAX_MANIFEST, what).await?, announced))
                })
            })
            .await?;
        let digest = Digest::of(&bytes);
        let is_digest = wanted.parse::<Digest>().is_ok();
        let expected = if is_digest { Some(wanted.to_owned()) } else { announced };
        if let Some(expected) = expected.filter(|expected| *expected != digest.to_string()) {
            return Err(Error::Corrupt { place, expected, found: digest });
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::NotComponent { place, cause: "its manifest is not UTF-8 text".to_owned() })?;
        Ok(FetchedManifest { text, digest })
    }

    /// Downloads a component. Goes on where a connection was cut, as long as there is progress.
    pub(crate) async fn component(&self, mut download: Download, layer: ComponentLayer) -> Result<(), Error> {
        let place = format!("component {} of {}", layer.digest, self.repository);
        let mut idle = 0;
        loop {
            let before = download.written();
            match self.rest(&mut download, layer, &place).await {
                Ok(()) => return download.finish(&place).await,
                Err(error) if may_pass(&error).is_some() => {
                    idle = if download.written() > before { 0 } else { idle + 1 };
                    if idle == IDLE_ATTEMPTS {
                        download.keep().await;
                        return Err(error);
                    }
                    tracing::debug!(%error, bytes = download.written(), "download was cut off; going on");
                    tokio::time::sleep(may_pass(&error).unwrap_or_default().clamp(PAUSE, MAX_PAUSE)).await;
                }
                // On a full disk, too: what can't be completed gives its space back.
                Err(error) => {
                    download.discard();
                    return Err(error);
                }
            }
        }
    }

    /// Downloads what is missing.
    async fn rest(&self, download: &mut Download, layer: ComponentLayer, place: &str) -> Result<(), Error> {
        let from = download.written();
        if from == layer.size {
            return Ok(());
        }
        let mut call = Call::new(Method::GET);
        if from > 0 {
            let range = HeaderValue::from_str(&format!("bytes={from}-"));
            call = call.with(RANGE, range.unwrap_or(HeaderValue::from_static("bytes=0-")));
        }
        let path = format!("/v2/{}/blobs/{}", self.repository.name, layer.digest);
        let mut answer = self.send_once(&call, self.origin.at(path)).await?;
        let is_continued = answer.status == StatusCode::PARTIAL_CONTENT
            && answer
                .header(CONTENT_RANGE.as_str())
                .is_some_and(|range| range.starts_with(&format!("bytes {from}-")));
        if !is_continued {
            download.restart().await?;
        }
        if answer.length().is_some_and(|length| length > layer.size - download.written()) {
            return Err(Error::TooLarge { place: place.to_owned(), limit: layer.size });
        }
        while let Some(chunk) = answer.chunk().await? {
            download.write(&chunk, place).await?;
            if let Some(progress) = &self.progress {
                progress.report(download.written(), layer.size);
            }
        }
        if download.written() < layer.size {
            let cause = format!("its answer ended after {} of {} bytes", download.written(), layer.size);
            return Err(Error::Unreachable { registry: self.repository.registry.clone(), cause });
        }
        Ok(())
    }

    /// The signatures of an artifact in both layouts, of those that refer to it and under its tag. At most `MAX_EVIDENCE`, of
    /// which bundles take at most half. One that can't be read is a finding and no error: another one may suffice.
    pub(crate) async fn evidence(
        &self,
        digest: Digest,
        referrers: &[Descriptor],
    ) -> Result<Vec<Evidence>, Error> {
        let mut found = Vec::new();
        for descriptor in referrers.iter().filter(|referrer| referrer.is_bundle()).take(MAX_EVIDENCE / 2) {
            found.push(self.bundle(descriptor).await?);
        }
        self.tagged(digest, &mut found).await?;
        Ok(found)
    }

    /// The bundle in a manifest.
    pub(crate) async fn bundle(&self, descriptor: &Descriptor) -> Result<Evidence, Error> {
        let read = async {
            let manifest = self.manifest(&descriptor.digest).await?;
            let manifest = unreadable(Manifest::parse(manifest.text.as_bytes()))?;
            match manifest.layers() {
                [layer] => Ok(Evidence::Bundle { text: self.text(layer).await? }),
                layers => unreadable(Err(format!("its manifest has {} layers instead of one", layers.len()))),
            }
        };
        as_finding(read.await)
    }

    /// Adds the signatures under the tag `sha256-….sig`.
    pub(crate) async fn tagged(&self, digest: Digest, found: &mut Vec<Evidence>) -> Result<(), Error> {
        let text = match self.manifest(&format!("sha256-{}.sig", digest.hex())).await {
            Ok(manifest) => manifest.text,
            Err(Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let manifest = match Manifest::parse(text.as_bytes()) {
            Ok(manifest) => manifest,
            Err(cause) => {
                found.push(Evidence::Unreadable { cause });
                return Ok(());
            }
        };
        for layer in manifest.layers().iter().filter(|layer| layer.media_type == media_type::SIMPLE_SIGNING) {
            if found.len() < MAX_EVIDENCE {
                let signature = layer.annotations.get(SIGNATURE).cloned().unwrap_or_default();
                let read = async { Ok(Evidence::Tag { payload: self.text(layer).await?, signature }) };
                found.push(as_finding(read.await)?);
            }
        }
        Ok(())
    }

    /// A small blob, as text.
    async fn text(&self, layer: &Descriptor) -> Result<String, Error> {
        let digest: Digest = unreadable(layer.digest.parse().map_err(str::to_owned))?;
        let place = format!("signature {digest} of {}", self.repository);
        let path = format!("/v2/{}/blobs/{digest}", self.repository.name);
        let (path, what) = (&path, &place);
        let bytes = self
            .repeat(|| {
                Box::pin(async move {
                    let answer =
                        self.send_once(&Call::new(Method::GET), self.origin.at(path.clone())).await?;
                    answer.bytes(MAX_SIGNATURE, what).await
                })
            })
            .await?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(Error::Corrupt { place, expected: digest.to_string(), found });
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn unreadable<T>(read: Result<T, String>) -> Result<T, Error> {
    read.map_err(|cause| Error::NotComponent { place: "a signature".to_owned(), cause })
}

/// What is wrong with a signature itself says nothing about the registry.
fn as_finding(read: Result<Evidence, Error>) -> Result<Evidence, Error> {
    match read {
        Err(
            error @ (Error::NotComponent { .. }
            | Error::NotFound { .. }
            | Error::Corrupt { .. }
            | Error::TooLarge { .. }),
        ) => Ok(Evidence::Unreadable { cause: error.to_string() }),
        read => read,
    }
}
