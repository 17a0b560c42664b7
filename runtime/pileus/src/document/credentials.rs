//! The credentials of a document. Secret values never stand in it: each is a file or a key of a Kubernetes Secret, so a
//! document can be shown, mailed and committed.

use pileus_gate::{
    Credential, CredentialKind, Grant, HostPattern, OAuthClient, Problem, Secret, SecretFile, TokenUrl,
};

use super::fields::Fields;
use super::{Origin, name, parsed, some_text};

/// Reads the fields of one kind of credentials.
type ReadKind = fn(&mut Fields<'_>, &Origin<'_>) -> Option<CredentialKind>;

/// The kinds of credentials, as the document calls them.
const KINDS: [(&str, ReadKind); 8] = [
    ("clientSecret", client_secret),
    ("clientCertificate", client_certificate),
    ("workloadIdentity", workload_identity),
    ("managedIdentity", managed_identity),
    ("bearer", bearer),
    ("basic", basic),
    ("header", header),
    ("awsSigV4", aws_sig_v4),
];

/// Reads one credential and says what is wrong with it by itself.
pub(super) fn credential(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<Credential> {
    let named = fields.required("name", name);
    let has_hosts = fields.has("hosts");
    let hosts = fields.list("hosts", &[], parsed::<HostPattern>);
    if !has_hosts || fields.is_empty_list("hosts") {
        fields.wrong_at("hosts", "a credential is for some hosts; name them, as in [management.azure.com]");
    }
    let plain = fields.boolean("plain", false);
    let addresses = fields.list("addresses", &[], super::range);
    let present: Vec<_> = KINDS.into_iter().filter(|(kind, _)| fields.has(kind)).collect();
    let kind = match present.as_slice() {
        [(kind, read)] => fields.object_of(kind, "fields", |fields| read(fields, origin)),
        [] => {
            let kinds = KINDS.map(|(kind, _)| kind).join(", ");
            fields.wrong(format!("a credential has a kind; add one of {kinds}"));
            None
        }
        several => {
            let kinds: Vec<_> = several.iter().map(|(kind, _)| *kind).collect();
            fields.wrong(format!("a credential has one kind; keep one of {}", kinds.join(", ")));
            None
        }
    };
    let credential = Credential { name: named.unwrap_or_default(), hosts, plain, addresses, kind: kind? };
    for (field, error) in credential.mistakes() {
        // Those of a credential whose kind isn't known are told as well, so it isn't left to this.
        if field != "hosts" {
            fields.wrong_at(field, error.to_string());
        }
    }
    Some(credential)
}

/// What is wrong with credentials beside each other and beside the grants: each would be one that somebody relies on and
/// that is never attached to a request.
pub(super) fn problems(credentials: &[Credential], grants: &[Grant]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, credential) in credentials.iter().enumerate() {
        let path = format!("spec.credentials[{index}]");
        let before = credentials.get(..index).unwrap_or_default();
        let same = before.iter().position(|other| !other.name.is_empty() && other.name == credential.name);
        if let Some(other) = same {
            let message = format!("{:?} is the name of spec.credentials[{other}], too", credential.name);
            problems.push(Problem::at(format!("{path}.name"), message));
        }
        for (number, host) in credential.hosts.iter().enumerate() {
            let message = is_never_attached(host, credential.plain, before, grants);
            problems.extend(message.map(|it| Problem::at(format!("{path}.hosts[{number}]"), it)));
        }
    }
    problems
}

