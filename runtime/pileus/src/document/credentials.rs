//! The credentials of a document. A document never contains a secret value, only references to files or keys of Kubernetes
//! Secrets, so it can be shown, mailed and committed.

use pileus_gate::{
    Credential, CredentialKind, Grant, HostPattern, IdentityId, MetadataFlavor, OAuthClient, PathPrefix,
    Problem, Secret, SecretFile, TokenTarget, TokenUrl,
};

use super::fields::Fields;
use super::origin::Origin;
use super::{name, non_empty, parsed};

/// Reads the fields of one kind of credentials.
type ReadKind = fn(&mut Fields<'_>, &Origin<'_>) -> Option<CredentialKind>;

/// The kinds of credentials, with their fields in the document.
const KINDS: [(&str, ReadKind); 9] = [
    ("clientSecret", client_secret),
    ("clientCertificate", client_certificate),
    ("workloadIdentity", workload_identity),
    ("managedIdentity", managed_identity),
    ("metadata", metadata),
    ("bearer", bearer),
    ("basic", basic),
    ("header", header),
    ("awsSigV4", aws_sig_v4),
];

/// Reads one credential, and reports its problems.
pub(super) fn credential(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Credential> {
    let named = fields.required("name", name);
    let hosts = fields.list("hosts", &[], parsed::<HostPattern>);
    let paths = fields.list("paths", &[], parsed::<PathPrefix>);
    let auxiliary = fields.list("auxiliary", &[], name);
    let plain = fields.boolean("plain", false);
    let addresses = fields.list("addresses", &[], |text| origin.addresses(text));
    let present: Vec<_> = KINDS.into_iter().filter(|(kind, _)| fields.has(kind)).collect();
    let kind = match present.as_slice() {
        [(kind, read)] => fields.object_of(kind, "fields", |fields| read(fields, origin)),
        [] => {
            let kinds = KINDS.map(|(kind, _)| kind).join(", ");
            fields.wrong(format!("a credential needs a kind; add one of {kinds}"));
            None
        }
        several => {
            let kinds: Vec<_> = several.iter().map(|(kind, _)| *kind).collect();
            fields.wrong(format!("a credential can have only one kind; keep one of {}", kinds.join(", ")));
            None
        }
    };
    Some(Credential {
        name: named.unwrap_or_default(),
        hosts,
        paths,
        auxiliary,
        plain,
        addresses,
        kind: kind?,
    })
}

/// Problems of credentials in relation to each other and to the grants: credentials that would never be attached to a
/// request, although the operator relies on them.
pub(super) fn problems(credentials: &[Credential], grants: &[Grant]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, credential) in credentials.iter().enumerate() {
        let path = format!("spec.credentials[{index}]");
        let before = credentials.get(..index).unwrap_or_default();
        let same = before.iter().position(|other| !other.name.is_empty() && other.name == credential.name);
        if let Some(other) = same {
            let message = format!("duplicate name {:?}, also of spec.credentials[{other}]", credential.name);
            problems.push(Problem::at(format!("{path}.name"), message));
        }
        for (number, host) in credential.hosts.iter().enumerate() {
            let message = why_never_attached(host, credential, before, grants);
            problems.extend(message.map(|it| Problem::at(format!("{path}.hosts[{number}]"), it)));
        }
    }
    problems
}

