//! Upstream's scenarios of its service controller (S01 to S139, H23 to H26; see `UPSTREAM.md`), in the harness: from JSON
//! through facts, reconciler and patches to JSON. H19 to H22 are tests of the facts.
//!
//! Two differences run through all of them. Upstream reads the cloud before it deletes; here the provider does, and answers
//! that nothing exists. And upstream has a queue for Nodes and one for Services; here one reconciler compares what a
//! provider sees with what the cloud last confirmed.
#![expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]

mod nodes;
mod services;
