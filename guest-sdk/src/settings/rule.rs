//! What a provider's requests mean to the host.

/// What a request does in the cloud. The HTTP method alone doesn't always tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing. The host may answer it from a cache and may repeat it.
    Read,
    /// It changes something. The host repeats it only if it certainly never left.
    Write,
    /// It asks for the status of a change in progress.
    OperationPoll,
}

/// The part of a request that names an operation or a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The query parameter of this name.
    Query(String),
    /// The header of this name.
    Header(String),
    /// The field of this name in a form-encoded body.
    FormField(String),
    /// The top-level field of this name in a JSON body.
    JsonField(String),
}

/// The operation that a rule applies to, in an API that has one path for everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Where the request names the operation.
    pub place: Place,
    /// The operation's name, or a pattern with one `*` that stands for any text.
    pub name: String,
}

/// What requests of one kind mean. The first matching rule applies. A request that no rule matches counts as a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The host, as in [`Endpoint::host`](crate::Endpoint::host).
    pub host: String,
    /// The method in upper case, or `*` for any.
    pub method: String,
    /// The path as a pattern: `*` stands for one segment, `**` at the end for all remaining segments.
    pub path: String,
    /// The operation, if method and path don't tell.
    pub operation: Option<Operation>,
    /// What the request does.
    pub effect: Effect,
    /// The keys of the limits that one such request counts against.
    pub limits: Vec<String>,
    /// The cache scope: the name of the data that the request reads or changes. `{n}` stands for the n-th segment that a
    /// `*` matched, counted from 1. None is the scope of everything that the provider reads.
    pub cache_scope: Option<String>,
    /// For a paged list: where a request names the page that it asks for.
    pub page: Option<Place>,
    /// Whether the cloud treats two paths that differ only in case as the same.
    pub fold_case: bool,
}

impl Rule {
    /// A rule about requests of a method to a path of a host. [`BaseUrl::rule`](crate::http::BaseUrl::rule) takes the
    /// host from the configuration.
    pub fn new(
        host: impl Into<String>,
        method: impl Into<String>,
        path: impl Into<String>,
        effect: Effect,
    ) -> Self {
        Self {
            host: host.into(),
            method: method.into(),
            path: path.into(),
            operation: None,
            effect,
            limits: Vec::new(),
            cache_scope: None,
            page: None,
            fold_case: false,
        }
    }

    /// Restricts the rule to an operation.
    #[must_use]
    pub fn operation(mut self, place: Place, name: impl Into<String>) -> Self {
        self.operation = Some(Operation { place, name: name.into() });
        self
    }

    /// Counts each request against the limit of this key.
    #[must_use]
    pub fn limit(mut self, key: impl Into<String>) -> Self {
        self.limits.push(key.into());
        self
    }

    /// Sets the cache scope that the request reads or changes.
    #[must_use]
    pub fn cache_scope(mut self, scope: impl Into<String>) -> Self {
        self.cache_scope = Some(scope.into());
        self
    }

    /// Marks a paged list, and says where a request names the page that it asks for. A request without it asks for the
    /// first page. The host caches the pages of one paged read together or not at all. It runs one paged read of a list
    /// at a time, for all callers.
    #[must_use]
    pub fn page(mut self, place: Place) -> Self {
        self.page = Some(place);
        self
    }

    /// Says that the cloud treats two paths that differ only in case as the same.
    #[must_use]
    pub fn fold_case(mut self) -> Self {
        self.fold_case = true;
        self
    }
}
