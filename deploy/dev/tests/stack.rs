//! Tests of the local stack: real permissions, data that outlive the API server, and no remains.

use std::{path::Path, time::Duration};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pileus_dev::{
    Error, Kubernetes,
    kubernetes::{Options, User},
    nodes::{Ready, UNINITIALIZED, await_absence, await_node, node, register, set_ready},
};
use serde_json::json;

const SOON: Duration = Duration::from_mins(3);

fn is_forbidden<T>(outcome: kube::Result<T>) -> bool {
    matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403)
}

async fn set_address(client: &Client, name: &str, address: &str) -> kube::Result<Node> {
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await
}

fn has_address(address: &str) -> impl Fn(&Node) -> bool {
    move |node| {
        let status = node.status.as_ref();
        status.and_then(|it| it.addresses.as_ref()).into_iter().flatten().any(|it| it.address == address)
    }
}

#[tokio::test]
async fn pileus_has_the_permissions_of_the_shipped_role_and_no_others() -> Result<(), Error> {
    let kubernetes = Kubernetes::start_with(Options { audit: true }).await?;
    let admin = kubernetes.admin();
    let pileus = kubernetes.client(User::Pileus).await?;
    let nodes: Api<Node> = Api::all(pileus.clone());
    let registered = register(&admin, ["a", "b", "c"].map(node)).await?;
    assert_eq!(registered.len(), 3);

    assert!(is_forbidden(nodes.list(&ListParams::default()).await), "before the role is applied");
    kubernetes.apply_role().await?;

    let patched = await_node(&pileus, "b", has_address("10.0.0.2"), SOON);
    let patch = async { set_address(&pileus, "b", "10.0.0.2").await.map_err(no_answer) };
    let (seen, written) = tokio::try_join!(patched, patch)?;
    assert_eq!(seen.metadata.resource_version, written.metadata.resource_version);

    assert!(is_forbidden(Api::<Secret>::all(pileus).list(&ListParams::default()).await));
    let all = (&DeleteParams::default(), &ListParams::default());
    assert!(is_forbidden(nodes.delete_collection(all.0, all.1).await));
    assert!(is_forbidden(nodes.create(&PostParams::default(), &node("d").build()).await));

    nodes.delete("a", &DeleteParams::default()).await.map_err(no_answer)?;
    await_absence(&admin, "a", SOON).await?;

    let requests = kubernetes.requests()?;
    let own: Vec<_> = requests.iter().filter(|it| it.user.ends_with(":kube-system:pileus")).collect();
    assert!(own.iter().filter(|it| it.code == 403).count() >= 4);
    let written: Vec<_> = own.iter().filter(|it| it.is_write() && it.code == 200).collect();
    let [patch, delete] = &written[..] else { panic!("{written:?}") };
    assert_eq!((&*delete.verb, &*delete.resource, &*delete.name), ("delete", "nodes", "a"));
    assert_eq!((&*patch.verb, &*patch.resource, &*patch.name), ("patch", "nodes/status", "b"));
    assert_eq!(patch.body["status"]["addresses"][0]["address"], "10.0.0.2");
    let registered = requests.iter().find(|it| it.verb == "create" && it.resource == "nodes").unwrap();
    assert_eq!((&*registered.user, &registered.body), ("admin", &json!(null)));
    Ok(())
}

#[tokio::test]
async fn a_registered_node_is_stored_completely() -> Result<(), Error> {
    let kubernetes = Kubernetes::start().await?;
    let client = kubernetes.admin();
    let wanted = node("a").node_ip("10.0.0.1").provider_id("simulated://zone-1/m-1").not_ready();
    register(&client, [wanted.clone()]).await?;

    let stored = await_node(&client, "a", |_| true, SOON).await?;
    assert!(serde_json::to_vec(&stored).unwrap().len() > 12_000);
    // The API server accepts the status from a kubelet that registers.
    assert!(stored.status == wanted.build().status, "{:?}", stored.status);
    let spec = stored.spec.unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("simulated://zone-1/m-1"));
    assert!(spec.taints.into_iter().flatten().any(|taint| taint.key == UNINITIALIZED));
    Ok(())
}

#[tokio::test]
async fn setting_readiness_of_many_nodes_changes_nothing_else() -> Result<(), Error> {
    let kubernetes = Kubernetes::start().await?;
    let client = kubernetes.admin();
    let names: Vec<_> = (1..=40).map(|number| format!("node-{number}")).collect();
    register(&client, names.iter().map(|name| node(name))).await?;
    set_ready(&client, names.clone(), Ready::Unknown).await?;

    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await.map_err(no_answer)?;
    let conditions = nodes.items.into_iter().map(|node| node.status.unwrap().conditions.unwrap());
    let mut count = 0;
    for conditions in conditions {
        assert_eq!(conditions.len(), 4);
        let ready = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!((&*ready.status, ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
        count += 1;
    }
    assert_eq!(count, names.len());
    Ok(())
}

#[tokio::test]
async fn a_restarted_api_server_keeps_its_data_and_its_address() -> Result<(), Error> {
    let mut kubernetes = Kubernetes::start().await?;
    let client = kubernetes.admin();
    register(&client, [node("a")]).await?;

    kubernetes.stop_api_server().await?;
    assert!(set_address(&client, "a", "10.0.0.1").await.is_err(), "the API server is down");
    // The wait begins while the API server is down.
    let waiting = await_node(&client, "a", |_| true, SOON);
    let (_, found) = tokio::join!(kubernetes.start_api_server(), waiting);
    assert_eq!(found?.metadata.name.as_deref(), Some("a"));
    set_address(&client, "a", "10.0.0.1").await.map_err(no_answer)?;
    Ok(())
}

#[tokio::test]
async fn a_dropped_stack_leaves_nothing_behind() -> Result<(), Error> {
    let kubernetes = Kubernetes::start().await?;
    let (etcd, api_server) = kubernetes.process_ids();
    let processes = [etcd, api_server.unwrap()].map(|id| format!("/proc/{id}"));
    let kubeconfig = kubernetes.kubeconfig(User::Admin);
    let folder = kubeconfig.parent().unwrap();
    assert!(processes.iter().all(|process| Path::new(process).exists()));
    assert!(folder.exists());

    drop(kubernetes);
    assert!(!processes.iter().any(|process| Path::new(process).exists()));
    assert!(!folder.exists());
    Ok(())
}

fn no_answer(source: kube::Error) -> Error {
    Error::Api { action: "a request of the test".to_owned(), source: Box::new(source) }
}
