//! Mistakes in the credentials of a document, by themselves and in relation to each other: which may be sent along with which,
//! and which would never be sent. Pure.

use crate::credentials::spec::Credential;
use crate::problem::Problem;

/// The most auxiliaries of a credential. Azure takes no more.
const MAX_AUXILIARY: usize = 3;

/// All problems of credentials, by themselves and in relation to each other, with their place in the document.
pub fn problems(credentials: &[Credential]) -> Vec<Problem> {
    let of_one = |(index, credential): (usize, &Credential)| {
        let at =
            |field: &str, message: String| Problem::at(format!("spec.credentials[{index}].{field}"), message);
        let own = credential.problems().into_iter().map(|(field, error)| at(field, error.to_string()));
        let mut problems: Vec<_> = own.collect();
        let is_auxiliary = |other: &Credential| other.auxiliary.contains(&credential.name);
        if credential.hosts.is_empty() && !credentials.iter().any(is_auxiliary) {
            let message = "a credential needs hosts, unless it is an auxiliary of another";
            problems.push(at("hosts", message.to_owned()));
        }
        if credential.auxiliary.len() > MAX_AUXILIARY {
            problems.push(at("auxiliary", format!("at most {MAX_AUXILIARY} auxiliaries are sent along")));
        }
        let of_auxiliary = |(number, name): (usize, &String)| {
            let earlier = credential.auxiliary.get(..number).unwrap_or_default();
            let message = why_not_auxiliary(credential, name, earlier, credentials)?;
            Some(at(&format!("auxiliary[{number}]"), message))
        };
        problems.extend(credential.auxiliary.iter().enumerate().filter_map(of_auxiliary));
        problems
    };
    credentials.iter().enumerate().flat_map(of_one).collect()
}

/// Why the credential of this name can't be sent along with another.
fn why_not_auxiliary(
    credential: &Credential,
    name: &String,
    earlier: &[String],
    credentials: &[Credential],
) -> Option<String> {
    let Some(other) = credentials.iter().find(|other| other.name == *name) else {
        return Some(format!("no credential is named {name:?}"));
    };
    if other.name == credential.name || earlier.contains(name) {
        return Some(format!("the token of {name:?} is sent already"));
    }
    if !other.kind.is_token() {
        let kind = other.kind.label();
        return Some(format!("{name:?} is of kind {kind}; only tokens can be sent along"));
    }
    (credential.plain && !other.plain)
        .then(|| format!("{name:?} would be sent without TLS; set `plain: true` there too, or not here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::spec::CredentialKind;
    use crate::credentials::spec::tests::{credential, secret};

    #[test]
    fn an_auxiliary_is_another_token_that_may_be_sent_as_openly() {
        let token = |name: &str| credential(name, CredentialKind::Bearer { token: secret() });
        let with = |auxiliary: &[&str]| Credential {
            auxiliary: auxiliary.iter().map(|name| (*name).to_owned()).collect(),
            ..token("main")
        };
        let basic = CredentialKind::Basic { username: "u".into(), password: secret() };
        let others = [token("a"), token("b"), token("c"), token("d"), credential("basic", basic)];
        let rows: Vec<(Credential, &[(&str, &str)])> = vec![
            (with(&[]), &[]),
            (with(&["a", "b", "c"]), &[]),
            (with(&["a", "b", "c", "d"]), &[("auxiliary", "at most 3")]),
            (with(&["a", "a"]), &[("auxiliary[1]", "already")]),
            (with(&["main"]), &[("auxiliary[0]", "already")]),
            (with(&["e"]), &[("auxiliary[0]", "no credential is named")]),
            (with(&["basic"]), &[("auxiliary[0]", "of kind basic")]),
            (Credential { plain: true, ..with(&["a"]) }, &[("auxiliary[0]", "without TLS")]),
        ];
        for (main, expected) in rows {
            let shown = format!("{main:?}");
            let all: Vec<_> = [main].into_iter().chain(others.clone()).collect();
            let found = problems(&all);
            assert_eq!(found.len(), expected.len(), "{shown}: {found:?}");
            for (problem, (field, message)) in found.iter().zip(expected) {
                assert_eq!(problem.path, format!("spec.credentials[0].{field}"));
                assert!(problem.message.contains(message), "{problem:?}");
            }
        }
        let nowhere = Credential { hosts: Vec::new(), ..token("a") };
        assert_eq!(problems(&[with(&["a"]), nowhere.clone()]), [], "it is only an auxiliary");
        assert_eq!(problems(&[token("main"), nowhere]).len(), 1);
    }
}
