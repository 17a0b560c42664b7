//! Converts routes between the contract's types and `pileus-cloud`'s types.

use pileus_cloud::{
    Error, ErrorKind, ListedRoute, ProviderId, Route, RouteAction, RouteChange, RouteProgress,
};

use super::{MAX_ITEMS, MAX_TEXT_BYTES, address_to_wit, error_from_wit, hop_from_wit, progress_from_wit};
use crate::bindings::routes;
use crate::sanitize::excerpt;

pub(crate) fn route_change_to_wit(change: &RouteChange) -> routes::RouteChange {
    let RouteChange { action, resume } = change;
    let action = match action {
        RouteAction::Delete(route) => routes::Action::Delete(listed_to_wit(route)),
        RouteAction::Create(route) => routes::Action::Create(route_to_wit(route)),
    };
    routes::RouteChange { action, resume: resume.clone(), extra: Vec::new() }
}

fn route_to_wit(route: &Route) -> routes::Route {
    let Route { name_hint, node, target, addresses, labels, destination } = route;
    routes::Route {
        name_hint: name_hint.clone(),
        node: node.clone(),
        target: target.as_ref().map(ToString::to_string),
        addresses: addresses.iter().map(address_to_wit).collect(),
        labels: labels.clone(),
        destination: destination.to_string(),
        extra: Vec::new(),
    }
}

fn listed_to_wit(route: &ListedRoute) -> routes::Listed {
    let ListedRoute { name, node, target, addresses, destination, cluster_uid, is_blackhole, extra } = route;
    routes::Listed {
        name: name.clone(),
        node: node.clone(),
        target: target.as_ref().map(ToString::to_string),
        addresses: addresses.iter().map(address_to_wit).collect(),
        destination: destination.clone(),
        cluster_uid: cluster_uid.clone(),
        blackhole: *is_blackhole,
        extra: extra.clone(),
    }
}

/// Converts a route of the cloud's table. One that is invalid fails the whole list, so that nothing is changed because of it.
pub(crate) fn route_from_wit(route: routes::Listed) -> Result<ListedRoute, Error> {
    let routes::Listed { name, node, target, addresses, destination, cluster_uid, blackhole, extra } = route;
    let shown = excerpt(&name);
    let broken = |problem: String| Error::new(ErrorKind::Broken, format!("route {shown:?}: {problem}"));
    let notes = extra.iter().flat_map(|(key, value)| [key, value]);
    let texts = [&name, &destination].into_iter().chain(&node).chain(&cluster_uid).chain(notes);
    if let Some(long) = texts.map(String::len).find(|length| *length > MAX_TEXT_BYTES) {
        return Err(broken(format!("a text of {long} bytes; the limit is {MAX_TEXT_BYTES}")));
    }
    if addresses.len() > MAX_ITEMS || extra.len() > MAX_ITEMS {
        return Err(broken(format!(
            "{} addresses and {} notes; the limit is {MAX_ITEMS} of each",
            addresses.len(),
            extra.len()
        )));
    }
    let target =
        target.map(|id| ProviderId::parse(&id)).transpose().map_err(|error| broken(error.to_string()))?;
    Ok(ListedRoute {
        target,
        addresses: addresses.into_iter().map(hop_from_wit).collect::<Result<_, _>>().map_err(broken)?,
        name,
        node: node.filter(|node| !node.is_empty()),
        destination,
        cluster_uid: cluster_uid.filter(|uid| !uid.is_empty()),
        is_blackhole: blackhole,
        extra,
    })
}

pub(crate) fn route_outcome_from_wit(outcome: routes::Outcome) -> Result<RouteProgress, Error> {
    match outcome {
        routes::Outcome::Done => Ok(RouteProgress::Done),
        routes::Outcome::InProgress(progress) => {
            let (after, resume) = progress_from_wit(progress);
            Ok(RouteProgress::InProgress { after, resume })
        }
        routes::Outcome::Elsewhere => Ok(RouteProgress::Elsewhere),
        routes::Outcome::Failed(error) => Err(error_from_wit(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use pileus_cloud::{Address, AddressKind};

    use super::super::MAX_RESUME_BYTES;
    use super::*;
    use crate::bindings::types;

    fn listed() -> routes::Listed {
        routes::Listed {
            name: "r".to_owned(),
            node: Some("a".to_owned()),
            target: Some("sim://m-1".to_owned()),
            addresses: vec![types::Address {
                kind: types::AddressKind::InternalIp,
                value: "2001:DB8::1".to_owned(),
            }],
            destination: "10.0.0.0/24".to_owned(),
            cluster_uid: Some("c".to_owned()),
            blackhole: true,
            extra: vec![("etag".to_owned(), "7".to_owned())],
        }
    }

    #[test]
    fn a_route_is_returned_as_it_was_listed() {
        let mut route = route_from_wit(listed()).unwrap();
        let address: IpAddr = route.addresses[0].value.parse().unwrap();
        assert_eq!(address, "2001:db8::1".parse::<IpAddr>().unwrap());
        route.addresses[0] = Address::new(AddressKind::InternalIp, "2001:DB8::1");
        let back = listed_to_wit(&route);
        assert_eq!(format!("{back:?}"), format!("{:?}", listed()));
    }

    #[test]
    fn an_invalid_route_fails_the_list() {
        for (name, route) in [
            (
                "long cluster",
                routes::Listed { cluster_uid: Some("c".repeat(MAX_TEXT_BYTES + 1)), ..listed() },
            ),
            ("long name", routes::Listed { name: "n".repeat(MAX_TEXT_BYTES + 1), ..listed() }),
            (
                "long note",
                routes::Listed { extra: vec![(String::new(), "n".repeat(MAX_TEXT_BYTES + 1))], ..listed() },
            ),
            ("target", routes::Listed { target: Some("m-1".to_owned()), ..listed() }),
            ("many notes", routes::Listed { extra: vec![Default::default(); MAX_ITEMS + 1], ..listed() }),
        ] {
            assert_eq!(route_from_wit(route).unwrap_err().kind, ErrorKind::Broken, "{name}");
        }
        let empty = || Some(String::new());
        let unnamed = routes::Listed { node: empty(), cluster_uid: empty(), target: None, ..listed() };
        let route = route_from_wit(unnamed).unwrap();
        assert_eq!((route.node, route.cluster_uid), (None, None));
    }

    #[test]
    fn a_resume_note_is_kept_unless_it_is_too_long() {
        for (length, is_kept) in [(MAX_RESUME_BYTES, true), (MAX_RESUME_BYTES + 1, false)] {
            let progress =
                types::InProgress { after: 5000, resume: Some("n".repeat(length)), extra: Vec::new() };
            let outcome = route_outcome_from_wit(routes::Outcome::InProgress(progress)).unwrap();
            let RouteProgress::InProgress { after, resume } = outcome else { panic!("{outcome:?}") };
            assert_eq!((after, resume.is_some()), (Duration::from_secs(5), is_kept));
        }
    }
}
