//! Free ports for servers that have to be told theirs, and keep it over a restart.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
};

use crate::Error;

/// Below the range that the kernel gives to outgoing connections (32768 and up). A client that keeps knocking at a
/// stopped server's port in that range would sooner or later be given this very port for its own end, connect to
/// itself, and block the server's return.
const LOWEST: u64 = 15_000;
const COUNT: u64 = 15_000;
const ATTEMPTS: u64 = 100;

/// A loopback port that nobody listens at now. Random, so that stacks which start at the same time don't meet.
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
