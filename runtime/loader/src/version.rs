//! Finds the highest version among tags. Pure.

use semver::{Version, VersionReq};

/// The tag with the highest version within a range. A tag may begin with `v`, and has `_` where a version has `+`, which
/// registries don't allow. A version before a release counts only where the range names one, as in Cargo.
pub(crate) fn highest<'a>(tags: impl Iterator<Item = &'a str>, range: &VersionReq) -> Option<&'a str> {
    let version = |tag: &'a str| {
        let text = tag.strip_prefix('v').unwrap_or(tag).replacen('_', "+", 1);
        Some((Version::parse(&text).ok()?, tag))
    };
    tags.filter_map(version).filter(|(version, _)| range.matches(version)).max().map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_within_the_range_is_found() {
        let tags = ["latest", "1.2.0", "v1.10.0", "1.9.3", "2.0.0", "1.11.0-rc.1", "1.2", "sha256-ab.sig", "1.10.0_b1"];
        for (range, expected) in [
            (">=1.2, <2", Some("1.10.0_b1")),
            ("~1.9", Some("1.9.3")),
            ("*", Some("2.0.0")),
            ("=1.11.0-rc.1", Some("1.11.0-rc.1")),
            ("3", None),
        ] {
            assert_eq!(highest(tags.into_iter(), &range.parse().unwrap()), expected, "{range}");
        }
    }
}
