//! What of a provider's answer about a Service is taken. Pure.

use std::net::IpAddr;

use pileus_cloud::{Error as CloudError, ErrorKind, Notice, ServiceProgress, ServiceRequirements};

use crate::cluster_addresses::{Owner, free_ingress};
use crate::facts::service::is_valid_annotation;

/// The most notices of a change that are kept: a provider's eight, and one of the host about them.
const MAX_NOTICES: usize = 9;

/// The outcome without the addresses that the cluster itself has, with a warning about each, and without annotations that the
/// provider may not set.
///
/// # Errors
/// [`ErrorKind::Broken`] where a change is done and no other address is left.
pub(super) fn screened(
    progress: ServiceProgress,
    requirements: &ServiceRequirements,
    owner: impl Fn(IpAddr) -> Option<Owner>,
) -> Result<ServiceProgress, CloudError> {
    let warning = |message| Notice { reason: "LoadBalancerWarning".to_owned(), message, is_warning: true };
    let told = |notices: Vec<Notice>, left_out: Vec<String>| {
        notices.into_iter().take(MAX_NOTICES).chain(left_out.into_iter().map(warning)).collect()
    };
    let kept = |mut annotations: Vec<(String, Option<String>)>| {
        annotations.retain(|(key, value)| is_valid_annotation(key, value.as_deref(), requirements));
        annotations
    };
    match progress {
        ServiceProgress::Done { status, notices, annotations } => {
            let given = status.len();
            let (status, left_out) = free_ingress(status, owner);
            if status.is_empty() && given > 0 {
                return Err(CloudError::new(ErrorKind::Broken, left_out.join("; ")));
            }
            let notices = told(notices, left_out);
            Ok(ServiceProgress::Done { status, notices, annotations: kept(annotations) })
        }
        ServiceProgress::InProgress { after, resume, status, notices, annotations } => {
            let mut left_out = Vec::new();
            // Where nothing is left, the next answer may be better.
            let status = status.and_then(|given| {
                let was_empty = given.is_empty();
                let (free, without) = free_ingress(given, owner);
                left_out = without;
                (was_empty || !free.is_empty()).then_some(free)
            });
            let (notices, annotations) = (told(notices, left_out), kept(annotations));
            Ok(ServiceProgress::InProgress { after, resume, status, notices, annotations })
        }
        ServiceProgress::Elsewhere => Ok(ServiceProgress::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::{AnnotationType, Ingress, IngressPoint};

    use super::*;

    fn ingress(ips: &[&str]) -> Vec<Ingress> {
        let of = |ip: &&str| Ingress {
            point: IngressPoint::Ip((*ip).to_owned()),
            ip_mode: None,
            ports: Vec::new(),
        };
        ips.iter().map(of).collect()
    }

    /// The cluster has 10.0.0.1.
    fn screen(progress: ServiceProgress) -> Result<ServiceProgress, CloudError> {
        let own: IpAddr = [10, 0, 0, 1].into();
        let written = [
            ("example.com/id", AnnotationType::Integer),
            ("example.com/nodes", AnnotationType::NodeSelector),
        ];
        let requirements = ServiceRequirements {
            annotations: written.map(|(key, kind)| (key.to_owned(), kind)).to_vec(),
            written_annotations: written.map(|(key, _)| key.to_owned()).to_vec(),
            ..ServiceRequirements::default()
        };
        screened(progress, &requirements, |ip| (ip == own).then_some(Owner::ApiServer))
    }

    #[test]
    fn addresses_of_the_cluster_are_left_out_whether_a_change_is_done_or_goes_on() {
        for (given, kept, warnings) in [
            (&[] as &[&str], Some(&[] as &[&str]), 0),
            (&["192.0.2.1"], Some(&["192.0.2.1"]), 0),
            (&["192.0.2.1", "10.0.0.1"], Some(&["192.0.2.1"]), 1),
            (&["10.0.0.1"], None, 1),
        ] {
            let done = screen(ServiceProgress::done(ingress(given)));
            match done {
                Ok(ServiceProgress::Done { status, notices, .. }) => {
                    assert_eq!((Some(status), notices.len()), (kept.map(ingress), warnings), "{given:?}");
                }
                Err(error) => assert_eq!((error.kind, kept), (ErrorKind::Broken, None), "{given:?}"),
                other => panic!("{other:?}"),
            }
            let goes_on = ServiceProgress::InProgress {
                after: Duration::from_secs(1),
                resume: None,
                status: Some(ingress(given)),
                notices: Vec::new(),
                annotations: Vec::new(),
            };
            let Ok(ServiceProgress::InProgress { status, notices, .. }) = screen(goes_on) else { panic!() };
            assert_eq!((status, notices.len()), (kept.map(ingress), warnings), "{given:?}");
        }
        let silent = ServiceProgress::in_progress(Duration::ZERO, None);
        assert_eq!(screen(silent.clone()), Ok(silent));
    }

    #[test]
    fn annotations_are_kept_only_if_the_provider_has_named_them_and_they_leave_the_service_valid() {
        let rows = [
            ("example.com/id", Some("7"), true),
            ("example.com/id", None, true),
            ("example.com/id", Some("seven"), false),
            ("example.com/nodes", Some("a in (b)"), true),
            ("example.com/nodes", Some("a in b"), false),
            ("example.com/other", Some("7"), false),
            ("example.com/other", None, false),
            ("kubectl.kubernetes.io/last-applied-configuration", None, false),
        ];
        let pair = |(key, value): (&str, Option<&str>)| (key.to_owned(), value.map(str::to_owned));
        let annotations = rows.iter().map(|(key, value, _)| pair((key, *value))).collect();
        let notice = |_| Notice { reason: "A".to_owned(), message: "b".to_owned(), is_warning: false };
        let notices = (0..20).map(notice).collect();
        let done = screen(ServiceProgress::Done {
            status: ingress(&["10.0.0.1", "192.0.2.1"]),
            notices,
            annotations,
        });
        let Ok(ServiceProgress::Done { notices, annotations, .. }) = done else { panic!("{done:?}") };
        let expected = rows.iter().filter(|(_, _, is_kept)| *is_kept);
        assert_eq!(annotations, expected.map(|(key, value, _)| pair((key, *value))).collect::<Vec<_>>());
        assert_eq!(notices.len(), MAX_NOTICES + 1);
        assert!(notices.last().is_some_and(|last| last.is_warning), "ours isn't counted among theirs");
    }
}
