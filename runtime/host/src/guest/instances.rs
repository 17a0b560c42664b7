//! Lookups of instances: one call about all Nodes. More calls follow where the provider fails at a Node, and one more for
//! answers that the cloud's replies don't support, or that rest on cached data that is too old to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use pileus_cloud::{Answer, Error, ErrorKind, Instance, InstanceState, Instances, NodeReference, Purpose};
use pileus_gate::{Urgency, View};
use tokio::time::Instant;

use super::repeat::{FailedBatch, Outcomes};
use super::{Guest, Judged, explain, is_cut_short};
use crate::call::{CallOptions, call};
use crate::convert;
use crate::egress::Denials;
use crate::evidence::{self, LookupSummary};
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
        Ok(Judged::outcomes(answers))
    }
}

impl Guest {
    /// Looks up instances as [`Instances::lookup`] does, but in one call that reads nothing from the cache, and whose answers
    /// aren't doubted.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no answers.
    pub async fn lookup_once(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Outcomes<Answer>, Fault> {
        let Limits { lookup_soft: soft, lookup_hard: hard, .. } = self.limits;
        let lookup = LookupCall { purpose, nodes, view: None, soft, hard };
        let answers = self.call_lookup(lookup, &Denials::default()).await?;
        Ok(answers.map(Judged::outcomes))
    }

    async fn lookup_or_repeat(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
        view: &View,
    ) -> Outcomes<Judged<Answer>> {
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
    /// brings no better evidence, the Node becomes pending.
    async fn lookup_again(
        &self,
        purpose: Purpose,
        doubtful: Vec<(&mut Result<Judged<Answer>, Error>, &NodeReference)>,
        took: Duration,
    ) {
        let (answers, nodes): (Vec<_>, Vec<_>) =
            doubtful.into_iter().map(|(answer, node)| (answer, node.clone())).unzip();
        self.metrics.count_doubted(&self.name, LOOKUP, nodes.len());
        let (began, view) = (Instant::now(), View::fresh());
        let lookup = self.lookup_call(purpose, &nodes, &view);
        let [soft, hard] = [lookup.soft, lookup.hard].map(|time| time.saturating_sub(took));
        if soft.is_zero() {
            self.log_doubt(&nodes, answers.iter().map(|answer| &**answer));
            return answers.into_iter().for_each(to_pending);
        }
        let new = match self.counted_lookup(LookupCall { soft, hard, ..lookup }).await {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => nodes.iter().map(|_| Err(error.clone())).collect(),
            Err(fault) => nodes.iter().map(|_| Err(self.error(LOOKUP, &fault))).collect(),
        };
        let evidence = LookupEvidence::new(&view.evidence(), began, Instant::now(), Timestamp::now());
        self.log_doubt(&nodes, new.iter());
        for ((answer, node), new) in answers.into_iter().zip(&nodes).zip(new) {
            *answer = new;
            if is_doubtful(answer, node, &evidence) {
                to_pending(answer);
            }
        }
    }

    /// Logs that answers aren't believed, because the cloud didn't say so.
    fn log_doubt<'a>(
        &self,
        nodes: &[NodeReference],
        answers: impl Iterator<Item = &'a Result<Judged<Answer>, Error>>,
    ) {
        let doubt = |answer: &'a Result<Judged<Answer>, Error>| answer.as_ref().ok()?.doubt.as_deref();
        let mut doubted =
            nodes.iter().zip(answers.map(doubt)).filter_map(|(node, doubt)| Some((node, doubt?)));
        if let Some((node, doubt)) = doubted.next() {
            let (provider, count) = (&*self.name, 1 + doubted.count());
            tracing::warn!(
                provider,
                node = node.name,
                count,
                replies = doubt,
                "absent or stopped instances not believed: the provider got no answer of the cloud that says so"
            );
        }
    }

    async fn counted_lookup(&self, lookup: LookupCall<'_>) -> Result<Outcomes<Judged<Answer>>, Fault> {
        let (started, denials) = (Instant::now(), Denials::default());
        let mut result = self.call_lookup(lookup, &denials).await;
        if let (Ok(Ok(answers)), Some(reason)) = (&mut result, denials.unanswered.explain()) {
            for answer in answers.iter_mut() {
                pending_to_unavailable(answer, &reason);
            }
        }
        self.count(LOOKUP, started, &result, is_cut_short(&result, &denials, Result::is_err));
        result
    }

    async fn call_lookup(
        &self,
        lookup: LookupCall<'_>,
        denials: &Denials,
    ) -> Result<Outcomes<Judged<Answer>>, Fault> {
        let LookupCall { purpose, nodes, view, soft, hard } = lookup;
        let Some(instances) = self.component.instances.clone() else {
            return Err(Fault::Contract("it exports no instances".to_owned()));
        };
        let options = CallOptions {
            slot_timeout: self.limits.lookup_hard,
            denials: denials.clone(),
            ..self.read_options((LOOKUP, nodes.len()), urgency(purpose), view, [soft, hard])
        };
        let replies = options.replies.clone();
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
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), denials))),
        };
        if answers.len() != nodes.len() {
            let (sent, received) = (nodes.len(), answers.len());
            return Err(Fault::Contract(format!("lookup returned {received} answers about {sent} nodes")));
        }
        let schemes = &self.description.provider_id_schemes;
        let read = |(node, answer): (&NodeReference, _)| {
            convert::answer_from_wit(node, answer, schemes).map_err(|error| explain(error, denials))
        };
        let answers = nodes.iter().zip(answers).map(read).collect::<Vec<_>>();
        let (replies, summary) = (replies.counts(), LookupSummary::new(nodes, &answers));
        let supports_absent = evidence::supports_absent(&replies, purpose, summary);
        let supports_stopped = purpose != Purpose::Confirm || evidence::supports_stopped(&replies);
        let doubt: Arc<str> = evidence::describe(&replies).into();
        let judge = |outcome| {
            let is_supported = match &outcome {
                Answer::Absent => supports_absent,
                Answer::Found(Instance { state: InstanceState::Stopped, .. }) => supports_stopped,
                Answer::Found(_) | Answer::Pending(_) | Answer::Unmanaged(_) => true,
            };
            Judged { outcome, doubt: (!is_supported).then(|| Arc::clone(&doubt)) }
        };
        Ok(Ok(answers.into_iter().map(|answer| answer.map(judge)).collect()))
    }
}

