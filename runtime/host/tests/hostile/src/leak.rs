//! Gives away all that there is to see in a sandbox: what the configuration says, what the cloud answers to the requests
//! that it may make, and every byte of its own memory.

use pileus_guest::{Answer, Instance};

use crate::attempt::{self, Attempt};
use crate::{Behaviour, Hostile};

/// What WASI takes in one go.
const PIECE: usize = 4096;

impl Hostile {
    /// Sees what it can, and gives it away on every way that there is.
    pub(crate) fn leak(&self, behaviour: Behaviour, instance: Instance) -> Answer {
        let seen: Vec<_> = self.attempts.iter().map(see).collect();
        let seen = format!("{seen:?} {:?}", std::env::vars().collect::<Vec<_>>());
        assert!(behaviour != Behaviour::LeakAndPanic, "{seen} {}", readable());
        for line in seen.as_bytes().chunks(PIECE).map(String::from_utf8_lossy) {
            println!("{line}");
            eprintln!("{line}");
        }
        if let Some(cloud) = &self.cloud {
            let memory = (0..memory_size()).step_by(PIECE).flat_map(piece).collect::<Vec<u8>>();
            let sent = Attempt::put(cloud, "memory").send_bytes(&memory);
            println!("{:?}", sent.map(|answer| answer.status()));
        }
        let labels = vec![("seen".to_owned(), seen), ("memory".to_owned(), readable())];
        Answer::Found(Instance { labels, ..instance })
    }
}

/// The whole answer to a request, or what refused it.
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

/// What of the memory people could read.
fn readable() -> String {
    let bytes = (0..memory_size()).step_by(PIECE).flat_map(piece);
    bytes.filter(u8::is_ascii_graphic).map(char::from).collect()
}

/// The size of the memory, in bytes.
fn memory_size() -> usize {
    #[cfg(target_arch = "wasm32")]
    return std::arch::wasm32::memory_size(0) << 16;
    #[cfg(not(target_arch = "wasm32"))]
    0
}

/// A piece of the memory.
#[expect(unsafe_code, reason = "the misdeed: in a sandbox all of the memory is there to be read")]
fn piece(start: usize) -> Vec<u8> {
    // The first byte has no address in Rust.
    let addresses = start.max(1)..start + PIECE;
    addresses.map(|at| unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() }).collect()
}
