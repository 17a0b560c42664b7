//! Free ports for servers that need a fixed port and keep it after a restart.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
};

use crate::Error;

/// Below the range that the kernel uses for outgoing connections (32768 and up). In that range, a client that keeps
/// connecting to a stopped server's port eventually gets this very port for its own end. It then connects to itself and
/// prevents the server's restart.
const LOWEST: u64 = 15_000;
const COUNT: u64 = 15_000;
const ATTEMPTS: u64 = 100;

/// A free loopback port. It is random, so that stacks that start at the same time use different ones.
pub(super) fn free() -> Result<u16, Error> {
    let random = RandomState::new();
    let candidates = (0..ATTEMPTS).map(|attempt| LOWEST + random.hash_one(attempt) % COUNT);
    candidates
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| Error::file("a loopback port")(io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ_and_stay_out_of_the_range_of_outgoing_connections() {
        let ports: BTreeSet<u16> = (0..8).map(|_| free().unwrap()).collect();
        assert!(ports.len() > 4, "{ports:?}");
        assert!(ports.iter().all(|port| (15_000..30_000).contains(port)), "{ports:?}");
    }
}
