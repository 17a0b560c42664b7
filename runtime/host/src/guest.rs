//! A loaded provider. It implements `pileus-cloud`'s traits by calls to its component: `instances` and `local_instance`
//! lookups, `load_balancers` and `routes` lists and changes. `repeat` handles batches that the provider fails at.

mod instances;
mod load_balancers;
mod local_instance;
mod repeat;
mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Error, ErrorKind, LocalInstance, Provider, ServiceRequirements};
use pileus_gate::{Gate, MemoryBudget, Replies, ReplyCounts, Urgency, View};
use tokio::time::Instant;

use crate::call::CallOptions;
use crate::change_deadline::ChangeDeadline;
use crate::component::{Capability, Component};
use crate::declaration::Declaration;
use crate::description::Description;
use crate::egress::Denials;
use crate::evidence;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::metrics::{InfoLabels, Metrics};
use repeat::Outcomes;

/// The items of a list, of which nothing is known before.
const MANY: usize = usize::MAX;

/// A component with its configuration and its gate, ready for calls.
pub struct Guest {
    component: Arc<Component>,
    name: Arc<str>,
    description: Description,
    configuration: Arc<str>,
    /// The facts about the host's identity, by name.
    identity: Arc<BTreeMap<String, String>>,
    gate: Gate,
    limits: Limits,
    change_deadline: ChangeDeadline,
    /// The memory that the host holds for all its calls.
    budget: MemoryBudget,
    metrics: Metrics,
}

impl Guest {
    /// Creates a guest with default limits. `name` is the operator's name of the provider, `configuration` is what
    /// [`Component::configure`] accepted, and `gate` was made from the settings that it returned. Guests of several
    /// configurations may share a component.
    pub fn new(
        component: impl Into<Arc<Component>>,
        name: &str,
        description: Description,
        configuration: &str,
        gate: Gate,
        metrics: &Metrics,
    ) -> Self {
        let component = component.into();
        metrics.record_code(name, &component);
        let limits = Limits::default();
        Self {
            component,
            name: name.into(),
            description,
            configuration: configuration.into(),
            identity: Arc::default(),
            gate,
            change_deadline: ChangeDeadline::default(),
            budget: MemoryBudget::new(limits.provider_host_memory),
            limits,
            metrics: metrics.clone(),
        }
    }

