#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod bindings;
mod concurrency;
mod configuration;
pub mod deadline;
mod description;
mod error;
#[doc(hidden)]
pub mod export;
mod export_macro;
#[doc = include_str!("../GUIDE.md")]
pub mod guide {}
mod host;
pub mod http;
pub mod identity;
mod instances;
pub mod labels;
mod load_balancers;
mod local_instance;
mod log;
mod node;
pub mod operation;
mod provider;
mod routes;
mod service;
mod settings;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod wire;

pub use concurrency::{map_concurrently, map_removals_first};
pub use description::{Annotation, AnnotationType, CallShape, Capability, Description, ServiceFacts};
pub use error::{Error, ErrorKind, Extra};
pub use instances::{
    Answer, Instance, InstanceList, InstanceState, Instances, Purpose, Stance, lookup_each, lookup_in_list,
};
pub use load_balancers::{
    LoadBalancers, Notice, Resource, ServiceAction, ServiceCall, ServiceChange, ServiceOutcome,
    ServiceProgress, ServiceReport, SharedDocument, Steps, TargetMembers, Task, Turn,
};
pub use local_instance::{LocalAnswer, LocalInstance};
pub use node::{Address, AddressKind, NodeReference};
pub use operation::InProgress;
pub use provider::{Problem, Provider};
pub use routes::{
    Cluster, ListedRoute, Route, RouteAction, RouteChange, RouteOutcome, RouteProgress, Routes,
    change_each_route, change_routes_in_turn,
};
pub use service::{
    Ingress, IngressPoint, IpFamily, IpMode, LocalEndpoints, OwnedLoadBalancer, PortStatus, Protocol,
    Service, ServicePort, SessionAffinity, Target, TargetSelection, Targets, TrafficPolicy,
};
pub use settings::{CredentialHint, Effect, Endpoint, Limit, Operation, Place, Quota, Rule, Settings};
