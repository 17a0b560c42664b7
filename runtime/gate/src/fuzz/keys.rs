//! Two requests have the same cache key only if they differ in nothing that may decide about their responses; and the pages
//! of a list belong to one list.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::cache::{DESCRIBING, Keys};
use crate::effect::Effect;
use crate::request::Request;
use crate::rules::{Classification, Limits, Page, Place};

struct Asked {
    request: Request,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The input is two requests with a NUL between them, each a line `GET https://host/path?query`, lines of headers, an empty
/// line and a body.
pub(super) fn hold(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (one, other) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(one) = asked(one) else { return };
    is_of_the_same_list_with_a_token(&one);
    let Some(other) = asked(other) else { return };
    for fold_case in [false, true] {
        let is_one = keys(&one, fold_case, None) == keys(&other, fold_case, None);
        assert_eq!(parts_of(&one, fold_case) == parts_of(&other, fold_case), is_one);
    }
}

fn asked(text: &[u8]) -> Option<Asked> {
    let end = text.windows(2).position(|bytes| bytes == b"\n\n").unwrap_or(text.len());
    let (head, body) = text.split_at(end);
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = String::from_utf8_lossy(lines.next()?).into_owned();
    let (method, uri) = first.split_once(' ')?;
    let request = Request::parse(&Method::from_bytes(method.as_bytes()).ok()?, &uri.parse().ok()?).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        let name = HeaderName::from_bytes(name).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.get(1..)?.trim_ascii()).ok()?);
    }
    Some(Asked { request, headers, body: body.get(2..).unwrap_or_default().to_vec() })
}

fn keys(asked: &Asked, fold_case: bool, page: Option<Page>) -> Keys {
    let (limits, page) = (Limits::AllOfHost, page.map(Box::new));
    let classification = Classification { effect: Effect::Read, limits, cache_scope: None, fold_case, page };
    Keys::of(&asked.request, &asked.headers, &asked.body, &classification)
}

type Parts<'a> = (Request, Vec<(String, Vec<u8>)>, &'a [u8]);

/// Everything that may decide about the response.
fn parts_of(asked: &Asked, fold_case: bool) -> Parts<'_> {
    let Asked { request, headers, body } = asked;
    let mut request = request.clone();
    if fold_case {
        request.path.make_ascii_lowercase();
    }
    let lines = headers.iter().filter(|(name, _)| !DESCRIBING.contains(&name.as_str()));
    let mut lines: Vec<_> =
        lines.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    (request, lines, body)
}

fn is_of_the_same_list_with_a_token(first: &Asked) {
    let place = Place::Query("token".to_owned());
    let query = first.request.query.clone().unwrap_or_default();
    if url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "token") {
        return;
    }
    let further = Request { query: Some(format!("token=x&{query}")), ..first.request.clone() };
    let further = Asked { request: further, headers: first.headers.clone(), body: first.body.clone() };
    let of = |asked, is_first| keys(asked, false, Some(Page { place: place.clone(), is_first }));
    let (first, further) = (of(first, true), of(&further, false));
    assert_eq!(first.list.map(|list| list.key), further.list.map(|list| list.key));
    assert_ne!(first.answer, further.answer);
}
