//! What a provider may use up, each number with its reason.

use std::time::Duration;

/// How long one epoch tick lasts: the grain in which a guest's processor time is counted, and the longest that a
/// looping guest holds a thread before others get their turn. Shorter ticks cost every loop of every guest.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The calls that run at the same time, over all providers. Each has a slot of the instance pool, whose address space
/// is reserved at start. A call mostly waits for its cloud, so this is about the requests in flight that a cloud will
/// stand, not about cores.
pub(crate) const SLOTS: u32 = 64;

/// The slots that only urgent calls get. A provider has one lookup of the node controller under way, so eight are for as
/// many providers that initialise Nodes or confirm deletions at the same time.
pub(crate) const URGENT_SLOTS: u32 = 8;

/// The core instances of one component: its own module, WASI's adapter, and a shim for each kind of import.
pub(crate) const CORE_INSTANCES: u32 = 20;
/// The memories of one component: its own and an adapter's.
pub(crate) const MEMORIES: u32 = 2;
/// The tables of one component: its own and those of shims. Python and Go bring several.
pub(crate) const TABLES: u32 = 8;

/// The largest memory that any limit may allow: what a slot of the pool reserves.
pub(crate) const MEMORY_CEILING: usize = 256 << 20;

/// The largest table that any limit may allow. Python and Go guests need tens of thousands of elements.
pub(crate) const TABLE_CEILING: usize = 100_000;

/// The largest component file that is read: Python's are 38 MB.
pub(crate) const COMPONENT_CEILING: u64 = 128 << 20;

/// The bytes that a guest may make the host allocate in one go, by the arguments or the result of one call between
/// them: 5,000 answers of 3 KiB each.
pub(crate) const CROSSING_CEILING: usize = 16 << 20;

/// The handles that a call may hold at once. 64 requests in flight need about ten each.
pub(crate) const HANDLES: usize = 4096;

/// The requests that a call may have under way, bodies of answers included: as many as the SDK sends at once.
pub(crate) const REQUESTS: usize = 64;

/// The bytes that the host takes of a request's body before it has passed them on.
pub(crate) const BODY_CHUNK: usize = 64 << 10;

/// The bytes of HTTP header fields that a guest may build in one go; clouds refuse more than 16 KiB.
pub(crate) const HEADER_BYTES: usize = 32 << 10;

/// The random bytes that a guest gets in one go: seeds and nonces take 32.
pub(crate) const RANDOM_BYTES: u64 = 64 << 10;

/// The lines that one call may leave in the log, and the bytes of each. A call about 5,000 Nodes that says something
/// about each says too much.
pub(crate) const LOG_LINES: u32 = 256;
/// See [`LOG_LINES`].
pub(crate) const LOG_LINE_BYTES: usize = 8 << 10;

/// How long the compiler may take: a component of 38 MB takes 40 s on a quiet machine, but the compiler gives way to
/// everybody else, and its container may have a tenth of a processor.
pub(crate) const COMPILE_TIME: Duration = Duration::from_mins(10);

/// The processor time that the compiler may take, over all its threads: several times what the largest component needs.
/// It is what bounds a component that was made to be hard to compile, however busy the machine is.
pub(crate) const COMPILE_CPU: Duration = Duration::from_mins(6);

/// The address space of the compiler's process. It takes some 60 bytes for each of a component, so that Python's 38 MB fit
/// with room for its threads; a module that was made to be hard to compile took 6.5 GB.
pub(crate) const COMPILE_MEMORY: u64 = 4 << 30;

/// The threads of the compiler: more take address space, and cores that the cluster's work needs.
pub(crate) const COMPILE_THREADS: usize = 4;

/// The largest compiled code that is taken from the compiler: four times the largest component. It is twice as large as
/// the component, most often.
pub(crate) const CODE_CEILING: u64 = 4 * COMPONENT_CEILING;

/// The limits of the calls of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of one call, in bytes; at most 256 MiB. 64 MiB hold 5,000 instances many times over.
    pub memory: usize,
    /// Elements of all tables of one call together; at most 100,000 in one table.
    pub table_elements: usize,
    /// Processor time of one call. Waiting is not computing: a call may wait for its cloud ten times as long.
    pub cpu: Duration,
    /// How long a lookup may take before the gate takes no new request and the provider should answer what it has.
    pub lookup_soft: Duration,
    /// How long a lookup may take at all.
    pub lookup_hard: Duration,
    /// The same for changes of routes.
    pub change_soft: Duration,
    /// The same for load balancers. Nobody is told an address before the whole call has been answered, so where a cloud's
    /// limit makes a thousand changes wait, each call brings what went through meanwhile. Where Services share an object,
    /// one call writes it and the next tells how that went, so that users wait for two.
    pub balance_soft: Duration,
    /// How long changes may take at all. What a cloud takes longer for is asked about again.
    pub change_hard: Duration,
    /// How long `info` may take, which computes and never waits: five times its processor time, as others may want the
    /// machine too.
    pub info: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            table_elements: 50_000,
            cpu: Duration::from_secs(2),
            lookup_soft: Duration::from_secs(10),
            lookup_hard: Duration::from_secs(20),
            change_soft: Duration::from_secs(20),
            balance_soft: Duration::from_secs(5),
            change_hard: Duration::from_mins(1),
            info: Duration::from_secs(10),
        }
    }
}
