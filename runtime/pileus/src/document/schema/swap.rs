//! The schema of `swap`. Pure.

use super::value::Schema;

pub(super) fn schema() -> Schema {
    let opens = Schema::any_text("The time of day, in UTC, as in 22:00.")
        .longest(5)
        .matching("^([01][0-9]|2[0-3]):[0-5][0-9]$");
    let lasts = Schema::duration("For how long, in whole minutes.", "1m", "24h")
        .rule("duration(self).getMilliseconds() % 60000 == 0", "write whole minutes, as in 4h or 90m");
    let window = Schema::object("When a swap may begin; default always.")
        .required("opens", opens)
        .required("lasts", lasts);
    let choice = |description| Schema::one_of(description, &["Hold", "Proceed"]).default("Hold");
    let on_difference = Schema::object("What differences in the dry run do to the new release.")
        .field("lookups", choice("If it answers lookups differently."))
        .field("writes", choice("If it wants to change what is settled."));
    let canary = Schema::object("What the new release serves first.")
        .field(
            "share",
            Schema::whole("The percentage of nodes whose lookups it answers.", 0, 100).default(10),
        )
        .field("duration", Schema::duration("For how long.", "0s", "24h").default("1m"));
    Schema::object("How to move to another release.")
        .field("window", window)
        .field("onDifference", on_difference.with_defaults())
        .field("canary", canary.with_defaults())
        .field(
            "observe",
            Schema::duration("How long the new release is compared with the one before.", "0s", "24h")
                .default("10m"),
        )
        .field(
            "drain",
            Schema::duration("How long calls of a replaced release may take to end.", "1s", "1h")
                .default("2m"),
        )
}
