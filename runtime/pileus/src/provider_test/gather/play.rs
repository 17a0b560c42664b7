//! How changes are brought to an end in a real cloud: again and again while it is at them, as the host's controllers do it,
//! and with patience, as some clouds take minutes.

use std::time::Duration;

use pileus_cloud::{Error, Retry, RouteChange, ServiceChange};
use pileus_host::Fault;
use tokio::time::{Instant, sleep};

use super::super::changes::{Came, NoAnswer, Turn};
use super::super::cloud::{Cloud, Scene};

/// How long a change may take. Clouds that make load balancers of virtual machines need some minutes.
const PATIENCE: Duration = Duration::from_mins(10);

/// The longest that the provider is believed that there is nothing to ask.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The shortest time before what failed is tried again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// How often what failed is tried again that may succeed then.
const TRIES: usize = 5;

/// A change that may be under way, with a note of the provider's.
pub(super) trait Resume: Clone {
    /// Puts the note where the provider finds it.
    fn resume(&mut self, note: Option<String>);
}

impl Resume for ServiceChange {
    fn resume(&mut self, note: Option<String>) {
        self.resume = note;
    }
}

impl Resume for RouteChange {
    fn resume(&mut self, note: Option<String>) {
        self.resume = note;
    }
}

/// What a call of the guest brings.
pub(super) type Outcomes<P> = Result<Result<Vec<Result<P, Error>>, Error>, Fault>;

/// Makes one call in this scene, and writes down what came of it.
pub(super) async fn once<P>(
    cloud: &Cloud,
    scene: Scene,
    sent: String,
    call: impl Future<Output = Outcomes<P>>,
) -> Turn
where
    Came: From<Result<P, Error>>,
{
    cloud.begin(scene, &[]);
    let came = match call.await {
        Ok(Ok(outcomes)) => Ok(outcomes.into_iter().map(Came::from).collect::<Vec<_>>()),
        Ok(Err(error)) => Err(NoAnswer::Error(error)),
        Err(fault) => Err(NoAnswer::Fault(fault)),
    };
    Turn { sent, first: came.clone().unwrap_or_default(), came, requests: cloud.seen() }
}

/// Makes changes until each has come to an end. Every other loses its note on the way, which may cost reads and nothing
/// else.
pub(super) async fn settle<C: Resume, P>(
    cloud: &Cloud,
    sent: String,
    changes: Vec<C>,
    call: impl AsyncFn(&[C]) -> Outcomes<P>,
) -> Turn
where
    Came: From<Result<P, Error>>,
{
    let until = Instant::now() + PATIENCE;
    let mut items: Vec<Item<C>> = changes.into_iter().map(Item::new).collect();
    let (mut requests, mut first) = (Vec::new(), None);
    loop {
        let due: Vec<C> = items.iter().filter(|item| item.is_due()).map(|item| item.change.clone()).collect();
        let Turn { came, requests: more, .. } = once(cloud, Scene::Changing, String::new(), call(&due)).await;
        requests.extend(more);
        let came = match came {
            Ok(came) => came,
            Err(none) => return Turn { sent, came: Err(none), first: first.unwrap_or_default(), requests },
        };
        first.get_or_insert_with(|| came.clone());
        for (place, (item, came)) in items.iter_mut().filter(|item| item.is_due()).zip(came).enumerate() {
            item.came(came, place % 2 == 1);
        }
        let wait = items.iter().filter(|item| item.is_due()).map(Item::wait).max();
        match wait.map(|wait| wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)) {
            Some(wait) if Instant::now() + wait < until => sleep(wait).await,
            _ => break,
        }
    }
    let came = items.into_iter().filter_map(|item| item.came).collect();
    Turn { sent, came: Ok(came), first: first.unwrap_or_default(), requests }
}

/// A change on its way to its end.
struct Item<C> {
    change: C,
    came: Option<Came>,
    failures: usize,
}

impl<C: Resume> Item<C> {
    const fn new(change: C) -> Self {
        Self { change, came: None, failures: 0 }
    }

    fn came(&mut self, came: Came, forgets: bool) {
        match &came {
            Came::Under { resume, .. } => self.change.resume(resume.clone().filter(|_| !forgets)),
            Came::Failed(_) => self.failures += 1,
            Came::Done(_) | Came::Elsewhere => {}
        }
        self.came = Some(came);
    }

    fn is_due(&self) -> bool {
        match &self.came {
            None | Some(Came::Under { .. }) => true,
            Some(Came::Failed(error)) => self.failures < TRIES && error.kind.retry() != Retry::Slowly,
            Some(Came::Done(_) | Came::Elsewhere) => false,
        }
    }

    fn wait(&self) -> Duration {
        match &self.came {
            Some(Came::Under { after, .. }) => *after,
            Some(Came::Failed(error)) => match error.kind.retry() {
                Retry::After(after) => after,
                Retry::Soon | Retry::WithBackoff | Retry::Uncertain | Retry::Slowly => SHORTEST_WAIT,
            },
            _ => Duration::ZERO,
        }
    }
}
