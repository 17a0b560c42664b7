//! The capability `instances`: the instances behind Nodes. A provider looks up one Node, and lists all instances if the
//! cloud can. The SDK decides when to do which.

mod instance_list;

use std::time::Duration;

pub use instance_list::InstanceList;

use crate::http::{MAX_SINGLE_READS, Source};
use crate::{Address, Error, Extra, NodeReference, Provider, deadline, map_concurrently};

/// Why the host looks up instances. It decides how fresh and how direct the answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A Node has joined and waits for its initialization. The provider may read one instance or list all.
    Initialise,
    /// Check whether known facts about Nodes still hold. The answer may come from a cache. A list is the best source.
    Refresh,
    /// Confirm that an instance is gone. The host may delete the Node on this answer, so it must be a direct read of that
    /// one instance, never a conclusion from a list.
    Confirm,
}

/// Whether an instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceState {
    /// It runs, or is starting.
    Running,
    /// It exists, but has been stopped and doesn't run until it is started.
    Stopped,
    /// The cloud doesn't say.
    #[default]
    Unknown,
}

/// What the cloud knows about one instance. The default is empty; set the fields that the cloud has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// Its provider ID, `scheme://rest`. The same in every answer for as long as the instance exists.
    pub provider_id: String,
    /// The cloud's name for its size. None if it has none.
    pub instance_type: Option<String>,
    /// Its failure domain. None if the cloud has no zones or doesn't know. Never a guess.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// All its addresses, the preferred one of each kind first.
    pub addresses: Vec<Address>,
    /// Additional labels for the Node. The host ignores keys under `kubernetes.io` and `k8s.io`.
    pub labels: Vec<(String, String)>,
    /// Whether it runs.
    pub state: InstanceState,
    /// See [`Extra`].
    pub extra: Extra,
}

/// The result of a lookup for one Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The Node's instance.
    Found(Instance),
    /// The cloud said that the instance doesn't exist. Never answer this after an error, with a missing permission, from a
    /// list that may be incomplete, or for an instance that is being created. The host believes it only if the cloud said so
    /// to a read of the same call: with a 404, a 410 or a code that means absence for each, or with a list that was read to
    /// its end.
    Absent,
    /// Not known yet. Looked up again after this time.
    Pending(Duration),
    /// This provider deliberately doesn't manage the Node's instance, for example a machine outside of the cloud.
    Unmanaged(Stance),
}

/// What happens to a Node whose instance the provider deliberately doesn't manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The host leaves the Node alone. Its uninitialized taint stays for another controller.
    LeftAlone,
    /// The host takes the uninitialized taint off, writes nothing else, and asks again only when the Node changes.
    Released,
}

/// A provider that looks up the instances of Nodes.
pub trait Instances: Provider {
    /// Looks up the instance of one Node. Changes nothing in the cloud: the host denies its writes.
    fn lookup(&self, purpose: Purpose, node: &NodeReference) -> impl Future<Output = Result<Answer, Error>>;

    /// Lists all instances. None, which is the default, if the cloud can't.
    ///
    /// Pass the source to [`Collection::list_from`](crate::http::Collection::list_from) or
    /// [`Request::send_from`](crate::http::Request::send_from). If the source is the cache, send nothing to the cloud: the
    /// whole list is needed for a few Nodes only.
    fn list(&self, _: Source) -> impl Future<Output = Option<InstanceList>> {
        async { None }
    }

    /// What happens to a Node whose instance the provider deliberately doesn't manage, if the Node's facts alone tell so. Then
    /// neither a list nor [`lookup`](Self::lookup) is asked. None, which is the default, for all others.
    fn unmanaged(&self, _: &NodeReference) -> Option<Stance> {
        None
    }

    /// Looks up the instances of Nodes: one answer each, in the same order. Fails as a whole only if the provider can't
    /// consider any Node.
    ///
    /// By default, many Nodes are looked up in a [`list`](Self::list) of all instances. A few Nodes are looked up in the
    /// host's cached list, which costs the cloud nothing. Without one, or if it lacks them, they are looked up one by
    /// one. Without a list, and to confirm a deletion, this is [`lookup_each`]. The Node's name prefixes each error.
    fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> impl Future<Output = Result<Vec<Result<Answer, Error>>, Error>> {
        async move { Ok(lookup_in_list(self, purpose, nodes, async |source| self.list(source).await).await) }
    }
}

