//! The answers of token endpoints. Of a refusal, messages contain only listed words: an endpoint may repeat all that it
//! was sent, the secret included, in any text of its answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use secrecy::SecretString;
use serde::Deserialize;

/// The lifetime of a token that names none: short, and a cloud that refuses it earlier gets another.
const UNSAID: Duration = Duration::from_mins(5);
/// The longest lifetime: a token is renewed each day at least.
const LONGEST: Duration = Duration::from_hours(24);

/// The errors of RFC 6749, OpenID Connect and Microsoft Entra. Messages leave out others.
const ERRORS: &[&str] = &[
    "access_denied",
    "consent_required",
    "identity_not_found",
    "interaction_required",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_resource",
    "invalid_scope",
    "invalid_target",
    "login_required",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_response_type",
];

/// A token, and how long it is valid after it was requested.
pub(crate) struct Token {
    pub(crate) token: SecretString,
    pub(crate) lifetime: Duration,
}

#[derive(Deserialize)]
struct TokenGrant {
    access_token: SecretString,
    token_type: Option<String>,
    expires_in: Option<Number>,
    /// Unix time, in Azure's metadata service.
    expires_on: Option<Number>,
}

/// Seconds, which some endpoints write as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Text(String),
    Other(serde::de::IgnoredAny),
}

impl Number {
    fn seconds(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Whole(seconds) => Some(*seconds),
            Self::Text(text) => text.parse().ok(),
            Self::Other(_) => None,
        };
        seconds.map(Duration::from_secs)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenRefusal {
    error: Option<String>,
    /// Error codes of Microsoft Entra, whose documentation explains each.
    error_codes: Vec<u32>,
}

/// Reads an answer with a token.
///
/// # Errors
/// What is wrong with it, as a verb phrase.
pub(crate) fn read(body: &[u8], now: SystemTime) -> Result<Token, &'static str> {
    // The library's error would repeat parts of the answer.
    let granted: TokenGrant =
        serde_json::from_slice(body).map_err(|_| "is not JSON with an `access_token`")?;
    let TokenGrant { access_token, token_type, expires_in, expires_on } = granted;
    if token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err("has a token that is not of type Bearer");
    }
    let said = expires_in.and_then(|number| number.seconds());
    let until = || {
        let unix = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(expires_on?.seconds()?.saturating_sub(unix))
    };
    let lifetime = said.or_else(until).unwrap_or(UNSAID).min(LONGEST);
    if lifetime.is_zero() {
        return Err("has a token that has expired");
    }
    Ok(Token { token: access_token, lifetime })
}

/// What is safe to repeat of an answer without a token: its status and listed words of its body.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> String {
    let TokenRefusal { error, error_codes } = serde_json::from_slice(body).unwrap_or_default();
    let redirects = if status.is_redirection() { ", a redirect, which isn't followed" } else { "" };
    let known = ERRORS.iter().find(|known| error.as_deref() == Some(**known));
    let known = known.map(|known| format!(": {known}")).unwrap_or_default();
    // Error codes have up to 8 digits, and a refusal usually has one.
    let codes = error_codes.iter().filter(|code| **code < 100_000_000).take(2);
    let codes: Vec<_> = codes.map(|code| format!(" AADSTS{code}")).collect();
    format!("answered {}{redirects}{known}{}", status.as_u16(), codes.concat())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    const NOW: Duration = Duration::from_hours(500_000);

    fn lifetime(fields: &str) -> Result<u64, &'static str> {
        let body = format!(r#"{{"access_token": "planted", "more": [1]{fields}}}"#);
        let token = read(body.as_bytes(), UNIX_EPOCH + NOW)?;
        assert_eq!(token.token.expose_secret(), "planted");
        Ok(token.lifetime.as_secs())
    }

    #[test]
    fn a_lifetime_is_read_in_all_its_spellings() {
        let over = Err("has a token that has expired");
        for (fields, expected) in [
            ("", Ok(300)),
            (r#", "expires_in": 3599"#, Ok(3599)),
            (r#", "expires_in": "3599""#, Ok(3599)),
            (r#", "token_type": "bearer", "expires_in": 3599"#, Ok(3599)),
            (r#", "expires_on": "1800003600""#, Ok(3600)),
            (r#", "expires_on": 1800003600"#, Ok(3600)),
            (r#", "expires_in": "60", "expires_on": "1800003600""#, Ok(60)),
            (r#", "expires_in": -5, "expires_on": "1800003600""#, Ok(3600)),
            (r#", "expires_in": "soon""#, Ok(300)),
            (r#", "expires_in": null"#, Ok(300)),
            (r#", "expires_in": 1e99"#, Ok(300)),
            (r#", "expires_in": 31536000"#, Ok(86_400)),
            (r#", "expires_in": 18446744073709551615"#, Ok(86_400)),
            (r#", "expires_in": 0"#, over),
            (r#", "expires_on": "1700000000""#, over),
        ] {
            assert_eq!(lifetime(fields), expected, "{fields}");
        }
    }

    #[test]
    fn an_answer_without_a_bearer_token_is_rejected_without_its_content() {
        for body in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"access_token": 5}"#,
            r#"{"access_token": "a", "token_type": "planted"}"#,
        ] {
            let refused = read(body.as_bytes(), UNIX_EPOCH).err().unwrap();
            assert!(!refused.contains("planted"), "{body}: {refused}");
        }
    }

    #[test]
    fn a_refusal_repeats_only_listed_words() {
        for (status, body, expected) in [
            (
                401,
                r#"{"error": "invalid_client", "error_description": "planted", "error_codes": [7000215]}"#,
                "answered 401: invalid_client AADSTS7000215",
            ),
            (
                400,
                r#"{"error": "planted", "error_codes": [700016, 1, 2]}"#,
                "answered 400 AADSTS700016 AADSTS1",
            ),
            (400, r#"{"error": ["planted"]}"#, "answered 400"),
            (400, r#"{"error": "invalid_scope", "error_codes": ["planted"]}"#, "answered 400"),
            (400, r#"{"error_codes": [4294967295]}"#, "answered 400"),
            (500, "planted", "answered 500"),
            (302, "", "answered 302, a redirect, which isn't followed"),
        ] {
            assert_eq!(refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes()), expected);
        }
    }
}
