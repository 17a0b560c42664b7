//! Upstream's scenarios of its service controller (ccm-behaviour 10.4, S01 to S139; 10.5, H23 to H26), on as much of the real
//! way as there is without an API server and a cloud: Services and Nodes as JSON, their facts, the reconciler, the patches, and
//! the Services as JSON again. H19 to H22 are beside the facts.
//!
//! Two differences run through all of them. Upstream reads a cloud before it deletes; here the deletion is the provider's,
//! who answers that there is nothing. And upstream's node queue and service queue are one reconciler here: what changes is
//! compared with what the cloud last confirmed, by what a provider sees of it.
#![expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]

mod nodes;
mod services;
