//! Which Services a provider serves, where several providers may run.
//!
//! A Service belongs to the provider of its `loadBalancerClass`, and without a class to the default provider. The class can't
//! change while the Service is of type LoadBalancer, but the default and the classes of a provider can. A load balancer that
//! exists must not move with them: its address would change, and what the former provider made would be left in its cloud.
//! So where more than one provider may run, a provider marks a Service with its name
//! ([`ANNOTATION_PROVIDER`](crate::well_known::ANNOTATION_PROVIDER)) in the write that adds the finalizer, and from then on
//! the Service belongs to it until it removes both. Without the finalizer a mark means nothing, as in a copied manifest.
//!
//! What follows for each provider:
//!
//! - It neither changes nor deletes anything for a Service that has another provider's mark, and leaves that finalizer alone.
//!   That holds also where the other provider doesn't run: its load balancer may exist, and only it can delete that.
//! - An operator moves a load balancer by setting the mark to another provider: the former one deletes what it made, if it has
//!   served the Service since its start, and the other one makes its own.
//! - A Service without a mark, from before there were marks, goes to the provider that serves its class now. What another
//!   provider made for it stays in that cloud, is reported with each list, and is deleted with the Service: see `ownership.rs`.
//!
//! Pure.

use super::Settings;
use crate::facts::service::ServiceFacts;

/// Which Services a provider serves.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceScope {
    /// The provider's name.
    pub(super) provider: String,
    /// See [`Settings::classes`].
    pub(super) classes: Vec<String>,
    /// See [`Settings::is_default`].
    pub(super) is_default: bool,
    /// See [`Settings::marks_services`].
    pub(super) marks_services: bool,
}

impl ServiceScope {
    pub(super) fn new(provider: &str, settings: &Settings) -> Self {
        let Settings { classes, is_default, marks_services, .. } = settings;
        Self {
            provider: provider.to_owned(),
            classes: classes.clone(),
            is_default: *is_default,
            marks_services: *marks_services,
        }
    }

    /// Whether a Service of type LoadBalancer belongs to another provider, or to another controller.
    pub(super) fn is_of_other(&self, facts: &ServiceFacts) -> bool {
        facts.is_load_balancer && !self.is_ours(facts)
    }

    /// Whether a Service has the finalizer with the mark of another provider.
    pub(super) fn is_marked_by_other(&self, facts: &ServiceFacts) -> bool {
        facts.marked_by().is_some_and(|provider| provider != self.provider)
    }

    /// The mark that a Service gets with the finalizer. A mark that meant nothing so far would mean something with it.
    pub(super) fn mark_for(&self, facts: &ServiceFacts) -> Option<String> {
        (self.marks_services || facts.mark.is_some()).then(|| self.provider.clone())
    }

    /// Whether a Service of ours lacks its mark.
    pub(super) fn lacks_mark(&self, facts: &ServiceFacts) -> bool {
        self.marks_services && facts.mark.as_ref() != Some(&self.provider)
    }

    /// Warns of a Service that would be ours, but has another provider's mark.
    pub(super) fn warning(&self, facts: &ServiceFacts) -> Option<String> {
        let other = facts.marked_by().filter(|other| *other != self.provider)?;
        (facts.is_load_balancer && self.has_class_of(facts)).then(|| {
            format!(
                "The load balancer stays with provider {other}, which made it, although provider {} serves such Services now. To \
                 move it, set the annotation {} to {}: its address changes. If provider {other} does not run any more, delete \
                 its load balancer in its cloud by hand",
                self.provider,
                crate::well_known::ANNOTATION_PROVIDER,
                self.provider
            )
        })
    }

    fn is_ours(&self, facts: &ServiceFacts) -> bool {
        facts.marked_by().map_or_else(|| self.has_class_of(facts), |provider| provider == self.provider)
    }

    fn has_class_of(&self, facts: &ServiceFacts) -> bool {
        facts.service.class.as_ref().map_or(self.is_default, |class| self.classes.contains(class))
    }
}

#[cfg(test)]
impl ServiceScope {
    /// The scope of a default provider named `test`, which marks no Services.
    pub(super) fn of(classes: &[&str]) -> Self {
        Self {
            provider: crate::model::PROVIDER.to_owned(),
            classes: classes.iter().map(|class| (*class).to_owned()).collect(),
            is_default: true,
            marks_services: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::well_known::FINALIZER_LOAD_BALANCER;

    fn facts(class: Option<&str>, mark: Option<&str>, has_finalizer: bool) -> ServiceFacts {
        let mut facts = ServiceFacts::balanced("a");
        facts.service.class = class.map(str::to_owned);
        facts.mark = mark.map(str::to_owned);
        if has_finalizer {
            facts.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
        }
        facts
    }

    #[test]
    fn a_service_belongs_to_the_provider_of_its_mark_else_of_its_class_else_to_the_default() {
        let default = ServiceScope { provider: "default".to_owned(), ..ServiceScope::of(&["d"]) };
        let other =
            ServiceScope { provider: "other".to_owned(), is_default: false, ..ServiceScope::of(&["o"]) };
        // The class, the mark, whether the Service has the finalizer, and whose it is.
        for (class, mark, has_finalizer, expected) in [
            (None, None, false, ["default"].as_slice()),
            (None, None, true, &["default"]),
            (Some("d"), None, false, &["default"]),
            (Some("o"), None, false, &["other"]),
            (Some("x"), None, true, &[]),
            (None, Some("other"), true, &["other"]),
            (None, Some("other"), false, &["default"]),
            (Some("d"), Some("other"), true, &["other"]),
            (Some("o"), Some("default"), true, &["default"]),
            (Some("x"), Some("other"), true, &["other"]),
            (None, Some("gone"), true, &[]),
            (Some("o"), Some("gone"), false, &["other"]),
        ] {
            let facts = facts(class, mark, has_finalizer);
            let row = format!("{class:?} {mark:?} {has_finalizer}");
            let owners: Vec<_> =
                [&default, &other].into_iter().filter(|scope| !scope.is_of_other(&facts)).collect();
            assert_eq!(owners.iter().map(|scope| &*scope.provider).collect::<Vec<_>>(), expected, "{row}");
            for scope in [&default, &other] {
                let is_marked = has_finalizer && mark.is_some_and(|mark| mark != scope.provider);
                assert_eq!(scope.is_marked_by_other(&facts), is_marked, "{row}");
                let would_be =
                    class.map_or(scope.is_default, |class| class.starts_with(&scope.provider[..1]));
                assert_eq!(
                    scope.warning(&facts).is_some(),
                    is_marked && would_be,
                    "{row} {}",
                    scope.provider
                );
            }
            let without_type = ServiceFacts { is_load_balancer: false, ..facts };
            assert!(!default.is_of_other(&without_type), "{row}");
        }
    }

    #[test]
    fn a_service_is_marked_where_several_providers_may_run_and_where_a_copied_mark_would_count() {
        for (marks_services, mark, given, lacks) in [
            (false, None, None, false),
            (false, Some("other"), Some("test"), false),
            (true, None, Some("test"), true),
            (true, Some("other"), Some("test"), true),
            (true, Some("test"), Some("test"), false),
        ] {
            let scope = ServiceScope { marks_services, ..ServiceScope::of(&[]) };
            let facts = facts(None, mark, false);
            assert_eq!(scope.mark_for(&facts).as_deref(), given, "{marks_services} {mark:?}");
            assert_eq!(scope.lacks_mark(&facts), lacks, "{marks_services} {mark:?}");
        }
    }
}
