//! Sets of names that are compared by a digest of eight bytes. The members of thousands of load balancers fit into the
//! memory of a call that way.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// The digest of a set of texts. Use it for a field of a listed resource: a thousand load balancers with thousands of
/// members each fit into the memory of a call, and the digest still tells whether the members are the desired ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberDigest(u64);

impl<S: AsRef<str>> FromIterator<S> for MemberDigest {
    /// The digest of these texts. Each must occur once; the order doesn't matter.
    fn from_iter<I: IntoIterator<Item = S>>(members: I) -> Self {
        Self(members.into_iter().map(|member| digest(member.as_ref())).fold(0, u64::wrapping_add))
    }
}

/// A set of texts with its digest. It is serialized as a list. Cloning and comparing take constant time.
#[derive(Clone, Debug, Default)]
pub struct MemberSet {
    members: Rc<BTreeSet<String>>,
    digest: MemberDigest,
}

impl MemberSet {
    /// The digest of the set.
    pub const fn digest(&self) -> MemberDigest {
        self.digest
    }
}

impl PartialEq for MemberSet {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<S: Into<String>> FromIterator<S> for MemberSet {
    /// The set of these texts. Duplicates are dropped.
    fn from_iter<I: IntoIterator<Item = S>>(members: I) -> Self {
        let members: BTreeSet<String> = members.into_iter().map(Into::into).collect();
        let digest = members.iter().collect();
        Self { members: Rc::new(members), digest }
    }
}

impl Serialize for MemberSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.members.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MemberSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(Self::from_iter)
    }
}

fn digest(member: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    member.hash(&mut hasher);
    hasher.finish()
}

impl<'de> Deserialize<'de> for MemberDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = MemberDigest;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MemberDigest, A::Error> {
                let mut members = MemberDigest::default();
                while let Some(Member(digest)) = list.next_element()? {
                    members.0 = members.0.wrapping_add(digest);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// The digest of one text, made without a copy of the text.
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
    fn sets_are_equal_if_their_members_are() {
        let read = |json: &str| serde_json::from_str::<MemberDigest>(json).ok();
        let set = |members: &[&str]| members.iter().collect::<MemberDigest>();
        assert_eq!(read(r#"["b", "a", "\u00fc"]"#), Some(set(&["a", "ü", "b"])));
        assert_eq!(read("[]"), Some(MemberDigest::default()));
        for other in [&["a"][..], &["a", "b"], &["a", "c"], &["ab"], &["a", "b", "c"], &["a", ""]] {
            assert_eq!(set(other) == set(&["b", "a"]), other == ["a", "b"], "{other:?}");
        }
        assert_eq!(read("[1]"), None);
    }

    #[test]
    fn a_set_is_written_in_order_and_equals_the_set_of_its_digest() {
        let list: MemberSet = ["b", "a", "b"].into_iter().collect();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["a","b"]"#);
        let read: MemberSet = serde_json::from_str(r#"["b", "a"]"#).unwrap();
        assert!(read == list && list != ["a"].into_iter().collect());
        assert_eq!(list.digest(), ["a", "b"].iter().collect());
    }
}
