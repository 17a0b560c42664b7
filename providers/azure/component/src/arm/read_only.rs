//! What only Azure decides in a resource, by type. Everything else is kept and written back as it was read, also what this
//! provider doesn't know: another client, or a newer API, may have put it there.

use pileus_guest::http::Raw;

/// A type of resource, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    RouteTable,
    Route,
}

impl Part {
    /// The members that can't be written.
    const fn members(self) -> &'static [&'static str] {
        match self {
            Self::RouteTable => &["id", "name", "type", "etag"],
            Self::Route => &["id", "type", "etag"],
        }
    }

    /// The members of `properties` that can't be written.
    const fn properties(self) -> &'static [&'static str] {
        match self {
            Self::RouteTable => &["provisioningState", "resourceGuid", "subnets"],
            Self::Route => &["provisioningState", "hasBgpOverride"],
        }
    }

    /// Removes what can't be written.
    pub(crate) fn strip(self, whole: &mut Raw, properties: &mut Raw) {
        for name in self.members() {
            whole.remove(name);
        }
        for name in self.properties() {
            properties.remove(name);
        }
    }
}
