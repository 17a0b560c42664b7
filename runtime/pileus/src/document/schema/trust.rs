//! The schema of `trust`. Pure.

use pileus_loader::Layout;
use serde_json::json;

use super::value::Schema;

pub(super) const DIGEST: &str = "sha256:[0-9a-f]{64}";

/// The most keys, as the loader has it.
const MAX_KEYS: usize = 32;

pub(super) fn schema() -> Schema {
    let layouts = Layout::ALL.map(Layout::as_str);
    let keys = Schema::list("The keys that may sign.", key()).at_most(MAX_KEYS).by("name");
    let no_keys = "(!has(self.keys) || size(self.keys) == 0)";
    Schema::object("What makes the component trusted.")
        .field("digest", digest("The only digest that is accepted."))
        .field("keys", keys)
        .field("threshold", Schema::whole("How many of the keys must have signed.", 1, 32).default(1))
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
            Schema::boolean("Whether to accept what the registry serves, without a digest and keys.")
                .default(false),
        )
        .rule_of(
            "threshold",
            &format!("self.threshold == 1 || (!{no_keys} && self.threshold <= size(self.keys))"),
            "the threshold can't be met with so few keys",
        )
        .rule_of("layouts", &format!("{no_keys} || size(self.layouts) > 0"), "list `bundle`, `tag` or both")
        .rule_of(
            "keys",
            "!has(self.keys) || self.keys.all(a, self.keys.exists_one(b, a.key == b.key))",
            "two of the keys are the same",
        )
        .rule_of(
            "insecure",
            &format!("!self.insecure || (!has(self.digest) && {no_keys})"),
            "`insecure: true` contradicts a digest and keys; remove one of them",
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
