//! What a provider says about itself: asked once at load, and checked before the host relies on it.

mod annotation;

use pileus_cloud::ServiceRequirements;

use crate::bindings::info;
use crate::call::{CallOptions, call};
use crate::component::{Capability, Component};
use crate::error::Error;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metadata_key::is_key;
use crate::metrics::Metrics;
use crate::retained;
use crate::sanitize::{is_control, sanitize_message};
use crate::settings::Settings;
pub use annotation::Annotation;
use annotation::annotation;

/// The most schemes of provider IDs, labels of Nodes and annotations of Services that a provider may name. The host
/// compares each Node and Service with them.
const MAX_NAMES: usize = 256;

/// What a provider says about itself, regardless of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The schemes of its provider IDs.
    pub provider_id_schemes: Vec<String>,
    /// The JSON Schema of its configuration.
    pub configuration_schema: serde_json::Value,
    /// The Service annotations that it reads.
    pub service_annotations: Vec<Annotation>,
    /// Which other facts it reads with Services.
    pub service_facts: ServiceFacts,
    /// The keys of the Node labels that it reads. After [`Description::with_settings`], a `*` at the end stands for any text.
    pub node_labels: Vec<String>,
    /// How it wants to be called.
    pub call_shapes: Vec<CallShape>,
}

/// What a provider reads with a Service, beyond the Service itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the contract, each independent of the others")]
pub struct ServiceFacts {
    /// The labels of the Service's namespace.
    pub namespace_labels: bool,
    /// The Service's endpoints on each Node.
    pub endpoints: bool,
    /// The Services of the cluster that a call doesn't change.
    pub known: bool,
    /// Services with ports that have no node port.
    pub missing_node_ports: bool,
}

impl ServiceFacts {
    /// The names of those that it reads, as in the contract.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let Self { namespace_labels, endpoints, known, missing_node_ports } = self;
        let all = [
            ("namespace-labels", namespace_labels),
            ("endpoints", endpoints),
            ("known", known),
            ("missing-node-ports", missing_node_ports),
        ];
        all.into_iter().filter_map(|(name, is_read)| is_read.then_some(name))
    }
}

/// How a capability wants to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallShape {
    /// The capability.
    pub capability: Capability,
    /// The most items of one call.
    pub largest_batch: u32,
    /// Whether two calls may run at the same time.
    pub side_by_side: bool,
}

impl Component {
    /// Calls the provider's `describe`.
    ///
    /// # Errors
    /// [`Error::Info`] where the call fails, [`Error::Description`] where the answer is invalid.
    pub async fn describe(&self, limits: &Limits, metrics: &Metrics) -> Result<Description, Error> {
        let info = self.info.clone();
        let (instances, local_instance) = (self.instances.clone(), self.local_instance.clone());
        let (load_balancers, routes) = (self.load_balancers.clone(), self.routes.clone());
        let options = CallOptions::for_info("describe", limits, metrics);
        let answer = call(self, options, move |store, instance| {
            Box::pin(async move {
                let info = info.load(&mut *store, &instance).map_err(mismatch)?;
                // Checked here, so that a component with other types fails at load and not at its first change.
                if let Some(instances) = instances {
                    instances.load(&mut *store, &instance).map_err(mismatch)?;
                }
                if let Some(local_instance) = local_instance {
                    local_instance.load(&mut *store, &instance).map_err(mismatch)?;
                }
                if let Some(load_balancers) = load_balancers {
                    load_balancers.load(&mut *store, &instance).map_err(mismatch)?;
                }
                if let Some(routes) = routes {
                    routes.load(&mut *store, &instance).map_err(mismatch)?;
                }
                info.call_describe(store).await
            })
        })
        .await
        .and_then(|answer| retained::check_description(&answer).map(|()| answer))
        .map_err(|fault| Error::Info { function: "describe", fault })?;
        description(answer)
    }
}

/// An export whose type differs from the contract's, which wasmtime reports only when the export is looked up.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn mismatch(error: wasmtime::Error) -> wasmtime::Error {
    let problem = sanitize_message(&format!("{error:#}"));
    Fault::Contract(format!("an export has another type, so rebuild it with this contract: {problem}")).into()
}

