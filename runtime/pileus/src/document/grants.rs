//! The `grants` of a document: what the provider may reach.

use pileus_gate::{Grant, HostPattern, MethodPattern, PathPrefix};

use super::fields::Fields;
use super::origin::Origin;
use super::parsed;

/// Reads one grant.
pub(super) fn grant(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Grant> {
    let tls = fields.boolean("tls", true);
    let host = fields.required("host", parsed::<HostPattern>);
    let port = fields.port("port", if tls { 443 } else { 80 });
    let methods = fields.list("methods", &["*"], parsed::<MethodPattern>);
    let paths = fields.list("paths", &["/"], parsed::<PathPrefix>);
    let addresses = fields.list("addresses", &[], |text| origin.addresses(text));
    Some(Grant { tls, host: host?, port, methods, paths, addresses })
}
