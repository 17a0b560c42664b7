//! A provider that is loaded: `pileus-cloud`'s traits, implemented by calls to its component.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pileus_cloud::{Answer, Error, ErrorKind, Instances, NodeReference, Provider, Purpose};
use pileus_gate::Gate;

use crate::call::{Terms, call};
use crate::component::{Capability, Component};
use crate::description::Description;
use crate::egress::Denial;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::wire;

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
        metrics.loaded(name, &description.version, component.digest.short(), &component.contract);
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
        }
    }

    /// Looks up machines as [`Instances::lookup`] does, but says what became of a call that brought no answer.
    pub async fn lookup_or_fault(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Result<Vec<Result<Answer, Error>>, Error>, Fault> {
        let Some(instances) = self.component.instances.clone() else {
            return Err(Fault::Contract("it exports no instances".to_owned()));
        };
        let denial = Denial::default();
        let terms = Terms {
            provider: Arc::clone(&self.name),
            function: "lookup",
            configuration: Arc::clone(&self.configuration),
            gate: Some(self.gate.clone()),
            denial: denial.clone(),
            limits: self.limits.clone(),
            soft: self.limits.lookup_soft,
            hard: self.limits.lookup_hard,
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

#[async_trait]
impl Instances for Guest {
    async fn lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let started = Instant::now();
        let result = self.lookup_or_fault(purpose, nodes).await;
        let label = match &result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.as_str(),
            Err(fault) => fault.label(),
        };
        self.metrics.call_ended(&self.name, "lookup", label, started.elapsed());
        result.unwrap_or_else(|fault| {
            let kind = if fault.is_providers() { ErrorKind::Broken } else { ErrorKind::Unavailable };
            Err(Error::new(kind, format!("provider {}: lookup {fault}", self.name)))
        })
    }
}