impl Description {
    /// How a capability wants to be called. By default a call takes one item, and calls don't run side by side.
    pub fn call_shape(&self, capability: Capability) -> CallShape {
        let declared = self.call_shapes.iter().find(|shape| shape.capability == capability);
        declared.copied().unwrap_or(CallShape { capability, largest_batch: 1, side_by_side: false })
    }

    /// Applies what follows from a configuration: capabilities that may not be called side by side, and more Node labels.
    #[must_use]
    pub fn with_settings(mut self, settings: &Settings) -> Self {
        for shape in &mut self.call_shapes {
            shape.side_by_side &= !settings.one_at_a_time.contains(&shape.capability);
        }
        for key in &settings.node_labels {
            if !self.node_labels.contains(key) {
                self.node_labels.push(key.clone());
            }
        }
        self
    }

    /// The keys of the annotations that the provider sets.
    fn written_annotations(&self) -> Vec<String> {
        let written = self.service_annotations.iter().filter(|annotation| annotation.is_written);
        written.map(|annotation| annotation.name.clone()).collect()
    }

    /// Which facts the provider wants with Services, and how it wants to be called about them.
    pub fn service_requirements(&self) -> ServiceRequirements {
        let shape = self.call_shape(Capability::LoadBalancers);
        let ServiceFacts { namespace_labels, endpoints, known, missing_node_ports } = self.service_facts;
        let annotation = |annotation: &Annotation| (annotation.name.clone(), annotation.value);
        ServiceRequirements {
            largest_batch: shape.largest_batch.max(1) as usize,
            allows_concurrent_calls: shape.side_by_side,
            annotations: self.service_annotations.iter().map(annotation).collect(),
            written_annotations: self.written_annotations(),
            wants_namespace_labels: namespace_labels,
            wants_endpoints: endpoints,
            wants_known: known,
            takes_missing_node_ports: missing_node_ports,
            ..ServiceRequirements::default()
        }
    }
}

