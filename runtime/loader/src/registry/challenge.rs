//! Reads what a registry demands with a 401: the header `WWW-Authenticate`. Pure.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// What a registry demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A name and a password with each request.
    Basic,
    /// A token from another place.
    Bearer {
        /// The URL of that place.
        realm: String,
        /// What to ask it for.
        service: Option<String>,
    },
}

/// The challenge of an answer; a token is preferred, since the password is then sent to fewer places. `None` if the
/// loader can meet none of them.
pub(super) fn read(headers: &HeaderMap) -> Option<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let found: Vec<_> = texts.filter_map(parse).collect();
    let bearer = found.iter().find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
    bearer.or(found.first()).cloned()
}

fn parse(text: &str) -> Option<Challenge> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    let mut rest = rest;
    while let Some((key, value, next)) = parameter(rest) {
        match key {
            key if key.eq_ignore_ascii_case("realm") => realm = Some(value),
            key if key.eq_ignore_ascii_case("service") => service = Some(value),
            _ => {}
        }
        rest = next;
    }
    Some(Challenge::Bearer { realm: realm?, service })
}

/// The first `key="value"` or `key=value` of a list, and the rest.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (key, rest) = text.trim_start_matches([' ', ',']).split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((key.trim(), rest.get(..end)?.trim().to_owned(), rest.get(end..)?));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((key.trim(), value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (values, expected) in [
            (
                &["Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:a:pull,push\""][..],
                bearer("https://a/t", Some("s")),
            ),
            (&["bearer Realm=\"https://a/t\" , service=plain"], bearer("https://a/t", Some("plain"))),
            (&["Bearer scope=\"a,b=c\", realm=\"x\\\"y\""], bearer("x\"y", None)),
            (&["Basic realm=\"r\""], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (&["Basic realm=\"r\"", "Bearer realm=\"t\""], bearer("t", None)),
            (&["Negotiate", "Basic"], Some(Challenge::Basic)),
            (&["Bearer service=\"s\""], None),
            (&["Bearer realm=\"unfinished"], None),
            (&["Digest realm=\"r\""], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
            }
            assert_eq!(read(&headers), expected, "{values:?}");
        }
    }
}