/// Why a credential is never attached to a request to a host; none if it may be.
fn why_never_attached(
    host: &HostPattern,
    credential: &Credential,
    before: &[Credential],
    grants: &[Grant],
) -> Option<String> {
    let is_for = |other: &HostPattern| other.covers(host) || host.covers(other);
    let mut granted = grants.iter().filter(|grant| is_for(&grant.host)).peekable();
    if granted.peek().is_none() {
        return Some(format!(
            "no grant for {host}, so no request is sent there; add a grant or remove the host"
        ));
    }
    let needs_tls = !credential.plain && !matches!(credential.kind, CredentialKind::Metadata { .. });
    if needs_tls && !granted.any(|grant| grant.tls) {
        return Some(format!(
            "{host} is granted only without TLS, so the credential is not sent; grant the host with TLS, or set `plain: true` \
             in the credential"
        ));
    }
    // A plain credential still applies to plain requests if one before it isn't plain.
    let is_as_plain = |other: &&Credential| other.plain || !credential.plain;
    // One for other paths leaves this one its own.
    let has_same_paths = |other: &&Credential| other.paths == credential.paths;
    let covers = |other: &&Credential| other.hosts.iter().any(|wider| wider.covers(host));
    let first = before.iter().filter(is_as_plain).filter(has_same_paths).find(covers)?;
    Some(format!(
        "requests to {host} get credential {:?}, which comes first; put the one for fewer hosts first",
        first.name
    ))
}

fn client_secret(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (client, secret) = (client(fields), secret(fields, "secret", origin));
    Some(CredentialKind::ClientSecret { client: client?, secret: secret? })
}

fn client_certificate(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let client = client(fields);
    let (certificate, key) = (secret(fields, "certificate", origin), secret(fields, "key", origin));
    Some(CredentialKind::ClientCertificate { client: client?, certificate: certificate?, key: key? })
}

fn workload_identity(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (client, token) = (client(fields), secret(fields, "token", origin));
    Some(CredentialKind::WorkloadIdentity { client: client?, token: token? })
}

fn managed_identity(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let endpoint = fields.required("endpoint", token_url);
    let resource = fields.required("resource", non_empty);
    let names = ["clientID", "resourceID", "objectID"];
    let [client, by_resource, object] = names.map(|name| fields.optional(name, non_empty));
    let given = [
        client.map(IdentityId::Client),
        by_resource.map(IdentityId::Resource),
        object.map(IdentityId::Object),
    ];
    let mut given = given.into_iter().flatten();
    let identity = given.next();
    if given.next().is_some() {
        fields.wrong("an identity has one ID; keep one of clientID, resourceID, objectID");
    }
    origin.node_identity().map_err(|problem| fields.wrong(problem)).ok()?;
    Some(CredentialKind::ManagedIdentity { endpoint: endpoint?, resource: resource?, identity })
}

fn metadata(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let flavor = fields.required("flavor", |text| match text {
        "azure" => Ok(MetadataFlavor::Azure),
        "google" => Ok(MetadataFlavor::Google),
        "aws" => Ok(MetadataFlavor::Aws),
        other => Err(format!("unknown flavor {other:?}; expected azure, google or aws")),
    });
    origin.node_identity().map_err(|problem| fields.wrong(problem)).ok()?;
    Some(CredentialKind::Metadata { flavor: flavor? })
}

fn bearer(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    Some(CredentialKind::Bearer { token: secret(fields, "token", origin)? })
}

fn basic(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (username, password) = (fields.required("username", non_empty), secret(fields, "password", origin));
    Some(CredentialKind::Basic { username: username?, password: password? })
}

fn header(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let name = fields.required("name", |text| {
        if text.contains(':') {
            // The text probably contains the value, so it isn't repeated.
            return Err(
                "expected only the header name, as in X-Auth-Token; its value belongs in `value`".to_owned()
            );
        }
        let wrong = |_| format!("invalid header name {text:?}; write it as in X-Auth-Token");
        http::HeaderName::try_from(text).map_err(wrong)
    });
    let value = secret(fields, "value", origin);
    Some(CredentialKind::Header { name: name?, value: value? })
}

fn aws_sig_v4(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (region, service) = (fields.required("region", non_empty), fields.required("service", non_empty));
    let access_key_id = secret(fields, "accessKeyID", origin);
    let secret_access_key = secret(fields, "secretAccessKey", origin);
    let session_token = fields.has("sessionToken").then(|| secret(fields, "sessionToken", origin));
    Some(CredentialKind::AwsSigV4 {
        region: region?,
        service: service?,
        access_key_id: access_key_id?,
        secret_access_key: secret_access_key?,
        session_token: session_token.flatten(),
    })
}

