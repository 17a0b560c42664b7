//! The room that answers take while they are read whole: bounded for all exchanges of a gate together, since hundreds of
//! callers may read the longest answers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

/// What the answers on their way take together at most, in bytes: four of the longest.
pub(crate) const MOST: usize = 64 << 20;

/// The body of an answer, as a part of what all may take.
#[derive(Debug)]
pub(crate) struct Held {
    gathered: Arc<AtomicUsize>,
    bytes: usize,
    body: BytesMut,
}

impl Held {
    pub(crate) fn new(gathered: Arc<AtomicUsize>) -> Self {
        Self { gathered, bytes: 0, body: BytesMut::new() }
    }

    /// The whole, which takes its room until nobody has it any more.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.body.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    /// Takes the next part in, if there is room.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        let before = self.gathered.fetch_add(data.len(), Ordering::SeqCst);
        self.bytes += data.len();
        let fits = before + data.len() <= MOST;
        if fits {
            self.body.extend_from_slice(data);
        }
        fits
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gathered.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