    /// Replaces the limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { budget: MemoryBudget::new(limits.provider_host_memory), limits, ..self }
    }

    /// Sets the public facts about the host's identity that the provider may read, by name.
    #[must_use]
    pub fn with_identity(self, identity: BTreeMap<String, String>) -> Self {
        Self { identity: Arc::new(identity), ..self }
    }

    /// The provider as controllers see it.
    pub fn provider(self) -> Provider {
        let (declaration, guest) = (self.declaration(), Arc::new(self));
        declaration.provider(&guest.name, &guest)
    }

    /// The provider as a node manager sees it, with what describes the instance of this machine, if it has that capability.
    pub fn local_provider(self) -> (Provider, Option<Arc<dyn LocalInstance>>) {
        let (declaration, guest) = (self.declaration(), Arc::new(self));
        let local = guest.component.local_instance.as_ref().map(|_| Arc::clone(&guest) as _);
        (declaration.provider(&guest.name, &guest), local)
    }

    /// Its name, version and component, as its metric shows them.
    pub(crate) fn info(&self) -> InfoLabels {
        let Self { component, name, description, .. } = self;
        InfoLabels {
            provider: name.to_string(),
            version: description.version.clone(),
            digest: component.digest.short(),
            contract: component.contract.clone(),
        }
    }

    /// The metrics that count its calls.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What it declares to the controllers.
    pub fn declaration(&self) -> Declaration {
        let Component { instances, load_balancers, routes, .. } = &*self.component;
        let largest = |capability| self.description.call_shape(capability).largest_batch.max(1) as usize;
        Declaration {
            schemes: self.description.provider_id_schemes.clone(),
            node_labels: self.description.node_labels.clone(),
            largest_lookup_batch: instances.as_ref().map(|_| largest(Capability::Instances)),
            service_requirements: load_balancers.as_ref().map(|_| ServiceRequirements {
                longest_call: self.limits.change_hard * repeat::LONGEST_CALL,
                ..self.description.service_requirements()
            }),
            largest_route_batch: routes.as_ref().map(|_| largest(Capability::Routes)),
        }
    }

    /// The options of a call that may only read, about this many items, with these soft and hard deadlines. It reads from the
    /// gate's cache what `view` allows, and nothing without a view.
    fn read_options(
        &self,
        call: (&'static str, usize),
        urgency: Urgency,
        view: Option<&View>,
        deadlines: [Duration; 2],
    ) -> CallOptions {
        self.call_options(self.gate.clone().read_only(call.0), call, urgency, view, deadlines)
    }

    /// As [`Self::read_options`], of a call that makes changes.
    fn change_options(
        &self,
        call: (&'static str, usize),
        urgency: Urgency,
        view: Option<&View>,
        deadlines: [Duration; 2],
    ) -> CallOptions {
        self.call_options(self.gate.clone(), call, urgency, view, deadlines)
    }

    fn call_options(
        &self,
        gate: Gate,
        (function, items): (&'static str, usize),
        urgency: Urgency,
        view: Option<&View>,
        [soft, hard]: [Duration; 2],
    ) -> CallOptions {
        let gate = gate.with_urgency(urgency);
        CallOptions {
            provider: Arc::clone(&self.name),
            function,
            configuration: Arc::clone(&self.configuration),
            identity: Arc::clone(&self.identity),
            gate: Some(match view {
                Some(view) => gate.with_view(view.clone()),
                None => gate,
            }),
            denials: Denials::default(),
            replies: Replies::default(),
            limits: self.limits.clone(),
            budget: self.budget.clone(),
            items,
            urgency,
            slot_timeout: hard,
            soft,
            hard,
            metrics: self.metrics.clone(),
        }
    }

    /// Takes a list where the cloud's replies support it. What a list lacks counts as gone.
    fn judge_list<T>(
        &self,
        function: &'static str,
        (list, replies): (Vec<T>, ReplyCounts),
    ) -> Result<Vec<T>, Error> {
        if evidence::supports_list(&replies) {
            return Ok(list);
        }
        self.metrics.count_doubted(&self.name, function, 1);
        let (provider, items, replies) = (&*self.name, list.len(), evidence::describe(&replies));
        tracing::warn!(provider, function, items, replies, "list not believed");
        let message = format!("{function} returned a list of {items}, but {replies}");
        Err(Error::new(ErrorKind::Unavailable(None), message))
    }

    /// Counts a call by its result. `is_cut_short` says that the call left something open because a request had no answer.
    fn count<T>(
        &self,
        function: &'static str,
        started: Instant,
        result: &Result<Result<T, Error>, Fault>,
        is_cut_short: bool,
    ) {
        let label = match result {
            Ok(Ok(_)) if is_cut_short => "unanswered",
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.as_str(),
            Err(fault) => fault.label(),
        };
        self.metrics.call_ended(&self.name, function, label, started.elapsed());
    }
}

/// An outcome of a provider.
struct Judged<T> {
    outcome: T,
    /// How the cloud answered the call, where that doesn't support the outcome.
    doubt: Option<Arc<str>>,
}

impl<T> Judged<T> {
    /// The outcomes alone.
    fn outcomes(judged: Vec<Result<Self, Error>>) -> Vec<Result<T, Error>> {
        judged.into_iter().map(|judged| judged.map(|judged| judged.outcome)).collect()
    }
}

/// What a call that makes changes may read from the gate's cache: what each request allows itself. A removal rests on what the
/// cloud says now, so that a call with one reads nothing from the cache.
fn change_view(removes: bool) -> Option<View> {
    (!removes).then(View::as_requested)
}

/// A list of a provider, and how the cloud answered the call.
type ListWithReplies<T> = Result<(Vec<T>, ReplyCounts), Error>;

/// Whether a call left an outcome open because a request had no answer in time.
fn is_cut_short<T>(
    result: &Result<Outcomes<T>, Fault>,
    denials: &Denials,
    is_open: impl Fn(&Result<T, Error>) -> bool,
) -> bool {
    let has_open = matches!(result, Ok(Ok(outcomes)) if outcomes.iter().any(&is_open));
    has_open && denials.unanswered.explain().is_some()
}

/// Adds which request was denied and what to grant to a provider's error, which can only say that a request was denied. Or which
/// request had no answer, since the provider only knows that its time is up.
fn explain(mut error: Error, denials: &Denials) -> Error {
    let reason = match error.kind {
        ErrorKind::Denied => denials.explain(&error.message).map(str::to_owned),
        // `fetch` and other libraries report a denied request as one without a response.
        ErrorKind::Unavailable(_) => {
            denials.unanswered.explain().or_else(|| denials.explain(&error.message).map(str::to_owned))
        }
        ErrorKind::Throttled(_) => denials.unanswered.explain(),
        ErrorKind::Conflict(_) | ErrorKind::Invalid | ErrorKind::Broken => None,
    };
    if let Some(reason) = reason {
        error.message = format!("{}: {reason}", error.message);
    }
    error
}