fn client(fields: &mut Fields<'_>) -> Option<OAuthClient> {
    let token_url = fields.required("tokenURL", token_url);
    let client_id = fields.required("clientID", non_empty);
    let target = match (fields.has("scope"), fields.has("resource")) {
        (_, false) => fields.required("scope", non_empty).map(TokenTarget::Scope),
        (false, true) => fields.required("resource", non_empty).map(TokenTarget::Resource),
        (true, true) => fields.none("a token has one target; keep scope, or resource for AD FS"),
    };
    Some(OAuthClient { token_url: token_url?, client_id: client_id?, target: target? })
}

fn token_url(text: &str) -> Result<TokenUrl, String> {
    // These parts hold secrets more often than not, so they aren't repeated.
    if text.contains(['@', '?', '#']) {
        return Err(
            "a token URL can't have a user name, query or fragment; secrets have their own fields".to_owned()
        );
    }
    parsed(text)
}

/// Reads a reference to a secret value: `{file: PATH}` or `{secret: {name: NAME, key: KEY}}`. A literal value is
/// rejected, and never repeated.
pub(super) fn secret(fields: &mut Fields<'_>, field: &'static str, origin: &Origin<'_>) -> Option<Secret> {
    const REFERENCE: &str = "a reference to the value, never the value itself: {file: PATH}, or {secret: {name: NAME, \
                             key: KEY}} for a Kubernetes Secret in the namespace that Pileus runs in";
    fields.object_of(field, REFERENCE, |fields| match (fields.has("file"), fields.has("secret")) {
        (true, false) => {
            let path = fields.required("file", |path| origin.file(path))?;
            Some(std::sync::Arc::new(SecretFile::new(path)) as Secret)
        }
        (false, true) => fields.object_of("secret", "{name: NAME, key: KEY}", |fields| {
            let (name, key) = (fields.required("name", secret_name), fields.required("key", secret_key));
            Some(origin.secrets().source(&name?, &key?))
        }),
        (true, true) => fields.none("a value can have only one reference; keep file or secret"),
        (false, false) => fields.none(format!("expected {REFERENCE}")),
    })
}

pub(super) fn secret_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ['-', '.'].contains(&c);
    word(text, is_name, "lower-case letters, digits, dashes and dots")
}

fn secret_key(text: &str) -> Result<String, String> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&c);
    word(text, is_key, "letters, digits, dashes, dots and underscores")
}

