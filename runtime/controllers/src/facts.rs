//! Kubernetes objects, reduced to plain facts when they are read. Plans see only facts.

pub mod node;
pub mod service;
