//! The schema of `trust`. Pure.

use pileus_loader::Layout;
use serde_json::json;

use super::value::Schema;

pub(super) const DIGEST: &str = "sha256:[0-9a-f]{64}";

/// The most keys and the most identities, as the loader has it.
const MAX_KEYS: usize = 32;

pub(super) fn schema() -> Schema {
    let layouts = Layout::ALL.map(Layout::as_str);
    let keys = Schema::list("The keys that may sign.", key()).at_most(MAX_KEYS).by("name");
    let identities = Schema::list("The identities that may sign without a key of their own.", identity());
    let no_keys = "(!has(self.keys) || size(self.keys) == 0)";
    let no_identities = "(!has(self.identities) || size(self.identities) == 0)";
    Schema::object("What makes the component trusted.")
        .field("digest", digest("The only digest that is accepted."))
        .field("keys", keys)
        .field("identities", identities.at_most(MAX_KEYS))
        .field(
            "threshold",
            Schema::whole("How many of the keys and identities must have signed.", 1, 64).default(1),
        )
        .field(
            "layouts",
            Schema::list(
                "Where signatures count.",
                Schema::one_of("How cosign stores a signature.", &layouts),
            )
            .default(json!(layouts)),
        )
        .field(
            "insecure",
            Schema::boolean("Whether to accept what the registry serves, without a digest, keys and identities.")
                .default(false),
        )
        .rule_of(
            "threshold",
            "self.threshold == 1 || self.threshold <= (has(self.keys) ? size(self.keys) : 0) + \
             (has(self.identities) ? size(self.identities) : 0)",
            "the threshold can't be met with so few keys and identities",
        )
        .rule_of("layouts", &format!("{no_keys} || size(self.layouts) > 0"), "list `bundle`, `tag` or both")
        .rule_of(
            "keys",
            "!has(self.keys) || self.keys.all(a, self.keys.exists_one(b, a.key == b.key))",
            "two of the keys are the same",
        )
        .rule_of(
            "layouts",
            &format!("{no_identities} || 'bundle' in self.layouts"),
            "identities sign in bundles; accept the layout `bundle`",
        )
        .rule_of(
            "identities",
            "!has(self.identities) || self.identities.all(a, self.identities.exists_one(b, a.issuer == b.issuer && \
             has(a.subject) == has(b.subject) && \
             (has(a.subject) ? a.subject == b.subject : a.subjectPattern == b.subjectPattern)))",
            "two of the identities are the same",
        )
        .rule_of(
            "insecure",
            &format!("!self.insecure || (!has(self.digest) && {no_keys} && {no_identities})"),
            "`insecure: true` contradicts a digest, keys and identities; remove one of them",
        )
}

pub(super) fn digest(description: &str) -> Schema {
    Schema::any_text(description).longest(71).matching(&format!("^{DIGEST}$"))
}

fn key() -> Schema {
    let pem = Schema::any_text("The public key, P-256 or Ed25519, in PEM form, as in cosign.pub.")
        .matching("-----BEGIN PUBLIC KEY-----")
        .rule(
            "!self.contains('PRIVATE KEY')",
            "it is a private key: use the public one, and consider this one as disclosed",
        );
    Schema::object("A public key of cosign.")
        .required("name", Schema::text("Your name for it.").longest(253))
        .required("key", pem)
        .field("expires", Schema::time("When it stops to count."))
}

fn identity() -> Schema {
    let pattern = Schema::any_text("The same with `*` for any characters except `/`.")
        .longest(1024)
        .rule("self.contains('*')", "a pattern has a `*`; use subject for one subject")
        .rule("self.matches('[^*/@.:]')", "the pattern matches every subject; name what they have in common");
    Schema::object(
        "An identity, as an OIDC provider vouches for it. Only builds with the feature `keyless` verify it.",
    )
    .required("issuer", Schema::text("The URL of the OIDC provider, as in the certificate.").longest(512))
    .field("subject", Schema::text("An email address, or the URL of a workflow with its ref.").longest(1024))
    .field("subjectPattern", pattern)
    .field(
        "trustedRoot",
        Schema::file("A file trusted_root.json, in place of the one of Sigstore's public instance."),
    )
    .rule(
        "has(self.subject) != has(self.subjectPattern)",
        "an identity has one subject; keep subject or subjectPattern",
    )
}
