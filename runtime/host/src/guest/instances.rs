//! Lookups of instances: one call about all Nodes. More calls follow where the provider fails at a Node, and one more for
//! answers that rest on cached data that is too old to support them.

use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use pileus_cloud::{Answer, Error, Instances, NodeReference, Purpose};
use pileus_gate::{Urgency, View};
use tokio::time::Instant;

use super::repeat::{FailedBatch, Outcomes};
use super::{Guest, explain};
use crate::call::{CallOptions, call};
use crate::convert;
use crate::fault::Fault;
use crate::freshness::{self, LookupEvidence};
use crate::limits::Limits;

const LOOKUP: &str = "lookup";

/// One call of `lookup`.
#[derive(Clone, Copy)]
struct LookupCall<'a> {
    purpose: Purpose,
    nodes: &'a [NodeReference],
    /// What the call may read from the gate's cache. `None` where it may read nothing.
    view: Option<&'a View>,
    soft: Duration,
    hard: Duration,
}

#[async_trait]
impl Instances for Guest {
    async fn lookup(&self, purpose: Purpose, nodes: &[NodeReference]) -> Outcomes<Answer> {
        let began = Instant::now();
        let view = freshness::cache_view(purpose);
        let mut answers = self.lookup_or_repeat(purpose, nodes, &view).await?;
        let evidence = LookupEvidence::new(&view.evidence(), began, Instant::now(), Timestamp::now());
        let doubtful: Vec<_> = answers
            .iter_mut()
            .zip(nodes)
            .filter(|(answer, node)| is_doubtful(answer, node, &evidence))
            .collect();
        if !doubtful.is_empty() {
            self.lookup_again(purpose, doubtful, began.elapsed()).await;
        }
        Ok(answers)
    }
}

impl Guest {
    /// Looks up instances as [`Instances::lookup`] does, but in one call that reads nothing from the cache.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no answers.
    pub async fn lookup_once(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Outcomes<Answer>, Fault> {
        let Limits { lookup_soft: soft, lookup_hard: hard, .. } = self.limits;
        self.call_lookup(LookupCall { purpose, nodes, view: None, soft, hard }).await
    }

    async fn lookup_or_repeat(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
        view: &View,
    ) -> Outcomes<Answer> {
        let lookup = self.lookup_call(purpose, nodes, view);
        match self.counted_lookup(lookup).await {
            Ok(answers) => answers,
            Err(fault) if fault.is_caused_by_provider() && nodes.len() > 1 => {
                let name = |node: &NodeReference| format!("node {}", node.name);
                let batch =
                    FailedBatch { function: LOOKUP, items: nodes, name, hard: self.limits.lookup_hard };
                let call_part = |nodes, deadline_divisor| {
                    let (soft, hard) = (lookup.soft / deadline_divisor, lookup.hard / deadline_divisor);
                    self.counted_lookup(LookupCall { nodes, soft, hard, ..lookup }).boxed()
                };
                Ok(self.repeat_in_parts(batch, fault, call_part).await)
            }
            Err(fault) => Err(self.error(LOOKUP, &fault)),
        }
    }

    fn lookup_call<'a>(
        &self,
        purpose: Purpose,
        nodes: &'a [NodeReference],
        view: &'a View,
    ) -> LookupCall<'a> {
        let (soft, hard) = (self.limits.lookup_soft, self.limits.lookup_hard);
        LookupCall { purpose, nodes, view: Some(view), soft, hard }
    }

    /// Looks up Nodes once more, without cached data, in the time that is left of a lookup that has taken `took`. Where that
    /// brings no better evidence, an absent Node becomes pending.
    async fn lookup_again(
        &self,
        purpose: Purpose,
        doubtful: Vec<(&mut Result<Answer, Error>, &NodeReference)>,
        took: Duration,
    ) {
        let (answers, nodes): (Vec<_>, Vec<_>) =
            doubtful.into_iter().map(|(answer, node)| (answer, node.clone())).unzip();
        self.metrics.count_doubted(&self.name, LOOKUP, nodes.len());
        let (began, view) = (Instant::now(), View::fresh());
        let lookup = self.lookup_call(purpose, &nodes, &view);
        let [soft, hard] = [lookup.soft, lookup.hard].map(|time| time.saturating_sub(took));
        if soft.is_zero() {
            return answers.into_iter().for_each(absent_to_pending);
        }
        let new = match self.counted_lookup(LookupCall { soft, hard, ..lookup }).await {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => vec![Err(error); nodes.len()],
            Err(fault) => vec![Err(self.error(LOOKUP, &fault)); nodes.len()],
        };
        let evidence = LookupEvidence::new(&view.evidence(), began, Instant::now(), Timestamp::now());
        for ((answer, node), new) in answers.into_iter().zip(&nodes).zip(new) {
            *answer = new;
            if is_doubtful(answer, node, &evidence) {
                absent_to_pending(answer);
            }
        }
    }

    async fn counted_lookup(&self, lookup: LookupCall<'_>) -> Result<Outcomes<Answer>, Fault> {
        let started = Instant::now();
        let result = self.call_lookup(lookup).await;
        self.count(LOOKUP, started, &result);
        result
    }

    async fn call_lookup(&self, lookup: LookupCall<'_>) -> Result<Outcomes<Answer>, Fault> {
        let LookupCall { purpose, nodes, view, soft, hard } = lookup;
        let Some(instances) = self.component.instances.clone() else {
            return Err(Fault::Contract("it exports no instances".to_owned()));
        };
        let options = CallOptions {
            slot_timeout: self.limits.lookup_hard,
            ..self.call_options(LOOKUP, urgency(purpose), view, [soft, hard])
        };
        let denials = options.denials.clone();
        let wit_nodes: Vec<_> = nodes.iter().map(convert::node_to_wit).collect();
        let answered = call(&self.component, options, move |store, instance| {
            Box::pin(async move {
                let instances = instances.load(&mut *store, &instance)?;
                instances.call_lookup(store, convert::purpose_to_wit(purpose), &wit_nodes).await
            })
        })
        .await?;
        let answers = match answered {
            Ok(answers) => answers,
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), &denials))),
        };
        if answers.len() != nodes.len() {
            let (sent, received) = (nodes.len(), answers.len());
            return Err(Fault::Contract(format!("lookup returned {received} answers about {sent} nodes")));
        }
        let schemes = &self.description.provider_id_schemes;
        let read = |(node, answer): (&NodeReference, _)| {
            convert::answer_from_wit(node, answer, schemes).map_err(|error| explain(error, &denials))
        };
        Ok(Ok(nodes.iter().zip(answers).map(read).collect()))
    }
}

/// Turns an absence without fresh evidence into `pending`, so that the Node is looked up again soon.
fn absent_to_pending(answer: &mut Result<Answer, Error>) {
    if let Ok(Answer::Absent) = answer {
        *answer = Ok(Answer::Pending(freshness::RETRY_AFTER));
    }
}

fn is_doubtful(answer: &Result<Answer, Error>, node: &NodeReference, evidence: &LookupEvidence) -> bool {
    answer.as_ref().is_ok_and(|answer| !evidence.supports(answer, node.created_at))
}

/// A Node that joins, or whose instance may be gone, is urgent. Facts of other Nodes may be refreshed a little later.
const fn urgency(purpose: Purpose) -> Urgency {
    match purpose {
        Purpose::Initialise | Purpose::Confirm => Urgency::Initialise,
        Purpose::Refresh => Urgency::Background,
    }
}
