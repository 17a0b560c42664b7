//! The schema of `credentials`. Pure.

use serde_json::json;

use super::access::{host, prefix};
use super::value::Schema;

/// The most other credentials whose tokens are sent along.
const MAX_AUXILIARY: usize = 3;

/// Headers that frame or direct a request, so that a secret as their value can only be a mistake.
const NO_CREDENTIAL: &str = "['host', 'content-length', 'connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', \
                             'upgrade', 'http2-settings']";

pub(super) fn schema() -> Schema {
    Schema::list("The credentials that are attached to requests; the provider never sees them.", credential())
        .at_most(64)
        .by("name")
        .rule(
            "self.all(one, size(one.hosts) > 0 || self.exists(other, one.name in other.auxiliary))",
            "a credential needs hosts, unless it is an auxiliary of another",
        )
        .rule(
            "self.all(one, one.auxiliary.all(name, name != one.name && self.exists(other, other.name == name && (!one.plain || \
             other.plain) && !(has(other.basic) || has(other.header) || has(other.metadata) || has(other.awsSigV4)))))",
            "an auxiliary is another credential of this list whose token may be sent as openly",
        )
}

fn credential() -> Schema {
    let kinds = kinds();
    let names = kinds.each_ref().map(|(name, _)| *name);
    let given = names.map(|name| format!("has(self.{name})")).join(", ");
    let one_kind = format!("[{given}].filter(is_given, is_given).size() == 1");
    let name = Schema::any_text("Your name for it.").longest(63).matching("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$");
    let hosts = Schema::list("It is attached to requests to these hosts.", host("A host, or a pattern."));
    let auxiliary = Schema::list("Other credentials whose tokens are sent along.", name.clone());
    let schema = Schema::object("A credential of exactly one kind.")
        .required("name", name)
        .field("hosts", hosts.default(json!([])))
        .field("paths", Schema::list("It is attached to requests below these paths alone.", prefix()))
        .field("auxiliary", auxiliary.at_most(MAX_AUXILIARY).set().default(json!([])))
        .field("plain", Schema::boolean("Whether it is attached without TLS, too.").default(false))
        .field("addresses", Schema::addresses("Private ranges in which the token endpoint may be."))
        .rule(&one_kind, &format!("a credential has exactly one kind: one of {}", names.join(", ")))
        .rule(
            "!has(self.metadata) || (size(self.hosts) == 1 && isIP(self.hosts[0]))",
            "the only host of `metadata` is a single address of this machine's link, as in 169.254.169.254",
        );
    kinds.into_iter().fold(with_tls(schema), |schema, (name, kind)| schema.field(name, kind))
}

