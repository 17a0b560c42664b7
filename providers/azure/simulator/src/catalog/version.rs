//! The API versions of types. Pure.

use super::Provider;

impl Provider {
    /// The API versions of its ordinary types, oldest first.
    pub(super) fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Compute => &[
                "2017-12-01",
                "2018-04-01",
                "2018-06-01",
                "2018-10-01",
                "2019-03-01",
                "2019-07-01",
                "2019-12-01",
                "2020-06-01",
                "2020-12-01",
                "2021-03-01",
                "2021-07-01",
                "2021-11-01",
                "2022-03-01",
                "2022-08-01",
                "2022-11-01",
                "2023-03-01",
                "2023-07-01",
                "2023-09-01",
                "2024-03-01",
                "2024-07-01",
                "2024-11-01",
                "2025-04-01",
            ],
            Self::Network => &[
                "2018-11-01",
                "2019-03-01",
                "2019-06-01",
                "2019-08-01",
                "2020-03-01",
                "2020-06-01",
                "2020-08-01",
                "2020-11-01",
                "2021-02-01",
                "2021-05-01",
                "2021-08-01",
                "2022-01-01",
                "2022-05-01",
                "2022-07-01",
                "2022-09-01",
                "2022-11-01",
                "2023-02-01",
                "2023-04-01",
                "2023-05-01",
                "2023-06-01",
                "2023-09-01",
                "2023-11-01",
                "2024-01-01",
                "2024-03-01",
                "2024-05-01",
                "2024-07-01",
                "2024-10-01",
                "2025-01-01",
                "2025-03-01",
                "2025-05-01",
            ],
        }
    }
}

/// The versions of the network types that are served below scale sets. By the last one cloud-provider-azure asks Azure Stack Hub.
pub(super) const SCALE_SET_NETWORK_VERSIONS: &[&str] =
    &["2016-03-30", "2017-03-30", "2018-10-01", "2018-11-01"];

/// The versions of resource groups, subscriptions and providers.
pub(crate) const RESOURCE_VERSIONS: &[&str] = &[
    "2014-04-01",
    "2016-06-01",
    "2018-05-01",
    "2019-05-01",
    "2019-10-01",
    "2020-06-01",
    "2021-01-01",
    "2021-04-01",
    "2022-09-01",
    "2022-12-01",
    "2024-03-01",
    "2025-04-01",
];

/// The versions of locks.
pub(crate) const LOCK_VERSIONS: &[&str] = &["2015-01-01", "2016-09-01", "2017-04-01", "2020-05-01"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_their_order() {
        for provider in Provider::ALL {
            assert!(provider.versions().is_sorted(), "{provider:?}");
        }
        assert!(RESOURCE_VERSIONS.is_sorted() && SCALE_SET_NETWORK_VERSIONS.is_sorted());
    }
}
