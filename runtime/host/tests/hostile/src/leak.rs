//! Leaks everything that is visible in a sandbox: the configuration, the cloud's responses to allowed requests, and every
//! byte of the guest's memory.

use pileus_guest::{Answer, Instance};

use crate::attempt::{self, Attempt};
use crate::{Behavior, Hostile};

/// The number of bytes that WASI accepts at once.
const CHUNK: usize = 4096;

impl Hostile {
    /// Collects everything visible, and sends it out through every channel.
    pub(crate) fn leak(&self, behaviour: Behavior, instance: Instance) -> Answer {
        let seen: Vec<_> = self.attempts.iter().map(see).collect();
        let seen = format!("{seen:?} {:?}", std::env::vars().collect::<Vec<_>>());
        assert!(behaviour != Behavior::LeakAndPanic, "{seen} {}", readable());
        for line in seen.as_bytes().chunks(CHUNK).map(String::from_utf8_lossy) {
            println!("{line}");
            eprintln!("{line}");
        }
        if let Some(cloud) = &self.cloud {
            let memory = (0..memory_size()).step_by(CHUNK).flat_map(chunk).collect::<Vec<u8>>();
            let sent = Attempt::post(cloud, "memory").send_bytes(&memory);
            println!("{:?}", sent.map(|answer| answer.status()));
        }
        let labels = vec![("seen".to_owned(), seen), ("memory".to_owned(), readable())];
        Answer::Found(Instance { labels, ..instance })
    }
}

/// The whole response to a request, or the error that refused it.
fn see(attempt: &Attempt) -> String {
    match attempt.send_bytes(&[]) {
        Ok(answer) => {
            let headers: Vec<_> = answer.headers().entries();
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
            let body = attempt::read(&answer);
            let body = body.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            format!("{} {headers:?} {body:?}", answer.status())
        }
        Err(refusal) => refusal,
    }
}

/// The printable bytes of the memory.
fn readable() -> String {
    let bytes = (0..memory_size()).step_by(CHUNK).flat_map(chunk);
    bytes.filter(u8::is_ascii_graphic).map(char::from).collect()
}

/// The size of the memory, in bytes.
fn memory_size() -> usize {
    #[cfg(target_arch = "wasm32")]
    return std::arch::wasm32::memory_size(0) << 16;
    #[cfg(not(target_arch = "wasm32"))]
    0
}

/// A chunk of the memory.
#[expect(unsafe_code, reason = "the misbehavior: a guest can read all of its memory")]
fn chunk(start: usize) -> Vec<u8> {
    // The first byte has no address in Rust.
    let addresses = start.max(1)..start + CHUNK;
    addresses.map(|at| unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() }).collect()
}
