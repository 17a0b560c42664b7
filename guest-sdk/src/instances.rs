//! The capability `instances`: the machines behind Nodes. An author looks up one Node, and lists all machines where the cloud
//! can; when to do which is the same for every cloud, and here.

mod listing;

use std::time::Duration;

pub use listing::Listing;

use crate::http::{HANDFUL, Source};
use crate::{Address, Error, Extra, NodeReference, Provider, deadline, side_by_side};

/// Why the host asks, which decides how fresh and how direct the answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A Node has joined and waits to be initialised. Reading one machine or listing all is the provider's choice.
    Initialise,
    /// Are the facts about Nodes still true? May be old. A list is the best answer.
    Refresh,
    /// Is this machine really gone? A Node may be deleted on the answer, so it must be a direct read of that one
    /// machine, never a conclusion from a list.
    Confirm,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It runs, or is on its way to.
    Running,
    /// It exists, but has been stopped and won't run until somebody starts it.
    Stopped,
    /// The cloud doesn't tell.
    #[default]
    Unknown,
}

/// What the cloud knows of one machine. The default knows nothing: an author names what there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// Its provider ID, `scheme://rest`: the same in every answer for as long as the machine exists.
    pub provider_id: String,
    /// The cloud's name for its size. None where it has none.
    pub instance_type: Option<String>,
    /// Its failure domain. None where the cloud has no zones or doesn't know: never a guess.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// All its addresses, the preferred one of each kind first.
    pub addresses: Vec<Address>,
    /// More labels for the Node. Keys under `kubernetes.io` and `k8s.io` are ignored.
    pub labels: Vec<(String, String)>,
    /// Whether it runs.
    pub state: State,
    /// See [`Extra`].
    pub extra: Extra,
}

/// The answer about one Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This is its machine.
    Found(Instance),
    /// The cloud said that it has no such machine. An error, a missing permission, a list that may be incomplete and a
    /// machine that is being created are never this.
    Absent,
    /// Not known yet. Asked again after this time.
    Pending(Duration),
    /// The Node has a machine that this provider deliberately does not manage. The host leaves the Node alone.
    Unmanaged,
}

/// A provider that knows the machines behind Nodes.
pub trait Instances: Provider {
    /// Looks up the machine of one Node. Changes nothing in the cloud.
    fn lookup(&self, purpose: Purpose, node: &NodeReference) -> impl Future<Output = Result<Answer, Error>>;

    /// Lists all machines; none where the cloud can't, which is the default. The source is for
    /// [`Collection::list`](crate::http::Collection::list), or for [`Request::send_from`](crate::http::Request::send_from):
    /// with the cache for a source nothing may be asked of the cloud, as the list of all is wanted for one Node then.
    fn list(&self, _: Source) -> impl Future<Output = Option<Listing>> {
        async { None }
    }

    /// The ID under which the list has a Node's machine; none where the Node has no provider ID yet, and is found by its
    /// name. The default is the provider ID as it is.
    ///
    /// # Errors
    ///
    /// `invalid` where the provider ID is none of this cloud's.
    fn machine_id(&self, node: &NodeReference) -> Result<Option<String>, Error> {
        Ok(node.provider_id.clone())
    }

    /// Looks up the machines of Nodes: one answer each, in the same order. Fails as a whole only if no Node could be
    /// considered at all.
    ///
    /// By default many Nodes are looked up in a [`list`](Self::list) of all machines. A handful is too while the host has that
    /// from a moment ago, which costs the cloud nothing, and one by one where it hasn't, or the list lacks them. Where a
    /// deletion is to be confirmed, and where there is no list, it is [`one_by_one`]. Errors are led by the Node's name.
    fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> impl Future<Output = Result<Vec<Result<Answer, Error>>, Error>> {
        async move {
            let answers = few_or_many(self, purpose, nodes).await.into_iter().zip(nodes);
            let about = |(answer, node): (Result<Answer, Error>, &NodeReference)| {
                answer.map_err(|error| error.about(format_args!("node {}", node.name)))
            };
            Ok(answers.map(about).collect())
        }
    }
}

