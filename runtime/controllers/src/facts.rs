//! Kubernetes objects, reduced to plain facts when they are read. Plans see only facts.

mod labels;
pub mod node;
pub mod service;

pub use labels::Labels;
