//! Routes of one or two clusters in a table that other clients write, too.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use pileus_dev::nodes::node;

use super::cloud::Cloud;
use super::{give_range, has_routes, initialised, lists, range, start, with_range, world};
use crate::node::addresses;
use crate::world::World;

/// The range of another client's route.
const FOREIGN: &str = "192.168.0.0/24";

fn ranges(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| range(*number)).collect()
}

async fn delete(world: &World, name: &str) {
    Api::<Node>::all(world.client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn routes_come_and_go_in_one_write_a_batch_and_lead_to_private_addresses() {
    let (world, cloud) = tokio::join!(world(), Cloud::start());
    let mut names = cloud.create("uniform", 3, "pool").await;
    names.extend(cloud.create("availability-sets", 2, "avset").await);
    let run = start(&world, &cloud.document()).await;
    world.register(names.iter().map(|name| node(name))).await;
    for name in &names {
        initialised(&world, name).await;
    }
    assert!(run.stop().await.success());

    // All Nodes lack their routes when it starts, and the table doesn't exist.
    for (number, name) in names.iter().enumerate() {
        give_range(&world, name, number).await;
    }
    let before = cloud.now().await;
    let run = start(&world, &cloud.document()).await;
    let table = cloud.routes_are(&ranges(&[0, 1, 2, 3, 4])).await;
    for (number, name) in names.iter().enumerate() {
        has_routes(&world, name).await;
        let (route, next_hop) = &table[&range(number)];
        let internal = addresses(&initialised(&world, name).await).remove(0);
        assert_eq!(internal, ("InternalIP".to_owned(), next_hop.clone()), "{name}");
        assert!(route.starts_with(&format!("{name}____10244{number}024____")), "{route}");
    }
    let writes = cloud.writes(before).await;
    assert_eq!(writes.len(), 1, "{writes:#?}");

    // Nodes go together, and so do their routes. What another client has put there stays.
    cloud.put_route("firewall", FOREIGN, "10.9.0.4").await;
    lists(&run, 1).await;
    let before = cloud.now().await;
    delete(&world, &names[1]).await;
    delete(&world, &names[4]).await;
    let table = cloud.routes_are(&[ranges(&[0, 2, 3]), vec![FOREIGN.to_owned()]].concat()).await;
    assert_eq!(table[FOREIGN], ("firewall".to_owned(), "10.9.0.4".to_owned()));
    lists(&run, 2).await;
    // The second Node may go after the list of the first pass.
    let writes = cloud.writes(before).await;
    assert!((1..=2).contains(&writes.len()), "{writes:#?}");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn two_clusters_share_a_table_and_neither_deletes_the_others_routes() {
    let (one, two, cloud) = tokio::join!(world(), world(), Cloud::start());
    let (mine, theirs) =
        (cloud.create("uniform", 3, "pool").await, cloud.create("uniform", 3, "other").await);
    let document = cloud.document();
    let (run, second) = tokio::join!(start(&one, &document), start(&two, &document));

    // Both write at the same time.
    tokio::join!(
        one.register((0..2).map(|number| with_range(&mine[number], number))),
        two.register((0..2).map(|number| with_range(&theirs[number], 10 + number))),
    );
    let table = cloud.routes_are(&ranges(&[0, 1, 10, 11])).await;
    for number in 0..2 {
        has_routes(&one, &mine[number]).await;
        has_routes(&two, &theirs[number]).await;
    }
    let marks: Vec<_> = table.values().map(|(name, _)| name.split("____").nth(2).unwrap()).collect();
    assert!(marks[0] == marks[1] && marks[2] == marks[3] && marks[0] != marks[2], "{table:#?}");
    run.logged(&["routes of another cluster"]).await;
    second.logged(&["routes of another cluster"]).await;
    tokio::join!(lists(&run, 2), lists(&second, 2));
    assert_eq!(cloud.routes().await, table);

    // A range that the other cluster has isn't taken away, and the Node's event says so.
    two.register([with_range(&theirs[2], 0)]).await;
    let event = two.event(&theirs[2], "FailedToCreateRoute").await.message.unwrap();
    assert!(event.contains("another cluster"), "{event}");
    // Each deletes its own: one Node goes here, and all go there.
    delete(&one, &mine[1]).await;
    for name in &theirs {
        delete(&two, name).await;
    }
    cloud.routes_are(&ranges(&[0])).await;

    // One that starts anew with no Nodes left deletes nothing of the other either.
    assert!(second.stop().await.success());
    let second = start(&two, &document).await;
    two.register([with_range(&theirs[1], 11)]).await;
    let routes = cloud.routes_are(&ranges(&[0, 11])).await;
    assert_eq!(routes[&range(0)], table[&range(0)]);
    assert!(run.stop().await.success() && second.stop().await.success());
}