/// Checks the characters and length that Kubernetes allows. The text isn't repeated, because it may be a misplaced
/// secret value.
fn word(text: &str, is_allowed: impl Fn(char) -> bool, of: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 253 || !text.chars().all(is_allowed) {
        return Err(format!("expected 1 to 253 {of}"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::CloudProvider;
    use crate::secrets::Secrets;

    /// Parses a document with these credentials, which are YAML flow style.
    fn parse(credentials: &str) -> Result<Vec<Credential>, Vec<String>> {
        let text = format!(
            "apiVersion: pileus.dev/v1alpha1\nkind: CloudProvider\nmetadata: {{name: test}}\nspec:\n  source: {{file: \
             a}}\n  grants: [{{host: '*.cloud.example'}}, {{host: plain.example, tls: false}}]\n  credentials: \
             {credentials}\n"
        );
        let origin = Origin::File { folder: Path::new("/etc/pileus"), secrets: &Secrets::default() };
        CloudProvider::parse(&text, &origin)
            .map(|document| document.credentials)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    const CLIENT: &str = "tokenURL: 'https://login.example/t', clientID: id, scope: all";

    /// A valid credential of this kind.
    fn with(kind: &str) -> String {
        format!("[{{name: main, hosts: [api.cloud.example], {kind}}}]")
    }

    #[test]
    fn every_kind_can_refer_to_files_and_kubernetes_secrets() {
        let file = "{file: secret}";
        let key = "{secret: {name: my.cloud, key: tls.key}}";
        let read_from = ["file /etc/pileus/secret", "key tls.key of Secret my.cloud"];
        for (kind, fields) in [
            ("clientSecret", format!("{CLIENT}, secret: {key}")),
            ("clientCertificate", format!("{CLIENT}, certificate: {file}, key: {key}")),
            ("workloadIdentity", format!("{CLIENT}, token: {file}")),
            ("managedIdentity", "endpoint: 'http://169.254.169.254/token', resource: all".to_owned()),
            (
                "managedIdentity",
                "endpoint: 'http://169.254.169.254/t', resource: all, clientID: a".to_owned(),
            ),
            (
                "managedIdentity",
                "endpoint: 'http://169.254.169.254/t', resource: all, resourceID: /subscriptions/a"
                    .to_owned(),
            ),
            (
                "clientSecret",
                format!("tokenURL: 'https://login.example/t', clientID: id, resource: all, secret: {key}"),
            ),
            ("bearer", format!("token: {file}")),
            ("basic", format!("username: user, password: {key}")),
            ("header", format!("name: X-Auth-Token, value: {file}")),
            ("awsSigV4", format!("region: r, service: s, accessKeyID: {file}, secretAccessKey: {key}")),
            (
                "awsSigV4",
                format!(
                    "region: r, service: s, accessKeyID: {key}, secretAccessKey: {key}, sessionToken: {file}"
                ),
            ),
        ] {
            let credentials = parse(&with(&format!("{kind}: {{{fields}}}"))).expect(&fields);
            let [credential] = credentials.as_slice() else { panic!("one credential") };
            assert_eq!(credential.kind.label(), kind);
            let shown = format!("{credential:?}");
            for (written, expected) in [file, key].into_iter().zip(read_from) {
                // A file's own `Debug` is its path.
                let expected = expected.trim_start_matches("file ");
                assert_eq!(shown.contains(expected), fields.contains(written), "{expected}: {shown}");
            }
        }
    }

    #[test]
    fn one_problem_is_one_line_that_says_what_to_do() {
        let token = "bearer: {token: {file: a}}";
        for (credentials, expected) in [
            ("{}", ": expected a list, found fields"),
            (
                "[{name: a, hosts: [a.cloud.example]}]",
                "[0]: a credential needs a kind; add one of clientSecret, ",
            ),
            (
                &format!("[{{name: a, hosts: [a.cloud.example], {token}, header: {{}}}}]"),
                "[0]: a credential can have only one kind; keep one of bearer, header",
            ),
            (&with("tokens: {}, bearer: {token: {file: a}}"), "[0].tokens: unknown field; known fields are "),
            (
                &with("bearer: {token: {file: a}, tokenFile: a}"),
                "[0].bearer.tokenFile: unknown field; known fields are token",
            ),
            (&with("bearer: hunter2"), "[0].bearer: expected fields; found a string"),
            (
                &with("bearer: {token: hunter2}"),
                "[0].bearer.token: expected a reference to the value, never the value itself: {file: PATH}, or {secret: {name",
            ),
            (&with("bearer: {}"), "[0].bearer.token: required field is missing"),
            (&with("bearer: {token: {file: ' '}}"), "[0].bearer.token.file: expected a non-empty string"),
            (
                &with("bearer: {token: {file: a, secret: {name: a, key: b}}}"),
                "[0].bearer.token: a value can have only one reference",
            ),
            (
                &with("bearer: {token: {secret: hunter2}}"),
                "[0].bearer.token.secret: expected {name: NAME, key: KEY}; found a string",
            ),
            (
                &with("bearer: {token: {secret: {name: 'hunter2!', key: a}}}"),
                "[0].bearer.token.secret.name: expected 1 to 253 lower-case letters",
            ),
            (
                &with("bearer: {token: {secret: {name: a}}}"),
                "[0].bearer.token.secret.key: required field is missing",
            ),
            (&with("bearer: {token: {env: TOKEN}}"), "[0].bearer.token"),
            (&with("basic: {username: 'a:b', password: {file: a}}"), "[0].basic.username: "),
            (
                &with("header: {name: 'a b', value: {file: a}}"),
                "[0].header.name: invalid header name \"a b\"",
            ),
            (
                &with("header: {name: 'X-Auth-Token: hunter2', value: {file: a}}"),
                "[0].header.name: expected only the header name",
            ),
            (&with("header: {name: Host, value: {file: a}}"), "[0].header.name: "),
            (
                &with(
                    "clientSecret: {tokenURL: 'http://login.example/t', clientID: a, scope: b, secret: {file: a}}",
                ),
                "[0].clientSecret.tokenURL: ",
            ),
            (
                &with(
                    "clientSecret: {tokenURL: 'https://a:hunter2@b.example', clientID: a, scope: b, secret: {file: a}}",
                ),
                "[0].clientSecret.tokenURL: a token URL can't have a user name",
            ),
            (
                &with("managedIdentity: {endpoint: 'http://metadata.example/t', resource: a}"),
                "[0].managedIdentity.endpoint: ",
            ),
            (&format!("[{{name: a, hosts: [], {token}}}]"), "[0].hosts: a credential needs hosts"),
            (&format!("[{{name: a, {token}}}]"), "[0].hosts: a credential needs hosts"),
            (&format!("[{{hosts: [a.cloud.example], {token}}}]"), "[0].name: required field is missing"),
            (&format!("[{{name: a, hosts: [a.example], {token}}}]"), "[0].hosts[0]: no grant for a.example"),
            (
                &format!("[{{name: a, hosts: [a.cloud.example, plain.example], {token}}}]"),
                "[0].hosts[1]: plain.example is granted only without TLS",
            ),
            (
                &format!(
                    "[{{name: a, hosts: [a.cloud.example], {token}}}, {{name: a, hosts: [b.cloud.example], {token}}}]"
                ),
                "[1].name: duplicate name \"a\", also of spec.credentials[0]",
            ),
            (
                &format!(
                    "[{{name: a, hosts: ['*.cloud.example'], {token}}}, {{name: b, hosts: [b.cloud.example], {token}}}]"
                ),
                "[1].hosts[0]: requests to b.cloud.example get credential \"a\", which comes first; put the one for fewer hosts first",
            ),
        ] {
            let problems = parse(credentials).expect_err(credentials);
            let expected = format!("spec.credentials{expected}");
            assert!(problems[0].starts_with(&expected), "{credentials}: {problems:#?}");
            assert!(problems.len() == 1 || credentials.contains("env"), "{credentials}: {problems:#?}");
            assert!(!problems.concat().contains("hunter2"), "a secret is repeated: {problems:#?}");
        }
    }

    #[test]
    fn a_credential_may_cover_a_part_of_the_grants_and_plain_hosts_if_it_is_plain() {
        let token = "bearer: {token: {file: a}}";
        for credentials in [
            format!("[{{name: a, hosts: ['*.cloud.example'], {token}}}]"),
            format!("[{{name: a, hosts: ['*.example'], {token}}}]"),
            format!("[{{name: a, hosts: [plain.example], plain: true, {token}}}]"),
            format!(
                "[{{name: a, hosts: ['*.example'], {token}}}, {{name: b, hosts: [plain.example], plain: true, {token}}}]"
            ),
            format!(
                "[{{name: a, hosts: [b.cloud.example], {token}}}, {{name: b, hosts: ['*.cloud.example'], {token}}}]"
            ),
        ] {
            assert!(parse(&credentials).is_ok(), "{credentials}");
        }
    }
}
