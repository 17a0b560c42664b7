//! Writes to Services, as patches of the status resource, which takes changes of finalizers and annotations as well. As
//! upstream they are strategic merge patches, so that the finalizers and annotations of others stay. The UID guards against a new Service of the
//! same name.

use pileus_cloud::{Ingress, IngressPoint, IpMode, PortStatus};
use serde_json::{Map, Value, json};

use super::work::Write;
use crate::facts::service::ServiceFacts;
use crate::well_known::{ANNOTATION_PROVIDER, FINALIZER_LOAD_BALANCER};

impl Write {
    /// The write as a metric label.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::AddFinalizer(_) => "add_finalizer",
            Self::SetStatus(_) => "set_status",
            Self::SetAnnotations(_) => "set_annotations",
            Self::Finish => "finish",
            Self::Release => "release",
        }
    }

    /// Whether a Service shows the effect of the write.
    pub(super) fn shows(&self, facts: &ServiceFacts) -> bool {
        match self {
            Self::AddFinalizer(mark) => facts.has_finalizer() && (mark.is_none() || facts.mark == *mark),
            Self::SetStatus(ingress) => facts.service.status == *ingress,
            Self::SetAnnotations(annotations) => {
                annotations.iter().all(|(key, value)| facts.written_annotations.get(key) == value.as_ref())
            }
            Self::Finish => !facts.has_finalizer() && facts.service.status.is_empty(),
            Self::Release => !facts.has_finalizer(),
        }
    }

    /// The patch, for a Service that was like this when the write was decided on.
    pub(super) fn patch(&self, facts: &ServiceFacts) -> Value {
        let mut metadata = Map::from_iter([("uid".to_owned(), json!(facts.service.uid))]);
        match self {
            Self::AddFinalizer(mark) => {
                let others = facts.finalizers.iter().map(String::as_str);
                let others = others.filter(|other| *other != FINALIZER_LOAD_BALANCER);
                let order: Vec<_> = others.chain([FINALIZER_LOAD_BALANCER]).collect();
                metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
                metadata.insert("finalizers".to_owned(), json!([FINALIZER_LOAD_BALANCER]));
                if mark.is_some() {
                    metadata.insert("annotations".to_owned(), json!({ANNOTATION_PROVIDER: mark}));
                }
            }
            Self::Finish | Self::Release => {
                let removed = json!([FINALIZER_LOAD_BALANCER]);
                metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), removed);
                if facts.mark.is_some() {
                    metadata.insert("annotations".to_owned(), json!({ANNOTATION_PROVIDER: null}));
                }
            }
            Self::SetAnnotations(annotations) => {
                let annotations: Map<_, _> =
                    annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
                metadata.insert("annotations".to_owned(), Value::Object(annotations));
            }
            Self::SetStatus(_) => {}
        }
        match self {
            Self::AddFinalizer(_) | Self::Release | Self::SetAnnotations(_) => json!({"metadata": metadata}),
            Self::Finish => json!({"metadata": metadata, "status": status(&[])}),
            Self::SetStatus(ingress) => json!({"metadata": metadata, "status": status(ingress)}),
        }
    }
}

/// Replaces the list as a whole, including entries of other writers.
fn status(ingress: &[Ingress]) -> Value {
    let list: Vec<_> = ingress.iter().map(ingress_entry).collect();
    let list = if list.is_empty() { Value::Null } else { json!(list) };
    json!({"loadBalancer": {"ingress": list}})
}

fn ingress_entry(ingress: &Ingress) -> Value {
    let Ingress { point, ip_mode, ports } = ingress;
    let mut entry = match point {
        IngressPoint::Ip(ip) => Map::from_iter([("ip".to_owned(), json!(ip))]),
        IngressPoint::Hostname(hostname) => Map::from_iter([("hostname".to_owned(), json!(hostname))]),
    };
    if let Some(mode) = ip_mode {
        let mode = match mode {
            IpMode::Vip => "VIP",
            IpMode::Proxy => "Proxy",
        };
        entry.insert("ipMode".to_owned(), json!(mode));
    }
    if !ports.is_empty() {
        entry.insert("ports".to_owned(), ports.iter().map(port).collect());
    }
    Value::Object(entry)
}

