//! Pages of lists: how many elements, and the link to the next page. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::State;
use crate::refusal::Refusal;
use crate::request::Request;

impl State {
    /// Cuts the page that a request asks for from ordered elements, and makes the link to the next one.
    ///
    /// A token names the last element of its page, so that elements which appear or vanish meanwhile neither repeat nor hide
    /// others.
    pub(super) fn cut<'a, T>(
        &self,
        request: &Request,
        all: &'a [T],
        key: impl Fn(&T) -> String,
    ) -> Result<(&'a [T], Option<String>), Refusal> {
        let after = request.parameter("$skiptoken").map(decode).transpose()?;
        let from = after.map_or(0, |after| all.partition_point(|element| key(element) <= after));
        let rest = all.get(from..).unwrap_or_default();
        let size = self.behavior.page_size.max(1);
        let page = rest.get(..size).unwrap_or(rest);
        let last = page.last().filter(|_| page.len() < rest.len());
        Ok((page, last.map(|last| self.next_link(request, &key(last)))))
    }

    fn next_link(&self, request: &Request, last: &str) -> String {
        let kept = request.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken"));
        let mut query: Vec<_> = kept
            .map(|(name, value)| {
                format!("{}={}", name.replace('$', "%24"), utf8_percent_encode(value, NON_ALPHANUMERIC))
            })
            .collect();
        query.push(format!("{}={}", self.behavior.skip_token, BASE64_URL_SAFE_NO_PAD.encode(last)));
        let path = utf8_percent_encode(&request.path, PATH);
        format!("{}{path}?{}", request.origin, query.join("&"))
    }
}

/// What is encoded in a path.
const PATH: &percent_encoding::AsciiSet =
    &percent_encoding::CONTROLS.add(b' ').add(b'?').add(b'#').add(b'%').add(b'"');

fn decode(token: &str) -> Result<String, Refusal> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        Refusal::new(400, "InvalidParameter", "The skip token is invalid.").with_target("$skiptoken")
    })
}
