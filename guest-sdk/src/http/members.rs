//! A set of texts of which only matters whether it is the same as another: thousands of members in eight bytes.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

/// A set of texts, by a digest of it. A list that tells of a thousand load balancers with thousands of members each is
/// read with it in the memory of a call; whether the members are those that are wanted is all that is left to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members(u64);

impl<S: AsRef<str>> FromIterator<S> for Members {
    /// The set of these texts, of which each is there once, in any order.
    fn from_iter<I: IntoIterator<Item = S>>(members: I) -> Self {
        Self(members.into_iter().map(|member| digest(member.as_ref())).fold(0, u64::wrapping_add))
    }
}

fn digest(member: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    member.hash(&mut hasher);
    hasher.finish()
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some(Member(digest)) = list.next_element()? {
                    members.0 = members.0.wrapping_add(digest);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// One text, by its digest, of which no copy is made.
struct Member(u64);

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Member;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Member, E> {
                Ok(Member(digest(text)))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_the_same_where_their_members_are() {
        let read = |json: &str| serde_json::from_str::<Members>(json).ok();
        let set = |members: &[&str]| members.iter().collect::<Members>();
        assert_eq!(read(r#"["b", "a", "\u00fc"]"#), Some(set(&["a", "ü", "b"])));
        assert_eq!(read("[]"), Some(Members::default()));
        for other in [&["a"][..], &["a", "b"], &["a", "c"], &["ab"], &["a", "b", "c"], &["a", ""]] {
            assert_eq!(set(other) == set(&["b", "a"]), other == ["a", "b"], "{other:?}");
        }
        assert_eq!(read("[1]"), None);
    }
}
