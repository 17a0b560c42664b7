//! The `connection` of a document: additional root certificates, and a proxy. Nothing comes from environment variables.

use pileus_gate::{Connection, Login, Proxy, ProxyUrl};

use super::credentials::secret;
use super::fields::Fields;
use super::origin::Origin;
use super::{non_empty, parsed};

/// Reads the optional field `connection`.
pub(super) fn connection(spec: &mut Fields<'_>, origin: &Origin<'_>) -> Connection {
    if !spec.has("connection") {
        return Connection::default();
    }
    let read = |fields: &mut Fields<'_>| {
        let extra_roots = fields.optional("caBundle", |path| origin.file(path));
        let proxy = |fields: &mut Fields<'_>| proxy(fields, origin);
        let proxy = fields.has("proxy").then(|| fields.object_of("proxy", "{url: http://…}", proxy));
        Some(Connection { extra_roots, proxy: proxy.flatten() })
    };
    spec.object_of("connection", "{caBundle: FILE, proxy: {url: http://…}}", read).unwrap_or_default()
}

fn proxy(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Proxy> {
    let url = fields.required("url", parsed::<ProxyUrl>);
    let login = (fields.has("username") || fields.has("password")).then(|| login(fields, origin));
    let addresses = fields.list("addresses", &[], |text| origin.addresses(text));
    Some(Proxy { url: url?, login: login.flatten(), addresses })
}

fn login(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Login> {
    let username = fields.required("username", non_empty);
    let password = secret(fields, "password", origin);
    match Login::new(&username?, password?) {
        Ok(login) => Some(login),
        Err(error) => {
            fields.wrong_at("username", error.to_string());
            None
        }
    }
}
