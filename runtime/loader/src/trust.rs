//! Decides which bytes may run. Pure: a table of recorded signatures tests all of it.
//!
//! An operator's [`policy::TrustPolicy`] names a digest, or keys and identities of which some must have signed. A signature counts if
//! a key of the policy made it ([`signature`]) or an identity of it ([`keyless`]), over this artifact, for this repository, in
//! an accepted layout, with a key that has not expired ([`verify`]). What is against an artifact is said in words
//! ([`crate::error`]).
//!
//! Certificates, transparency logs and time stamps of Sigstore are consulted about identities only. Who holds a private key of
//! the policy can sign for as long as the key is listed. A bundle of cosign names a digest and no repository: for the same bytes it
//! counts in each repository, which is what copying a signed artifact to a mirror needs. A policy that must tell apart
//! repositories with the same bytes accepts the layout `tag` only, whose signatures name their repository.

pub(crate) mod evidence;
pub(crate) mod identity;
pub(crate) mod key;
#[cfg_attr(not(feature = "keyless"), path = "trust/keyless/absent.rs")]
mod keyless;
pub(crate) mod policy;
pub(crate) mod signature;
#[cfg(test)]
mod tests;
pub(crate) mod verify;
