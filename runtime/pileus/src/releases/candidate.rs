//! What a release has to fulfil before it may become active, and not afterwards: its version is one that the document asks for,
//! and it claims nothing that another provider serves. Signatures bind a digest, while tags are the registry's word, so the
//! version counts that the component itself describes.

use pileus_host::Guest;
use pileus_host::swap::{Follow, Release};
use semver::Version;

use super::Releases;
use super::prepare::Ready;
use crate::document::{Image, ImageSource, Source};
use crate::error::Error;
use crate::working::Conditions;

impl Releases {
    /// Checks a release once it is ready otherwise. Passes all but the candidate.
    pub(super) fn candidate_check(
        &self,
        release: Release,
    ) -> impl FnOnce(&(Ready, Guest)) -> Result<(), Error> + Send + use<> {
        let status = self.state.status();
        let candidate = status.and_then(|status| status.candidate.as_ref());
        let is_candidate = candidate.is_some_and(|candidate| candidate.release == release);
        let has_active = status.is_some_and(|status| status.active.is_some());
        let overlaps = self.working.new_overlaps();
        move |(ready, guest)| {
            if !is_candidate {
                return Ok(());
            }
            let (provider, version) = (ready.document.name.clone(), ready.description.version.clone());
            if let Some(problem) = outside_range(&ready.document.source, &version) {
                let problems = vec![problem];
                return Err(Error::Incompatible { provider, version, problems, is_permanent: true });
            }
            let conditions = Conditions::new(guest.declaration(), &ready.document);
            let overlaps = if has_active { overlaps(&conditions) } else { Vec::new() };
            if overlaps.is_empty() {
                return Ok(());
            }
            let problems = overlaps.iter().map(ToString::to_string).collect();
            // The other provider may change.
            Err(Error::Incompatible { provider, version, problems, is_permanent: false })
        }
    }
}

fn outside_range(source: &Source, version: &str) -> Option<String> {
    let Source::Image(ImageSource { image: Image::Range(repository, range), .. }) = source else {
        return None;
    };
    (!range.contains(version)).then(|| {
        format!(
            "a tag of {repository} in the range {range} of spec.source.versions leads to it, but it describes itself as \
             version {version}"
        )
    })
}

/// How a candidate is older than the active release, in words. A digest in the document is the operator's own word, and no
/// registry can change it.
pub(super) fn downgrade(candidate: &Ready, active: &Ready) -> Option<String> {
    let is_pinned = matches!(candidate.document.source.follow(), Follow::Digest(_));
    let [new, old] = [candidate, active].map(|ready| ready.description.version.as_str());
    older(new, old).filter(|_| !is_pinned)
}

fn older(new: &str, old: &str) -> Option<String> {
    let is_older = Version::parse(new).ok()? < Version::parse(old).ok()?;
    is_older.then(|| format!("version {new} is older than {old}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_outside_the_range_is_refused_with_both() {
        let source = |image: Image| {
            Source::Image(ImageSource { image, credentials: Vec::new(), registries: Vec::new() })
        };
        let range = source(Image::Range("ghcr.io/a/b".parse().unwrap(), ">=1.4, <2".parse().unwrap()));
        for (version, is_refused) in
            [("1.4.0", false), ("1.9.3", false), ("1.1.0", true), ("2.0.0", true), ("latest", true)]
        {
            let problem = outside_range(&range, version);
            assert_eq!(problem.is_some(), is_refused, "{version}");
            if let Some(problem) = problem {
                assert!(problem.contains(">=1.4, <2") && problem.contains(version), "{problem}");
            }
        }
        let tag = source(Image::Reference("ghcr.io/a/b:1".parse().unwrap()));
        for source in [tag, Source::File("a.wasm".into())] {
            assert_eq!(outside_range(&source, "0.1.0"), None);
        }
    }

    #[test]
    fn an_older_version_is_a_difference() {
        for (new, old, expected) in [
            ("1.1.0", "1.4.0", Some("version 1.1.0 is older than 1.4.0")),
            ("1.4.0-rc.1", "1.4.0", Some("version 1.4.0-rc.1 is older than 1.4.0")),
            ("1.9.0", "1.10.0", Some("version 1.9.0 is older than 1.10.0")),
            ("1.4.0", "1.4.0", None),
            ("1.4.1", "1.4.0", None),
            ("dev", "1.4.0", None),
        ] {
            assert_eq!(older(new, old).as_deref(), expected, "{new} {old}");
        }
    }
}