fn kinds() -> [(&'static str, Schema); 9] {
    let by_secret = client("An OAuth 2 token by client secret.", &[("secret", "The client's secret.")]);
    let by_certificate = client(
        "An OAuth 2 token by a signed assertion.",
        &[("certificate", "The client's certificate."), ("key", "Its private key.")],
    );
    let by_identity = client(
        "An OAuth 2 token in exchange for the service account's token.",
        &[("token", "The service account's token.")],
    );
    [
        ("clientSecret", by_secret),
        ("clientCertificate", by_certificate),
        ("workloadIdentity", by_identity),
        ("managedIdentity", managed_identity()),
        ("metadata", metadata()),
        ("bearer", Schema::object("A bearer token.").required("token", secret("The token."))),
        ("basic", basic()),
        ("header", header()),
        ("awsSigV4", aws()),
    ]
}

/// Tokens are fetched over TLS. A metadata service has no TLS, but there is no network between it and this machine.
fn with_tls(schema: Schema) -> Schema {
    const NEAR: &str = r" || URL.matches('^http://(169[.]254[.]|127[.]|\\[(::1|fe[89ab]|fd00:ec2::254))')";
    let endpoints = [
        ("clientSecret", "tokenURL", ""),
        ("clientCertificate", "tokenURL", ""),
        ("workloadIdentity", "tokenURL", ""),
        ("managedIdentity", "endpoint", NEAR),
    ];
    endpoints.into_iter().fold(schema, |schema, (kind, field, near)| {
        let url = format!("self.{kind}.{field}.lowerAscii()");
        let rule =
            format!("self.plain || !has(self.{kind}) || URL.startsWith('https:'){near}").replace("URL", &url);
        schema.rule_of(kind, &rule, "it would carry secrets without TLS; use https, or `plain: true`")
    })
}

/// A secret value by reference.
pub(super) fn secret(description: &str) -> Schema {
    let key = Schema::any_text("The key in the Secret.").longest(253).matching("^[A-Za-z0-9._-]+$");
    let in_secret = Schema::object("A key of a Secret in the namespace of Pileus.")
        .required("name", secret_name())
        .required("key", key);
    Schema::object(description)
        .field("file", Schema::file("A file with the value."))
        .field("secret", in_secret)
        .rule(
            "has(self.file) != has(self.secret)",
            "refer to the value in one way: {file: PATH}, or {secret: {name: NAME, key: KEY}}",
        )
}

/// The name of a Secret.
pub(super) fn secret_name() -> Schema {
    Schema::any_text("The name of the Secret.").longest(253).matching("^[a-z0-9.-]+$")
}

fn url(description: &str) -> Schema {
    Schema::any_text(description).longest(2048).matching(r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+(/[^?#@\s]*)?$")
}

fn client(description: &str, secrets: &[(&str, &str)]) -> Schema {
    let client = Schema::object(description)
        .required("tokenURL", url("The token endpoint."))
        .required("clientID", Schema::text("The client."))
        .field("scope", Schema::text("What the token is for."))
        .field("resource", Schema::text("What the token is for, for AD FS."))
        .rule(
            "has(self.scope) != has(self.resource)",
            "a token has one target: scope, or resource for AD FS",
        );
    secrets.iter().fold(client, |client, (name, description)| client.required(name, secret(description)))
}

fn managed_identity() -> Schema {
    Schema::object("A token of the instance's metadata service.")
        .required("endpoint", url("The metadata service."))
        .required("resource", Schema::text("What the token is for."))
        .field("clientID", Schema::text("Of several identities, the one with this client ID."))
        .field("resourceID", Schema::text("Of several identities, the one with this resource ID."))
        .field("objectID", Schema::text("Of several identities, the one with this object ID."))
        .rule(
            "[has(self.clientID), has(self.resourceID), has(self.objectID)].filter(is_given, is_given).size() <= 1",
            "an identity has one ID; keep one of clientID, resourceID, objectID",
        )
}

fn metadata() -> Schema {
    Schema::object("The header that the metadata service wants.")
        .required("flavor", Schema::one_of("Whose service it is.", &["azure", "google", "aws"]))
}

fn basic() -> Schema {
    let username = Schema::any_text("The user name.")
        .longest(255)
        .matching(r"^[^:\x00-\x1f\x7f-\x9f]*[^:\s\x00-\x1f\x7f-\x9f][^:\x00-\x1f\x7f-\x9f]*$");
    Schema::object("A user name and a password.")
        .required("username", username)
        .required("password", secret("The password."))
}

fn header() -> Schema {
    let name = Schema::any_text("The name of the header, as in X-Auth-Token.")
        .longest(128)
        .matching("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
        .rule(
            &format!("!(self.lowerAscii() in {NO_CREDENTIAL}) && !self.lowerAscii().startsWith('proxy-')"),
            "this header frames or directs the request; use another, as in X-Auth-Token",
        );
    Schema::object("A header.").required("name", name).required("value", secret("Its value."))
}

fn aws() -> Schema {
    let name = |description| Schema::any_text(description).longest(64).matching("^[A-Za-z0-9-]+$");
    Schema::object("An AWS Signature, version 4.")
        .required("region", name("The region."))
        .required("service", name("The service."))
        .required("accessKeyID", secret("The access key's ID."))
        .required("secretAccessKey", secret("The secret access key."))
        .field("sessionToken", secret("The session token."))
}
