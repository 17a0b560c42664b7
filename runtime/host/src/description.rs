//! What a provider says of itself, asked once at load and checked before anything is believed.

use std::sync::Arc;

use pileus_cloud::{AnnotationType, ServiceRequirements};
use pileus_gate::Urgency;

use crate::bindings::info;
use crate::call::{Terms, call};
use crate::component::{Capability, Component};
use crate::egress::Denial;
use crate::error::Error;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::one_line::is_obeyed;
use crate::settings::Settings;
use crate::wire::text;

/// The most schemes of provider IDs, labels of Nodes and annotations of Services that a provider may name. Each Node and
/// Service is held against them, in the host's time.
const MANY: usize = 256;

/// What a provider is, whatever its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The provider ID schemes that are its own.
    pub provider_id_schemes: Vec<String>,
    /// The JSON Schema of its configuration.
    pub configuration_schema: serde_json::Value,
    /// The Service annotations that it reads.
    pub service_annotations: Vec<Annotation>,
    /// What else it reads of Services.
    pub service_facts: ServiceFacts,
    /// The keys of the Node labels that it reads.
    pub node_labels: Vec<String>,
    /// How it wants to be called.
    pub call_shapes: Vec<CallShape>,
}

/// A Service annotation that a provider reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Its key, or a pattern with one `*`.
    pub name: String,
    /// The type of its value.
    pub value: AnnotationType,
    /// What holds where it is absent.
    pub default: Option<String>,
    /// What it does.
    pub description: String,
}

/// What a provider reads of Services beyond what each says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// The labels of the Service's namespace.
    pub namespace_labels: bool,
    /// The Service's endpoints on each Node.
    pub endpoints: bool,
    /// The Services of the cluster that aren't being changed.
    pub known: bool,
}

impl ServiceFacts {
    /// Those that it reads, as the contract writes them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let Self { namespace_labels, endpoints, known } = self;
        let all = [("namespace-labels", namespace_labels), ("endpoints", endpoints), ("known", known)];
        all.into_iter().filter_map(|(name, is_read)| is_read.then_some(name))
    }
}

/// How a capability wants to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallShape {
    /// Which one.
    pub capability: Capability,
    /// The most items of one call.
    pub largest_batch: u32,
    /// Whether two calls may run at the same time.
    pub side_by_side: bool,
}

impl Component {
    /// Asks the provider what it is.
    ///
    /// # Errors
    /// [`Error::Info`] where it doesn't answer, [`Error::Description`] where the answer can't be.
    pub async fn describe(&self, limits: &Limits, metrics: &Metrics) -> Result<Description, Error> {
        let info = self.info.clone();
        let (instances, load_balancers, routes) =
            (self.instances.clone(), self.load_balancers.clone(), self.routes.clone());
        let answer = call(self, info_terms("describe", limits, metrics), move |store, instance| {
            Box::pin(async move {
                let info = info.load(&mut *store, &instance).map_err(unfit)?;
                // Else one that was built for another contract would run until somebody needs what doesn't fit.
                if let Some(instances) = instances {
                    instances.load(&mut *store, &instance).map_err(unfit)?;
                }
                if let Some(load_balancers) = load_balancers {
                    load_balancers.load(&mut *store, &instance).map_err(unfit)?;
                }
                if let Some(routes) = routes {
                    routes.load(&mut *store, &instance).map_err(unfit)?;
                }
                info.call_describe(store).await
            })
        })
        .await
        .map_err(|fault| Error::Info { function: "describe", fault })?;
        description(answer)
    }
}

/// An export of another type than the contract's, which no instance shows before it is looked up.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unfit(error: wasmtime::Error) -> wasmtime::Error {
    let problem = text(&format!("{error:#}"));
    Fault::Contract(format!("an export has another type, so build it anew with this contract: {problem}"))
        .into()
}

pub(crate) fn info_terms(function: &'static str, limits: &Limits, metrics: &Metrics) -> Terms {
    Terms {
        provider: Arc::from("(loading)"),
        function,
        configuration: Arc::from(""),
        gate: None,
        denial: Denial::default(),
        limits: limits.clone(),
        // It computes for a moment, and a start or a swap waits for it.
        urgency: Urgency::Initialise,
        patience: limits.info,
        soft: limits.info,
        hard: limits.info,
        metrics: metrics.clone(),
    }
}

impl Description {
    /// How a capability wants to be called: single items, one at a time, where it doesn't say.
    pub fn call_shape(&self, capability: Capability) -> CallShape {
        let said = self.call_shapes.iter().find(|shape| shape.capability == capability);
        said.copied().unwrap_or(CallShape { capability, largest_batch: 1, side_by_side: false })
    }

