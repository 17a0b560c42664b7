//! Credentials as the operator declares them: what is acquired, from where, and for which hosts. Plain data; secrets
//! appear only as the sources that hold them.

use http::{HeaderName, header};
use ipnet::IpNet;

use crate::credentials::metadata;
use crate::credentials::token_url::TokenUrl;
use crate::error::Error;
use crate::path::PathPrefix;
use crate::pattern::HostPattern;
use crate::request::Request;
use crate::secret::Secret;
use crate::{address, headers};

/// A credential and its hosts.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name in metrics, logs and messages. Unique within a provider.
    pub name: String,
    /// The hosts to whose requests it is attached, at every port that a grant opens. May be empty for one that is only an
    /// auxiliary of others.
    pub hosts: Vec<HostPattern>,
    /// The paths to whose requests it is attached, without regard to case; empty for all that no other credential of the host
    /// names. Of several credentials for a request the one with the longest path is used, and of equal ones the first.
    pub paths: Vec<PathPrefix>,
    /// The names of other credentials, at most three, whose tokens are sent along in `x-ms-authorization-auxiliary`: for
    /// requests to Azure that reach into other tenants.
    pub auxiliary: Vec<String>,
    /// Whether it is attached to requests without TLS as well, and its token fetched without: for tests and for
    /// networks without other users.
    pub plain: bool,
    /// The non-public address ranges that the token endpoint may resolve to.
    pub addresses: Vec<IpNet>,
    /// How it is acquired.
    pub kind: CredentialKind,
}

/// How a credential is acquired, and in which form it is attached.
#[derive(Debug, Clone)]
pub enum CredentialKind {
    /// A token that another program acquires: `Authorization: Bearer TOKEN`.
    Bearer {
        /// The token.
        token: Secret,
    },
    /// User name and password (RFC 7617).
    Basic {
        /// The user name, without a colon.
        username: String,
        /// The password.
        password: Secret,
    },
    /// A header of this cloud.
    Header {
        /// The header's name.
        name: HeaderName,
        /// Its value.
        value: Secret,
    },
    /// OAuth 2.0 client credentials with a secret, sent in the form (RFC 6749, 2.3.1 and 4.4).
    ClientSecret {
        /// Who is asked, for whom and for what.
        client: OAuthClient,
        /// The client's secret.
        secret: Secret,
    },
    /// OAuth 2.0 client credentials with an assertion signed by the RSA key of a certificate (RFC 7523), as Microsoft
    /// Entra accepts it.
    ClientCertificate {
        /// Who is asked, for whom and for what.
        client: OAuthClient,
        /// The PEM certificate, followed by its chain.
        certificate: Secret,
        /// Its PEM RSA key, PKCS#8 or PKCS#1. May be the same source as the certificate.
        key: Secret,
    },
    /// OAuth 2.0 client credentials with a token of the cluster as the assertion (workload identity federation).
    WorkloadIdentity {
        /// Who is asked, for whom and for what.
        client: OAuthClient,
        /// The projected token of the service account.
        token: Secret,
    },
    /// A token of the instance's own identity, from a metadata service like Azure's.
    ManagedIdentity {
        /// The endpoint. If its host is an address, that address may be dialed even if it is not public.
        endpoint: TokenUrl,
        /// What the token is for, as in `https://management.azure.com/`.
        resource: String,
        /// Which identity, if the instance has several.
        identity: Option<IdentityId>,
    },
    /// The header that a metadata service of this machine wants, for a provider that reads what the service says about the
    /// machine. Its only host is an address of the machine's link, which is reached without TLS and never through a proxy.
    /// Paths that hand out identities or credentials are refused regardless of grants.
    Metadata {
        /// Whose service it resembles.
        flavor: MetadataFlavor,
    },
    /// AWS Signature Version 4, over the whole request.
    AwsSigV4 {
        /// The region, as in `eu-central-1`.
        region: String,
        /// The service, as in `ec2`.
        service: String,
        /// The access key's ID.
        access_key_id: Secret,
        /// The access key.
        secret_access_key: Secret,
        /// The session's token, where the key is a temporary one.
        session_token: Option<Secret>,
    },
}

/// Names one of several identities of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityId {
    /// By its client ID.
    Client(String),
    /// By its resource ID, as in `/subscriptions/…/userAssignedIdentities/NAME`.
    Resource(String),
    /// By its object ID.
    Object(String),
}

/// Which header a metadata service wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataFlavor {
    /// `Metadata: true`.
    Azure,
    /// `Metadata-Flavor: Google`.
    Google,
    /// `X-aws-ec2-metadata-token`, with a token that the service issues.
    Aws,
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenTarget {
    /// A scope, as in `https://management.azure.com/.default`.
    Scope(String),
    /// A resource, as in `https://management.local.azurestack.external/`. AD FS wants it, which knows no scopes.
    Resource(String),
}

