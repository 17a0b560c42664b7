//! A document as the state machine of swaps sees it, and the document of a release: the settings that were kept for it, which the
//! present document may no longer have.

use pileus_gate::Problem;
use pileus_host::swap::Spec;
use pileus_loader::Digest;
use serde_json::{Value, json};

use super::fields::Fields;
use super::settings::Settings;
use super::{CloudProvider, DocumentOrigin, Source};
use crate::error::Error;

impl CloudProvider {
    /// Makes a document of the settings that a release runs under. Its settings are these, unless they were altered.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub(crate) fn of_settings(
        name: &str,
        spec: &Value,
        component: Digest,
        origin: &DocumentOrigin,
    ) -> Result<Self, Error> {
        let resource = json!({"spec": Settings::with_component(spec, component)});
        let mut problems = Vec::new();
        let mut document = Fields::of("", Some(&resource), &mut problems);
        let read = Self::spec(&mut document, resource.get("spec"), Some(name.to_owned()), &origin.borrow());
        let invalid =
            || format!("the kept settings of provider {name} are invalid:{}", Problem::list(&problems));
        let read =
            read.filter(|_| problems.is_empty()).ok_or_else(|| Error::Settings { problem: invalid() })?;
        Ok(Self { settings: Settings::kept(spec.clone()), ..read })
    }

    /// What the state machine of the swap is told about the document.
    pub(crate) fn followed(&self, generation: u64) -> Spec {
        Spec {
            generation,
            follow: self.source.follow(),
            settings: self.settings.digest,
            policy: self.swap.clone(),
        }
    }

    /// Differs where two documents differ for the state machine of the swap.
    pub(crate) fn identity(&self) -> Digest {
        let Spec { follow, settings, policy, .. } = self.followed(0);
        Digest::of(format!("{follow:?} {settings} {policy:?}").as_bytes())
    }

    /// Whether the component comes from a registry.
    pub(crate) fn is_image(&self) -> bool {
        matches!(self.source, Source::Image(_))
    }
}

#[cfg(test)]
mod tests {
    use pileus_loader::{TrustPolicy, TrustSpec};

    use super::*;
    use crate::document::tests::parse;
    use crate::secrets::Secrets;

    /// Reads a document with this source and trust, and makes it again of its settings for a component.
    fn trust_of_kept(source: &Value, trust: &Value, component: Digest) -> TrustPolicy {
        let document = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "a"},
            "spec": {"source": source, "trust": trust},
        });
        let read = parse(&document.to_string(), "/").unwrap();
        let origin = DocumentOrigin::File { document: "/a.yaml".into(), secrets: Secrets::default() };
        let kept = CloudProvider::of_settings("a", &read.settings.spec, component, &origin).unwrap();
        assert_eq!(kept.settings, read.settings);
        kept.trust
    }

    #[test]
    fn a_component_that_was_found_adds_no_trust_and_the_operators_digest_does() {
        let component = Digest::of(b"component");
        let policy = |spec| TrustPolicy::new(spec).unwrap();
        let pinned = || policy(TrustSpec { digest: Some(component), ..TrustSpec::default() });
        let insecure = || policy(TrustSpec { insecure: true, ..TrustSpec::default() });
        let (tag, by_digest) = ("ghcr.io/a/b:1".to_owned(), format!("ghcr.io/a/b@{component}"));
        for (image, trust, expected) in [
            (&tag, json!({"insecure": true}), insecure()),
            (&tag, json!({"digest": component}), pinned()),
            (&by_digest, Value::Null, pinned()),
            (&by_digest, json!({"insecure": true}), pinned()),
            (&by_digest, json!({"digest": component}), pinned()),
        ] {
            let source = json!({"image": image});
            assert_eq!(trust_of_kept(&source, &trust, component), expected, "{image} {trust}");
        }
        let other = Digest::of(b"found later");
        let range = json!({"image": "ghcr.io/a/b", "versions": "1"});
        assert_eq!(trust_of_kept(&range, &json!({"insecure": true}), other), insecure());
    }
}