/// Why a credential is never attached to a request to a host, if it isn't.
fn is_never_attached(
    host: &HostPattern,
    plain: bool,
    before: &[Credential],
    grants: &[Grant],
) -> Option<String> {
    let is_for = |other: &HostPattern| other.covers(host) || host.covers(other);
    let mut granted = grants.iter().filter(|grant| is_for(&grant.host)).peekable();
    if granted.peek().is_none() {
        return Some(format!("no grant opens {host}, so nothing is sent there; grant it or leave it out"));
    }
    if !plain && !granted.any(|grant| grant.tls) {
        return Some(format!(
            "{host} is granted without TLS only, where nobody's credential is sent; grant it with TLS, or let the \
             credential have `plain: true`"
        ));
    }
    // One for plain hosts, too, still has those behind one that isn't.
    let is_as_plain = |other: &&Credential| other.plain || !plain;
    let covers = |other: &&Credential| other.hosts.iter().any(|wider| wider.covers(host));
    let first = before.iter().filter(is_as_plain).find(covers)?;
    Some(format!("requests to {host} have credential {:?}; put the one for fewer hosts first", first.name))
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

fn managed_identity(fields: &mut Fields<'_>, _: &Origin<'_>) -> Option<CredentialKind> {
    let endpoint = fields.required("endpoint", token_url);
    let resource = fields.required("resource", some_text);
    let client_id = fields.optional("clientID", some_text);
    Some(CredentialKind::ManagedIdentity { endpoint: endpoint?, resource: resource?, client_id })
}

fn bearer(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    Some(CredentialKind::Bearer { token: secret(fields, "token", origin)? })
}

fn basic(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (username, password) = (fields.required("username", some_text), secret(fields, "password", origin));
    Some(CredentialKind::Basic { username: username?, password: password? })
}

fn header(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let name = fields.required("name", |text| {
        if text.contains(':') {
            // What follows it is the value more often than not, so nothing is repeated.
            return Err(
                "a header's name stands here alone, as in X-Auth-Token, its value elsewhere".to_owned()
            );
        }
        let wrong = |_| format!("{text:?} is no header name; write it as in X-Auth-Token");
        http::HeaderName::try_from(text).map_err(wrong)
    });
    let value = secret(fields, "value", origin);
    Some(CredentialKind::Header { name: name?, value: value? })
}

fn aws_sig_v4(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<CredentialKind> {
    let (region, service) = (fields.required("region", some_text), fields.required("service", some_text));
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
    let client_id = fields.required("clientID", some_text);
    let scope = fields.required("scope", some_text);
    Some(OAuthClient { token_url: token_url?, client_id: client_id?, scope: scope? })
}

fn token_url(text: &str) -> Result<TokenUrl, String> {
    // These parts hold secrets more often than not, so they aren't repeated.
    if text.contains(['@', '?', '#']) {
        return Err(
            "a token URL has no user name, query or fragment; secrets have fields of their own".to_owned()
        );
    }
    parsed(text)
}

/// Where a secret value lies: `{file: PATH}` or `{secret: {name: NAME, key: KEY}}`. A value that stands here itself is
/// refused, and never repeated.
pub(super) fn secret(fields: &mut Fields<'_>, field: &'static str, origin: &Origin<'_>) -> Option<Secret> {
    const PLACES: &str = "where the value lies, never the value itself: {file: PATH}, or {secret: {name: NAME, key: \
                          KEY}} for a Kubernetes Secret in the namespace that Pileus runs in";
    fields.object_of(field, PLACES, |fields| match (fields.has("file"), fields.has("secret")) {
        (true, false) => {
            let path = fields.required("file", |path| Ok(origin.folder.join(some_text(path)?)))?;
            Some(std::sync::Arc::new(SecretFile::new(path)) as Secret)
        }
        (false, true) => fields.object_of("secret", "{name: NAME, key: KEY}", |fields| {
            let (name, key) = (fields.required("name", secret_name), fields.required("key", secret_key));
            Some(origin.secrets.source(&name?, &key?))
        }),
        (true, true) => fields.none("a value lies in one place; keep file or secret"),
        (false, false) => fields.none(format!("expected {PLACES}")),
    })
}

fn secret_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ['-', '.'].contains(&c);
    word(text, is_name, "lower-case letters, digits, dashes and dots")
}

fn secret_key(text: &str) -> Result<String, String> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&c);
    word(text, is_key, "letters, digits, dashes, dots and underscores")
}

