//! `pileus release-deletion`: an operator says that machines are gone for good, so that their Nodes, which are held
//! because too many went at once, may be deleted.

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pileus_controllers::facts::node::{Node, NodeFacts};
use pileus_controllers::well_known::ANNOTATION_RELEASE_DELETION;
use serde_json::json;

use crate::error::Error;
use crate::{cli, cluster};

/// Releases the Nodes that are named, or all that are held. Nothing is released where one of the names is wrong.
pub(crate) async fn run(arguments: cli::ReleaseDeletion) -> Result<(), Error> {
    let config = cluster::config(arguments.kubeconfig, "release-deletion").await?;
    let what = format!("list nodes at {}", config.cluster_url);
    let client = Client::try_from(config).map_err(|error| Error::Kubeconfig(error.to_string()))?;
    let api = Api::<Node>::all(client);
    let failed = |error: kube::Error| Error::Cluster { what, source: error.into() };
    let listed = api.list(&ListParams::default()).await.map_err(failed)?;
    let nodes: Vec<_> = listed.items.into_iter().filter_map(|node| NodeFacts::read(node).ok()).collect();
    let chosen = if arguments.all { all(&nodes) } else { named(&nodes, &arguments.nodes)? };
    if chosen.is_empty() {
        println!("No node is held.");
    }
    for node in chosen {
        let annotations = json!({ANNOTATION_RELEASE_DELETION: node.uid});
        // With the UID, so that another Node that takes the name meanwhile isn't released.
        let patch = Patch::Merge(json!({"metadata": {"uid": node.uid, "annotations": annotations}}));
        let patched = api.patch(&node.name, &PatchParams::default(), &patch).await;
        println!("node {}: {}", node.name, released(&node.name, patched.map(drop))?);
    }
    Ok(())
}

/// What became of one of the Nodes. That it is gone by now is no reason to stop before the others.
fn released(name: &str, patched: kube::Result<()>) -> Result<&'static str, Error> {
    match patched.map_err(pileus_controllers::Error::from) {
        Ok(()) => Ok("released; it is deleted once its machine is confirmed to be gone again"),
        Err(pileus_controllers::Error::Gone) => Ok("gone meanwhile"),
        Err(source) => Err(Error::Cluster { what: format!("annotate node {name}"), source }),
    }
}

/// All Nodes that are held and not released yet.
fn all(nodes: &[NodeFacts]) -> Vec<&NodeFacts> {
    nodes.iter().filter(|node| node.is_held && !is_released(node)).collect()
}

/// The Nodes of these names, or all that is wrong with the names.
fn named<'a>(nodes: &'a [NodeFacts], names: &[String]) -> Result<Vec<&'a NodeFacts>, Error> {
    let mut problems = Vec::new();
    let mut chosen = Vec::new();
    for name in names {
        match nodes.iter().find(|node| node.name == *name) {
            None => problems.push(format!("there is no node {name}")),
            Some(node) if !node.is_held => problems.push(format!("node {name} is not held")),
            Some(node) => chosen.push(node),
        }
    }
    if problems.is_empty() { Ok(chosen) } else { Err(Error::NotHeld(problems)) }
}

fn is_released(node: &NodeFacts) -> bool {
    node.release_deletion.as_ref() == Some(&node.uid)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_node_that_is_gone_meanwhile_does_not_keep_others_from_their_release() {
        for (code, end) in [(404, Some("gone")), (403, None), (500, None)] {
            let status = Status { code, message: "why".to_owned(), ..Status::default() };
            let end_of = released("a", Err(kube::Error::Api(Box::new(status))));
            match (end_of, end) {
                (Ok(text), Some(part)) => assert!(text.contains(part), "{code}: {text}"),
                (Err(error), None) => assert_eq!(
                    (error.exit_code(), error.to_string().contains("annotate node a")),
                    (std::process::ExitCode::from(6), true),
                    "{code}"
                ),
                (end, _) => panic!("{code}: {end:?}"),
            }
        }
    }
}
