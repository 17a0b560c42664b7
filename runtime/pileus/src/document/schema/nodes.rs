//! The schema of what a provider serves and how it is called: `identity`, `deadlines`, `resources`, `loadBalancerClasses` and
//! `nodeSelector`. Pure.

use std::time::Duration;

use super::value::Schema;
use pileus_host::Limits;

/// A key of a label: a name, or a domain and a name.
const LABEL_KEY: &str =
    "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*/)?WORD$";
/// The value of a label.
const WORD: &str = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?";
/// The most requirements of a selector.
const MAX_REQUIREMENTS: usize = 16;

pub(super) fn identity() -> Schema {
    let fact = Schema::any_text("A fact.")
        .longest(1024)
        .matching(r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$");
    Schema::map("Public facts that the provider may read, by name. Never put a secret here.", fact)
        .at_most(32)
        .rule(
            "self.all(name, name.matches('^[A-Za-z0-9_.-]{1,63}$'))",
            "name a fact with 1 to 63 letters, digits, hyphens, underscores and dots",
        )
}

pub(super) fn deadlines() -> Schema {
    let Limits {
        lookup_soft,
        lookup_hard,
        change_soft,
        change_hard,
        load_balancers_soft,
        load_balancers_hard,
        ..
    } = Limits::default();
    let pair = |description, soft: Duration, hard: Duration| {
        let deadline = |description, default: Duration| {
            Schema::duration(description, "1s", "5m").default(format!("{}s", default.as_secs()))
        };
        Schema::object(description)
            .field("soft", deadline("After this, no new request is sent.", soft))
            .field("hard", deadline("At this, the call is stopped.", hard))
            .rule(
                "duration(self.hard) >= duration(self.soft) + duration('1s')",
                "the hard deadline must be at least a second after the soft one",
            )
            .with_defaults()
    };
    Schema::object("How long calls to the provider may take.")
        .field(
            "lookup",
            pair("Lookups of instances, and lists of routes and load balancers.", lookup_soft, lookup_hard),
        )
        .field("routes", pair("Changes of routes.", change_soft, change_hard))
        .field("loadBalancers", pair("Changes of load balancers.", load_balancers_soft, load_balancers_hard))
}

pub(super) fn resources() -> Schema {
    let mebibytes = |bytes: usize| format!("{}Mi", bytes >> 20);
    let (least, most) = (mebibytes(*Limits::MEMORY.start()), mebibytes(*Limits::MEMORY.end()));
    let memory = Schema::quantity("The memory of one call.")
        .matching("^([0-9]+[.]?[0-9]*|[.][0-9]+)(k|M|G|Ki|Mi|Gi|[eE][0-9]+)?$")
        .rule(
            &format!(
                "isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('{least}')) >= 0 && \
                 quantity(string(self)).compareTo(quantity('{most}')) <= 0"
            ),
            &format!("choose a quantity of bytes from {least} to {most}"),
        );
    Schema::object("What a call to the provider may use.")
        .field("memory", memory.default(mebibytes(Limits::default().memory)))
}

pub(super) fn classes() -> Schema {
    let domain = "[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*/";
    let class = Schema::any_text("As in example.com/internal.")
        .longest(317)
        .matching(&format!("^({domain})?{WORD}$"));
    Schema::list("Serve Services of these load balancer classes.", class)
}

pub(super) fn node_selector() -> Schema {
    let key = LABEL_KEY.replace("WORD", WORD);
    let value = |description| Schema::any_text(description).longest(63).matching(&format!("^({WORD})?$"));
    let requirement = Schema::object("A requirement.")
        .required("key", Schema::any_text("The label.").longest(317).matching(&key))
        .required("operator", Schema::one_of("What is required.", &["In", "NotIn", "Exists", "DoesNotExist"]))
        .field("values", Schema::list("The values of In and NotIn.", value("A value.")))
        .rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values; Exists and DoesNotExist have none",
        );
    let labels = Schema::map("The labels that a Node must have.", value("The value of the label."))
        .at_most(MAX_REQUIREMENTS)
        .rule(
            &format!("self.all(key, key.size() <= 317 && key.matches('{key}'))"),
            "write the key of a label as in example.com/pool",
        );
    Schema::object("The Nodes without a provider ID that it serves; default all.")
        .field("matchLabels", labels)
        .field("matchExpressions", Schema::list("More requirements.", requirement).at_most(MAX_REQUIREMENTS))
        .rule(
            &format!(
                "(has(self.matchLabels) ? size(self.matchLabels) : 0) + (has(self.matchExpressions) ? \
                 size(self.matchExpressions) : 0) <= {MAX_REQUIREMENTS}"
            ),
            &format!("more than {MAX_REQUIREMENTS} requirements"),
        )
}
