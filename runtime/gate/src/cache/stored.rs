//! An answer as it is stored: head and body in one compressed block. Otherwise tens of thousands of small answers would
//! mostly be header maps.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{AGE, ETAG, LAST_MODIFIED, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::refusals::RefusalMeaning;

/// A response with a whole body, from the cloud or from the cache.
#[derive(Debug, Clone)]
pub(crate) struct WholeResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What it means, if it is a refusal whose meaning the provider declares.
    pub(crate) meaning: Option<RefusalMeaning>,
}

impl WholeResponse {
    /// Adds its age, as HTTP caches do.
    pub(crate) fn aged(mut self, age: Duration) -> Self {
        self.headers.insert(AGE, age.as_secs().into());
        self
    }
}

/// An answer in the cache.
#[derive(Debug)]
pub(crate) struct Stored {
    status: StatusCode,
    /// The header, and its value, with which the cloud can be asked whether the answer is still right.
    validator: Option<(HeaderName, HeaderValue)>,
    /// Head and body.
    block: Block,
}

#[derive(Debug)]
enum Block {
    Plain(Bytes),
    Compressed {
        packed: Vec<u8>,
        length: usize,
        /// The unpacked block while readers have it: there may be hundreds at once.
        plain: Mutex<Weak<Plain>>,
    },
}

#[derive(Debug)]
struct Plain(Vec<u8>);

/// A share of an unpacked block.
#[derive(Debug)]
struct SharedPlain(Arc<Plain>);

impl AsRef<[u8]> for SharedPlain {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

/// The longest answer that is stored: a page of a thousand instances is about 4 MiB.
const LONGEST: usize = 4 << 20;

impl Stored {
    /// Packs an answer. None for one that must not be stored. Its own cache directives play no part: the control planes
    /// of clouds send `no-cache` or `no-store` with every answer, Azure's resource manager for one.
    pub(crate) fn pack(reply: &WholeResponse) -> Option<Self> {
        let WholeResponse { status, headers, body, meaning } = reply;
        let is_storable = matches!(*status, StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::GONE);
        let varies = headers.get_all(VARY).iter().any(|value| value.as_bytes().contains(&b'*'));
        // A 404 may mean something else than absence.
        let misleads = meaning.is_some_and(|meaning| meaning != RefusalMeaning::Absent);
        if !is_storable || misleads || varies || body.len() > LONGEST {
            return None;
        }
        let validator =
            [(ETAG, http::header::IF_NONE_MATCH), (LAST_MODIFIED, http::header::IF_MODIFIED_SINCE)]
                .into_iter()
                .find_map(|(from, to)| Some((to, headers.get(from)?.clone())))
                .filter(|_| *status == StatusCode::OK);
        let plain = joined(headers, body)?;
        let packed = lz4_flex::compress(&plain);
        // Saving less than an eighth is not worth unpacking it each time.
        let block = if packed.len() < plain.len() / 8 * 7 {
            Block::Compressed { packed, length: plain.len(), plain: Mutex::default() }
        } else {
            Block::Plain(plain)
        };
        Some(Self { status: *status, validator, block })
    }

    /// Unpacks the answer.
    pub(crate) fn unpack(&self) -> WholeResponse {
        let plain = match &self.block {
            Block::Plain(plain) => plain.clone(),
            Block::Compressed { packed, length, plain } => {
                // Other readers wait meanwhile; they would do the same work.
                let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
                Bytes::from_owner(SharedPlain(plain.upgrade().unwrap_or_else(|| {
                    let unpacked = lz4_flex::decompress(packed, *length);
                    let unpacked = Arc::new(Plain(unpacked.expect("what was compressed here can be read")));
                    *plain = Arc::downgrade(&unpacked);
                    unpacked
                })))
            }
        };
        let (headers, body) = parted(plain).expect("what was joined here can be parted");
        WholeResponse { status: self.status, headers, body, meaning: None }
    }

    /// Whether it says that something is absent.
    pub(crate) fn is_absence(&self) -> bool {
        self.status != StatusCode::OK
    }

    /// The header with which the cloud can be asked whether the answer is still right.
    pub(crate) fn validator(&self) -> Option<&(HeaderName, HeaderValue)> {
        self.validator.as_ref()
    }

