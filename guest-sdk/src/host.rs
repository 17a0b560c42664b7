//! The world around a provider: the host in a component, its double ([`testing`](crate::testing)) in a native test. The
//! rest of the SDK doesn't know which, and this is the only place that decides.

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
