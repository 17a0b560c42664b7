//! The schema of what decides about requests: `grants`, `limits` and `connection`. Pure.

use pileus_gate::{Limit, RequestKind};
use serde_json::json;

use super::value::Schema;

/// A DNS name or an address. International names are allowed here, and converted by the gate.
const NAME: &str = r"LABEL(\.LABEL)*\.?";
const IPV6: &str = r"\[?[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\]?";
const LABEL: &str = r"([A-Za-z0-9_-]|[^\x00-\x7f]){1,63}";

/// The segments of a path as the gate reads it: visible characters, of which some must be percent-encoded, and neither `.` nor
/// `..`. The first one is not empty, except in `/`.
const SEGMENT: &str = "(DOT{0,2}CHAR(CHAR|DOT)*|DOT{3}(CHAR|DOT)*)";
const DOT: &str = r"([.]|%2[eE])";
const CHAR: &str = r#"([!"$&-)+,\-0->@-\[\]-~]|%([013-9A-Fa-f][0-9A-Fa-f]|2[0-9A-DFa-df]))"#;

/// A host, or a pattern with `*.` for the first labels.
pub(super) fn host(description: &str) -> Schema {
    let pattern = format!(r"^((\*\.)?{NAME}|{IPV6})$").replace("LABEL", LABEL);
    Schema::any_text(description).longest(255).matching(&pattern)
}

/// A path of segments by a pattern, in which `S` is a segment.
fn path(description: &str, pattern: &str) -> Schema {
    let pattern = pattern.replace('S', SEGMENT).replace("DOT", DOT).replace("CHAR", CHAR);
    Schema::any_text(description).longest(1024).matching(&pattern)
}

/// A path prefix, which has no `*`.
pub(super) fn prefix() -> Schema {
    path("This path and all below it, as in /v1.", "^/(S(/S?)*)?$")
}

pub(super) fn grants() -> Schema {
    let method =
        Schema::any_text("A method in upper case, or * for all.").longest(32).matching(r"^(\*|[A-Z]+)$");
    let grant = Schema::object("What the provider may reach at one host.")
        .required("host", host("A host, or a pattern with * for the first labels."))
        .field("port", Schema::whole("The port; default 443, or 80 without TLS.", 1, 65535))
        .field("tls", Schema::boolean("Whether the connection uses TLS.").default(true))
        .field("methods", Schema::list("The HTTP methods.", method).default(json!(["*"])))
        .field("paths", Schema::list("The path prefixes.", prefix()).default(json!(["/"])))
        .field(
            "addresses",
            Schema::addresses("Ranges that are otherwise denied: loopback and private ones."),
        );
    Schema::list("The only hosts that the provider may reach.", grant)
}

pub(super) fn limits() -> Schema {
    let kinds = RequestKind::ALL.map(RequestKind::as_str);
    let scope = Schema::object("The requests that count, regardless of the provider.")
        .field("requests", Schema::one_of("Which kind of requests.", &kinds).default("all"))
        .field("host", host("A host, or a pattern with * for the first labels; default all."))
        .field(
            "path",
            path(
                "A path, where * is one segment and ** at the end all that follow; default all.",
                r"^/((S|\*)(/(S|\*)?)*(/\*\*)?|\*\*)?$",
            ),
        );
    let (least, most) = (*Limit::BURSTS.start(), *Limit::BURSTS.end());
    let limit = Schema::object("How many requests may leave.")
        .required("burst", Schema::whole("Requests that may leave at once.", least.into(), most.into()))
        .required(
            "perSecond",
            Schema::number("Requests a second in the long run.", *Limit::RATES.start(), *Limit::RATES.end()),
        )
        .field("match", scope);
    Schema::map("Limits of requests: by a key of the provider's rules, or by a match.", limit)
        .rule(
            r"self.all(key, key.size() <= 256 && key.matches('^([^{}]|[{]0*[1-9][0-9]*[}])+$'))",
            "a key is a text in which {1} stands for a segment of the path",
        )
        .rule(
            "self.all(key, !has(self[key].match) || !key.contains('{'))",
            "the name of a limit with a match has no {1}, which only a rule of the provider can fill",
        )
}

pub(super) fn connection() -> Schema {
    let url = format!(r"^[Hh][Tt][Tt][Pp]://({NAME}|{IPV6})(:[0-9]{{1,5}})?/?$").replace("LABEL", LABEL);
    let user = Schema::any_text("The user at the proxy.")
        .longest(255)
        .matching(r"^[^:\x00-\x1f\x7f-\x9f]*[^:\s\x00-\x1f\x7f-\x9f][^:\x00-\x1f\x7f-\x9f]*$");
    let proxy = Schema::object("The proxy to the cloud.")
        .required("url", Schema::any_text("As in http://proxy.corp:3128.").longest(512).matching(&url))
        .field("username", user)
        .field("password", super::credentials::secret("The password of the user."))
        .field("addresses", Schema::addresses("Private ranges in which the proxy may be."))
        .rule("has(self.username) == has(self.password)", "a login has a username and a password");
    Schema::object("How to connect to the cloud.")
        .field("caBundle", Schema::file("A file of certificates to trust besides the system's."))
        .field("proxy", proxy)
}
