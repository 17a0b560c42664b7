//! A request has one canonical form: its URI reads as the same request, here and by the rules of browsers, and holds nothing
//! that a server might read differently.

use http::{Method, Uri};

use crate::request::{Host, Request};

/// The input is a request line without its version: `GET https://host:port/path?query`.
pub(super) fn hold(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (method, text) = text.split_once(' ').unwrap_or(("GET", &text));
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let Some((scheme, rest)) = text.split_once("://") else { return };
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let found = Request::from_parts(&method, scheme, authority, path, query);
    // As a guest's requests come. The library's type refuses more, reads an empty path as `/`, and drops the text after a
    // `#`, as browsers do.
    if !text.contains('#')
        && let Ok(uri) = text.parse::<Uri>()
        && uri.path() == path
        && let Ok(parsed) = Request::parse(&method, &uri)
    {
        assert_eq!(Some(&parsed), found.as_ref().ok());
    }
    if let Ok(request) = found {
        is_canonical(&request);
    }
}

fn is_canonical(request: &Request) {
    // Only a URI over the library's bound has no such form; it is refused when it is to be sent.
    let Ok(uri) = request.uri() else { return };
    let text = uri.to_string();
    let again = Request::parse(&request.method, &uri).expect("what is canonical is read again");
    assert_eq!(*request, again, "{text}");
    assert_eq!(Host::parse(&request.host.to_string()).as_ref(), Ok(&request.host), "{text}");

    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
    assert!(!uri.authority().is_some_and(|authority| authority.as_str().contains('@')), "{text}");
    assert!(request.port != 0, "{text}");
    assert!(request.path.starts_with('/') && !request.path.starts_with("//"), "{text}");
    let decoded = decode(&request.path);
    assert!(!decoded.contains(|c: char| c.is_ascii_control()), "{text}");
    // Some servers drop the text after a `;` in a segment.
    let climbs = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    assert!(!decoded.split(['/', '\\']).any(climbs), "{text}");
    assert!(!request.shown_url().contains(['?', '#']), "the query is not shown: {text}");

    // By a third set of rules it is the same place.
    let theirs = url::Url::parse(&text).expect("what is canonical is a URL");
    assert_eq!((theirs.username(), theirs.password(), theirs.fragment()), ("", None, None), "{text}");
    assert_eq!(theirs.port_or_known_default(), Some(request.port), "{text}");
    let host = theirs.host().map(|host| Host::parse(&host.to_string()));
    assert_eq!(host, Some(Ok(request.host.clone())), "{text}");
    assert_eq!(decode(theirs.path()), decoded, "{text}");
    assert_eq!(theirs.query().is_some(), request.query.is_some(), "{text}");
}

/// Decodes a path's percent-encoding once; bytes that aren't UTF-8 then are replaced.
fn decode(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = path.as_bytes();
    while let [first, rest @ ..] = left {
        let code = match left {
            [b'%', high, low, ..] => u8::from_str_radix(&String::from_utf8_lossy(&[*high, *low]), 16).ok(),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        left = if code.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
