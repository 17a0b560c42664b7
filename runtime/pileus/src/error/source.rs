//! The exit codes of errors about the source of a component.

pub(super) fn source_code(source: &pileus_loader::Error) -> u8 {
    use pileus_loader::Error as Source;
    match source {
        Source::Reference { .. } | Source::Policy { .. } | Source::Settings { .. } | Source::File { .. } => 2,
        Source::NotComponent { .. } | Source::TooLarge { .. } => 3,
        Source::Untrusted { .. } => 8,
        Source::Store { .. } | Source::NotStored { .. } => 1,
        // The last one is the registry itself, which decides where its mirrors couldn't help.
        Source::Everywhere { each } => each.last().map_or(6, source_code),
        Source::NotFound { .. }
        | Source::Corrupt { .. }
        | Source::Unauthorized { .. }
        | Source::Credential { .. }
        | Source::Misled { .. }
        | Source::Unreachable { .. }
        | Source::Timeout { .. }
        | Source::Answer { .. }
        | Source::Protocol { .. } => 6,
    }
}

#[cfg(test)]
mod tests {
    use pileus_loader::{Distrust, Error as Source};

    use super::super::Error;

    #[test]
    fn of_several_registries_the_last_one_decides_the_exit_code() {
        let reference = "r.example/p:1".to_owned();
        let unreachable = || Source::Unreachable { registry: "r.example".to_owned(), cause: String::new() };
        let untrusted = || Source::Untrusted {
            source_name: reference.clone(),
            digest: None,
            cause: Box::new(Distrust::Unsigned),
        };
        let other = || Source::NotComponent { place: reference.clone(), cause: String::new() };
        for (each, expected) in [
            (vec![unreachable(), untrusted()], 8),
            (vec![untrusted(), unreachable()], 6),
            (vec![unreachable(), other()], 3),
            (vec![untrusted()], 8),
            (vec![], 6),
        ] {
            let error = Error::Source(Source::Everywhere { each });
            assert_eq!(error.code(), expected, "{error}");
        }
    }
}
