//! The functions of the host. In a component they are imports; in a native test the test double
//! ([`testing`](crate::testing)) provides them. Only this module makes the difference.

#[cfg(target_arch = "wasm32")]
mod component;
#[cfg(target_arch = "wasm32")]
mod exchange;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::double::{
    block_on, configuration, exchange, identity, log, log_enabled, now, remaining,
};
#[cfg(target_arch = "wasm32")]
pub(crate) use component::{block_on, configuration, identity, log, log_enabled, now, remaining};
#[cfg(target_arch = "wasm32")]
pub(crate) use exchange::exchange;
