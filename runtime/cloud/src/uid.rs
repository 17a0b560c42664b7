//! Whether a UID, as the cloud has it on an object, is that of a Kubernetes object. Names in a cloud often have no place for
//! all of a UID: the default name of a load balancer is `a` and 31 of the 32 digits.

/// How many hexadecimal digits the beginning of a UID has at least: 96 bits don't meet by chance.
const SHORTEST_BEGINNING: usize = 24;

/// How many hexadecimal digits a UID has.
const WHOLE: usize = 32;

/// Whether `mark` can be a UID or its beginning: 24 to 32 hexadecimal digits, with or without hyphens. Other marks say nothing
/// about objects that are gone.
pub fn may_be_uid(mark: &str) -> bool {
    has_digits_only(mark) && (SHORTEST_BEGINNING..=WHOLE).contains(&digits(mark))
}

/// Whether `mark`, as the cloud has it on an object, means this UID: it is equal to it, or it is at least 24 hexadecimal digits
/// with which the UID begins. Hyphens and the case of digits don't matter in a beginning. A shorter beginning is no UID.
///
/// One beginning can mean several UIDs. Hold it against all that exist before you conclude that none is meant.
pub fn is_uid_of(mark: &str, uid: &str) -> bool {
    if mark.is_empty() || uid.is_empty() {
        return false;
    }
    mark == uid
        || has_digits_only(mark)
            && has_digits_only(uid)
            && digits(mark) >= SHORTEST_BEGINNING
            && begins_with(uid, mark)
}

fn has_digits_only(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn digits(text: &str) -> usize {
    text.bytes().filter(|byte| *byte != b'-').count()
}

/// Whether the digits of a UID begin with those of the mark.
fn begins_with(uid: &str, mark: &str) -> bool {
    let mut digits = uid.bytes().filter(|byte| *byte != b'-');
    let mut marked = mark.bytes().filter(|byte| *byte != b'-');
    marked.all(|digit| digits.next().is_some_and(|other| other.eq_ignore_ascii_case(&digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_means_a_uid_if_it_is_the_uid_or_at_least_24_digits_of_its_beginning() {
        let uid = "0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b";
        for (mark, expected) in [
            (uid, true),
            ("0f3c7a1e52b44d6e9a801c2d3e4f5a6b", true),
            ("0f3c7a1e52b44d6e9a801c2d3e4f5a6", true),
            ("0f3c7a1e52b44d6e9a801c2d", true),
            ("0F3C7A1E52B44D6E9A801C2D", true),
            ("0f3c7a1e-52b4-4d6e-9a80-1c2d", true),
            // Shorter than 24 digits.
            ("0f3c7a1e52b44d6e9a801c2", false),
            ("0f3c7a1e-52b4-4d6e-9a80-1c2", false),
            ("0f3c7a1e-52b4-4d6e-9a80-", false),
            ("-----------------------------", false),
            ("", false),
            // Another UID, or no UID at all.
            ("0f3c7a1e52b44d6e9a801c2e", false),
            ("1f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b", false),
            ("0f3c7a1e52b44d6e9a801c2d3e4f5a6b0", false),
            ("a0f3c7a1e52b44d6e9a801c2d3e4f5a6", false),
            ("0f3c7a1e52b44d6e9a801c2d3e4f5a6x", false),
            ("0f3c7a1e52b44d6e9a801c2d3e4f5ä", false),
            ("another", false),
        ] {
            assert_eq!(is_uid_of(mark, uid), expected, "{mark}");
        }
    }

    #[test]
    fn only_24_to_32_digits_can_be_a_uid() {
        for (mark, expected) in [
            ("0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b", true),
            ("0F3C7A1E52B44D6E9A801C2D", true),
            ("0f3c7a1e52b44d6e9a801c2", false),
            ("0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b0", false),
            ("default/web", false),
            ("", false),
        ] {
            assert_eq!(may_be_uid(mark), expected, "{mark}");
        }
    }

    #[test]
    fn a_uid_of_another_form_is_compared_whole() {
        let uid = "service-of-a-cluster-with-its-own-uids";
        for (mark, uid, expected) in [
            (uid, uid, true),
            ("service-of-a-cluster-with-its-own", uid, false),
            ("SERVICE-OF-A-CLUSTER-WITH-ITS-OWN-UIDS", uid, false),
            ("", "", false),
            ("0f3c7a1e52b44d6e9a801c2d", "", false),
        ] {
            assert_eq!(is_uid_of(mark, uid), expected, "{mark} of {uid}");
        }
    }
}
