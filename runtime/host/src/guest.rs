//! A provider that is loaded, and how its component is called. `instances` makes lookups out of such calls,
//! `load_balancers` and `routes` changes of either.

mod instances;
mod load_balancers;
mod parts;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Answer, Error, ErrorKind, Instances, LoadBalancers, NodeReference, Provider, Purpose, Routes,
};
use pileus_gate::{Gate, Urgency, View};
use tokio::time::Instant;

use crate::call::{Terms, call};
use crate::component::{Capability, Component};
use crate::description::Description;
use crate::egress::Denial;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::wire;

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

/// One call of `lookup`.
#[derive(Clone, Copy)]
struct Question<'a> {
    purpose: Purpose,
    nodes: &'a [NodeReference],
    /// What it may read from the cache; none where it may read nothing.
    view: Option<&'a View>,
    soft: Duration,
    hard: Duration,
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
        let largest = |capability| self.description.call_shape(capability).largest_batch.max(1) as usize;
        let (largest_lookup_batch, largest_route_batch) =
            (largest(Capability::Instances), largest(Capability::Routes));
        let Component { instances, load_balancers, routes, .. } = &self.component;
        let [has_instances, balances_load, has_routes] =
            [instances.is_some(), load_balancers.is_some(), routes.is_some()];
        let guest = Arc::new(self);
        Provider {
            name: guest.name.to_string(),
            schemes: guest.description.provider_id_schemes.clone(),
            node_labels: guest.description.node_labels.clone(),
            largest_lookup_batch,
            instances: has_instances.then(|| Arc::clone(&guest) as Arc<dyn Instances>),
            service_requirements: guest.description.service_requirements(),
            load_balancers: balances_load.then(|| Arc::clone(&guest) as Arc<dyn LoadBalancers>),
            largest_route_batch,
            routes: has_routes.then(|| Arc::clone(&guest) as Arc<dyn Routes>),
        }
    }

    /// Looks up machines as [`Instances::lookup`] does, but in one call that reads nothing from the cache, and says what
    /// became of it where it brought no answer.
    pub async fn lookup_or_fault(&self, purpose: Purpose, nodes: &[NodeReference]) -> Result<Answers, Fault> {
        let Limits { lookup_soft: soft, lookup_hard: hard, .. } = self.limits;
        self.call_lookup(Question { purpose, nodes, view: None, soft, hard }).await
    }

    /// The terms of a call that reads no more from the cache than this view allows, and nothing without one.
    fn terms(
        &self,
        function: &'static str,
        urgency: Urgency,
        view: Option<&View>,
        [soft, hard]: [Duration; 2],
    ) -> Terms {
        let gate = self.gate.clone().with_urgency(urgency);
        Terms {
            provider: Arc::clone(&self.name),
            function,
            configuration: Arc::clone(&self.configuration),
            gate: Some(match view {
                Some(view) => gate.with_view(view.clone()),
                None => gate,
            }),
            denial: Denial::default(),
            limits: self.limits.clone(),
            urgency,
            patience: hard,
            soft,
            hard,
            metrics: self.metrics.clone(),
        }
    }

    /// Counts a call by what became of it.
    fn count<T>(&self, function: &'static str, started: Instant, result: &Result<Result<T, Error>, Fault>) {
        let label = match result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.as_str(),
            Err(fault) => fault.label(),
        };
        self.metrics.call_ended(&self.name, function, label, started.elapsed());
    }

    async fn call_lookup(&self, question: Question<'_>) -> Result<Answers, Fault> {
        let Question { purpose, nodes, view, soft, hard } = question;
        let Some(instances) = self.component.instances.clone() else {
            return Err(Fault::Contract("it exports no instances".to_owned()));
        };
        let terms = Terms {
            patience: self.limits.lookup_hard,
            ..self.terms("lookup", urgency(purpose), view, [soft, hard])
        };
        let denial = terms.denial.clone();
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
    if error.kind == ErrorKind::Denied
        && let Some(reason) = denial.explains(&error.message)
    {
        error.message = format!("{}: {reason}", error.message);
    }
    error
}

/// Somebody waits for a Node that joins, and for one whose machine may be gone. Facts may be renewed a little later.
const fn urgency(purpose: Purpose) -> Urgency {
    match purpose {
        Purpose::Initialise | Purpose::Confirm => Urgency::Initialise,
        Purpose::Refresh => Urgency::Background,
    }
}
