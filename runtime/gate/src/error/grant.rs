//! What the grants lack for a request.

use std::fmt;

/// What the grants lack for a request. Its text says what to add to the CloudProvider document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingGrant {
    /// No grant names this endpoint.
    Endpoint {
        /// Whether the request was to use TLS.
        tls: bool,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A grant names the endpoint, but none with this path.
    Path {
        /// The label of the first grant that names the endpoint.
        grant: String,
    },
    /// A grant names the endpoint and a prefix of the path, but some servers would see another path.
    Reading {
        /// The label of the first such grant.
        grant: String,
        /// What the path holds, as a verb phrase.
        cause: &'static str,
    },
    /// A grant names endpoint and path, but none of these allows the method.
    Method {
        /// The label of the first grant that names endpoint and path.
        grant: String,
    },
    /// A grant of the present document allows the request, and doesn't open all addresses that the release was given.
    Addresses {
        /// The label of that grant.
        grant: String,
    },
    /// The path may lead to an identity of this machine, and its metadata service would get a header from the gate. No grant
    /// allows that.
    Identity {
        /// The credential with that header.
        credential: String,
        /// What the path does, as a verb phrase.
        cause: &'static str,
    },
}

impl fmt::Display for MissingGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { tls, host, port } => write!(
                f,
                "no grant names this endpoint; to allow it, add a grant with `tls: {tls}`, `host: \"{host}\"` and \
                 `port: {port}` to the CloudProvider document"
            ),
            Self::Path { grant } => write!(
                f,
                "grant {grant} doesn't allow this path; to allow it, add a prefix of it to `paths` of the grant in the \
                 CloudProvider document"
            ),
            Self::Reading { grant, cause } => write!(
                f,
                "the path {cause}, so some servers might see a path that grant {grant} doesn't allow; the provider must send \
                 another, or `paths` of the grant must hold `/`, which allows every path"
            ),
            Self::Addresses { grant } => write!(
                f,
                "the present CloudProvider document opens fewer `addresses` of grant {grant} than the release was given, which \
                 can't send such requests any more; they work again once the new settings are active"
            ),
            Self::Identity { credential, cause } => write!(
                f,
                "the path {cause}, which no grant allows where credential {credential} is for a metadata service; a token of \
                 this machine's identity can only be a credential of its own, of kind `managedIdentity`"
            ),
            Self::Method { grant } => write!(
                f,
                "grant {grant} doesn't allow this method; to allow it, add it to `methods` of the grant in the \
                 CloudProvider document"
            ),
        }
    }
}
