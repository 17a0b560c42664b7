//! Facts about the identity under which the host sends requests. A provider never sees credentials, only the names that
//! URLs are made of.

/// A fact about the identity, such as `project`, `tenant` or `subscription`. None if the host doesn't know it.
pub fn fact(name: &str) -> Option<String> {
    crate::host::identity(name)
}