    /// The memory that it takes, in bytes, without this struct.
    pub(crate) fn size(&self) -> usize {
        let validator = self.validator.as_ref().map_or(0, |(_, value)| value.len());
        let block = match &self.block {
            Block::Plain(plain) => plain.len(),
            Block::Compressed { packed, .. } => packed.capacity(),
        };
        block + validator
    }
}

/// Joins head and body: each header with the lengths of name and value, a zero, then the body. None for a head that is
/// too long.
fn joined(headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    let mut plain = BytesMut::with_capacity(body.len() + crate::headers::size(headers) + 4);
    for (name, value) in headers {
        plain.put_u16(name.as_str().len().try_into().ok()?);
        plain.put_u32(value.len().try_into().ok()?);
        plain.extend_from_slice(name.as_str().as_bytes());
        plain.extend_from_slice(value.as_bytes());
    }
    plain.put_u16(0);
    plain.extend_from_slice(body);
    Some(plain.freeze())
}

fn parted(mut plain: Bytes) -> Option<(HeaderMap, Bytes)> {
    let mut headers = HeaderMap::new();
    loop {
        let name = usize::from(plain.try_get_u16().ok()?);
        if name == 0 {
            return Some((headers, plain));
        }
        let value = usize::try_from(plain.try_get_u32().ok()?).ok()?;
        if plain.len() < name + value {
            return None;
        }
        let name = HeaderName::from_bytes(&plain.split_to(name)).ok()?;
        // Copied: a slice would keep the whole block alive.
        headers.append(name, HeaderValue::from_bytes(&plain.split_to(value)).ok()?);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(status: u16, lines: &[(&'static str, &str)], body: impl Into<Bytes>) -> WholeResponse {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers = lines.iter().map(line).collect();
        WholeResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            meaning: None,
        }
    }

    #[test]
    fn only_final_answers_that_do_not_vary_are_stored() {
        let long = vec![b'x'; LONGEST + 1];
        let rows = [
            ("a good one", reply(200, &[], "a"), true),
            ("nothing there", reply(404, &[], "a"), true),
            ("gone", reply(410, &[], "a"), true),
            ("what it says itself", reply(200, &[("cache-control", "no-store, max-age=0")], "a"), true),
            ("headers are in the key", reply(200, &[("vary", "accept, accept-encoding")], "a"), true),
            ("anything", reply(200, &[("vary", "accept"), ("vary", "accept, *")], "a"), false),
            ("as long as it may be", reply(200, &[], long[1..].to_vec()), true),
            ("too long", reply(200, &[], long), false),
            ("a part", reply(206, &[], "a"), false),
            ("nothing to say", reply(204, &[], ""), false),
            ("elsewhere", reply(301, &[], "a"), false),
            ("forbidden", reply(403, &[], "a"), false),
            ("too many", reply(429, &[], "a"), false),
            ("broken", reply(500, &[], "a"), false),
        ];
        for (name, reply, is_storable) in rows {
            assert_eq!(Stored::pack(&reply).is_some(), is_storable, "{name}");
        }
    }

    #[test]
    fn an_answer_is_revalidated_by_etag_or_else_by_date() {
        let date = "Sat, 28 Nov 2026 08:00:00 GMT";
        let rows = [
            (
                reply(200, &[("etag", "W/\"1\""), ("last-modified", date)], ""),
                Some(("if-none-match", "W/\"1\"")),
            ),
            (reply(200, &[("last-modified", date)], ""), Some(("if-modified-since", date))),
            (reply(200, &[], ""), None),
            (reply(404, &[("etag", "\"1\"")], ""), None),
        ];
        for (reply, expected) in rows {
            let stored = Stored::pack(&reply).unwrap();
            let found = stored.validator().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            assert_eq!(found, expected, "{reply:?}");
        }
    }

    #[test]
    fn a_compressible_answer_is_stored_compressed() {
        let page = "{\"name\": \"machine\", \"state\": \"running\"},".repeat(1000);
        let stored = Stored::pack(&reply(200, &[], page.clone())).unwrap();
        assert!(stored.size() < page.len() / 20, "{} of {}", stored.size(), page.len());
        let (one, other) = (stored.unpack(), stored.unpack());
        assert_eq!(one.body, page);
        assert_eq!(one.body.as_ptr(), other.body.as_ptr(), "unpacked once for all who read it at once");
    }

    proptest! {
        #[test]
        fn a_stored_answer_is_unpacked_as_it_was(
            lines in proptest::collection::vec(("[a-z][a-z0-9-]{0,20}", "[ -~]{0,40}"), 0..20),
            body in proptest::collection::vec(any::<u8>(), 0..2000),
            times in 1..4_usize,
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in &lines {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            headers.remove(VARY);
            let body = Bytes::from(body.repeat(times));
            let before = WholeResponse { status: StatusCode::OK, headers, body, meaning: None };
            let after = Stored::pack(&before).unwrap().unpack();
            prop_assert_eq!(&after.headers, &before.headers);
            prop_assert_eq!((&after.body, after.status), (&before.body, before.status));
        }
    }
}
