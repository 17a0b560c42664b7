//! The types and traits that controllers and providers share: Nodes and Services as a provider sees them, what the cloud
//! has for them, and what can go wrong.
//!
//! Controllers reach a cloud only through these types and traits. `pileus-host` implements the traits with a sandboxed
//! component. The names are those of the contract in `wit/`. The host converts between the two in one place, so a type
//! means the same on both sides. This crate has no Kubernetes, wasm, network or async runtime below it.

mod address;
mod cluster;
mod error;
mod ingress;
mod instance;
mod load_balancer;
mod local_instance;
mod node;
mod notice;
mod provider;
mod provider_id;
mod requirements;
mod route;
mod service;
mod uid;

pub use address::{Address, AddressKind};
pub use cluster::Cluster;
pub use error::{Error, ErrorKind, Retry};
pub use ingress::{Ingress, IngressPoint, IpMode, PortStatus, Protocol};
pub use instance::{Answer, Instance, InstanceState, Instances, Purpose, Stance};
pub use load_balancer::{
    LoadBalancers, OwnedLoadBalancer, ServiceAction, ServiceCall, ServiceChange, ServiceProgress, Target,
};
pub use local_instance::{LocalAnswer, LocalInstance};
pub use node::NodeReference;
pub use notice::Notice;
pub use provider::Provider;
pub use provider_id::{ParseProviderIdError, ProviderId};
pub use requirements::{AnnotationType, ServiceRequirements};
pub use route::{ListedRoute, Route, RouteAction, RouteChange, RouteProgress, Routes};
pub use service::{
    IpFamily, LocalEndpoints, Service, ServicePort, SessionAffinity, TargetSelection, TrafficPolicy,
};
pub use uid::{is_uid_of, may_be_uid};
