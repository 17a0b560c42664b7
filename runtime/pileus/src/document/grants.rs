//! The `grants` of a document: what the provider may reach.

use pileus_gate::{Grant, HostPattern, MethodPattern, PathPrefix};

use super::fields::Fields;
use super::{cidr, parsed};

/// Reads one grant.
pub(super) fn grant(fields: &mut Fields<'_>) -> Option<Grant> {
    let tls = fields.boolean("tls", true);
    let host = fields.required("host", parsed::<HostPattern>);
    let port = fields.port("port", if tls { 443 } else { 80 });
    let methods = fields.list("methods", &["*"], parsed::<MethodPattern>);
    let paths = fields.list("paths", &["/"], parsed::<PathPrefix>);
    let addresses = fields.list("addresses", &[], cidr);
    Some(Grant { tls, host: host?, port, methods, paths, addresses })
}
