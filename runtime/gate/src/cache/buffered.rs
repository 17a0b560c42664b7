//! Bounds the memory of answers while they are read whole, for all fetches of a gate together: hundreds of callers may
//! read the longest answers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

/// The most memory of answers that are being read, in bytes: four of the longest.
pub(crate) const MOST: usize = 64 << 20;

/// The body of an answer, counted against the bound.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    buffered: Arc<AtomicUsize>,
    bytes: usize,
    body: BytesMut,
}

impl BufferedBody {
    pub(crate) fn new(buffered: Arc<AtomicUsize>) -> Self {
        Self { buffered, bytes: 0, body: BytesMut::new() }
    }

    /// The whole body. It counts until its last reader drops it.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.body.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    /// Appends data, if there is room. Returns whether there was.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        let before = self.buffered.fetch_add(data.len(), Ordering::SeqCst);
        self.bytes += data.len();
        let fits = before + data.len() <= MOST;
        if fits {
            self.body.extend_from_slice(data);
        }
        fits
    }
}

impl AsRef<[u8]> for BufferedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for BufferedBody {
    fn drop(&mut self) {
        self.buffered.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
