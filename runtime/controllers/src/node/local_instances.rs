//! How the node controller of a node manager asks about its Node: the machine's own metadata service answers instead of the cloud.
//! No Node is ever absent here: a machine that asks exists, and a node manager deletes nothing.

use std::sync::Arc;

use async_trait::async_trait;
use pileus_cloud::{Answer, Error, ErrorKind, Instances, LocalAnswer, LocalInstance, NodeReference, Purpose};

/// Looks up the instance of this machine's Node.
pub struct LocalInstances {
    local: Arc<dyn LocalInstance>,
    /// The name of the Node.
    node: String,
    /// Answers where the metadata service doesn't.
    fallback: Option<Arc<dyn Instances>>,
}

impl LocalInstances {
    /// `node` is the name of this machine's Node. `fallback` asks the cloud's API where the metadata service doesn't answer; where
    /// that speaks of another instance, nothing else is asked.
    pub fn new(local: Arc<dyn LocalInstance>, node: &str, fallback: Option<Arc<dyn Instances>>) -> Self {
        Self { local, node: node.to_owned(), fallback }
    }

    async fn answer(&self, purpose: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        if node.name != self.node {
            let why = format!("node {} is not that of this machine, {}", node.name, self.node);
            return Err(Error::new(ErrorKind::Invalid, why));
        }
        let error = match self.local.describe(node).await {
            Ok(LocalAnswer::Found(instance)) => return Ok(Answer::Found(instance)),
            Ok(LocalAnswer::Pending(after)) => return Ok(Answer::Pending(after)),
            Err(error) => error,
        };
        match &self.fallback {
            Some(instances) if is_silent(error.kind) => {
                tracing::info!(node = %node.name, %error, "the metadata service gives no answer, so the cloud is asked");
                self.ask(&**instances, purpose, node).await
            }
            _ => Err(error),
        }
    }

    async fn ask(
        &self,
        instances: &dyn Instances,
        purpose: Purpose,
        node: &NodeReference,
    ) -> Result<Answer, Error> {
        let answers = instances.lookup(purpose, std::slice::from_ref(node)).await?;
        match answers.into_iter().next() {
            Some(Ok(Answer::Absent)) => {
                let why =
                    format!("the cloud has no instance for node {}, on which this process runs", node.name);
                Err(Error::new(ErrorKind::Unavailable(None), why))
            }
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Broken, "the provider gave no answer".to_owned())),
        }
    }
}

/// Whether an error says nothing about the instance: the service, or the way to it, is at fault.
const fn is_silent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable(_) | ErrorKind::Throttled(_) | ErrorKind::Denied)
}

#[async_trait]
impl Instances for LocalInstances {
    async fn lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let mut answers = Vec::with_capacity(nodes.len());
        for node in nodes {
            answers.push(self.answer(purpose, node).await);
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::InstanceState;

    use super::*;
    use crate::facts::node::NodeFacts;
    use crate::model::instance;

    /// Answers everything like this.
    struct Says<T>(T);

    #[async_trait]
    impl LocalInstance for Says<Result<LocalAnswer, Error>> {
        async fn describe(&self, _: &NodeReference) -> Result<LocalAnswer, Error> {
            self.0.clone()
        }
    }

    #[async_trait]
    impl Instances for Says<Vec<Result<Answer, Error>>> {
        async fn lookup(&self, _: Purpose, _: &[NodeReference]) -> Result<Vec<Result<Answer, Error>>, Error> {
            Ok(self.0.clone())
        }
    }

    #[tokio::test]
    async fn the_cloud_is_asked_only_where_the_metadata_service_is_silent_and_never_for_an_absence() {
        let error = |kind| Error::new(kind, "why".to_owned());
        let found = || instance("fake://1", InstanceState::Running);
        let (mine, others) =
            (LocalAnswer::Found(found()), Answer::Found(instance("fake://2", InstanceState::Running)));
        let unavailable = ErrorKind::Unavailable(None);
        let pending = Duration::from_secs(5);
        for (local, cloud, expected) in [
            (Ok(mine.clone()), Some(Ok(others.clone())), Ok(Answer::Found(found()))),
            (Ok(LocalAnswer::Pending(pending)), Some(Ok(others.clone())), Ok(Answer::Pending(pending))),
            (Err(error(unavailable)), Some(Ok(others.clone())), Ok(others.clone())),
            (Err(error(ErrorKind::Denied)), Some(Ok(others.clone())), Ok(others.clone())),
            (Err(error(unavailable)), None, Err(unavailable)),
            (Err(error(unavailable)), Some(Ok(Answer::Absent)), Err(unavailable)),
            (Err(error(unavailable)), Some(Err(error(ErrorKind::Denied))), Err(ErrorKind::Denied)),
            (Err(error(ErrorKind::Broken)), Some(Ok(others.clone())), Err(ErrorKind::Broken)),
            (Err(error(ErrorKind::Invalid)), Some(Ok(others)), Err(ErrorKind::Invalid)),
        ] {
            let fallback = cloud.clone().map(|answer| Arc::new(Says(vec![answer])) as Arc<dyn Instances>);
            let instances = LocalInstances::new(Arc::new(Says(local.clone())), "a", fallback);
            for purpose in [Purpose::Initialise, Purpose::Refresh, Purpose::Confirm] {
                let reference = NodeFacts::registered("a").reference(&[]);
                let answers = instances.lookup(purpose, &[reference]).await.unwrap();
                let answer = answers[0].clone().map_err(|error| error.kind);
                assert_eq!(answer, expected, "{local:?}, {cloud:?}, {purpose:?}");
            }
        }
        let instances = LocalInstances::new(Arc::new(Says(Ok::<_, Error>(mine))), "a", None);
        let other = NodeFacts::registered("b").reference(&[]);
        let answers = instances.lookup(Purpose::Initialise, &[other]).await.unwrap();
        assert_eq!(answers[0].clone().unwrap_err().kind, ErrorKind::Invalid, "another machine's Node");
    }
}
