//! Kubernetes' objects, read once at the edge into plain facts. Plans never see an object.

pub mod node;
pub mod service;
