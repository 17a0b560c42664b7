//! A cluster of cloud-provider-azure is taken over and given back without a write: what that controller leaves is right for
//! Pileus, and the other way around. The test computes from the resources what cloud-provider-azure 1.36 would write.

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::Api;
use kube::api::{Patch, PatchParams};
use pileus_dev::nodes::{Kubelet, node};
use serde_json::{Value, json};

use super::cloud::{Cloud, SUBSCRIPTION};
use super::{has_routes, initialised, lists, provider_id, range, start, with_range, world};
use crate::node::{Outcome, addresses, outcome};
use crate::world::World;

/// What cloud-provider-azure knows of a machine.
struct Machine {
    name: String,
    provider_id: String,
    zone: String,
    ip: String,
    public_ip: Option<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The machines of the group of the cluster, in the order of their names.
async fn machines(cloud: &Cloud) -> Vec<Machine> {
    let group = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/nodes/providers");
    let (compute, network) = (format!("{group}/Microsoft.Compute"), format!("{group}/Microsoft.Network"));
    let list = async |path: String, version: &str| {
        let list = cloud.get(&path, version).await.unwrap_or_default();
        list["value"].as_array().cloned().unwrap_or_default()
    };
    let view = "?$expand=instanceView";
    let mut all = list(format!("{compute}/virtualMachines{view}"), "2025-04-01").await;
    let mut interfaces = list(format!("{network}/networkInterfaces"), "2025-05-01").await;
    let mut public = list(format!("{network}/publicIPAddresses"), "2025-05-01").await;
    for set in list(format!("{compute}/virtualMachineScaleSets"), "2025-04-01").await {
        if set["properties"]["orchestrationMode"] == "Uniform" {
            let set = format!("{compute}/virtualMachineScaleSets/{}", text(&set["name"]));
            all.extend(list(format!("{set}/virtualMachines{view}"), "2025-04-01").await);
            interfaces.extend(list(format!("{set}/networkInterfaces"), "2018-10-01").await);
            public.extend(list(format!("{set}/publicIPAddresses"), "2018-10-01").await);
        }
    }
    let is = |one: &Value, other: &Value| text(one).eq_ignore_ascii_case(&text(other));
    let machine = |machine: &Value| {
        let mine = |interface: &&Value| is(&interface["properties"]["virtualMachine"]["id"], &machine["id"]);
        let interface = interfaces.iter().find(mine).unwrap();
        let configuration = &interface["properties"]["ipConfigurations"][0]["properties"];
        let own = |address: &&Value| is(&address["id"], &configuration["publicIPAddress"]["id"]);
        let domain = &machine["properties"]["instanceView"]["platformFaultDomain"];
        let (scope, rest) = text(&machine["id"]).split_once("/resourceGroups/").map(owned).unwrap();
        let (group, rest) = rest.split_once('/').unwrap();
        Machine {
            name: text(&machine["properties"]["osProfile"]["computerName"]),
            provider_id: format!("azure://{scope}/resourceGroups/{}/{rest}", group.to_lowercase()),
            zone: match machine["zones"][0].as_str() {
                Some(zone) => format!("eastus-{zone}"),
                None => domain.to_string(),
            },
            ip: text(&configuration["privateIPAddress"]),
            public_ip: public.iter().find(own).map(|address| text(&address["properties"]["ipAddress"])),
        }
    };
    let mut machines: Vec<_> = all.iter().map(machine).collect();
    machines.sort_by(|one, other| one.name.cmp(&other.name));
    machines
}

fn owned((one, other): (&str, &str)) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

impl Machine {
    /// Its Node as cloud-node-manager leaves it.
    fn of_node_manager(&self, number: usize) -> Kubelet {
        node(&self.name)
            .provider_id(&self.provider_id)
            .pod_cidrs(&[range(number)])
            .initialized()
            .label("node.kubernetes.io/instance-type", "Standard_D4s_v5")
            .label("topology.kubernetes.io/region", "eastus")
            .label("topology.kubernetes.io/zone", &self.zone)
    }

    /// Its Node as cloud-controller-manager leaves it, which writes the old keys, too.
    fn kubelet(&self, number: usize) -> Kubelet {
        self.of_node_manager(number)
            .label("beta.kubernetes.io/instance-type", "Standard_D4s_v5")
            .label("failure-domain.beta.kubernetes.io/region", "eastus")
            .label("failure-domain.beta.kubernetes.io/zone", &self.zone)
    }

    /// The addresses that cloud-provider-azure writes, in its order.
    fn addresses(&self) -> Vec<(String, String)> {
        let all = [
            ("InternalIP", Some(&self.ip)),
            ("Hostname", Some(&self.name)),
            ("ExternalIP", self.public_ip.as_ref()),
        ];
        all.into_iter().filter_map(|(kind, value)| Some((kind.to_owned(), value?.clone()))).collect()
    }