    /// The same with what a configuration says of how it wants to be called.
    #[must_use]
    pub fn with_settings(mut self, settings: &Settings) -> Self {
        for shape in &mut self.call_shapes {
            shape.side_by_side &= !settings.one_at_a_time.contains(&shape.capability);
        }
        self
    }

    /// How it wants Services brought to it.
    pub fn service_requirements(&self) -> ServiceRequirements {
        let shape = self.call_shape(Capability::LoadBalancers);
        let ServiceFacts { namespace_labels, endpoints, known } = self.service_facts;
        let annotation = |annotation: &Annotation| (annotation.name.clone(), annotation.value);
        ServiceRequirements {
            largest_batch: shape.largest_batch.max(1) as usize,
            allows_concurrent_calls: shape.side_by_side,
            annotations: self.service_annotations.iter().map(annotation).collect(),
            wants_namespace_labels: namespace_labels,
            wants_endpoints: endpoints,
            wants_known: known,
        }
    }
}

fn description(answer: info::Description) -> Result<Description, Error> {
    if let Some((what, found)) = too_many(&answer) {
        return Err(Error::Description(format!("it names {found} {what}, where at most {MANY} are taken")));
    }
    let info::Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations,
        service_facts: facts,
        node_labels,
        call_shapes,
        extra: _, // nothing is defined for it yet
    } = answer;
    let wrong = |problem: String| Err(Error::Description(problem));
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 63
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !is_name(&name) {
        return wrong(format!(
            "its name is {:?}; a name has 1 to 63 lower-case letters, digits and dashes",
            text(&name)
        ));
    }
    if version.is_empty() || version.len() > 63 || version.chars().any(|c| is_obeyed(c) || c.is_whitespace())
    {
        return wrong(format!("its version is {:?}; expected one like 1.2.3", text(&version)));
    }
    let is_scheme = |scheme: &String| {
        scheme.len() <= 63
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if let Some(scheme) = provider_id_schemes.iter().find(|scheme| !is_scheme(scheme)) {
        return wrong(format!("{:?} is no scheme of provider IDs; expected one like azure", text(scheme)));
    }
    if let Some(key) = node_labels.iter().find(|key| !is_key(key)) {
        return wrong(format!("{:?} is no key of a label", text(key)));
    }
    let Ok(configuration_schema) = serde_json::from_str(&configuration_schema) else {
        return wrong("the schema of its configuration is not JSON".to_owned());
    };
    Ok(Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations: service_annotations.into_iter().map(annotation).collect::<Result<_, _>>()?,
        service_facts: service_facts(facts),
        node_labels,
        call_shapes: call_shapes.iter().map(call_shape).collect(),
    })
}

/// Whether Kubernetes might take it for the key of a label or an annotation.
fn is_key(key: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !key.is_empty() && key.len() <= 317 && key.chars().all(good) // a domain of 253, a slash, a name of 63
}

/// What a provider names more of than is taken.
fn too_many(answer: &info::Description) -> Option<(&'static str, usize)> {
    let counts = [
        ("schemes of provider IDs", answer.provider_id_schemes.len()),
        ("annotations of Services", answer.service_annotations.len()),
        ("labels of Nodes", answer.node_labels.len()),
        ("call shapes", answer.call_shapes.len()),
    ];
    counts.into_iter().find(|(_, found)| *found > MANY)
}

/// Its name is checked: keys of Services are held against it, and those that people write are told by it.
fn annotation(answer: info::Annotation) -> Result<Annotation, Error> {
    let info::Annotation { name, value, default, description, extra: _ } = answer;
    if !is_key(&name.replacen('*', "", 1)) {
        let problem = format!("{:?} is no key of an annotation, nor one with one * in it", text(&name));
        return Err(Error::Description(problem));
    }
    let value = match value {
        info::AnnotationType::Text => AnnotationType::Text,
        info::AnnotationType::Boolean => AnnotationType::Boolean,
        info::AnnotationType::Integer => AnnotationType::Integer,
        info::AnnotationType::TextList => AnnotationType::TextList,
        info::AnnotationType::RangeList => AnnotationType::RangeList,
    };
    Ok(Annotation {
        name,
        value,
        default: default.map(|value| text(&value)),
        description: text(&description),
    })
}

fn service_facts(flags: info::ServiceFacts) -> ServiceFacts {
    ServiceFacts {
        namespace_labels: flags.contains(info::ServiceFacts::NAMESPACE_LABELS),
        endpoints: flags.contains(info::ServiceFacts::ENDPOINTS),
        known: flags.contains(info::ServiceFacts::KNOWN),
    }
}

fn call_shape(answer: &info::CallShape) -> CallShape {
    let &info::CallShape { capability, largest_batch, side_by_side, extra: _ } = answer;
    CallShape { capability: capability_of(capability), largest_batch, side_by_side }
}

