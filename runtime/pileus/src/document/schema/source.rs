//! The schema of `source`. Pure.

use super::value::Schema;

/// A registry: a host with a dot, a port, or `localhost`.
const REGISTRY: &str = r"(LABEL(\.LABEL)+(:PORT)?|localhost(:PORT)?|LABEL:PORT|\[[0-9A-Fa-f:.]+\](:PORT)?)";
const LABEL: &str = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?";
const PORT: &str =
    r"0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
/// The name of a repository.
const NAME: &str = r"PART(/PART)*";
const PART: &str = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*";
const TAG: &str = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";

/// A comparison of a range, as the crate `semver` reads it.
const COMPARISON: &str =
    r"(=|>=?|<=?|~|\^)? *NUMBER(\.([*xX](\.[*xX])?|NUMBER(\.([*xX]|NUMBER(-WORDS)?(\+WORDS)?))?))?";
const NUMBER: &str = r"(0|[1-9][0-9]*)";
const WORDS: &str = r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*";

pub(super) fn schema() -> Schema {
    let image = format!("^(oci://)?{REGISTRY}/{NAME}(:{TAG})?(@{DIGEST})?$", DIGEST = super::trust::DIGEST)
        .replace("PART", PART)
        .replace("LABEL", LABEL)
        .replace("PORT", PORT);
    let range = format!("^ *(([*xX])|{COMPARISON}( *, *{COMPARISON}){{0,31}}) *$")
        .replace("NUMBER", NUMBER)
        .replace("WORDS", WORDS);
    let pull_secret = Schema::object(
        "A Secret of type kubernetes.io/dockerconfigjson in the namespace of Pileus, with the credentials of the registry.",
    )
    .required("name", super::credentials::secret_name());
    let has_version = "self.image.matches('@|:[^/]*$')";
    Schema::object("Where the component comes from.")
        .field("image", Schema::any_text("An artifact in a registry, with a tag, a digest, or both.").longest(512).matching(&image))
        .field("file", Schema::text("A component file. Not in a document of the cluster."))
        .field(
            "versions",
            Schema::any_text("A range, as in `>=1.2, <2`: follow the highest tag that is a semantic version in it.")
                .longest(256)
                .matching(&range),
        )
        .field(
            "interval",
            Schema::duration("How often a tag, a range or a file is looked at.", "10s", "24h").default("5m"),
        )
        .field("pullSecret", pull_secret)
        .field("dockerConfig", Schema::text("A Docker configuration file. Not in a document of the cluster."))
        .field("registries", Schema::list("How to reach registries that need it.", registry()).by("registry"))
        .rule("has(self.image)", "a provider needs a source; add image")
        .rule_of(
            "file",
            "!has(self.file)",
            "a document of the cluster can't name this file; push the component to a registry, and name it in image",
        )
        .rule_of(
            "dockerConfig",
            "!has(self.dockerConfig)",
            "a document of the cluster can't name this file; create a pull secret and name it in pullSecret",
        )
        .rule_of(
            "image",
            &format!("!has(self.image) || has(self.versions) || {has_version}"),
            "it has no version: add a tag or, better, a digest",
        )
        .rule_of(
            "image",
            &format!("!has(self.image) || !has(self.versions) || !{has_version}"),
            "a repository has neither a tag nor a digest; `versions` chooses the tag",
        )
}

fn registry() -> Schema {
    let registry =
        format!("^{REGISTRY}$").replace("LABEL", r"[a-z0-9]([a-z0-9-]*[a-z0-9])?").replace("PORT", PORT);
    let registry = registry.replace("0-9A-Fa-f", "0-9a-f");
    let mirror =
        format!("^{REGISTRY}(/{NAME})?$").replace("PART", PART).replace("LABEL", LABEL).replace("PORT", PORT);
    let mirror =
        Schema::any_text("As in mirror.corp or mirror.corp:5000/ghcr.").longest(512).matching(&mirror);
    let host = Schema::any_text("A host without a port.").longest(253).matching("^[a-z0-9.-]+$");
    Schema::object("How to reach one registry.")
        .required(
            "registry",
            Schema::any_text("Host and optional port, in lower case.").longest(262).matching(&registry),
        )
        .field(
            "plainHTTP",
            Schema::boolean("Whether to use plain HTTP. Without it, only for registries on loopback."),
        )
        .field("caBundle", Schema::file("A file of certificates to trust besides the system's."))
        .field("mirrors", Schema::list("Registries to ask first, in order.", mirror))
        .field("tokenHosts", Schema::list("Hosts from which its tokens may come, besides its own.", host))
        .field(
            "addresses",
            Schema::addresses("Private ranges to which it may lead for downloads and tokens."),
        )
        .rule(
            "!(has(self.caBundle) && has(self.plainHTTP) && self.plainHTTP)",
            "a bundle of certificates has no effect with plain HTTP",
        )
}
