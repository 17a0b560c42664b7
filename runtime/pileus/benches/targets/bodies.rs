//! A web server in a separate process, which is this program again, with constant answers. The cost of a request is
//! then that of its sender and the sockets.

use std::fmt::Write as _;
use std::process::Command;

use axum::Router;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use pileus_dev::Process;
use tokio::net::TcpListener;

use crate::Failure;
use crate::cluster::DEADLINE;

/// What one machine of a cloud and what a large list of them weigh, in bytes.
pub(crate) const SMALL: usize = 4_000;
pub(crate) const LARGE: usize = 1 << 20;

/// A running server. It ends when this is dropped.
pub(crate) struct Bodies {
    _process: Process,
    base: String,
}

impl Bodies {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let process = Process::start("bodies", Command::new(std::env::current_exe()?).arg("--role=bodies"))?;
        let base = process.await_line(|line| line.starts_with("http://"), DEADLINE).await?;
        Ok(Self { _process: process, base })
    }

    /// Where a body of this size is.
    pub(crate) fn url(&self, size: usize) -> String {
        format!("{}/{size}", self.base)
    }

    pub(crate) fn port(&self) -> Result<u16, Failure> {
        Ok(self.base.rsplit(':').next().unwrap_or_default().parse()?)
    }
}

/// What the other process does.
pub(crate) async fn serve() -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _slower = stream.set_nodelay(true);
    });
    let mut router = Router::new();
    for size in [SMALL, LARGE] {
        let body = machines(size)?;
        router = router.route(&format!("/{size}"), get(move || std::future::ready(body.clone())));
    }
    Ok(axum::serve(listener, router).await?)
}

/// A text of this size that compresses as a cloud's answers do.
fn machines(size: usize) -> Result<Bytes, Failure> {
    let mut text = String::with_capacity(size + 512);
    let mut number: u64 = 0;
    while text.len() < size {
        number += 1;
        // Numbers that nothing compresses, as in the IDs of clouds.
        let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        write!(
            text,
            r#"{{"id":"{id:016x}","name":"node-{number}","type":"small-2","zone":"sim-1a","state":"running"}},"#
        )?;
    }
    text.truncate(size);
    Ok(text.into())
}