/// Looks up Nodes in this list, as [`Instances::lookup_many`] does by default in the list of all instances: for a cloud whose
/// instances are in several places, and a Node tells in which. The Node's name prefixes each error.
pub async fn lookup_in_list<P: Instances>(
    provider: &P,
    purpose: Purpose,
    nodes: &[NodeReference],
    list: impl AsyncFn(Source) -> Option<InstanceList>,
) -> Vec<Result<Answer, Error>> {
    let answers = list_or_lookup(provider, purpose, nodes, list).await.into_iter().zip(nodes);
    let with_name = |(answer, node): (Result<Answer, Error>, &NodeReference)| {
        answer.map_err(|error| error.context(format_args!("node {}", node.name)))
    };
    answers.map(with_name).collect()
}

async fn list_or_lookup<P: Instances>(
    provider: &P,
    purpose: Purpose,
    nodes: &[NodeReference],
    list: impl AsyncFn(Source) -> Option<InstanceList>,
) -> Vec<Result<Answer, Error>> {
    let are_few = nodes.len() <= MAX_SINGLE_READS;
    let list = match purpose {
        // The host may delete a Node on the answer, so each instance is read, even if there are many.
        Purpose::Confirm => None,
        _ => list(if are_few { Source::Cache } else { Source::Cloud }).await,
    };
    let Some(list) = list else { return lookup_each(provider, purpose, nodes).await };
    let index = list.index(P::canonical_id);
    let schemes = P::describe().provider_id_schemes;
    let find = async |node: &NodeReference| {
        if let Some(stance) = provider.unmanaged(node) {
            return Ok(Answer::Unmanaged(stance));
        }
        let answer = match &node.provider_id {
            // A list says nothing about the instances of other clouds.
            Some(id) if !has_scheme(id, &schemes) => return Err(foreign(id, &schemes)),
            Some(id) => index.find(&P::canonical_id(id)),
            None => list.find_by_name(&node.name),
        };
        match answer {
            Ok(Answer::Absent) | Err(_) if are_few => provider.lookup(purpose, node).await,
            answer => answer,
        }
    };
    map_concurrently(nodes, find).await
}

fn has_scheme(provider_id: &str, schemes: &[String]) -> bool {
    let scheme = provider_id.split_once("://").map(|(scheme, _)| scheme);
    schemes.iter().any(|known| Some(&**known) == scheme)
}

fn foreign(provider_id: &str, schemes: &[String]) -> Error {
    Error::invalid(format!(
        "provider ID `{provider_id}` is of another cloud: expected {}://",
        schemes.join(":// or ")
    ))
}

