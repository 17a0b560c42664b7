//! Durations on the command line, as upstream's flags take them.

use std::time::Duration;

/// A duration as Go writes it: numbers with units from `ns` to `h`, one after the other.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write it as in 15s, 1m30s or 500ms");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(unit_at);
        let next = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(total)
}

/// A time between two of something that comes again and again.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    let most = Duration::from_hours(24);
    if (Duration::from_millis(100)..=most).contains(&period) {
        Ok(period)
    } else {
        Err("choose from 100ms, for the API server's sake, to 24h, for the nodes'".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_neither_nothing_nor_for_ever() {
        for (text, fits) in [("0", false), ("99ms", false), ("100ms", true), ("30m", true), ("25h", false)] {
            assert_eq!(period(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_in_go() {
        for (text, milliseconds) in [
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("1h", 3_600_000),
            ("+2s", 2_000),
            ("0", 0),
            ("2000us", 2),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "15", "s", "-1s", "1 s", "1.2.3s", "1d", "9999999999999999999h", "."] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
