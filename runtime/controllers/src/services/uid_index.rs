//! The UIDs of Services, to be found by what the cloud has of them: all of a UID, or its beginning.

use std::collections::BTreeSet;

use pileus_cloud::is_uid_of;

/// UIDs by their digits.
#[derive(Debug, Default)]
pub struct UidIndex<'a>(BTreeSet<(String, &'a str)>);

impl<'a> UidIndex<'a> {
    /// The UIDs that a mark of the cloud means, see [`is_uid_of`].
    pub fn meant_by(&self, mark: &str) -> impl Iterator<Item = &'a str> {
        let beginning = digits(mark);
        let similar = self.0.range((beginning.clone(), "")..);
        let similar = similar.take_while(move |(digits, _)| digits.starts_with(&beginning));
        similar.map(|(_, uid)| *uid).filter(move |uid| is_uid_of(mark, uid))
    }
}

impl<'a> FromIterator<&'a str> for UidIndex<'a> {
    fn from_iter<T: IntoIterator<Item = &'a str>>(uids: T) -> Self {
        Self(uids.into_iter().map(|uid| (digits(uid), uid)).collect())
    }
}

fn digits(uid: &str) -> String {
    uid.chars().filter(|letter| *letter != '-').map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_means_each_uid_that_begins_so() {
        let [a, b, other] =
            ["0f3c7a1e-52b4-4d6e-9a80-1c2d00000000", "0f3c7a1e-52b4-4d6e-9a80-1c2dffffffff", "Not-A-UUID"];
        let index: UidIndex<'_> = [b, a, other, "ffffffff-ffff-4fff-8fff-ffffffffffff"].into_iter().collect();
        for (mark, expected) in [
            (a, [a].as_slice()),
            ("0F3C7A1E52B44D6E9A801C2D", &[a, b]),
            ("0f3c7a1e52b44d6e9a801c2d0", &[a]),
            ("0f3c7a1e52b44d6e9a801c2", &[]),
            ("0f3c7a1e52b44d6e9a801c2e", &[]),
            (other, &[other]),
            ("not-a-uuid", &[]),
            ("", &[]),
        ] {
            assert_eq!(index.meant_by(mark).collect::<Vec<_>>(), expected, "{mark}");
        }
    }
}