/// An OAuth 2.0 client and the endpoint that issues its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthClient {
    /// The token endpoint.
    pub token_url: TokenUrl,
    /// The client's ID.
    pub client_id: String,
    /// What the token is for.
    pub target: TokenTarget,
}

impl Credential {
    /// Whether its token endpoint is reached over TLS.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.kind.endpoint().is_some_and(|(_, url)| url.0.tls)
    }

    /// Whether it may be attached to a request.
    pub(crate) fn is_for(&self, request: &Request) -> bool {
        let is_metadata = matches!(self.kind, CredentialKind::Metadata { .. });
        let is_open = if is_metadata { !request.tls } else { request.tls || self.plain };
        let covers = |prefix: &PathPrefix| matches!(prefix.covers_in_any_case(&request.path), Ok(Some(_)));
        is_open
            && self.hosts.iter().any(|host| host.matches(&request.host))
            && (self.paths.is_empty() || self.paths.iter().any(covers))
    }

    /// Its problems, each with the field as the document calls it. A gate accepts only credentials without problems.
    pub fn problems(&self) -> Vec<(&'static str, Error)> {
        let mut problems = Vec::new();
        let mut wrong = |field, text: &str, cause, example| {
            problems
                .push((field, Error::Syntax { kind: "credential", text: text.to_owned(), cause, example }));
        };
        // A metadata service has no TLS, but there is no network between it and this machine.
        let is_near = |field, url: &TokenUrl| {
            field == "managedIdentity.endpoint" && url.literal().is_some_and(address::is_near)
        };
        if let Some((field, url)) = self.kind.endpoint()
            && !(url.0.tls || self.plain || is_near(field, url))
        {
            wrong(field, &url.to_string(), "would carry secrets without TLS", "https://… or `plain: true`");
        }
        match &self.kind {
            CredentialKind::Basic { username, .. }
                if username.contains(|letter: char| letter == ':' || letter.is_control()) =>
            {
                // What follows a colon is often the password.
                let name = username.split(':').next().unwrap_or_default();
                wrong("basic.username", name, "holds a colon or a control character", "pileus");
            }
            CredentialKind::Metadata { .. } if metadata::service(&self.hosts).is_none() => {
                let cause = "isn't for a single address of this machine's link";
                wrong("metadata", &self.name, cause, "hosts: [\"169.254.169.254\"]");
            }
            CredentialKind::Header { name, .. } if is_not_a_credentials(name) => {
                wrong("header.name", name.as_str(), "frames or directs the request", "X-Auth-Token");
            }
            CredentialKind::AwsSigV4 { region, .. } if !is_a_name(region) => {
                wrong("awsSigV4.region", region, "is not a valid AWS name", "eu-central-1");
            }
            CredentialKind::AwsSigV4 { service, .. } if !is_a_name(service) => {
                wrong("awsSigV4.service", service, "is not a valid AWS name", "ec2");
            }
            _ => {}
        }
        problems
    }
}

/// Whether a header can't carry a credential, so that a secret as its value can only be a mistake.
fn is_not_a_credentials(name: &HeaderName) -> bool {
    *name == header::HOST || *name == header::CONTENT_LENGTH || headers::is_hop_by_hop(name.as_str())
}

fn is_a_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