fn description(answer: info::Description) -> Result<Description, Error> {
    if let Some((what, found)) = too_many(&answer) {
        return Err(Error::Description(format!("it has {found} {what}; the limit is {MAX_NAMES}")));
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
    let invalid = |problem: String| Err(Error::Description(problem));
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 63
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !is_name(&name) {
        return invalid(format!(
            "invalid name {:?}: a name has 1 to 63 lower-case letters, digits and dashes",
            sanitize_message(&name)
        ));
    }
    if version.is_empty() || version.len() > 63 || version.chars().any(|c| is_control(c) || c.is_whitespace())
    {
        return invalid(format!("invalid version {:?}: expected one like 1.2.3", sanitize_message(&version)));
    }
    let is_scheme = |scheme: &String| {
        scheme.len() <= 63
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if let Some(scheme) = provider_id_schemes.iter().find(|scheme| !is_scheme(scheme)) {
        return invalid(format!(
            "invalid scheme of provider IDs {:?}: expected one like azure",
            sanitize_message(scheme)
        ));
    }
    if let Some(key) = node_labels.iter().find(|key| !is_key(key)) {
        return invalid(format!("invalid label key {:?}", sanitize_message(key)));
    }
    let Ok(configuration_schema) = serde_json::from_str(&configuration_schema) else {
        return invalid("the schema of its configuration is not JSON".to_owned());
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

/// The first list that is longer than the limit, and its length.
fn too_many(answer: &info::Description) -> Option<(&'static str, usize)> {
    let counts = [
        ("schemes of provider IDs", answer.provider_id_schemes.len()),
        ("annotations of Services", answer.service_annotations.len()),
        ("labels of Nodes", answer.node_labels.len()),
        ("call shapes", answer.call_shapes.len()),
    ];
    counts.into_iter().find(|(_, found)| *found > MAX_NAMES)
}

fn service_facts(flags: info::ServiceFacts) -> ServiceFacts {
    ServiceFacts {
        namespace_labels: flags.contains(info::ServiceFacts::NAMESPACE_LABELS),
        endpoints: flags.contains(info::ServiceFacts::ENDPOINTS),
        known: flags.contains(info::ServiceFacts::KNOWN),
        missing_node_ports: flags.contains(info::ServiceFacts::MISSING_NODE_PORTS),
    }
}

fn call_shape(answer: &info::CallShape) -> CallShape {
    let &info::CallShape { capability, largest_batch, side_by_side, extra: _ } = answer;
    CallShape { capability: capability.into(), largest_batch, side_by_side }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::AnnotationType;

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
            written: false,
            description: String::new(),
            extra: Vec::new(),
        }
    }

    type Change = fn(&mut info::Description);

    #[test]
    fn an_invalid_description_is_refused() {
        assert!(description(answer()).is_ok());
        let rows: [(Change, &str); 14] = [
            (|it| it.name = "My Cloud".to_owned(), "invalid name \"My Cloud\""),
            (|it| it.name = "x".repeat(64), "invalid name"),
            (|it| it.version = "1 2".to_owned(), "invalid version"),
            (|it| it.version = String::new(), "invalid version"),
            (|it| it.version = "1\u{202e}2".to_owned(), "invalid version"),
            (|it| it.provider_id_schemes = vec!["a://".to_owned()], "invalid scheme"),
            (|it| it.node_labels = vec!["\x1b[31m".to_owned()], "invalid label key"),
            (|it| it.configuration_schema = "{".to_owned(), "is not JSON"),
            (|it| it.provider_id_schemes = vec!["s".repeat(64)], "invalid scheme"),
            (
                |it| it.provider_id_schemes = vec!["a".to_owned(); MAX_NAMES + 1],
                "257 schemes of provider IDs",
            ),
            (|it| it.node_labels = vec!["a".to_owned(); MAX_NAMES + 1], "257 labels of Nodes"),
            (|it| it.service_annotations = vec![named("")], "invalid annotation \"\""),
            (|it| it.service_annotations = vec![named("example.com/*-*")], "invalid annotation"),
            (|it| it.service_annotations = vec![named("a b")], "invalid annotation"),
        ];
        for (change, expected) in rows {
            let mut answer = answer();
            change(&mut answer);
            let error = description(answer).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_capability_without_a_shape_is_called_with_one_item_at_a_time() {
        let shape = description(answer()).unwrap().call_shape(Capability::Routes);
        assert_eq!((shape.largest_batch, shape.side_by_side), (1, false));
    }

    #[test]
    fn a_configuration_can_name_more_node_labels() {
        let node_labels = ["example.com/pool", "example.com/zone-*"].map(str::to_owned).to_vec();
        let settings = Settings { node_labels, ..Settings::default() };
        let described = description(answer()).unwrap().with_settings(&settings);
        assert_eq!(described.node_labels, ["example.com/pool", "example.com/zone-*"], "each once");
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
        let described = description(info::Description { call_shapes, ..answer() }).unwrap();
        let one_at_a_time = vec![Capability::LoadBalancers];
        let described = described.with_settings(&Settings { one_at_a_time, ..Settings::default() });
        let allows_concurrent_calls = |capability| described.call_shape(capability).side_by_side;
        assert!(
            !allows_concurrent_calls(Capability::LoadBalancers)
                && allows_concurrent_calls(Capability::Routes)
        );
    }

    #[test]
    fn service_terms_follow_the_description() {
        assert_eq!(description(answer()).unwrap().service_requirements(), ServiceRequirements::default());
        let shape = info::CallShape {
            capability: info::Capability::LoadBalancers,
            largest_batch: 7,
            side_by_side: true,
            extra: Vec::new(),
        };
        let described = info::Description {
            service_annotations: vec![named("example.com/port_*_open")],
            service_facts: info::ServiceFacts::KNOWN
                | info::ServiceFacts::ENDPOINTS
                | info::ServiceFacts::MISSING_NODE_PORTS,
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
            takes_missing_node_ports: true,
            ..ServiceRequirements::default()
        };
        let description = description(described).unwrap();
        assert_eq!(description.service_requirements(), expected);
        assert_eq!(
            description.service_facts.names().collect::<Vec<_>>(),
            ["endpoints", "known", "missing-node-ports"]
        );
    }
}
