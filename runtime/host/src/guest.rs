//! A provider that is loaded: `pileus-cloud`'s traits, implemented by calls to its component.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pileus_cloud::{Answer, Error, ErrorKind, Instances, NodeReference, Provider, Purpose};
use pileus_gate::{Gate, Urgency};

use crate::call::{Terms, call};
use crate::component::{Capability, Component};
use crate::description::Description;
use crate::egress::Denial;
use crate::fault::Fault;
use crate::halves::Halves;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::wire;

/// Repeats of a failed lookup begin within so many times what a lookup may take, 60 s by default. A provider that hangs at
/// one Node among 5,000 takes 10 s, 5 s, and 11 times 2.5 s of that at worst, which leaves a quarter for the neighbours'
/// answers. Longer should nobody wait who isn't the culprit: the next lookup goes out when this one has ended.
const REPEATING: u32 = 3;

/// See [`Instances::lookup`].
type Answers = Result<Vec<Result<Answer, Error>>, Error>;

/// A component with its configuration and its gate, ready for calls.
pub struct Guest {
    component: Component,
    name: Arc<str>,
    description: Description,
    configuration: Arc<str>,
    gate: Gate,
    limits: Limits,
    metrics: Metrics,
}

impl Guest {
    /// Puts a provider together. `name` is the operator's name for it; `configuration` is what
    /// [`Component::configure`] accepted, and `gate` was made from what that returned.
    pub fn new(
        component: Component,
        name: &str,
        description: Description,
        configuration: &str,
        gate: Gate,
        metrics: &Metrics,
    ) -> Self {
        metrics.loaded(name, &description.version, &component);
        Self {
            component,
            name: name.into(),
            description,
            configuration: configuration.into(),
            gate,
            limits: Limits::default(),
            metrics: metrics.clone(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The provider as controllers hold it.
    pub fn provider(self) -> Provider {
        let shape = self.description.call_shape(Capability::Instances);
        let has_instances = self.component.instances.is_some();
        Provider {
            name: self.name.to_string(),
            schemes: self.description.provider_id_schemes.clone(),
            node_labels: self.description.node_labels.clone(),
            largest_lookup: shape.largest_batch.max(1) as usize,
            instances: has_instances.then(|| Arc::new(self) as Arc<dyn Instances>),
            largest_route_change: 1,
            routes: None,
        }
    }

    /// Looks up machines as [`Instances::lookup`] does, but in one call, and says what became of a call that brought no
    /// answer.
    pub async fn lookup_or_fault(&self, purpose: Purpose, nodes: &[NodeReference]) -> Result<Answers, Fault> {
        self.call_lookup(purpose, nodes, 1).await
    }

    /// One call, in so many times less time than the limits say.
    async fn call_lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
        haste: u32,
    ) -> Result<Answers, Fault> {
        let Some(instances) = self.component.instances.clone() else {
            return Err(Fault::Contract("it exports no instances".to_owned()));
        };
        let denial = Denial::default();
        let terms = Terms {
            provider: Arc::clone(&self.name),
            function: "lookup",
            configuration: Arc::clone(&self.configuration),
            gate: Some(self.gate.clone().with_urgency(urgency(purpose))),
            denial: denial.clone(),
            limits: self.limits.clone(),
            urgency: urgency(purpose),
            patience: self.limits.lookup_hard,
            soft: self.limits.lookup_soft / haste,
            hard: self.limits.lookup_hard / haste,
            metrics: self.metrics.clone(),
        };
        let wire_nodes: Vec<_> = nodes.iter().map(wire::node_to_wire).collect();
        let answered = call(&self.component, terms, move |store, instance| {
            Box::pin(async move {
                let instances = instances.load(&mut *store, &instance)?;
                instances.call_lookup(store, wire::purpose_to_wire(purpose), &wire_nodes).await
            })
        })
        .await?;
        let answers = match answered {
            Ok(answers) => answers,
            Err(error) => return Ok(Err(explain(wire::error_from_wire(error), &denial))),
        };
        if answers.len() != nodes.len() {
            let (sent, came) = (nodes.len(), answers.len());
            return Err(Fault::Contract(format!("lookup answered {came} times about {sent} nodes")));
        }
        let schemes = &self.description.provider_id_schemes;
        let read = |(node, answer): (&NodeReference, _)| {
            wire::answer_from_wire(&node.name, answer, schemes).map_err(|error| explain(error, &denial))
        };
        Ok(Ok(nodes.iter().zip(answers).map(read).collect()))
    }
}

/// Says what was denied and what to grant, where the provider could only say that something was.
fn explain(mut error: Error, denial: &Denial) -> Error {
    if let (ErrorKind::Denied, Some(reason)) = (error.kind, denial.reason()) {
        error.message = format!("{}: {reason}", error.message);
    }
    error
}

/// What says that the cloud has had enough: more repeats would be more of what it had enough of.
fn throttling(answer: &Result<Answer, Error>) -> Option<Error> {
    answer.as_ref().err().filter(|error| matches!(error.kind, ErrorKind::Throttled(_))).cloned()
}

/// Somebody waits for a Node that joins, and for one whose machine may be gone. Facts may be renewed a little later.
const fn urgency(purpose: Purpose) -> Urgency {
    match purpose {
        Purpose::Initialise | Purpose::Confirm => Urgency::Initialise,
        Purpose::Refresh => Urgency::Background,
    }
}

#[async_trait]
impl Instances for Guest {
    async fn lookup(&self, purpose: Purpose, nodes: &[NodeReference]) -> Answers {
        match self.counted_lookup(purpose, nodes, 1).await {
            Ok(answers) => answers,
            Err(fault) if fault.is_providers() && nodes.len() > 1 => {
                Ok(self.lookup_in_halves(purpose, nodes, fault).await)
            }
            Err(fault) => Err(self.failed("lookup", &fault)),
        }
    }
}

impl Guest {
    async fn counted_lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
        haste: u32,
    ) -> Result<Answers, Fault> {
        let started = Instant::now();
        let result = self.call_lookup(purpose, nodes, haste).await;
        let label = match &result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.as_str(),
            Err(fault) => fault.label(),
        };
        self.metrics.call_ended(&self.name, "lookup", label, started.elapsed());
        result
    }

