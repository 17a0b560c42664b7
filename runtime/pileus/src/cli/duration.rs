//! Parses durations as the flags of upstream do.

use std::time::Duration;

/// Parses a duration of Go: a sequence of numbers with units from `ns` to `h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?} (write it as in 15s, 1m30s or 500ms)");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or_else(invalid)?;
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
            _ => return Err(invalid()),
        };
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(total)
}

/// Parses the period of recurring work: 100 ms to 24 h.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    let most = Duration::from_hours(24);
    if (Duration::from_millis(100)..=most).contains(&period) {
        Ok(period)
    } else {
        Err("out of range; choose a period from 100ms to 24h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_from_100_ms_to_24_h() {
        for (text, fits) in [("0", false), ("99ms", false), ("100ms", true), ("30m", true), ("25h", false)] {
            assert_eq!(period(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn durations_parse_as_in_go() {
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
