//! The time of one call about all Nodes within the sandbox, with the cloud's answers at hand, so that nothing waits; and the
//! size of the component. The answers are those of the simulator, at two page sizes.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pileus_cloud::{Answer, Instance, Instances, NodeReference, Purpose};
use pileus_dev::artifact;
use pileus_gate::{Classification, Grant, Interception, Interceptor, Request};
use pileus_host::{CodeCache, Compiler, Component, Engine, Limits};
use pileus_loader::{Loader, TrustPolicy, Verified};

use super::cloud::Cloud;
use crate::Failure;
use crate::calls::{named, provider_with};
use crate::report::{Samples, heading, note, row, size, time};

/// Calls of each kind.
const CALLS: usize = 40;
/// The most elements of a page.
const PAGES: [usize; 2] = [100, 1_000];
/// What the design allows a call.
const TARGET: Duration = Duration::from_millis(150);
/// What the design allows the component.
const COMPONENT: u64 = 3 << 19;

/// The answers to all requests of a call. A request without one is sent to the cloud.
#[derive(Debug, Default)]
struct Answers(Mutex<HashMap<String, Option<Bytes>>>);

impl Interceptor for Answers {
    fn intercept(&self, request: &Request, _: &[u8], _: &Classification) -> Interception {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
        match answers.entry(request.url() + &query).or_default() {
            Some(body) => Interception::Respond(http::Response::new(body.clone())),
            None => Interception::Forward,
        }
    }
}

impl Answers {
    /// How many answers there are, and their bytes.
    fn weight(&self) -> (usize, u64) {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = answers.values().flatten().map(Bytes::len).sum::<usize>();
        (answers.len(), u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Gets the answers to the requests that were sent to the cloud.
    async fn fill(&self, cloud: &Cloud) -> Result<(), Failure> {
        let urls: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for url in urls {
            let path = url.strip_prefix(cloud.endpoint()).ok_or("a request went elsewhere")?;
            let body = cloud.ask("GET", path, "").await?.into();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(url, Some(body));
        }
        Ok(())
    }
}

/// Measures calls about all machines of a cloud, which has no quotas afterwards.
pub(super) async fn measure(cloud: &Cloud) -> Result<(), Failure> {
    cloud.unlimit().await?;
    let path = artifact::component("azure-provider")?;
    let verified = Loader::read_file(&path, &TrustPolicy::default()).await?;
    let folder = tempfile::tempdir()?;
    let engine = Engine::start(Some(CodeCache::open(folder.path())?), Compiler::InProcess)?;
    heading(&format!("Azure: a call about {} nodes", cloud.names.len()), &["median", "p90", "target"]);
    for page in PAGES {
        cloud.set_page_size(page).await?;
        let scene = Scene { engine: &engine, verified: &verified, cloud, answers: Arc::default() };
        scene.measure(page).await?;
    }
    let size_of = fs::metadata(&path)?.len();
    row("size of the component", &[size(size_of), String::new(), size(COMPONENT)]);
    Ok(())
}

struct Scene<'a> {
    engine: &'a Engine,
    verified: &'a Verified,
    cloud: &'a Cloud,
    answers: Arc<Answers>,
}

impl Scene<'_> {
    async fn measure(&self, page: usize) -> Result<(), Failure> {
        let all: Vec<_> = self.cloud.names.iter().map(|name| named(name)).collect();
        let instances = self.instances(Limits::default()).await?;
        let (joining, known) = found(&instances, &all).await?;
        self.answers.fill(self.cloud).await?;
        for (title, purpose, nodes) in
            [("by name", Purpose::Initialise, &joining), ("by provider ID", Purpose::Refresh, &known)]
        {
            let mut samples = Samples::default();
            for _ in 0..CALLS {
                let (found, took) = lookup(&instances, purpose, nodes).await?;
                if found.iter().any(Option::is_none) {
                    return Err(format!("{title}, not each of {} nodes was found", nodes.len()).into());
                }
                samples.push(took);
            }
            let figures = [samples.median(), samples.percentile(90), TARGET].map(time);
            row(&format!("{title}, pages of {page}"), &figures);
        }
        let (requests, bytes) = self.answers.weight();
        let least = self.least_memory(&known).await?;
        note(&format!(
            "{requests} requests, {} of JSON; it needs {} of the {} that a call has by default",
            size(bytes),
            size(least),
            size(u64::try_from(Limits::default().memory)?),
        ));
        Ok(())
    }

    async fn instances(&self, limits: Limits) -> Result<Arc<dyn Instances>, Failure> {
        let grant = Grant {
            tls: false,
            host: "127.0.0.1".parse()?,
            port: self.cloud.port(),
            methods: vec!["GET".parse()?],
            paths: vec!["/".parse()?],
            addresses: vec!["127.0.0.0/8".parse()?],
        };
        let component = Component::load(self.engine, self.verified.clone()).await?;
        let configuration = self.cloud.configuration().to_string();
        let answers = Arc::clone(&self.answers);
        provider_with(component, &configuration, limits, vec![grant], Some(answers)).await
    }

    /// The smallest memory, in halves of the default, in which a call ends well.
    async fn least_memory(&self, nodes: &[NodeReference]) -> Result<u64, Failure> {
        let mut memory = Limits::default().memory;
        loop {
            let instances = self.instances(Limits { memory: memory / 2, ..Limits::default() }).await;
            let Ok(instances) = instances else { break };
            match lookup(&instances, Purpose::Refresh, nodes).await {
                Ok((found, _)) if found.iter().all(Option::is_some) => {}
                _ => break,
            }
            memory /= 2;
        }
        Ok(u64::try_from(memory)?)
    }
}

/// The instances that a call finds, and how long it took.
async fn lookup(
    instances: &Arc<dyn Instances>,
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Result<(Vec<Option<Instance>>, Duration), Failure> {
    let (instances, nodes) = (Arc::clone(instances), nodes.to_vec());
    // In a task, as the controllers call: the call's own task then runs on the same thread.
    let task = tokio::spawn(async move {
        let started = Instant::now();
        let answers = instances.lookup(purpose, &nodes).await;
        (answers, started.elapsed())
    });
    let (answers, took) = task.await?;
    let answers = answers.map_err(|error| error.message)?;
    let instance = |answer| match answer {
        Ok(Answer::Found(instance)) => Some(instance),
        _ => None,
    };
    Ok((answers.into_iter().map(instance).collect(), took))
}

/// The Nodes that have an instance, and the same with its provider ID.
async fn found(
    instances: &Arc<dyn Instances>,
    nodes: &[NodeReference],
) -> Result<(Vec<NodeReference>, Vec<NodeReference>), Failure> {
    let (instances, _) = lookup(instances, Purpose::Initialise, nodes).await?;
    let with_id = |(node, instance): (&NodeReference, Option<Instance>)| {
        let provider_id = Some(instance?.provider_id);
        Some((node.clone(), NodeReference { provider_id, ..node.clone() }))
    };
    let found: (Vec<_>, Vec<_>) = nodes.iter().zip(instances).filter_map(with_id).unzip();
    // Another measurement has deleted one machine.
    if found.0.len() + 1 < nodes.len() {
        return Err(format!("{} of {} nodes found", found.0.len(), nodes.len()).into());
    }
    Ok(found)
}