    /// The route that cloud-provider-azure makes for its Node: name, range and next hop.
    fn route(&self, number: usize) -> (String, String, String) {
        let range = range(number);
        let digits: String = range.chars().filter(|c| !":./".contains(*c)).collect();
        (format!("{}____{digits}", self.name), range, self.ip.clone())
    }
}

/// Writes what cloud-provider-azure writes to the status of a Node: the addresses, and that the route is there.
async fn write_status(world: &World, machine: &Machine) {
    let address = |(type_, address)| NodeAddress { type_, address };
    let addresses: Vec<_> = machine.addresses().into_iter().map(address).collect();
    let condition = json!({
        "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
        "message": "RouteController created a route", "lastTransitionTime": "2026-11-01T00:00:00Z",
    });
    let nodes = Api::<Node>::all(world.client.clone());
    let patch = Patch::Strategic(json!({"status": {"addresses": addresses, "conditions": [condition]}}));
    nodes.patch_status(&machine.name, &PatchParams::default(), &patch).await.unwrap();
}

/// A cloud with machines of each kind, one of them with a public address.
async fn cloud() -> (Cloud, Vec<Machine>) {
    let cloud = Cloud::start().await;
    for (arrangement, count) in [("uniform", 2), ("flexible", 1), ("availability-sets", 2), ("standalone", 1)]
    {
        cloud.create(arrangement, count, arrangement).await;
    }
    cloud
        .create_as(&json!({"count": 1, "prefix": "public", "group": "Nodes", "publicAddresses": true}))
        .await;
    let machines = machines(&cloud).await;
    assert_eq!(machines.len(), 7);
    (cloud, machines)
}

#[tokio::test]
async fn a_cluster_of_cloud_provider_azure_is_taken_over_without_a_write() {
    let (world, (cloud, machines)) = tokio::join!(world(), cloud());
    let kubelet = |(number, machine): (usize, &Machine)| {
        if number % 2 == 0 { machine.kubelet(number) } else { machine.of_node_manager(number) }
    };
    world.register(machines.iter().enumerate().map(kubelet)).await;
    for machine in &machines {
        write_status(&world, machine).await;
    }
    let routes: Vec<_> = machines.iter().enumerate().map(|(number, machine)| machine.route(number)).collect();
    let routes: Vec<_> = routes.iter().map(|(name, range, ip)| (&**name, &**range, &**ip)).collect();
    cloud.put_table(&routes).await;
    let (nodes, table, before) = (world.nodes().await, cloud.routes().await, cloud.now().await);

    let run = start(&world, &cloud.document()).await;
    run.reaches("pileus_node_refreshes_total", 2).await;
    lists(&run, 3).await;
    assert_eq!((cloud.writes(before).await, world.writes()), (vec![], vec![]));
    assert_eq!((world.nodes().await, cloud.routes().await), (nodes, table));

    // It works here nevertheless: a Node that changes is written, and one that goes takes its route along.
    let removed = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": null}}});
    let api = Api::<Node>::all(world.client.clone());
    api.patch(&machines[0].name, &PatchParams::default(), &Patch::Merge(removed)).await.unwrap();
    let zone = machines[0].zone.clone();
    let is_back =
        move |node: &Node| kube::ResourceExt::labels(node).get("topology.kubernetes.io/zone") == Some(&zone);
    pileus_dev::nodes::await_node(&world.client, &machines[0].name, is_back, crate::SOON).await.unwrap();
    api.delete(&machines[1].name, &kube::api::DeleteParams::default()).await.unwrap();
    let ranges: Vec<_> = (0..machines.len()).filter(|number| *number != 1).map(range).collect();
    cloud.routes_are(&ranges).await;
    assert_eq!(cloud.writes(before).await.len(), 1);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_cluster_is_given_back_as_cloud_provider_azure_would_have_made_it() {
    let (world, (cloud, machines)) = tokio::join!(world(), cloud());
    let run = start(&world, &cloud.document()).await;
    let kubelets = machines.iter().enumerate().map(|(number, machine)| with_range(&machine.name, number));
    world.register(kubelets).await;
    for machine in &machines {
        has_routes(&world, &machine.name).await;
    }
    assert!(run.stop().await.success());

    let table = cloud.routes().await;
    for (number, machine) in machines.iter().enumerate() {
        let found = initialised(&world, &machine.name).await;
        assert_eq!(provider_id(&found), machine.provider_id);
        let Outcome { taints, labels, .. } = outcome(&found);
        let expected = outcome(&machine.kubelet(number).build());
        // The API server gives each new Node this taint.
        let taints: Vec<_> = taints.into_iter().filter(|key| key != "node.kubernetes.io/not-ready").collect();
        assert_eq!(
            (taints, labels, addresses(&found)),
            (expected.taints, expected.labels, machine.addresses())
        );
        // That controller finds a route by the Node in its name and by its range, and deletes all that begin with its own name.
        let (name, range, ip) = machine.route(number);
        let (found, next_hop) = &table[&range];
        assert!(found == &name || found.starts_with(&format!("{name}____")), "{found}");
        assert_eq!((found.split("____").next(), next_hop), (Some(&*machine.name), &ip));
    }
}
