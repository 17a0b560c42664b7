//! The limits of what a provider may use, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The length of an epoch tick: the interval at which a running guest's CPU time is checked, and the longest that a looping
/// guest holds a thread before other guests can run. Shorter ticks would cost every loop of every guest.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// The calls that run at the same time, over all providers. Each has a slot of the instance pool, whose address space
/// is reserved at start. A call mostly waits for its cloud, so this number follows from the requests in flight that a
/// cloud tolerates, not from the number of cores.
pub(crate) const SLOTS: u32 = 64;

/// The slots that only urgent calls get. A provider has one lookup of the node controller in flight, so eight are for as
/// many providers that initialize Nodes or confirm deletions at the same time.
pub(crate) const URGENT_SLOTS: u32 = 8;

/// The core instances of one component: its own module, WASI's adapter, and a shim for each kind of import.
pub(crate) const CORE_INSTANCES: u32 = 20;
/// The memories of one component: its own and an adapter's.
pub(crate) const MEMORIES: u32 = 2;
/// The tables of one component: its own and those of shims. Python and Go bring several.
pub(crate) const TABLES: u32 = 8;

/// The largest memory that [`Limits::memory`] may allow, in bytes: the address space that a slot of the pool reserves.
pub(crate) const MAX_MEMORY: usize = 256 << 20;

/// The largest single table of a guest, in elements. Python and Go guests need tens of thousands.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// The bytes that a guest may make the host allocate at once, by the arguments or the result of one call between
/// them: 5,000 answers of 3 KiB each.
const MAX_HOSTCALL_BYTES: usize = 16 << 20;

/// The same bytes for one item: an answer with some hundred addresses and labels, or a line for the log, has a tenth of them.
const HOSTCALL_BYTES_OF_ITEM: usize = 1 << 20;

/// The bytes that the host keeps of what a provider says about itself and of its settings, in their memory form: a thousand
/// rules, 256 annotations with a sentence each, and a schema of half a megabyte.
pub(crate) const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The longest JSON Schema, in bytes. As a tree it may take a hundred times as much. Those of large providers have 50 KiB.
pub(crate) const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// The longest authority of a request, in bytes: a DNS name has at most 253 characters.
pub(crate) const MAX_AUTHORITY_BYTES: usize = 1 << 10;

/// The longest method and the longest scheme of a request, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 64;

/// The memory of a header line, a request or a response beside its texts, in bytes.
pub(crate) const HEAD_OVERHEAD: usize = 128;

/// The bytes that an answer about this many items may make the host allocate.
pub(crate) fn answer_bytes(items: usize) -> usize {
    HOSTCALL_BYTES_OF_ITEM.saturating_mul(items.saturating_add(1)).min(MAX_HOSTCALL_BYTES)
}

/// The handles that a call may hold at once. 64 requests in flight need about ten each.
pub(crate) const MAX_HANDLES: usize = 4096;

/// The requests that a call may have in flight, until their response bodies are read: as many as the SDK sends at once.
pub(crate) const MAX_REQUESTS_IN_FLIGHT: usize = 64;

/// The bytes of a request's body that the host buffers before it passes them on.
pub(crate) const BODY_CHUNK_BYTES: usize = 64 << 10;

/// The bytes of HTTP header fields that a guest may build at once; clouds refuse more than 16 KiB.
pub(crate) const MAX_HEADER_BYTES: usize = 32 << 10;

/// The random bytes that a guest gets at once: seeds and nonces take 32.
pub(crate) const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// The lines that one call may write to the log. A call about 5,000 Nodes must not write a line about each.
pub(crate) const MAX_LOG_LINES: u32 = 256;

/// The longest line that a guest may write to the log, in bytes.
pub(crate) const MAX_LOG_LINE_BYTES: usize = 8 << 10;

/// How long the compiler may take. A component of 38 MB takes 40 s on an idle machine, but the compiler runs at a low
/// priority, and its container may have a tenth of a core.
pub(crate) const COMPILE_TIMEOUT: Duration = Duration::from_mins(10);

/// The CPU time that the compiler may use, over all its threads: several times what the largest component needs. It bounds
/// a component that was made to be hard to compile, however busy the machine is.
pub(crate) const COMPILE_CPU: Duration = Duration::from_mins(6);

/// The address space of the compiler's process, in bytes. The compiler takes some 60 bytes for each byte of a component, so
/// Python's 38 MB fit, with room for its threads. A module that was made to be hard to compile took 6.5 GB.
pub(crate) const COMPILE_MEMORY: u64 = 4 << 30;

/// The threads of the compiler. More would take address space, and cores that the cluster's work needs.
pub(crate) const COMPILE_THREADS: usize = 4;

/// The largest code that is accepted from the compiler, in bytes: four times the largest component. Code is mostly twice as
/// large as its component.
pub(crate) const MAX_CODE_BYTES: u64 = 4 * pileus_loader::MAX_COMPONENT;

/// The limits of the calls of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The linear memory of one call, in bytes; at most 256 MiB. 64 MiB hold 5,000 instances many times over.
    pub memory: usize,
    /// The memory that the host holds for one call besides the guest's own, in bytes: the heads of requests, bodies that are
    /// gathered, responses, and the answer. A guest has no more than [`Limits::memory`] to make bodies from.
    pub host_memory: usize,
    /// The same memory of all calls of one provider together, in bytes: eight that hold all they may, or all that can run at
    /// the same time with half of the largest answer each.
    pub provider_host_memory: usize,
    /// The elements of all tables of one call together; at most 100,000 in one table.
    pub table_elements: usize,
    /// The CPU time of one call. Waiting doesn't count: a call may wait for its cloud ten times as long.
    pub cpu: Duration,
    /// The soft deadline of a lookup: after it, the gate takes no new request, and the provider answers with what it has.
    pub lookup_soft: Duration,
    /// The hard deadline of a lookup: the call is aborted.
    pub lookup_hard: Duration,
    /// The soft deadline of changes of routes.
    pub change_soft: Duration,
    /// The soft deadline of changes of load balancers. A user gets no address before the whole call has been answered. So
    /// where a cloud's rate limit makes a thousand changes wait, each call returns those that were made meanwhile. Where
    /// Services share an object, one call writes it and the next reports the result, so a user waits for two calls. After a call
    /// that came to no write, the next one has a third of the hard deadline.
    pub load_balancers_soft: Duration,
    /// The hard deadline of changes of routes. A later call asks again about a change that takes a cloud longer.
    pub change_hard: Duration,
    /// The hard deadline of changes of load balancers.
    pub load_balancers_hard: Duration,
    /// The deadline of a call of `info`, which computes and never waits: five times its CPU time, because other work may
    /// want the machine too.
    pub info: Duration,
}

impl Limits {
    /// The memory of one call that an operator may choose, in bytes. A provider starts with some MiB, and none has more than a
    /// slot of the pool.
    pub const MEMORY: RangeInclusive<usize> = 16 << 20..=MAX_MEMORY;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            host_memory: 64 << 20,
            provider_host_memory: 512 << 20,
            table_elements: 50_000,
            cpu: Duration::from_secs(2),
            lookup_soft: Duration::from_secs(10),
            lookup_hard: Duration::from_secs(20),
            change_soft: Duration::from_secs(20),
            load_balancers_soft: Duration::from_secs(5),
            change_hard: Duration::from_mins(1),
            load_balancers_hard: Duration::from_mins(1),
            info: Duration::from_secs(10),
        }
    }
}
