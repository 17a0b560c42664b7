//! What is done with routes, in which order, and how all of it is removed again.

use pileus_cloud::{ListedRoute, ProviderId, Route, RouteAction, RouteChange, RouteProgress, Target};

use super::super::changes::{Changes, Listing, NoAnswer, Played, Step, Trouble, Turn};
use super::super::cloud::Scene;
use super::super::words;
use super::play::{Outcomes, once, settle};
use super::{Caller, SHORT, finished, troubles_but_silence};
use crate::error::Error;

impl Caller {
    /// All that is seen of it but in front of a cloud that never answers.
    pub(super) async fn routes_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<ListedRoute>, Error> {
        let played = match self.permit(nodes, "two routes") {
            Err(needs) => Err(needs),
            // All that leads there at the end is removed.
            Ok(_) if self.list_test_routes().await.is_ok_and(|there| !there.is_empty()) => Err(format!(
                "a table without routes to {}: run it again, with other ranges",
                self.destinations().join(" and ")
            )),
            Ok(stop) => {
                progress("making two routes in the cloud");
                let mut played = Played::of(self.cluster.uid.clone(), self.destinations());
                let play = Box::pin(self.play_routes(nodes, &mut played));
                let stopped = stop.run_until_cancelled(play).await.is_none();
                progress("removing what was made");
                played.left = self.remove_routes().await;
                finished(stopped, &played.left)?;
                Ok(played)
            }
        };
        let mut troubles = Vec::new();
        for scene in troubles_but_silence() {
            progress(&format!("changing routes of {}", scene.as_str()));
            troubles.push(self.trouble_routes(scene, nodes).await);
        }
        Ok(Changes { played, troubles, patience: (SHORT, SHORT) })
    }

    /// Makes two routes to ranges that nobody uses, and takes them through their lives.
    pub(super) async fn play_routes(&self, nodes: &[Target], played: &mut Played<ListedRoute>) {
        let Some((one, other)) = nodes.first().zip(nodes.last()) else { return };
        let [first, second] = self.destinations();
        let both = || vec![create(&first, one), create(&second, other)];
        let made = self.settle_routes(both()).await;
        let is_made = made.done().is_some();
        played.turns.push((Step::Make, made));
        if !is_made {
            return;
        }
        played.turns.push((Step::Again, self.settle_routes(both()).await));
        let mut route = self.list_ours(Step::Again, played).await;
        if let Some(listed) = &route
            && one.node != other.node
        {
            let moved = vec![delete(listed), create(&first, other)];
            played.turns.push((Step::Move, self.settle_routes(moved).await));
            route = self.list_ours(Step::Move, played).await;
        }
        if let Some(route) = route {
            played.turns.push((Step::Delete, self.settle_routes(vec![delete(&route)]).await));
            self.list_ours(Step::Delete, played).await;
            played.turns.push((Step::DeleteAgain, self.settle_routes(vec![delete(&route)]).await));
        }
    }

    /// Removes all that may have been made, and says what it couldn't.
    pub(super) async fn remove_routes(&self) -> Vec<String> {
        for route in self.list_test_routes().await.into_iter().flatten() {
            self.settle_routes(vec![delete(&route)]).await;
        }
        match self.list_test_routes().await {
            Ok(ours) => ours.into_iter().map(|route| route.name).collect(),
            Err(none) => vec![format!("what the list can't tell of: {}", words::no_answer(&none))],
        }
    }

    async fn list_test_routes(&self) -> Result<Vec<ListedRoute>, NoAnswer> {
        let listed = self.list_routes(Scene::Real).await.came?;
        let is_ours = |route: &ListedRoute| self.destinations().contains(&route.destination);
        Ok(listed.into_iter().filter(is_ours).collect())
    }

    /// A change and a list, in front of a cloud in trouble. Nothing reaches the cloud.
    pub(super) async fn trouble_routes(&self, scene: Scene, nodes: &[Target]) -> Trouble<ListedRoute> {
        let made_up = Target {
            node: self.nobody.clone(),
            uid: super::uid(&self.nobody, "node"),
            provider_id: self.made_up_id(),
            addresses: Vec::new(),
            zone: None,
            labels: Vec::new(),
        };
        let changes = [create(&self.destinations()[0], nodes.first().unwrap_or(&made_up))];
        let call = self.guest.change_routes_once(&self.cluster, &changes);
        let turn = once(&self.cloud, scene, sent(&changes), call).await;
        let list = match scene {
            Scene::Silence | Scene::NotFound => None,
            scene => Some(self.list_routes(scene).await),
        };
        Trouble { scene, turn, list }
    }

    async fn settle_routes(&self, changes: Vec<RouteChange>) -> Turn {
        let sent = sent(&changes);
        let call = async |due: &[RouteChange]| -> Outcomes<RouteProgress> {
            self.guest.change_routes_once(&self.cluster, due).await
        };
        settle(&self.cloud, sent, changes, call).await
    }

    async fn list_routes(&self, scene: Scene) -> Listing<ListedRoute> {
        self.cloud.begin(scene, &[]);
        let came = match self.guest.list_routes_once(&self.cluster).await {
            Ok(listed) => listed.map_err(NoAnswer::Error),
            Err(fault) => Err(NoAnswer::Fault(fault)),
        };
        Listing { came, requests: self.cloud.seen() }
    }

    /// Lists, and finds the first of the test's routes in it.
    async fn list_ours(&self, step: Step, played: &mut Played<ListedRoute>) -> Option<ListedRoute> {
        let listed = self.list_routes(Scene::Real).await;
        let [destination, _] = self.destinations();
        let first = listed.came.iter().flatten().find(|route| route.destination == destination).cloned();
        played.lists.push((step, listed));
        first
    }

    /// Ranges of the block for benchmarks (RFC 2544), which no network uses in earnest.
    pub(super) fn destinations(&self) -> [String; 2] {
        let third: String = super::uid(&self.nobody, "range").chars().take(2).collect();
        let third = u8::from_str_radix(&third, 16).unwrap_or_default();
        [18, 19].map(|second| format!("198.{second}.{third}.0/24"))
    }

    /// The provider ID of a machine that nobody has.
    fn made_up_id(&self) -> ProviderId {
        let id = ProviderId::parse(&format!("{}://{}", self.scheme, self.nobody));
        id.unwrap_or_else(|_| {
            ProviderId::parse("pileus-no-such-cloud://machine").expect("it has a scheme and a rest")
        })
    }
}

fn create(destination: &str, node: &Target) -> RouteChange {
    let Target { node, uid, provider_id, addresses, .. } = node;
    let route = Route {
        name_hint: format!("{uid}-{}", destination.replace(['.', '/'], "-")),
        node: node.clone(),
        target: Some(provider_id.clone()),
        addresses: addresses.clone(),
        destination: destination.parse().expect("it is a range"),
    };
    RouteChange { action: RouteAction::Create(route), resume: None }
}

fn delete(route: &ListedRoute) -> RouteChange {
    RouteChange { action: RouteAction::Delete(route.clone()), resume: None }
}

fn sent(changes: &[RouteChange]) -> String {
    let action = |change: &RouteChange| match &change.action {
        RouteAction::Create(route) => format!("create {} to {}", route.destination, route.node),
        RouteAction::Delete(route) => format!("delete {}", route.name),
    };
    format!("change([{}])", changes.iter().map(action).collect::<Vec<_>>().join(", "))
}