/// As Kubernetes takes it. The text isn't repeated: somebody may have put a value where a name belongs.
fn word(text: &str, is_right: impl Fn(char) -> bool, of: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 253 || !text.chars().all(is_right) {
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

    /// Reads a document with these credentials, as YAML flows.
    fn parse(credentials: &str) -> Result<Vec<Credential>, Vec<String>> {
        let text = format!(
            "apiVersion: pileus.dev/v1alpha1\nkind: CloudProvider\nmetadata: {{name: test}}\nspec:\n  source: {{file: \
             a}}\n  grants: [{{host: '*.cloud.example'}}, {{host: plain.example, tls: false}}]\n  credentials: \
             {credentials}\n"
        );
        let origin = Origin { folder: Path::new("/etc/pileus"), secrets: &Secrets::default() };
        CloudProvider::parse(&text, &origin)
            .map(|document| document.credentials)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    const CLIENT: &str = "tokenURL: 'https://login.example/t', clientID: id, scope: all";

    /// One credential with everything else right.
    fn with(kind: &str) -> String {
        format!("[{{name: main, hosts: [api.cloud.example], {kind}}}]")
    }

    #[test]
    fn every_kind_is_read_with_files_and_secrets_of_the_cluster() {
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
    fn one_mistake_is_one_line_that_says_what_would_be_right() {
        let token = "bearer: {token: {file: a}}";
        for (credentials, expected) in [
            ("{}", ": expected a list, found fields"),
            (
                "[{name: a, hosts: [a.cloud.example]}]",
                "[0]: a credential has a kind; add one of clientSecret, ",
            ),
            (
                &format!("[{{name: a, hosts: [a.cloud.example], {token}, header: {{}}}}]"),
                "[0]: a credential has one kind; keep one of bearer, header",
            ),
            (
                &with("tokens: {}, bearer: {token: {file: a}}"),
                "[0].tokens: this field is not known; known here are ",
            ),
            (
                &with("bearer: {token: {file: a}, tokenFile: a}"),
                "[0].bearer.tokenFile: this field is not known; known here are token",
            ),
            (&with("bearer: hunter2"), "[0].bearer: expected fields; found a text"),
            (
                &with("bearer: {token: hunter2}"),
                "[0].bearer.token: expected where the value lies, never the value itself: {file: PATH}, or {secret: {name",
            ),
            (&with("bearer: {}"), "[0].bearer.token: this field is missing"),
            (
                &with("bearer: {token: {file: ' '}}"),
                "[0].bearer.token.file: expected a text that isn't empty",
            ),
            (
                &with("bearer: {token: {file: a, secret: {name: a, key: b}}}"),
                "[0].bearer.token: a value lies in one place",
            ),
            (
                &with("bearer: {token: {secret: hunter2}}"),
                "[0].bearer.token.secret: expected {name: NAME, key: KEY}; found a text",
            ),
            (
                &with("bearer: {token: {secret: {name: 'hunter2!', key: a}}}"),
                "[0].bearer.token.secret.name: expected 1 to 253 lower-case letters",
            ),
            (
                &with("bearer: {token: {secret: {name: a}}}"),
                "[0].bearer.token.secret.key: this field is missing",
            ),
            (&with("bearer: {token: {env: TOKEN}}"), "[0].bearer.token"),
            (&with("basic: {username: 'a:b', password: {file: a}}"), "[0].basic.username: "),
            (&with("header: {name: 'a b', value: {file: a}}"), "[0].header.name: \"a b\" is no header name"),
            (
                &with("header: {name: 'X-Auth-Token: hunter2', value: {file: a}}"),
                "[0].header.name: a header's name stands here alone",
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
                "[0].clientSecret.tokenURL: a token URL has no user name",
            ),
            (
                &with("managedIdentity: {endpoint: 'http://metadata.example/t', resource: a}"),
                "[0].managedIdentity.endpoint: ",
            ),
            (&format!("[{{name: a, hosts: [], {token}}}]"), "[0].hosts: a credential is for some hosts"),
            (&format!("[{{name: a, {token}}}]"), "[0].hosts: a credential is for some hosts"),
            (&format!("[{{hosts: [a.cloud.example], {token}}}]"), "[0].name: this field is missing"),
            (
                &format!("[{{name: a, hosts: [a.example], {token}}}]"),
                "[0].hosts[0]: no grant opens a.example",
            ),
            (
                &format!("[{{name: a, hosts: [a.cloud.example, plain.example], {token}}}]"),
                "[0].hosts[1]: plain.example is granted without TLS only",
            ),
            (
                &format!(
                    "[{{name: a, hosts: [a.cloud.example], {token}}}, {{name: a, hosts: [b.cloud.example], {token}}}]"
                ),
                "[1].name: \"a\" is the name of spec.credentials[0], too",
            ),
            (
                &format!(
                    "[{{name: a, hosts: ['*.cloud.example'], {token}}}, {{name: b, hosts: [b.cloud.example], {token}}}]"
                ),
                "[1].hosts[0]: requests to b.cloud.example have credential \"a\"; put the one for fewer hosts first",
            ),
        ] {
            let told = parse(credentials).expect_err(credentials);
            let expected = format!("spec.credentials{expected}");
            assert!(told[0].starts_with(&expected), "{credentials}: {told:#?}");
            assert!(told.len() == 1 || credentials.contains("env"), "{credentials}: {told:#?}");
            assert!(!told.concat().contains("hunter2"), "a secret is repeated: {told:#?}");
        }
    }

    #[test]
    fn a_credential_may_be_for_some_of_what_is_granted_and_for_plain_hosts_where_it_says_so() {
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