async fn few_or_many<P: Instances>(
    provider: &P,
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Vec<Result<Answer, Error>> {
    let is_handful = nodes.len() <= HANDFUL;
    let listing = match purpose {
        // A Node may be deleted on the answer, so that reads its machine however many there are.
        Purpose::Confirm => None,
        _ => provider.list(if is_handful { Source::Cache } else { Source::Cloud }).await,
    };
    let Some(listing) = listing else { return one_by_one(provider, purpose, nodes).await };
    let look = async |node: &NodeReference| {
        let id = provider.machine_id(node)?;
        match listing.find(id.as_deref(), &node.name) {
            Ok(Answer::Absent) | Err(_) if is_handful => provider.lookup(purpose, node).await,
            told => told,
        }
    };
    side_by_side(nodes, look).await
}

/// Looks up each Node by itself, many at the same time. Once the soft deadline of the call has passed, the Nodes that
/// are left are answered as not known yet.
pub async fn one_by_one<P: Instances>(
    provider: &P,
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Vec<Result<Answer, Error>> {
    let lookup = async |node: &NodeReference| {
        if deadline::has_passed() {
            return Err(Error::deadline(&format!("node {}", node.name)));
        }
        provider.lookup(purpose, node).await
    };
    side_by_side(nodes, lookup).await
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::http::IN_FLIGHT;
    use crate::testing::{Host, get};
    use crate::{Description, Problem, Settings, http};

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    /// Reads one thing for each Node.
    struct Reader;

    impl Provider for Reader {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("reader", "0.1.0").provider_id_scheme("reader")
        }

        fn configure(Nothing {}: Nothing) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn settings(&self) -> Settings {
            Settings::default()
        }
    }

    impl Instances for Reader {
        async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
            let response = http::get(url(&node.name)).send().await?.error_for_status()?;
            let provider_id = format!("reader://{}", String::from_utf8_lossy(&response.bytes));
            Ok(Answer::Found(Instance { provider_id, ..Instance::default() }))
        }
    }

    /// Asks for more than the SDK lets through, all at once.
    struct Eager;

    impl Provider for Eager {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("eager", "0.1.0")
        }

        fn configure(Nothing {}: Nothing) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn settings(&self) -> Settings {
            Settings::default()
        }
    }

    impl Instances for Eager {
        async fn lookup(&self, _: Purpose, _: &NodeReference) -> Result<Answer, Error> {
            let requests = (0..300).map(|_| http::get(url("a")).send());
            futures::future::try_join_all(requests).await?;
            Ok(Answer::Unmanaged)
        }

        async fn lookup_many(
            &self,
            _: Purpose,
            _: &[NodeReference],
        ) -> Result<Vec<Result<Answer, Error>>, Error> {
            http::get(url("list")).send().await?.error_for_status()?;
            Ok(Vec::new())
        }
    }

    /// Reads one thing for each Node, or lists them all.
    struct Lister;

    impl Provider for Lister {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("lister", "0.1.0")
        }

        fn configure(Nothing {}: Nothing) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn settings(&self) -> Settings {
            Settings::default()
        }
    }

    impl Instances for Lister {
        async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
            http::get(url(&node.name)).send().await?.error_for_status()?;
            Ok(Answer::Unmanaged)
        }

        async fn list(&self, source: Source) -> Option<Listing> {
            let names =
                http::get(url("list")).send_from(source).await.and_then(http::Response::json::<Vec<String>>);
            let list = names.map_or_else(|error| (Vec::new(), Err(error)), |names| (names, Ok(())));
            Some(Listing::new(list, |name| (name, name), |_| Answer::Pending(Duration::ZERO)))
        }
    }

    #[test]
    fn many_nodes_are_looked_up_in_a_list_and_a_handful_where_the_host_has_it() {
        let list = |names: &[&str]| get(url("list")).json(names);
        let (listed, read) = (Ok(Answer::Pending(Duration::ZERO)), Ok(Answer::Unmanaged));
        let one = |number| get(url(&format!("node-{number}")));
        let host = Host::new().exchange(list(&["node-0", "node-3"]));
        let answers = host.lookup::<Lister>(Purpose::Refresh, &nodes(4)).unwrap();
        assert_eq!(answers, [listed.clone(), Ok(Answer::Absent), Ok(Answer::Absent), listed.clone()]);
        let host = Host::new().exchange(list(&["node-1"]).cached()).exchange(one(0));
        assert_eq!(host.lookup::<Lister>(Purpose::Initialise, &nodes(2)).unwrap(), [read.clone(), listed]);
        let host = Host::new().exchange(one(0)).exchange(one(1));
        assert_eq!(host.lookup::<Lister>(Purpose::Refresh, &nodes(2)).unwrap(), [read.clone(), read.clone()]);
        let host = (0..4).map(one).fold(Host::new(), Host::exchange);
        let answers = host.lookup::<Lister>(Purpose::Confirm, &nodes(4)).unwrap();
        assert!(answers.iter().all(|answer| *answer == read), "{answers:?}");
    }

    #[test]
    fn an_error_is_led_by_the_name_of_its_node() {
        let host = Host::new().exchange(get(url("node-0")).status(403)).exchange(get(url("node-1")));
        let answers = host.lookup::<Lister>(Purpose::Confirm, &nodes(2)).unwrap();
        let error = answers[0].as_ref().unwrap_err();
        assert!(error.message.starts_with("node node-0: GET http"), "{error}");
        assert_eq!(answers[1], Ok(Answer::Unmanaged));
    }

    fn url(name: &str) -> String {
        format!("http://cloud.test/{name}")
    }

    fn nodes(count: usize) -> Vec<NodeReference> {
        (0..count).map(|number| NodeReference::new(format!("node-{number}"))).collect()
    }

    #[test]
    fn each_node_gets_its_own_answer_in_its_own_place() {
        let nodes = nodes(200);
        let host = nodes.iter().enumerate().fold(Host::new(), |host, (number, node)| {
            let exchange = get(url(&node.name)).body(node.name.clone());
            host.exchange(if number % 7 == 0 { exchange.status(403) } else { exchange })
        });
        let answers = host.lookup::<Reader>(Purpose::Refresh, &nodes).unwrap();
        for (number, (node, answer)) in nodes.iter().zip(&answers).enumerate() {
            match answer {
                Ok(Answer::Found(found)) => assert_eq!(found.provider_id, format!("reader://{}", node.name)),
                other => assert_eq!((number % 7, other.is_err()), (0, true), "{number}: {other:?}"),
            }
        }
    }

    #[test]
    fn nodes_are_looked_up_side_by_side_but_not_more_than_the_host_has_room_for() {
        let nodes = nodes(200);
        let host = nodes.iter().fold(Host::new(), |host, node| host.exchange(get(url(&node.name))));
        host.lookup::<Reader>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(host.most_in_flight(), IN_FLIGHT);
    }

    #[test]
    fn a_provider_that_asks_for_more_at_once_waits_for_its_turns() {
        let host = Host::new().exchange(get(url("a")).times(300));
        let answer = host.run(Eager.lookup(Purpose::Refresh, &NodeReference::new("a")));
        assert_eq!(answer, Ok(Answer::Unmanaged));
        assert_eq!(host.most_in_flight(), IN_FLIGHT);
    }

    #[test]
    fn what_the_deadline_leaves_is_pending_and_not_asked_for() {
        let nodes = nodes(100);
        let host = nodes.iter().fold(Host::new(), |host, node| {
            host.exchange(get(url(&node.name)).taking(Duration::from_millis(200)).any_times())
        });
        let answers = host.lookup::<Reader>(Purpose::Initialise, &nodes).unwrap();
        let known = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Found(_)))).count();
        let pending = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Pending(_)))).count();
        // 10 s of 200 ms each, and what was in flight at the last moment.
        assert!((50..50 + IN_FLIGHT).contains(&known), "{known}");
        assert_eq!((known + pending, host.requests().len()), (100, known));
    }

    #[test]
    fn a_batch_that_the_deadline_ends_as_a_whole_is_pending_as_a_whole() {
        let host = Host::new().remaining(Duration::ZERO);
        let answers = host.lookup::<Eager>(Purpose::Refresh, &nodes(3)).unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Pending(_)))), "{answers:?}");
    }

    #[test]
    fn a_batch_that_fails_as_a_whole_says_why() {
        let host = Host::new().exchange(get(url("list")).status(401));
        let error = host.lookup::<Eager>(Purpose::Refresh, &nodes(3)).unwrap_err();
        assert_eq!(error.kind, crate::ErrorKind::Denied);
    }

    #[test]
    fn a_call_with_a_wrong_configuration_is_answered_and_not_made() {
        let host = Host::new().configuration(serde_json::json!({"x": 1}));
        let error = host.lookup::<Reader>(Purpose::Refresh, &nodes(1)).unwrap_err();
        assert_eq!(error.kind, crate::ErrorKind::Invalid);
        assert!(error.message.contains("x: there is no such field"), "{error}");
    }
}
