//! Converts load balancers between the contract's generated types and the types that authors see.

use std::time::Duration;

use super::{address, error, milliseconds};
use crate::bindings::load_balancers::exports::pileus::provider::load_balancers as wit;
use crate::bindings::pileus::provider::types;
use crate::{
    InProgress, Ingress, IngressPoint, IpFamily, IpMode, LocalEndpoints, Notice, OwnedLoadBalancer,
    PortStatus, Protocol, Service, ServiceAction, ServiceChange, ServiceOutcome, ServicePort,
    ServiceProgress, ServiceReport, SessionAffinity, Target, TargetSelection, TrafficPolicy,
};

pub(crate) fn target(target: wit::Target) -> Target {
    let wit::Target { node, uid, provider_id, addresses, zone, labels, extra } = target;
    let addresses = addresses.into_iter().map(address).collect();
    Target { node, uid, provider_id, addresses, zone, labels, extra }
}

pub(crate) fn service(service: wit::Service) -> Service {
    let wit::Service {
        namespace,
        name,
        uid,
        labels,
        namespace_labels,
        annotations,
        class,
        finalizers,
        ports,
        policy,
        affinity,
        source_ranges,
        requested_ip,
        families,
        endpoints,
        targets,
        status,
        extra,
    } = service;
    Service {
        namespace,
        name,
        uid,
        labels,
        namespace_labels,
        annotations,
        class,
        finalizers,
        ports: ports.into_iter().map(service_port).collect(),
        policy: match policy {
            wit::TrafficPolicy::Cluster => TrafficPolicy::Cluster,
            wit::TrafficPolicy::Local(port) => TrafficPolicy::Local(port),
        },
        affinity: match affinity {
            wit::Affinity::None => SessionAffinity::None,
            wit::Affinity::ClientIp(time) => SessionAffinity::ClientIp(Duration::from_millis(time)),
        },
        source_ranges,
        requested_ip,
        families: families.into_iter().map(family).collect(),
        endpoints: endpoints
            .into_iter()
            .map(|wit::LocalEndpoints { row, count }| LocalEndpoints { row, count })
            .collect(),
        targets: match targets {
            wit::Selection::All => TargetSelection::All,
            wit::Selection::Rows(rows) => TargetSelection::Rows(rows),
        },
        status: status.into_iter().map(ingress).collect(),
        extra,
    }
}

fn service_port(port: wit::ServicePort) -> ServicePort {
    let wit::ServicePort { name, protocol: of, port, node_port, app_protocol } = port;
    ServicePort { name, protocol: protocol(of), port, node_port, app_protocol }
}

fn protocol(protocol: wit::Protocol) -> Protocol {
    match protocol {
        wit::Protocol::Tcp => Protocol::Tcp,
        wit::Protocol::Udp => Protocol::Udp,
        wit::Protocol::Sctp => Protocol::Sctp,
    }
}

fn protocol_to_wit(protocol: Protocol) -> wit::Protocol {
    match protocol {
        Protocol::Tcp => wit::Protocol::Tcp,
        Protocol::Udp => wit::Protocol::Udp,
        Protocol::Sctp => wit::Protocol::Sctp,
    }
}

fn family(family: wit::Family) -> IpFamily {
    match family {
        wit::Family::Ipv4 => IpFamily::Ipv4,
        wit::Family::Ipv6 => IpFamily::Ipv6,
    }
}

fn ingress(ingress: wit::Ingress) -> Ingress {
    let wit::Ingress { point, ip_mode, ports } = ingress;
    let port =
        |wit::PortStatus { port, protocol: of, error }| PortStatus { port, protocol: protocol(of), error };
    Ingress {
        point: match point {
            wit::IngressPoint::Ip(address) => IngressPoint::Ip(address),
            wit::IngressPoint::Hostname(name) => IngressPoint::Hostname(name),
        },
        ip_mode: ip_mode.map(|mode| match mode {
            wit::IpMode::Vip => IpMode::Vip,
            wit::IpMode::Proxy => IpMode::Proxy,
        }),
        ports: ports.into_iter().map(port).collect(),
    }
}

fn ingress_to_wit(ingress: Ingress) -> wit::Ingress {
    let Ingress { point, ip_mode, ports } = ingress;
    let port = |PortStatus { port, protocol, error }| wit::PortStatus {
        port,
        protocol: protocol_to_wit(protocol),
        error,
    };
    wit::Ingress {
        point: match point {
            IngressPoint::Ip(address) => wit::IngressPoint::Ip(address),
            IngressPoint::Hostname(name) => wit::IngressPoint::Hostname(name),
        },
        ip_mode: ip_mode.map(|mode| match mode {
            IpMode::Vip => wit::IpMode::Vip,
            IpMode::Proxy => wit::IpMode::Proxy,
        }),
        ports: ports.into_iter().map(port).collect(),
    }
}

fn owned(owned: wit::Owned) -> OwnedLoadBalancer {
    let wit::Owned { cluster_uid, service_uid, service, name, extra } = owned;
    OwnedLoadBalancer { cluster_uid, service_uid, service, name, extra }
}

pub(crate) fn owned_to_wit(owned: OwnedLoadBalancer) -> wit::Owned {
    let OwnedLoadBalancer { cluster_uid, service_uid, service, name, extra } = owned;
    wit::Owned { cluster_uid, service_uid, service, name, extra }
}

pub(crate) fn service_change(change: wit::ServiceChange) -> ServiceChange {
    let wit::ServiceChange { action, resume, extra } = change;
    let action = match action {
        wit::Action::Ensure(desired) => ServiceAction::Ensure(service(desired)),
        wit::Action::UpdateTargets(desired) => ServiceAction::UpdateTargets(service(desired)),
        wit::Action::Delete(last) => ServiceAction::Delete(service(last)),
        wit::Action::RemoveOrphan(orphan) => ServiceAction::RemoveOrphan(owned(orphan)),
    };
    ServiceChange { action, resume, extra }
}

pub(crate) fn service_outcome(outcome: ServiceOutcome) -> wit::Outcome {
    match outcome {
        Ok(ServiceProgress::Done(ServiceReport { status, notices, annotations })) => {
            wit::Outcome::Done(wit::Done {
                status: status.into_iter().map(ingress_to_wit).collect(),
                notices: notices.into_iter().map(notice).collect(),
                annotations,
                extra: Vec::new(),
            })
        }
        Ok(ServiceProgress::InProgress(
            InProgress { after, resume },
            ServiceReport { status, notices, annotations },
        )) => wit::Outcome::InProgress(wit::UnderWay {
            after: milliseconds(after),
            resume,
            status: (!status.is_empty()).then(|| status.into_iter().map(ingress_to_wit).collect()),
            notices: notices.into_iter().map(notice).collect(),
            annotations,
            extra: Vec::new(),
        }),
        Ok(ServiceProgress::Elsewhere) => wit::Outcome::Elsewhere,
        Err(failed) => wit::Outcome::Failed(error(failed)),
    }
}

fn notice(notice: Notice) -> types::Notice {
    let Notice { reason, message, is_warning } = notice;
    types::Notice { reason, message, is_warning }
}
