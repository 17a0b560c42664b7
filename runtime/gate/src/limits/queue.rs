//! The requests that wait, in order. Requests of one urgency that need the same tokens form a group, so that only the
//! first of each group is examined, however many wait. The caller bounds the queue and decides which request to hold
//! back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use crate::limits::buckets::BucketId;
use crate::limits::pauses::Resource;
use crate::limits::urgency::Urgency;

/// A place in the queue: more urgent requests come first, within an urgency in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    pub(crate) urgency: Urgency,
    number: u64,
}

/// A request that waits.
#[derive(Debug, Clone)]
pub(crate) struct QueuedRequest {
    /// The buckets of which it needs a token each, none of them twice.
    pub(crate) buckets: Arc<[BucketId]>,
    pub(crate) resource: Resource,
    /// The memory that the request takes, in bytes.
    pub(crate) bytes: usize,
    /// Until when it may wait.
    pub(crate) soft: Instant,
    /// Whether it waits for its resource alone, and so forms a group with others for the same resource.
    apart: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    urgency: Urgency,
    buckets: Arc<[BucketId]>,
    resource: Option<Resource>,
}

impl QueuedRequest {
    pub(crate) fn new(buckets: Arc<[BucketId]>, resource: Resource, bytes: usize, soft: Instant) -> Self {
        Self { buckets, resource, bytes, soft, apart: false }
    }

    fn line(&self, urgency: Urgency) -> Group {
        let resource = self.apart.then_some(self.resource);
        Group { urgency, buckets: self.buckets.clone(), resource }
    }
}

/// The requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Ticket, QueuedRequest>,
    lines: HashMap<Group, BTreeSet<Ticket>>,
    /// The first request of each group.
    heads: BTreeSet<Ticket>,
    bytes: usize,
    next: u64,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of requests of this urgency.
    pub(crate) fn count(&self, urgency: Urgency) -> usize {
        self.waiting.keys().filter(|ticket| ticket.urgency == urgency).count()
    }

    /// The memory that all take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&QueuedRequest> {
        self.waiting.get(&ticket)
    }

    /// Puts a request behind all others of its urgency.
    pub(crate) fn push(&mut self, urgency: Urgency, waiting: QueuedRequest) -> Ticket {
        let ticket = Ticket { urgency, number: self.next };
        self.next += 1;
        self.insert(ticket, waiting);
        ticket
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<QueuedRequest> {
        let waiting = self.waiting.remove(&ticket)?;
        self.bytes -= waiting.bytes;
        let line = waiting.line(ticket.urgency);
        if let Some(tickets) = self.lines.get_mut(&line) {
            tickets.remove(&ticket);
            if self.heads.remove(&ticket) {
                self.heads.extend(tickets.first());
            }
            if tickets.is_empty() {
                self.lines.remove(&line);
            }
        }
        Some(waiting)
    }

    /// Moves a request that waits for its resource out of its group. It keeps its place in the queue.
    pub(crate) fn set_apart(&mut self, ticket: Ticket) {
        if self.get(ticket).is_none_or(|waiting| waiting.apart) {
            return;
        }
        if let Some(waiting) = self.remove(ticket) {
            self.insert(ticket, QueuedRequest { apart: true, ..waiting });
        }
    }

    fn insert(&mut self, ticket: Ticket, waiting: QueuedRequest) {
        let tickets = self.lines.entry(waiting.line(ticket.urgency)).or_default();
        if let Some(first) = tickets.first() {
            self.heads.remove(first);
        }
        tickets.insert(ticket);
        self.heads.extend(tickets.first());
        self.bytes += waiting.bytes;
        self.waiting.insert(ticket, waiting);
    }

    /// The first request of the next group.
    pub(crate) fn head_after(&self, last: Option<Ticket>) -> Option<Ticket> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.heads.range((after, Bound::Unbounded)).next().copied()
    }

    /// The first request of this urgency that needs a token of this bucket.
    pub(crate) fn first_for(&self, bucket: BucketId, urgency: Urgency) -> Option<Ticket> {
        let first = Ticket { urgency, number: 0 };
        let same = self.heads.range(first..).take_while(|ticket| ticket.urgency == urgency);
        same.copied()
            .find(|ticket| self.get(*ticket).is_some_and(|waiting| waiting.buckets.contains(&bucket)))
    }

    /// The request to hold back first.
    pub(crate) fn last(&self) -> Option<Ticket> {
        self.waiting.last_key_value().map(|(ticket, _)| *ticket)
    }

    /// All requests, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &QueuedRequest)> {
        self.waiting.iter().map(|(ticket, waiting)| (*ticket, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_one_head_as_requests_come_and_go() {
        let mut queue = Queue::default();
        let soft = Instant::now();
        let waiting = |bucket, resource| QueuedRequest::new([bucket].into(), resource, 10, soft);
        let [a, b, c] = [(1, 1), (1, 2), (2, 1)]
            .map(|(bucket, resource)| queue.push(Urgency::User, waiting(bucket, resource)));
        let other = queue.push(Urgency::Background, waiting(1, 1));
        let heads = |queue: &Queue| queue.heads.iter().copied().collect::<Vec<_>>();
        assert_eq!(heads(&queue), [a, c, other]);
        queue.set_apart(a);
        assert_eq!(heads(&queue), [a, b, c, other], "the others of its group are no longer behind it");
        queue.remove(b);
        assert_eq!(heads(&queue), [a, c, other]);
        assert_eq!((queue.first_for(1, Urgency::Background), queue.last()), (Some(other), Some(other)));
        for ticket in [a, c, other] {
            assert!(queue.remove(ticket).is_some());
        }
        assert_eq!((queue.len(), queue.bytes(), queue.lines.len(), queue.heads.len()), (0, 0, 0, 0));
    }
}
