//! `pileus release-deletion`: releases held Nodes for deletion. Nodes are held when too many instances disappear at
//! once; with this command the operator confirms that the instances are gone for good.

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use pileus_controllers::claims::Claims;
use pileus_controllers::facts::node::{Node, NodeFacts};
use pileus_controllers::well_known::ANNOTATION_RELEASE_DELETION;
use pileus_gate::Fence;
use serde_json::json;

use crate::error::Error;
use crate::{cli, cluster};

/// Releases the given Nodes, or all that are held. Nothing is released if one of the names is wrong.
pub(crate) async fn run(arguments: cli::ReleaseDeletion) -> Result<(), Error> {
    let config = cluster::config(arguments.kubeconfig, "release-deletion").await?;
    let what = format!("list nodes at {}", config.config.cluster_url);
    let api = Api::<Node>::all(config.client(Fence::default())?);
    let failed = |error: kube::Error| Error::Cluster { what, source: error.into() };
    let listed = api.list(&ListParams::default()).await.map_err(failed)?;
    let nodes: Vec<_> =
        listed.items.into_iter().filter_map(|node| NodeFacts::read(node, &Claims::default()).ok()).collect();
    let chosen = if arguments.all { all(&nodes) } else { named(&nodes, &arguments.nodes)? };
    if chosen.is_empty() {
        println!("no node is held");
    }
    for node in chosen {
        let annotations = json!({ANNOTATION_RELEASE_DELETION: node.uid});
        // With the UID, so that a new Node of the same name isn't released.
        let patch = Patch::Merge(json!({"metadata": {"uid": node.uid, "annotations": annotations}}));
        let patched = api.patch(&node.name, &PatchParams::default(), &patch).await;
        println!("node {}: {}", node.name, result_text(&node.name, patched.map(drop))?);
    }
    Ok(())
}

/// The result for one Node. A Node that is gone by now doesn't stop the release of the others.
fn result_text(name: &str, patched: kube::Result<()>) -> Result<&'static str, Error> {
    match patched.map_err(pileus_controllers::Error::from) {
        Ok(()) => {
            Ok("released; it will be deleted once the cloud confirms again that its instance is absent")
        }
        Err(pileus_controllers::Error::Gone) => Ok("already deleted"),
        Err(source) => Err(Error::Cluster { what: format!("annotate node {name}"), source }),
    }
}

/// All Nodes that are held and not yet released.
fn all(nodes: &[NodeFacts]) -> Vec<&NodeFacts> {
    nodes.iter().filter(|node| node.is_held && !is_released(node)).collect()
}

/// The Nodes with these names.
///
/// # Errors
/// [`Error::NotHeld`] with every name that is unknown or not held.
fn named<'a>(nodes: &'a [NodeFacts], names: &[String]) -> Result<Vec<&'a NodeFacts>, Error> {
    let mut problems = Vec::new();
    let mut chosen = Vec::new();
    for name in names {
        match nodes.iter().find(|node| node.name == *name) {
            None => problems.push(format!("node {name} does not exist")),
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
    fn a_node_that_is_already_deleted_does_not_stop_the_release_of_others() {
        for (code, end) in [(404, Some("already deleted")), (403, None), (500, None)] {
            let status = Status { code, message: "why".to_owned(), ..Status::default() };
            let result = result_text("a", Err(kube::Error::Api(Box::new(status))));
            match (result, end) {
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
