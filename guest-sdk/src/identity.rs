//! The identity that the host acts under. The provider never sees its credentials; what it may know are the facts that
//! URLs are made of.

/// A fact about the identity, as `project`, `tenant` or `subscription`. None where the host knows no such fact.
pub fn fact(name: &str) -> Option<String> {
    crate::host::identity(name)
}
