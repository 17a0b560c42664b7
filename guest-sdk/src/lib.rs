#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod bindings;
mod configuration;
pub mod deadline;
mod description;
mod error;
#[doc(hidden)]
pub mod export;
mod host;
pub mod http;
pub mod identity;
mod instances;
pub mod labels;
mod load_balancers;
mod log;
mod node;
pub mod operation;
mod provider;
mod routes;
mod service;
mod settings;
mod side_by_side;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod wire;

pub use description::{Annotation, AnnotationType, CallShape, Capability, Description, ServiceFacts};
pub use error::{Error, ErrorKind, Extra, Outcome, Outcomes};
pub use instances::{Answer, Instance, Instances, Listing, Purpose, State, one_by_one};
pub use load_balancers::{
    LoadBalancers, Object, ServiceAction, ServiceCall, ServiceChange, ServiceProgress, TargetMembers, Wish,
    shared,
};
pub use node::{Address, AddressKind, NodeReference};
pub use operation::InProgress;
pub use provider::{Problem, Provider};
pub use routes::{
    Cluster, ListedRoute, Progress, Route, RouteAction, RouteChange, Routes, change_one_by_one,
};
pub use service::{
    Affinity, Family, Ingress, IngressPoint, IpMode, LocalEndpoints, Owned, PortStatus, Protocol, Selection,
    Service, ServicePort, Target, Targets, TrafficPolicy,
};
pub use settings::{Effect, Endpoint, Limit, Operation, Place, Quota, Rule, Settings};
pub use side_by_side::{removals_first, side_by_side};