/// Turns `pending` into an error where a request had no answer: the cloud is late, and doesn't ask to come back later.
fn pending_to_unavailable(answer: &mut Result<Judged<Answer>, Error>, reason: &str) {
    if let Ok(Judged { outcome: Answer::Pending(_), .. }) = answer {
        *answer = Err(Error::new(ErrorKind::Unavailable(None), reason));
    }
}

/// Turns an answer without evidence into `pending`, so that the Node is looked up again soon.
fn to_pending(answer: &mut Result<Judged<Answer>, Error>) {
    if let Ok(Judged { outcome: outcome @ (Answer::Absent | Answer::Found(_)), .. }) = answer {
        *outcome = Answer::Pending(freshness::RETRY_AFTER);
    }
}

fn is_doubtful(
    answer: &Result<Judged<Answer>, Error>,
    node: &NodeReference,
    evidence: &LookupEvidence,
) -> bool {
    let Ok(Judged { outcome, doubt }) = answer else { return false };
    doubt.is_some() || !evidence.supports(outcome, node.created_at)
}

/// A Node that joins, or whose instance may be gone, is urgent. Facts of other Nodes may be refreshed a little later.
const fn urgency(purpose: Purpose) -> Urgency {
    match purpose {
        Purpose::Initialise | Purpose::Confirm => Urgency::Initialise,
        Purpose::Refresh => Urgency::Background,
    }
}