fn port(status: &PortStatus) -> Value {
    let PortStatus { port, protocol, error } = status;
    let mut port =
        Map::from_iter([("port".to_owned(), json!(port)), ("protocol".to_owned(), json!(protocol.as_str()))]);
    port.extend(error.iter().map(|error| ("error".to_owned(), json!(error))));
    Value::Object(port)
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Protocol, ServiceRequirements};

    use super::*;

    fn facts(finalizers: &[&str]) -> ServiceFacts {
        let service = json!({
            "metadata": {"namespace": "default", "name": "web", "uid": "u", "finalizers": finalizers},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        ServiceFacts::read(serde_json::from_value(service).unwrap(), &ServiceRequirements::default())
    }

    #[test]
    fn adding_or_removing_our_finalizer_leaves_those_of_others_in_place() {
        let ours = "service.kubernetes.io/load-balancer-cleanup";
        let order = json!(["x/y", ours]);
        let metadata = json!({"uid": "u", "finalizers": [ours], "$setElementOrder/finalizers": order});
        assert_eq!(Write::AddFinalizer(None).patch(&facts(&["x/y"])), json!({"metadata": metadata}));
        let metadata = json!({"uid": "u", "$deleteFromPrimitiveList/finalizers": [ours]});
        assert_eq!(Write::Release.patch(&facts(&["x/y", ours])), json!({"metadata": metadata}));
        let status = json!({"loadBalancer": {"ingress": null}});
        assert_eq!(
            Write::Finish.patch(&facts(&["x/y", ours])),
            json!({"metadata": metadata, "status": status})
        );
    }

    #[test]
    fn the_mark_comes_and_goes_with_the_finalizer() {
        let marked = |mark: Option<&str>, finalizers: &[&str]| ServiceFacts {
            mark: mark.map(str::to_owned),
            ..facts(finalizers)
        };
        let write = Write::AddFinalizer(Some("a".to_owned()));
        for (mark, finalizers) in [(None, &[][..]), (Some("b"), &[]), (None, &[FINALIZER_LOAD_BALANCER])] {
            let before = marked(mark, finalizers);
            let patch = write.patch(&before);
            assert_eq!(patch["metadata"]["annotations"], json!({"pileus.dev/provider": "a"}), "{before:?}");
            assert_eq!(patch["metadata"]["$setElementOrder/finalizers"], json!([FINALIZER_LOAD_BALANCER]));
            assert!(!write.shows(&before) && !write.shows(&marked(Some("a"), &[])), "{before:?}");
        }
        assert!(write.shows(&marked(Some("a"), &[FINALIZER_LOAD_BALANCER])));
        for write in [Write::Release, Write::Finish] {
            let patch = |mark| write.patch(&marked(mark, &[FINALIZER_LOAD_BALANCER]));
            assert_eq!(patch(Some("a"))["metadata"]["annotations"], json!({"pileus.dev/provider": null}));
            assert_eq!(patch(None)["metadata"].get("annotations"), None);
        }
    }

    #[test]
    fn a_status_is_written_as_a_whole() {
        let ports = vec![
            PortStatus { port: 80, protocol: Protocol::Tcp, error: None },
            PortStatus { port: 53, protocol: Protocol::Udp, error: Some("PortInUse".to_owned()) },
        ];
        let ingress = vec![
            Ingress { point: IngressPoint::Ip("192.0.2.1".to_owned()), ip_mode: Some(IpMode::Proxy), ports },
            Ingress { point: IngressPoint::Hostname("a.example".to_owned()), ip_mode: None, ports: vec![] },
        ];
        let ports = json!([
            {"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "error": "PortInUse"},
        ]);
        let list = json!([{"ip": "192.0.2.1", "ipMode": "Proxy", "ports": ports}, {"hostname": "a.example"}]);
        let status = json!({"loadBalancer": {"ingress": list}});
        assert_eq!(
            Write::SetStatus(ingress).patch(&facts(&[])),
            json!({"metadata": {"uid": "u"}, "status": status})
        );
    }

    #[test]
    fn annotations_are_set_and_removed_one_by_one() {
        let pair = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        let write =
            Write::SetAnnotations(vec![pair("example.com/id", Some("7")), pair("example.com/old", None)]);
        let annotations = json!({"example.com/id": "7", "example.com/old": null});
        let patch = json!({"metadata": {"uid": "u", "annotations": annotations}});
        assert_eq!(write.patch(&facts(&["x/y"])), patch);
        for (present, expected) in [
            (&[("example.com/id", "7")] as &[_], true),
            (&[("example.com/id", "8")], false),
            (&[], false),
            (&[("example.com/id", "7"), ("example.com/old", "")], false),
        ] {
            let written = present.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let facts = ServiceFacts { written_annotations: written.collect(), ..facts(&[]) };
            assert_eq!(write.shows(&facts), expected, "{present:?}");
        }
    }

    #[test]
    fn an_answer_shows_whether_a_write_took_effect() {
        let ingress = || {
            let point = IngressPoint::Ip("192.0.2.1".to_owned());
            vec![Ingress { point, ip_mode: Some(IpMode::Vip), ports: Vec::new() }]
        };
        let after = |has_finalizer: bool, has_status: bool| {
            let mut facts = facts(if has_finalizer { &["x/y", FINALIZER_LOAD_BALANCER] } else { &["x/y"] });
            facts.service.status = if has_status { ingress() } else { Vec::new() };
            facts
        };
        for (write, states) in [
            (Write::AddFinalizer(None), [false, false, true, true]),
            (Write::SetStatus(ingress()), [false, true, false, true]),
            (Write::Finish, [true, false, false, false]),
            (Write::Release, [true, true, false, false]),
        ] {
            let all = [(false, false), (false, true), (true, false), (true, true)];
            assert_eq!(
                all.map(|(finalizer, status)| write.shows(&after(finalizer, status))),
                states,
                "{write:?}"
            );
        }
    }
}
