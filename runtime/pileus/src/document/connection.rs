//! How a document says that its cloud is reached: beside the system's trust, and through which proxy. Nothing of it comes
//! from the environment.

use pileus_gate::{Connection, Login, Proxy, ProxyUrl};

use super::credentials::secret;
use super::fields::Fields;
use super::{Origin, parsed, range, some_text};

/// Reads `connection`, which may be missing.
pub(super) fn connection(spec: &mut Fields<'_>, origin: &Origin<'_>) -> Connection {
    if !spec.has("connection") {
        return Connection::default();
    }
    let read = |fields: &mut Fields<'_>| {
        let extra_roots = fields.optional("caBundle", |path| Ok(origin.folder.join(some_text(path)?)));
        let proxy = |fields: &mut Fields<'_>| proxy(fields, origin);
        let proxy = fields.has("proxy").then(|| fields.object_of("proxy", "{url: http://…}", proxy));
        Some(Connection { extra_roots, proxy: proxy.flatten() })
    };
    spec.object_of("connection", "{caBundle: FILE, proxy: {url: http://…}}", read).unwrap_or_default()
}

fn proxy(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Proxy> {
    let url = fields.required("url", parsed::<ProxyUrl>);
    let login = (fields.has("username") || fields.has("password")).then(|| login(fields, origin));
    let addresses = fields.list("addresses", &[], range);
    Some(Proxy { url: url?, login: login.flatten(), addresses })
}

fn login(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Login> {
    let username = fields.required("username", some_text);
    let password = secret(fields, "password", origin);
    match Login::new(&username?, password?) {
        Ok(login) => Some(login),
        Err(error) => {
            fields.wrong_at("username", error.to_string());
            None
        }
    }
}