/// Looks up each Node by itself, many concurrently. Once the soft deadline of the call has passed, it answers `pending`
/// for the rest.
pub async fn lookup_each<P: Instances>(
    provider: &P,
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Vec<Result<Answer, Error>> {
    let lookup = async |node: &NodeReference| {
        if deadline::has_passed() {
            return Err(Error::deadline(&format!("node {}", node.name)));
        }
        match provider.unmanaged(node) {
            Some(stance) => Ok(Answer::Unmanaged(stance)),
            None => provider.lookup(purpose, node).await,
        }
    };
    map_concurrently(nodes, lookup).await
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::http::MAX_IN_FLIGHT;
    use crate::testing::{Host, get};
    use crate::{Description, Problem, Settings, http};

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    /// Reads one resource for each Node.
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

    /// Sends more requests at once than the SDK allows.
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
            Ok(Answer::Unmanaged(Stance::LeftAlone))
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

    /// Reads one resource for each Node, or lists them all.
    struct Lister;

    impl Provider for Lister {
        type Configuration = Nothing;

        fn describe() -> Description {
            Description::new("lister", "0.1.0").provider_id_scheme("lister")
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
            Ok(Answer::Unmanaged(Stance::LeftAlone))
        }

        async fn list(&self, source: Source) -> Option<InstanceList> {
            let names =
                http::get(url("list")).send_from(source).await.and_then(http::Response::json::<Vec<String>>);
            let list = names.map_or_else(|error| (Vec::new(), Err(error)), |names| (names, Ok(())));
            let entry = |name: String| (format!("lister://{name}"), name, Answer::Pending(Duration::ZERO));
            Some(InstanceList::new(list, entry))
        }

        fn unmanaged(&self, node: &NodeReference) -> Option<Stance> {
            (node.label("managed") == Some("false")).then_some(Stance::Released)
        }
    }

    #[test]
    fn many_nodes_are_looked_up_in_a_list_and_few_in_a_cached_one() {
        let list = |names: &[&str]| get(url("list")).json(names);
        let (listed, read) = (Ok(Answer::Pending(Duration::ZERO)), Ok(Answer::Unmanaged(Stance::LeftAlone)));
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
    fn known_nodes_are_found_in_a_list_without_any_code_of_the_provider() {
        let known = |name: &str, id: &str| NodeReference::new(name).with_provider_id(id);
        let nodes = [
            known("x", "lister://a"),
            known("y", "lister://b"),
            known("z", "other://a"),
            known("a", "lister"),
        ];
        let host = Host::new().exchange(get(url("list")).json(["a"]));
        let answers = host.lookup::<Lister>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(answers[..2], [Ok(Answer::Pending(Duration::ZERO)), Ok(Answer::Absent)]);
        for foreign in &answers[2..] {
            assert_eq!(foreign.as_ref().unwrap_err().kind, crate::ErrorKind::Invalid);
        }
    }

    #[test]
    fn an_unmanaged_node_is_looked_up_nowhere() {
        let released = Ok(Answer::Unmanaged(Stance::Released));
        let label = ("managed".to_owned(), "false".to_owned());
        let foreign = NodeReference { labels: vec![label], ..NodeReference::new("foreign") };
        let host = Host::new();
        let answers = host.lookup::<Lister>(Purpose::Confirm, std::slice::from_ref(&foreign)).unwrap();
        assert_eq!(answers, std::slice::from_ref(&released));
        // A list lacks it, which says nothing.
        let host = Host::new().exchange(get(url("list")).json(["node-0"]));
        let nodes = [nodes(3), vec![foreign]].concat();
        let answers = host.lookup::<Lister>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!((&answers[3], &answers[2]), (&released, &Ok(Answer::Absent)));
    }

    #[test]
    fn an_error_starts_with_the_name_of_its_node() {
        let host = Host::new().exchange(get(url("node-0")).status(403)).exchange(get(url("node-1")));
        let answers = host.lookup::<Lister>(Purpose::Confirm, &nodes(2)).unwrap();
        let error = answers[0].as_ref().unwrap_err();
        assert!(error.message.starts_with("node node-0: GET http"), "{error}");
        assert_eq!(answers[1], Ok(Answer::Unmanaged(Stance::LeftAlone)));
    }

    fn url(name: &str) -> String {
        format!("http://cloud.test/{name}")
    }

    fn nodes(count: usize) -> Vec<NodeReference> {
        (0..count).map(|number| NodeReference::new(format!("node-{number}"))).collect()
    }

    #[test]
    fn each_node_gets_its_own_answer_in_order() {
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
    fn nodes_are_looked_up_concurrently_up_to_the_request_limit() {
        let nodes = nodes(200);
        let host = nodes.iter().fold(Host::new(), |host, node| host.exchange(get(url(&node.name))));
        host.lookup::<Reader>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(host.max_in_flight(), MAX_IN_FLIGHT);
    }

    #[test]
    fn requests_beyond_the_limit_wait() {
        let host = Host::new().exchange(get(url("a")).times(300));
        let answer = host.run(Eager.lookup(Purpose::Refresh, &NodeReference::new("a")));
        assert_eq!(answer, Ok(Answer::Unmanaged(Stance::LeftAlone)));
        assert_eq!(host.max_in_flight(), MAX_IN_FLIGHT);
    }

    #[test]
    fn nodes_after_the_deadline_are_pending_and_not_looked_up() {
        let nodes = nodes(100);
        let host = nodes.iter().fold(Host::new(), |host, node| {
            host.exchange(get(url(&node.name)).delay(Duration::from_millis(200)).any_times())
        });
        let answers = host.lookup::<Reader>(Purpose::Initialise, &nodes).unwrap();
        let known = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Found(_)))).count();
        let pending = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Pending(_)))).count();
        // 10 s of 200 ms each, and the requests that were in flight at the deadline.
        assert!((50..50 + MAX_IN_FLIGHT).contains(&known), "{known}");
        assert_eq!((known + pending, host.requests().len()), (100, known));
    }

    #[test]
    fn a_batch_that_the_deadline_ends_is_pending_as_a_whole() {
        let host = Host::new().remaining(Duration::ZERO);
        let answers = host.lookup::<Eager>(Purpose::Refresh, &nodes(3)).unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Pending(_)))), "{answers:?}");
    }

    #[test]
    fn a_batch_that_fails_as_a_whole_returns_its_error() {
        let host = Host::new().exchange(get(url("list")).status(401));
        let error = host.lookup::<Eager>(Purpose::Refresh, &nodes(3)).unwrap_err();
        assert_eq!(error.kind, crate::ErrorKind::Denied);
    }

    #[test]
    fn a_call_with_an_invalid_configuration_fails_without_a_lookup() {
        let host = Host::new().configuration(serde_json::json!({"x": 1}));
        let error = host.lookup::<Reader>(Purpose::Refresh, &nodes(1)).unwrap_err();
        assert_eq!(error.kind, crate::ErrorKind::Invalid);
        assert!(error.message.contains("x: there is no such field"), "{error}");
    }
}
