//! The capability `local-instance`: the instance that the host itself runs on, for the node manager, which is one process on
//! each Node. It asks the instance's own metadata service, so initializing a Node costs the cloud's API nothing.

use std::time::Duration;

use crate::{Error, Instance, NodeReference, Provider};

/// What the metadata service says. An instance can't report its own absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAnswer {
    /// The instance.
    Found(Instance),
    /// The metadata service doesn't know yet. Asked again after this time.
    Pending(Duration),
}

/// A provider that describes the instance that it runs on.
pub trait LocalInstance: Provider {
    /// Describes the instance that this call runs on, which is that of the given Node. The SDK compares its provider ID with
    /// that of the Node.
    fn describe_local_instance(
        &self,
        node: &NodeReference,
    ) -> impl Future<Output = Result<LocalAnswer, Error>>;
}

/// The answer of a provider, unless it is about another instance than the Node's.
pub(crate) fn check<P: Provider>(node: &NodeReference, answer: LocalAnswer) -> Result<LocalAnswer, Error> {
    match (&answer, &node.provider_id) {
        (LocalAnswer::Found(found), Some(id))
            if P::canonical_id(&found.provider_id) != P::canonical_id(id) =>
        {
            let found = &found.provider_id;
            Err(Error::broken(format!(
                "node {} has the provider ID {id}, but it runs on {found} according to the metadata service",
                node.name
            )))
        }
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::testing::{self, Host};
    use crate::{Description, ErrorKind, Problem, Settings, http};

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    /// Reads the number of its instance.
    struct Local;

    impl Provider for Local {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("local", "0.1.0").provider_id_scheme("local")
        }

        fn configure(Nothing {}: Nothing) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn settings(&self) -> Settings {
            Settings::default()
        }
    }

    impl LocalInstance for Local {
        async fn describe_local_instance(&self, _: &NodeReference) -> Result<LocalAnswer, Error> {
            let number: String = http::get("http://192.0.2.1/id").send().await?.json()?;
            if number.is_empty() {
                return Ok(LocalAnswer::Pending(Duration::from_secs(5)));
            }
            let provider_id = format!("local://{number}");
            Ok(LocalAnswer::Found(Instance { provider_id, ..Instance::default() }))
        }
    }

    #[test]
    fn an_instance_is_that_of_the_node_or_the_answer_is_broken() {
        let describe = |id: &str, node: &NodeReference| {
            let host = Host::new().exchange(testing::get("http://192.0.2.1/id").json(id));
            host.describe_local_instance::<Local>(node).map_err(|error| error.kind)
        };
        let found =
            |id: &str| Ok(LocalAnswer::Found(Instance { provider_id: id.to_owned(), ..Instance::default() }));
        let new = NodeReference::new("a");
        assert_eq!(describe("1", &new), found("local://1"));
        assert_eq!(describe("1", &new.clone().with_provider_id("local://1")), found("local://1"));
        assert_eq!(describe("2", &new.clone().with_provider_id("local://1")), Err(ErrorKind::Broken));
        assert_eq!(describe("", &new), Ok(LocalAnswer::Pending(Duration::from_secs(5))));
        let late = Host::new().remaining(Duration::ZERO).describe_local_instance::<Local>(&new);
        assert!(matches!(late.unwrap_err().kind, ErrorKind::Unavailable(None)));
    }
}