impl CredentialKind {
    /// Its name in the document.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Bearer { .. } => "bearer",
            Self::Basic { .. } => "basic",
            Self::Header { .. } => "header",
            Self::ClientSecret { .. } => "clientSecret",
            Self::ClientCertificate { .. } => "clientCertificate",
            Self::WorkloadIdentity { .. } => "workloadIdentity",
            Self::ManagedIdentity { .. } => "managedIdentity",
            Self::Metadata { .. } => "metadata",
            Self::AwsSigV4 { .. } => "awsSigV4",
        }
    }

    /// The token endpoint, with the field that names it.
    pub(crate) fn endpoint(&self) -> Option<(&'static str, &TokenUrl)> {
        match self {
            Self::ClientSecret { client, .. } => Some(("clientSecret.tokenURL", &client.token_url)),
            Self::ClientCertificate { client, .. } => Some(("clientCertificate.tokenURL", &client.token_url)),
            Self::WorkloadIdentity { client, .. } => Some(("workloadIdentity.tokenURL", &client.token_url)),
            Self::ManagedIdentity { endpoint, .. } => Some(("managedIdentity.endpoint", endpoint)),
            Self::Bearer { .. }
            | Self::Basic { .. }
            | Self::Header { .. }
            | Self::Metadata { .. }
            | Self::AwsSigV4 { .. } => None,
        }
    }

    /// Whether it is attached as a bearer token, so that it can be an auxiliary.
    pub(super) fn is_token(&self) -> bool {
        match self {
            Self::Bearer { .. }
            | Self::ClientSecret { .. }
            | Self::ClientCertificate { .. }
            | Self::WorkloadIdentity { .. }
            | Self::ManagedIdentity { .. } => true,
            Self::Basic { .. } | Self::Header { .. } | Self::Metadata { .. } | Self::AwsSigV4 { .. } => false,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::credentials::problems;
    use crate::secret::SecretFile;

    pub(in crate::credentials) fn secret() -> Secret {
        Arc::new(SecretFile::new("/secret"))
    }

    fn client(url: &str) -> OAuthClient {
        let target = TokenTarget::Scope("all".into());
        OAuthClient { token_url: url.parse().unwrap(), client_id: "id".into(), target }
    }

    fn managed(url: &str) -> CredentialKind {
        CredentialKind::ManagedIdentity {
            endpoint: url.parse().unwrap(),
            resource: "r".into(),
            identity: None,
        }
    }

    pub(in crate::credentials) fn credential(name: &str, kind: CredentialKind) -> Credential {
        Credential {
            name: name.into(),
            hosts: vec!["api.example".parse().unwrap()],
            paths: Vec::new(),
            auxiliary: Vec::new(),
            plain: false,
            addresses: Vec::new(),
            kind,
        }
    }

    #[test]
    fn a_problem_names_its_field() {
        let secretly = |url| CredentialKind::ClientSecret { client: client(url), secret: secret() };
        let basic = |name: &str| CredentialKind::Basic { username: name.into(), password: secret() };
        let header = |name: &str| CredentialKind::Header { name: name.parse().unwrap(), value: secret() };
        let aws = |region: &str, service: &str| CredentialKind::AwsSigV4 {
            region: region.into(),
            service: service.into(),
            access_key_id: secret(),
            secret_access_key: secret(),
            session_token: None,
        };
        let rows: Vec<(CredentialKind, bool, Option<&str>)> = vec![
            (secretly("https://login.example/token"), false, None),
            (secretly("http://login.example/token"), false, Some("clientSecret.tokenURL")),
            (secretly("http://login.example/token"), true, None),
            (secretly("http://10.0.0.1/token"), false, Some("clientSecret.tokenURL")),
            (secretly("http://127.0.0.1/token"), false, Some("clientSecret.tokenURL")),
            (managed("http://169.254.169.254/token"), false, None),
            (managed("http://metadata.example/token"), false, Some("managedIdentity.endpoint")),
            (managed("http://8.8.8.8/token"), false, Some("managedIdentity.endpoint")),
            (managed("http://10.0.0.1/token"), false, Some("managedIdentity.endpoint")),
            (managed("http://127.0.0.1:40342/token"), false, None),
            (basic("user"), false, None),
            (basic("us:er"), false, Some("basic.username")),
            (header("x-auth-token"), false, None),
            (header("host"), false, Some("header.name")),
            (header("transfer-encoding"), false, Some("header.name")),
            (header("proxy-authorization"), false, Some("header.name")),
            (aws("eu-central-1", "ec2"), false, None),
            (aws("", "ec2"), false, Some("awsSigV4.region")),
            (aws("eu-central-1", "ec2/\n"), false, Some("awsSigV4.service")),
        ];
        for (kind, plain, expected) in rows {
            let shown = format!("{kind:?}");
            let credential = Credential { plain, ..credential("main", kind) };
            let fields: Vec<_> = credential.problems().into_iter().map(|(field, _)| field).collect();
            assert_eq!(fields, Vec::from_iter(expected), "{shown} {plain}");
            let nowhere = Credential { hosts: Vec::new(), ..credential };
            assert_eq!(problems(&[nowhere]).len(), fields.len() + 1, "all at once: {shown}");
        }
    }

    #[test]
    fn a_credential_for_metadata_has_one_address_of_the_link() {
        for (host, expected) in [("169.254.169.254", 0), ("api.example", 1), ("10.0.0.1", 1)] {
            let kind = CredentialKind::Metadata { flavor: MetadataFlavor::Azure };
            let credential = Credential { hosts: vec![host.parse().unwrap()], ..credential("main", kind) };
            let fields: Vec<_> = credential.problems().into_iter().map(|(field, _)| field).collect();
            assert_eq!(fields, vec!["metadata"; expected], "{host}");
        }
    }

    #[test]
    fn a_token_url_has_no_user_query_or_fragment() {
        let url: TokenUrl = "https://Login.Example:8443/tenant/token".parse().unwrap();
        assert_eq!(url.to_string(), "https://login.example:8443/tenant/token");
        for text in [
            "",
            "login.example",
            "ftp://a.example/",
            "https://u:p@a.example/",
            "https://a.example/?q=1",
            "https://a.example/#f",
            "https://a.example/../b",
            "/token",
        ] {
            assert!(text.parse::<TokenUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_problem_does_not_repeat_possible_secrets() {
        for text in
            ["https://u:hunter2@a.example/", "https://a.example/?sig=hunter2", "https://a.example/#hunter2"]
        {
            let refused = text.parse::<TokenUrl>().unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{text}");
        }
        let kind = CredentialKind::Basic { username: "user:hunter2".into(), password: secret() };
        let problems = format!("{:?}", credential("main", kind).problems());
        assert!(problems.contains("\"user\"") && !problems.contains("hunter2"), "{problems}");
    }
}
