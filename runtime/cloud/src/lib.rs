//! The words that everything else speaks: Nodes and Services as a provider sees them, what the cloud
//! has for them, and what can go wrong.
//!
//! Controllers know clouds only through these types and traits; `pileus-host` implements the traits with a sandboxed
//! component. The words are those of the contract in `wit/`, and there is one type for each: what crosses the wire is
//! converted once, in the host, and means the same on both sides. No Kubernetes, no wasm, no network and no runtime
//! here.

mod address;
mod cluster;
mod error;
mod instance;
mod load_balancer;
mod node;
mod provider;
mod provider_id;
mod route;

pub use address::{Address, AddressKind};
pub use cluster::Cluster;
pub use error::{Error, ErrorKind, Retry};
pub use instance::{Answer, Instance, Instances, Purpose, State};
pub use load_balancer::{
    Affinity, AnnotationType, Family, Ingress, IngressPoint, IpMode, LoadBalancers, LocalEndpoints, Owned,
    PortStatus, Protocol, Selection, Service, ServiceAction, ServiceCall, ServiceChange, ServicePort,
    ServiceProgress, ServiceTerms, Target, TrafficPolicy,
};
pub use node::NodeReference;
pub use provider::Provider;
pub use provider_id::{ParseProviderIdError, ProviderId};
pub use route::{ListedRoute, Progress, Route, RouteAction, RouteChange, Routes};