pub(crate) const fn capability_of(named: info::Capability) -> Capability {
    match named {
        info::Capability::Instances => Capability::Instances,
        info::Capability::LocalInstance => Capability::LocalInstance,
        info::Capability::LoadBalancers => Capability::LoadBalancers,
        info::Capability::Routes => Capability::Routes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> info::Description {
        info::Description {
            name: "cloud".to_owned(),
            version: "1.2.3".to_owned(),
            provider_id_schemes: vec!["cloud".to_owned()],
            configuration_schema: "{}".to_owned(),
            service_annotations: Vec::new(),
            service_facts: info::ServiceFacts::empty(),
            node_labels: vec!["example.com/pool".to_owned()],
            call_shapes: Vec::new(),
            extra: Vec::new(),
        }
    }

    fn named(name: &str) -> info::Annotation {
        info::Annotation {
            name: name.to_owned(),
            value: info::AnnotationType::RangeList,
            default: None,
            description: String::new(),
            extra: Vec::new(),
        }
    }

    type Change = fn(&mut info::Description);

    #[test]
    fn what_a_provider_can_not_be_is_refused() {
        assert!(description(answer()).is_ok());
        let rows: [(Change, &str); 14] = [
            (|it| it.name = "My Cloud".to_owned(), "its name is \"My Cloud\""),
            (|it| it.name = "x".repeat(64), "its name is"),
            (|it| it.version = "1 2".to_owned(), "its version is"),
            (|it| it.version = String::new(), "its version is"),
            (|it| it.version = "1\u{202e}2".to_owned(), "its version is"),
            (|it| it.provider_id_schemes = vec!["a://".to_owned()], "is no scheme"),
            (|it| it.node_labels = vec!["\x1b[31m".to_owned()], "is no key of a label"),
            (|it| it.configuration_schema = "{".to_owned(), "is not JSON"),
            (|it| it.provider_id_schemes = vec!["s".repeat(64)], "is no scheme"),
            (|it| it.provider_id_schemes = vec!["a".to_owned(); MANY + 1], "257 schemes of provider IDs"),
            (|it| it.node_labels = vec!["a".to_owned(); MANY + 1], "257 labels of Nodes"),
            (|it| it.service_annotations = vec![named("")], "\"\" is no key of an annotation"),
            (|it| it.service_annotations = vec![named("example.com/*-*")], "is no key of an annotation"),
            (|it| it.service_annotations = vec![named("a b")], "is no key of an annotation"),
        ];
        for (change, expected) in rows {
            let mut answer = answer();
            change(&mut answer);
            let error = description(answer).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_capability_without_a_shape_is_called_with_single_items_one_at_a_time() {
        let shape = description(answer()).unwrap().call_shape(Capability::Routes);
        assert_eq!((shape.largest_batch, shape.side_by_side), (1, false));
    }

    #[test]
    fn a_configuration_can_forbid_calls_side_by_side() {
        let shape = |capability| info::CallShape {
            capability,
            largest_batch: 7,
            side_by_side: true,
            extra: Vec::new(),
        };
        let call_shapes = vec![shape(info::Capability::LoadBalancers), shape(info::Capability::Routes)];
        let settings = Settings {
            wishes: Vec::new(),
            rules: Vec::new(),
            limits: Vec::new(),
            one_at_a_time: vec![Capability::LoadBalancers],
        };
        let described = description(info::Description { call_shapes, ..answer() }).unwrap();
        let described = described.with_settings(&settings);
        let is_side_by_side = |capability| described.call_shape(capability).side_by_side;
        assert!(!is_side_by_side(Capability::LoadBalancers) && is_side_by_side(Capability::Routes));
    }

    #[test]
    fn services_are_brought_as_the_provider_says() {
        assert_eq!(description(answer()).unwrap().service_requirements(), ServiceRequirements::default());
        let shape = info::CallShape {
            capability: info::Capability::LoadBalancers,
            largest_batch: 7,
            side_by_side: true,
            extra: Vec::new(),
        };
        let said = info::Description {
            service_annotations: vec![named("example.com/port_*_open")],
            service_facts: info::ServiceFacts::KNOWN | info::ServiceFacts::ENDPOINTS,
            call_shapes: vec![shape],
            ..answer()
        };
        let expected = ServiceRequirements {
            largest_batch: 7,
            allows_concurrent_calls: true,
            annotations: vec![("example.com/port_*_open".to_owned(), AnnotationType::RangeList)],
            wants_namespace_labels: false,
            wants_endpoints: true,
            wants_known: true,
        };
        let description = description(said).unwrap();
        assert_eq!(description.service_requirements(), expected);
        assert_eq!(description.service_facts.names().collect::<Vec<_>>(), ["endpoints", "known"]);
    }
}
