//! What a provider tells the user of an object, beside whether a change succeeded.

/// Something to tell the user of an object. It becomes an event on that object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Why, in CamelCase, as alerts and runbooks of the cloud know it.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// Whether it is a Warning event. Otherwise it is a Normal event.
    pub is_warning: bool,
}
