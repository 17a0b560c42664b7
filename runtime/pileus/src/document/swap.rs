//! The `swap` of a document: how carefully to move to another release.

use jiff::SignedDuration;
use pileus_host::swap::{Canary, OnDifference, Policy, TimeWindow};

use super::fields::Fields;
use crate::cli::duration;

/// Reads the optional field `swap`. `interval` is how often the source is looked at.
pub(super) fn policy(spec: &mut Fields<'_>, interval: SignedDuration) -> Policy {
    let mut fields = spec.object("swap");
    let window = fields.has("window").then(|| {
        fields.object_of("window", "{opens: \"22:00\", lasts: 4h}", |fields| {
            let opens_minute = fields.required("opens", minute_of_day);
            let lasts_minutes = fields.required("lasts", minutes);
            Some(TimeWindow { opens_minute: opens_minute?, lasts_minutes: lasts_minutes? })
        })
    });
    let mut differences = fields.object("onDifference");
    let lookups = differences.optional("lookups", on_difference).unwrap_or(OnDifference::Hold);
    let writes = differences.optional("writes", on_difference).unwrap_or(OnDifference::Hold);
    differences.end();
    let mut canary = fields.object("canary");
    let share = |value: &serde_json::Value| {
        value.as_u64().and_then(|share| u8::try_from(share).ok()).filter(|it| *it <= 100)
    };
    let share = canary.has("share").then(|| canary.number("share", "a percentage from 0 to 100", share));
    let duration = canary.optional("duration", |text| time(text, "0s", "24h"));
    canary.end();
    let observe = fields.optional("observe", |text| time(text, "0s", "24h"));
    let drain = fields.optional("drain", |text| time(text, "1s", "1h"));
    fields.end();
    Policy {
        interval,
        window: window.flatten(),
        lookups,
        writes,
        canary: Canary {
            share: share.flatten().unwrap_or(10),
            duration: duration.unwrap_or(SignedDuration::from_mins(1)),
        },
        observe: observe.unwrap_or(SignedDuration::from_mins(10)),
        drain: drain.unwrap_or(SignedDuration::from_mins(2)),
    }
}

/// Parses a duration within bounds, which are written as it is.
pub(super) fn time(text: &str, least: &str, most: &str) -> Result<SignedDuration, String> {
    let time = duration(text)?;
    let is_within = (duration(least)?..=duration(most)?).contains(&time);
    let time = SignedDuration::try_from(time).ok().filter(|_| is_within);
    time.ok_or_else(|| format!("{text} is out of range; choose a time from {least} to {most}"))
}

/// Parses a time of day, in minutes after midnight.
fn minute_of_day(text: &str) -> Result<u16, String> {
    let number = |text: &str, most: u16| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number: &u16| is_number && *number <= most)
    };
    let read = text.split_once(':').and_then(|(hour, minute)| Some((number(hour, 23)?, number(minute, 59)?)));
    let (hour, minute) =
        read.ok_or_else(|| format!("invalid time of day {text:?}; write it in UTC, as in 22:00"))?;
    Ok(hour * 60 + minute)
}

fn minutes(text: &str) -> Result<u16, String> {
    let lasts = time(text, "1m", "24h")?;
    let minutes =
        u16::try_from(lasts.as_mins()).ok().filter(|it| SignedDuration::from_mins((*it).into()) == lasts);
    minutes.ok_or_else(|| format!("{text} is not a number of whole minutes; write it as in 4h or 90m"))
}

fn on_difference(text: &str) -> Result<OnDifference, String> {
    match text {
        "Hold" => Ok(OnDifference::Hold),
        "Proceed" => Ok(OnDifference::Proceed),
        other => Err(format!("unknown value {other:?}; expected Hold or Proceed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::parse;

    fn read(spec: &str) -> Result<Policy, Vec<String>> {
        let text = format!(
            "apiVersion: pileus.dev/v1alpha1\nkind: CloudProvider\nmetadata: {{name: a}}\nspec: {{source: {{file: a, interval: \
             {spec}}}\n"
        );
        parse(&text, "/")
            .map(|document| document.swap)
            .map_err(|found| found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_policy_has_defaults_and_bounds() {
        let minutes = SignedDuration::from_mins;
        let default = Policy {
            interval: minutes(5),
            window: None,
            lookups: OnDifference::Hold,
            writes: OnDifference::Hold,
            canary: Canary { share: 10, duration: minutes(1) },
            observe: minutes(10),
            drain: minutes(2),
        };
        let all = "1h}, swap: {window: {opens: '22:05', lasts: 4h30m}, onDifference: {lookups: Proceed, writes: Hold}, \
                   canary: {share: 0, duration: 0s}, observe: 24h, drain: 1s}";
        let changed = Policy {
            interval: SignedDuration::from_hours(1),
            window: Some(TimeWindow { opens_minute: 22 * 60 + 5, lasts_minutes: 270 }),
            lookups: OnDifference::Proceed,
            writes: OnDifference::Hold,
            canary: Canary { share: 0, duration: SignedDuration::ZERO },
            observe: SignedDuration::from_hours(24),
            drain: SignedDuration::from_secs(1),
        };
        assert_eq!(read("5m}, swap: {}"), Ok(default.clone()));
        assert_eq!(read("300s}"), Ok(default));
        assert_eq!(read(all), Ok(changed));
        for (spec, expected) in [
            ("9s}", "spec.source.interval: 9s is out of range; choose a time from 10s to 24h"),
            ("25h}", "spec.source.interval: 25h is out of range"),
            ("5}", "spec.source.interval: expected a string, found a number"),
            (
                "1m}, swap: {window: {opens: '24:00', lasts: 1h}}",
                "spec.swap.window.opens: invalid time of day \"24:00\"",
            ),
            (
                "1m}, swap: {window: {opens: '1:00', lasts: 1h}}",
                "spec.swap.window.opens: invalid time of day",
            ),
            (
                "1m}, swap: {window: {opens: '+1:00', lasts: 1h}}",
                "spec.swap.window.opens: invalid time of day",
            ),
            ("1m}, swap: {window: {opens: '01:00'}}", "spec.swap.window.lasts: required field is missing"),
            (
                "1m}, swap: {window: {opens: '01:00', lasts: 90s}}",
                "spec.swap.window.lasts: 90s is not a number of whole",
            ),
            (
                "1m}, swap: {window: {opens: '01:00', lasts: 30s}}",
                "spec.swap.window.lasts: 30s is out of range",
            ),
            (
                "1m}, swap: {onDifference: {lookups: hold}}",
                "spec.swap.onDifference.lookups: unknown value \"hold\"",
            ),
            ("1m}, swap: {onDifference: {routes: Hold}}", "spec.swap.onDifference.routes: unknown field"),
            (
                "1m}, swap: {canary: {share: 101}}",
                "spec.swap.canary.share: expected a percentage from 0 to 100, found 101",
            ),
            ("1m}, swap: {canary: {share: 1.5}}", "spec.swap.canary.share: expected a percentage"),
            ("1m}, swap: {canary: {duration: 25h}}", "spec.swap.canary.duration: 25h is out of range"),
            ("1m}, swap: {observe: 1d}", "spec.swap.observe: invalid duration"),
            ("1m}, swap: {drain: 0s}", "spec.swap.drain: 0s is out of range; choose a time from 1s to 1h"),
            ("1m}, swap: {interval: 1m}", "spec.swap.interval: unknown field"),
        ] {
            let found = read(spec).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{spec}: {found:?}");
        }
    }
}