    /// Finds the Nodes that the provider fails at, and answers for all others.
    async fn lookup_in_halves(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
        fault: Fault,
    ) -> Vec<Result<Answer, Error>> {
        let until = Instant::now() + self.limits.lookup_hard * REPEATING;
        let mut halves = Halves::of(nodes.len(), fault);
        let mut settled = Vec::new();
        let mut throttled = None;
        while Instant::now() < until
            && throttled.is_none()
            && let Some(part) = halves.next()
        {
            self.metrics.repeated(&self.name, "lookup");
            let (start, asked) = (part.nodes.start, nodes.get(part.nodes.clone()).unwrap_or_default());
            let answers = match self.counted_lookup(purpose, asked, part.haste).await {
                Ok(Ok(answers)) => {
                    halves.answered(&part);
                    answers
                }
                // It got through, but without an answer that tells where the culprit is not.
                Ok(Err(error)) => vec![Err(error); asked.len()],
                Err(fault) if !fault.is_providers() => vec![Err(self.failed("lookup", &fault)); asked.len()],
                Err(fault) => {
                    let culprit =
                        if let [node] = asked { Some(Err(self.culprit(node, &fault))) } else { None };
                    halves.failed(part, fault);
                    culprit.into_iter().collect()
                }
            };
            throttled = answers.iter().find_map(throttling);
            settled.push((start, answers));
        }
        for part in halves.rest() {
            let error = throttled.clone().unwrap_or_else(|| {
                self.failed(&format!("lookup of {} nodes", part.nodes.len()), &part.because)
            });
            tracing::warn!(nodes = part.nodes.len(), %error, "the rest is not looked up in smaller parts now");
            settled.push((part.nodes.start, vec![Err(error); part.nodes.len()]));
        }
        settled.sort_by_key(|(start, _)| *start);
        settled.into_iter().flat_map(|(_, answers)| answers).collect()
    }

    fn culprit(&self, node: &NodeReference, fault: &Fault) -> Error {
        self.metrics.found_culprit(&self.name, "lookup");
        let error = self.failed(&format!("lookup of node {}", node.name), fault);
        tracing::warn!(node = %node.name, %error, "the provider fails at this node; its neighbours were looked up without it");
        error
    }

    /// What a fault means to whoever wanted an answer.
    fn failed(&self, what: &str, fault: &Fault) -> Error {
        let kind = if fault.is_providers() { ErrorKind::Broken } else { ErrorKind::Unavailable };
        Error::new(kind, format!("provider {}: {what} {fault}", self.name))
    }
}
