//! Sets of texts that are compared as one: thousands of members by eight bytes, which are all that is kept of a set of which
//! only matters whether it is the same as another.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

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

/// A set of texts with the digest of it: it is written and read as a list, and copied and compared at once.
#[derive(Clone, Debug, Default)]
pub struct MemberList {
    members: Rc<BTreeSet<String>>,
    digest: Members,
}

impl MemberList {
    /// The set by its digest.
    pub const fn digest(&self) -> Members {
        self.digest
    }
}

impl PartialEq for MemberList {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<S: Into<String>> FromIterator<S> for MemberList {
    /// The set of these texts, however often each is there.
    fn from_iter<I: IntoIterator<Item = S>>(members: I) -> Self {
        let members: BTreeSet<String> = members.into_iter().map(Into::into).collect();
        let digest = members.iter().collect();
        Self { members: Rc::new(members), digest }
    }
}

impl Serialize for MemberList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.members.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MemberList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(Self::from_iter)
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

    #[test]
    fn a_list_is_written_in_order_and_is_the_same_as_its_digest() {
        let list: MemberList = ["b", "a", "b"].into_iter().collect();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["a","b"]"#);
        let read: MemberList = serde_json::from_str(r#"["b", "a"]"#).unwrap();
        assert!(read == list && list != ["a"].into_iter().collect());
        assert_eq!(list.digest(), ["a", "b"].iter().collect());
    }
}
