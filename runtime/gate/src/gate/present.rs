//! What the operator's document gives at present. A gate was made for the document of its release, which may be an older one:
//! what the operator takes away ends at once, and what the operator adds begins with the next release.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Gate, Inner};
use crate::credentials::Credential;
use crate::error::{Error, MissingGrant};
use crate::grants::{self, Grant};
use crate::request::Request;

/// The bounds of a gate beyond its own config; none before the first [`Gate::narrow`].
#[derive(Debug, Default)]
pub(super) struct PresentAccess(RwLock<Option<Arc<Access>>>);

#[derive(Debug)]
struct Access {
    grants: Vec<Grant>,
    credentials: Vec<Credential>,
}

impl Gate {
    /// Lets only through what these grants allow, too, and attaches only credentials that have a namesake for the request among
    /// these, from the next request on. It replaces what an earlier call said, and concerns all clones. A credential of another
    /// kind or secret with the same name is still a namesake: the old one stays in use until the release with the new one.
    pub fn narrow(&self, grants: &[Grant], credentials: &[Credential]) {
        let access = Access { grants: grants.to_vec(), credentials: credentials.to_vec() };
        let mut present = self.inner.present.0.write().unwrap_or_else(PoisonError::into_inner);
        *present = Some(Arc::new(access));
    }
}

impl PresentAccess {
    fn get(&self) -> Option<Arc<Access>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that a request which this grant allows is still allowed.
    ///
    /// # Errors
    /// What the present grants lack.
    pub(super) fn check(&self, request: &Request, grant: &Grant) -> Result<(), MissingGrant> {
        let Some(access) = self.get() else { return Ok(()) };
        let present = grants::decide(&access.grants, request)?;
        let is_open = |range| present.addresses.iter().any(|open| open.contains(range));
        // An open connection may lead to an address that isn't open any more.
        if grant.addresses.iter().all(is_open) {
            Ok(())
        } else {
            Err(MissingGrant::Addresses { grant: present.label() })
        }
    }
}

impl Inner {
    /// Checks a request once more that has waited since it was granted, and that its credentials are still given.
    ///
    /// # Errors
    /// [`Error::Denied`] and [`Error::Credential`].
    pub(super) fn check_present(&self, request: &Request, grant: &Grant) -> Result<(), Error> {
        let Some(access) = self.present.get() else { return Ok(()) };
        self.present.check(request, grant).map_err(|missing| self.denied(request, missing))?;
        let Some((main, auxiliary)) = self.credentials.names_for(request)? else { return Ok(()) };
        let is_missing = |name: &String| access.credentials.iter().all(|other| other.name != *name);
        let gone = if access.credentials.iter().any(|other| other.name == main && other.is_for(request)) {
            auxiliary.into_iter().find(is_missing)
        } else {
            Some(main)
        };
        let cause = "the present CloudProvider document doesn't give it to this request any more; to allow it, add \
                     it to spec.credentials";
        gone.map_or(Ok(()), |credential| Err(Error::Credential { credential, cause: cause.to_owned() }))
    }

    /// A denied request.
    pub(super) fn denied(&self, request: &Request, missing: MissingGrant) -> Error {
        Error::Denied {
            provider: self.provider.to_string(),
            method: request.method.to_string(),
            url: request.shown_url(),
            missing,
        }
    }
}
