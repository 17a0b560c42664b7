//! The machine that this process runs on, as its own metadata service describes it. A metadata service can't be asked about another
//! machine, so a Node without a provider ID is compared by its name.

use pileus_guest::{
    Answer, CredentialHint, Effect, Error, LocalAnswer, LocalInstance, NodeReference, Settings, http,
};

use crate::Simulated;
use crate::instance::{Machine, answer};

/// Adds what reading the metadata service needs.
pub(crate) fn settings(settings: Settings, metadata: &http::BaseUrl) -> Settings {
    let reason = "to read what the machine of a node manager says about itself";
    let header = CredentialHint::new("metadata").value("flavor", "azure");
    settings.endpoint(metadata.endpoint(reason).credential(header)).rule(metadata.rule(
        "GET",
        "/metadata/instance",
        Effect::Read,
    ))
}

impl LocalInstance for Simulated {
    async fn describe_local_instance(&self, node: &NodeReference) -> Result<LocalAnswer, Error> {
        let Some(metadata) = &self.metadata else {
            return Err(Error::invalid(
                "the configuration has no `metadata`, the URL of the metadata service",
            ));
        };
        let response = http::get(metadata.join(["metadata", "instance"])).send().await?;
        let Some(response) = response.or_absent()? else {
            return Err(Error::unavailable("the metadata service knows no machine"));
        };
        let machine: Machine = response.json()?;
        if node.provider_id.is_none() && machine.name != node.name {
            let why =
                format!("the metadata service describes machine {}, not node {}", machine.name, node.name);
            return Err(Error::broken(why));
        }
        match answer(machine) {
            Answer::Found(instance) => Ok(LocalAnswer::Found(instance)),
            Answer::Pending(after) => Ok(LocalAnswer::Pending(after)),
            Answer::Absent | Answer::Unmanaged(_) => {
                Err(Error::broken("the metadata service describes no machine"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pileus_guest::ErrorKind;
    use pileus_guest::testing::{Host, get};
    use serde_json::{Value, json};

    use super::*;

    const INSTANCE: &str = "http://169.254.169.254/metadata/instance";

    fn host() -> Host {
        let metadata = "http://169.254.169.254";
        Host::new().configuration(json!({"endpoint": "http://cloud.test", "metadata": metadata}))
    }

    fn machine(id: &str, name: &str, state: &str) -> Value {
        json!({"id": id, "name": name, "state": state, "zone": "sim-1a"})
    }

    #[test]
    fn the_machine_is_that_of_the_node_by_its_provider_id_or_its_name() {
        let node = NodeReference::new("node-1");
        let known = || node.clone().with_provider_id("simulated://m-000001");
        let found = |answer: LocalAnswer| match answer {
            LocalAnswer::Found(instance) => instance.provider_id,
            LocalAnswer::Pending(after) => format!("{after:?}"),
        };
        for (given, said, expected) in [
            (node.clone(), machine("m-000001", "node-1", "running"), Ok("simulated://m-000001")),
            (known(), machine("m-000001", "renamed", "running"), Ok("simulated://m-000001")),
            (known(), machine("m-000002", "node-1", "running"), Err(ErrorKind::Broken)),
            (node.clone(), machine("m-000002", "node-2", "running"), Err(ErrorKind::Broken)),
            (node.clone(), machine("m-000001", "node-1", "creating"), Ok("5s")),
            (node.clone(), json!({"id": 1}), Err(ErrorKind::Broken)),
        ] {
            let host = host().exchange(get(INSTANCE).json(&said));
            let answer = host.describe_local_instance::<Simulated>(&given);
            assert_eq!(answer.map(found).map_err(|error| error.kind), expected.map(str::to_owned), "{said}");
        }
        let silent = host().exchange(get(INSTANCE).status(404));
        let error = silent.describe_local_instance::<Simulated>(&node).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Unavailable(_)), "{error}");
    }

    #[test]
    fn only_the_metadata_service_is_asked_and_it_has_its_own_grant() {
        let settings = host().configure::<Simulated>().unwrap();
        let [_, metadata] = &settings.endpoints[..] else { panic!("{:?}", settings.endpoints) };
        assert_eq!((metadata.tls, metadata.host.as_str(), metadata.port), (false, "169.254.169.254", None));
        assert_eq!(metadata.credential.as_ref().unwrap().kind, "metadata");
        let rule = settings.rules.iter().find(|rule| rule.host == "169.254.169.254").unwrap();
        assert_eq!((rule.method.as_str(), rule.path.as_str()), ("GET", "/metadata/instance"));
        let without = Host::new().configuration(json!({"endpoint": "http://cloud.test"}));
        let refused = without.describe_local_instance::<Simulated>(&NodeReference::new("node-1"));
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid);
    }
}
