//! What an operator sets at run time besides the faults of all simulated clouds: how this resource manager behaves where
//! Azure behaves in several ways. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest lag of eventual consistency.
pub(crate) const MAX_LAG: Duration = Duration::from_mins(10);

/// How the resource manager behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Behavior {
    /// The most elements of a page of a list.
    pub page_size: usize,
    /// How the parameter is spelled that leads to the next page: `$skiptoken`, `$skipToken`, or either of them encoded.
    pub skip_token: String,
    /// How operations run.
    pub operations: Operations,
    /// What a write meets while an operation runs on the same resource.
    pub concurrent: Concurrent,
    /// Reads, lists and checks of references show the state of this long ago, in milliseconds, at most 600,000.
    pub lag_ms: u64,
    /// Whether lists only lag, and reads of one resource don't.
    pub lag_lists_only: bool,
    /// Whether `If-None-Match` has no effect, as in some versions of some types.
    pub ignore_if_none_match: bool,
    /// Whether a write of a load balancer gives new etags to the public addresses that it refers to.
    pub touch_references: bool,
    /// The limits of the subscription.
    pub caps: Caps,
}

impl Default for Behavior {
    fn default() -> Self {
        Self {
            page_size: 100,
            skip_token: "%24skiptoken".to_owned(),
            operations: Operations::default(),
            concurrent: Concurrent::default(),
            lag_ms: 0,
            lag_lists_only: false,
            ignore_if_none_match: false,
            touch_references: true,
            caps: Caps::default(),
        }
    }
}

/// How operations run. How long they take and whether they fail is a part of the faults of all simulated clouds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Operations {
    /// `Retry-After` of polls, in seconds; none where it is null.
    pub retry_after_seconds: Option<u32>,
    /// The headers that name an operation.
    pub style: Style,
    /// The code with which operations fail, and the message.
    pub failure: (String, String),
    /// Whether an operation that doesn't succeed was canceled instead of having failed.
    pub cancel: bool,
    /// Whether deletions are answered with 200 instead of 202, with an operation all the same.
    pub delete_with_ok: bool,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            retry_after_seconds: Some(1),
            style: Style::default(),
            failure: ("InternalServerError".to_owned(), "An error occurred.".to_owned()),
            cancel: false,
            delete_with_ok: false,
        }
    }
}

/// The headers that name an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// `Azure-AsyncOperation` for writes, and also `Location` for deletions, as the compute and network providers do.
    #[default]
    Azure,
    /// Only `Location`, with 202 for every write.
    Location,
}

/// What a write meets while an operation runs on the same resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Concurrent {
    /// 409 `AnotherOperationInProgress`, or `Conflict` of the compute provider.
    #[default]
    Conflict,
    /// 429 `AnotherOperationInProgress` with a `Retry-After`.
    Busy,
    /// 429 `RetryableError` with the detail `RetryableErrorDueToAnotherOperation`.
    Retryable,
    /// The write takes the place of the running operation, which is canceled.
    Supersede,
}

/// The limits of a subscription in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Caps {
    /// Public addresses.
    pub public_addresses: usize,
    /// Load balancers.
    pub load_balancers: usize,
    /// Rules of a load balancer.
    pub rules_per_load_balancer: usize,
    /// Frontends of a load balancer.
    pub frontends_per_load_balancer: usize,
    /// Members of a backend pool.
    pub members_per_pool: usize,
    /// Routes of a route table.
    pub routes_per_table: usize,
    /// Rules of a security group.
    pub rules_per_security_group: usize,
    /// Prefixes of all rules of a security group, for sources and for destinations.
    pub prefixes_per_security_group: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            public_addresses: 1_000,
            load_balancers: 1_000,
            rules_per_load_balancer: 1_500,
            frontends_per_load_balancer: 600,
            members_per_pool: 5_000,
            routes_per_table: 400,
            rules_per_security_group: 1_000,
            prefixes_per_security_group: 4_000,
        }
    }
}
