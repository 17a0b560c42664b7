//! Lookups out of calls: one call that is about all Nodes, more where it fails at one of them, and one more where answers
//! rest on what is too old to say so much.

use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use pileus_cloud::{Answer, Error, Instances, NodeReference, Purpose};
use pileus_gate::View;
use tokio::time::Instant;

use super::parts::Whole;
use super::{Answers, Guest, Question};
use crate::fault::Fault;
use crate::freshness::{self, Basis};

#[async_trait]
impl Instances for Guest {
    async fn lookup(&self, purpose: Purpose, nodes: &[NodeReference]) -> Answers {
        let began = Instant::now();
        let view = freshness::view(purpose);
        let mut answers = self.lookup_or_halves(purpose, nodes, &view).await?;
        let basis = Basis::new(&view.evidence(), began, Instant::now(), Timestamp::now());
        let doubtful: Vec<_> = answers
            .iter_mut()
            .zip(nodes)
            .filter(|(answer, node)| is_doubtful(answer, node, &basis))
            .collect();
        if !doubtful.is_empty() {
            self.lookup_again(purpose, doubtful, began.elapsed()).await;
        }
        Ok(answers)
    }
}

/// Makes of an absence that nothing new confirms what it is.
fn not_absent(answer: &mut Result<Answer, Error>) {
    if let Ok(Answer::Absent) = answer {
        *answer = Ok(Answer::Pending(freshness::AGAIN));
    }
}

fn is_doubtful(answer: &Result<Answer, Error>, node: &NodeReference, basis: &Basis) -> bool {
    answer.as_ref().is_ok_and(|answer| !basis.supports(answer, node.created_at))
}

impl Guest {
    async fn lookup_or_halves(&self, purpose: Purpose, nodes: &[NodeReference], view: &View) -> Answers {
        let question = self.question(purpose, nodes, view);
        match self.counted_lookup(question).await {
            Ok(answers) => answers,
            Err(fault) if fault.is_providers() && nodes.len() > 1 => {
                let name = |node: &NodeReference| format!("node {}", node.name);
                let whole = Whole { function: "lookup", items: nodes, name, hard: self.limits.lookup_hard };
                let ask = |nodes, haste| {
                    let (soft, hard) = (question.soft / haste, question.hard / haste);
                    self.counted_lookup(Question { nodes, soft, hard, ..question }).boxed()
                };
                Ok(self.in_parts(whole, fault, ask).await)
            }
            Err(fault) => Err(self.failed("lookup", &fault)),
        }
    }

    fn question<'a>(&self, purpose: Purpose, nodes: &'a [NodeReference], view: &'a View) -> Question<'a> {
        let (soft, hard) = (self.limits.lookup_soft, self.limits.lookup_hard);
        Question { purpose, nodes, view: Some(view), soft, hard }
    }

    /// Looks Nodes up once more, past all that was asked for before, in what is left of a lookup that took so long. Where
    /// that brings nothing new, none of them is absent.
    async fn lookup_again(
        &self,
        purpose: Purpose,
        doubtful: Vec<(&mut Result<Answer, Error>, &NodeReference)>,
        took: Duration,
    ) {
        let (answers, nodes): (Vec<_>, Vec<_>) =
            doubtful.into_iter().map(|(answer, node)| (answer, node.clone())).unzip();
        self.metrics.doubted(&self.name, "lookup", nodes.len());
        let (began, view) = (Instant::now(), View::fresh());
        let whole = self.question(purpose, &nodes, &view);
        let [soft, hard] = [whole.soft, whole.hard].map(|time| time.saturating_sub(took));
        if soft.is_zero() {
            return answers.into_iter().for_each(not_absent);
        }
        let new = match self.counted_lookup(Question { soft, hard, ..whole }).await {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => vec![Err(error); nodes.len()],
            Err(fault) => vec![Err(self.failed("lookup", &fault)); nodes.len()],
        };
        let basis = Basis::new(&view.evidence(), began, Instant::now(), Timestamp::now());
        for ((answer, node), new) in answers.into_iter().zip(&nodes).zip(new) {
            *answer = new;
            if is_doubtful(answer, node, &basis) {
                not_absent(answer);
            }
        }
    }

    async fn counted_lookup(&self, question: Question<'_>) -> Result<Answers, Fault> {
        let started = Instant::now();
        let result = self.call_lookup(question).await;
        self.count("lookup", started, &result);
        result
    }
}
