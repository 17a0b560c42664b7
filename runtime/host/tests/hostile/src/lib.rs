//! A provider that does what its configuration says, all of it bad: the guest of the sandbox tests. It uses the SDK
//! where the SDK lets it misbehave and goes behind its back where it doesn't. `describe` has no configuration, so it
//! alone is always well-behaved.

mod attempt;
mod balance;
mod behaviour;
mod leak;

use std::hint::black_box;

use attempt::Attempt;
use behaviour::{ask_at_once, forever, misbehave, overload, wrong_settings};
use pileus_guest::{
    Answer, Description, Error, Instance, Instances, NodeReference, Problem, Provider, Purpose, Settings,
    State, export_provider, http, one_by_one,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a call does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Behaviour {
    /// Answers `hostile://NAME`, as it should.
    #[default]
    Echo,
    /// Computes without end.
    Loop,
    /// Recurses without end.
    Recurse,
    /// Takes memory until it gets no more.
    Grow,
    /// Executes `unreachable`.
    Trap,
    /// Panics.
    Panic,
    /// Sleeps past every deadline.
    Sleep,
    /// Sleeps for 12 ms, 50 times: waits long and computes nothing. No misdeed.
    Nap,
    /// Asks the cloud about each Node. No misdeed.
    Ask,
    /// Sends the cloud a body of so many bytes for each Node, and answers with the size of what came back. No misdeed,
    /// within bounds.
    Bodies,
    /// Asks a host that it may not ask, and answers with the error.
    DeniedHost,
    /// Writes to standard output without end.
    StdoutFlood,
    /// Writes to the host's log without end.
    LogFlood,
    /// Answers one item too few.
    Misaligned,
    /// Answers with very long texts.
    HugeAnswer,
    /// Gives a Service an address that is none.
    NoAddress,
    /// Tells a Service's address in the IP mode that its label `ip-mode` names, or in none. No misdeed.
    IpModes,
    /// Lists more load balancers than any cloud has for a cluster.
    ManyOwned,
    /// Asks for 1 GiB of random bytes.
    RandomFlood,
    /// Opens pollables without end.
    Handles,
    /// Looks at the environment and answers with what it saw, as labels.
    Peek,
    /// Tries the requests of its configuration, and answers with what became of each, as labels.
    Attempt,
    /// Makes the first request of its configuration a thousand times, reads no answer, and says how many there were.
    Hoard,
    /// Begins the requests of its configuration, and answers while they are under way.
    Abandon,
    /// Prints, sends to its cloud and answers with all that it can see, its whole memory included.
    Leak,
    /// Panics with all that it can see.
    LeakAndPanic,
    /// Panics where it is asked about more than four Nodes, and says of fewer that the cloud has had enough.
    Overload,
    /// Computes without end as soon as it is configured.
    LoopInConfigure,
    /// Has settings that no gate takes.
    WrongSettings,
    /// Asks a host while it is configured, and finds its configuration wrong where it isn't answered.
    AskInConfigure,
}

/// The configuration of the provider.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// What a call does.
    #[serde(default)]
    behaviour: Behaviour,
    /// The name of the only Node or Service that triggers it; any, where there is none.
    only: Option<String>,
    /// Where a cloud is that answers about a Node at the path of its name.
    cloud: Option<http::BaseUrl>,
    /// How many bytes it sends.
    #[serde(default)]
    bytes: usize,
    /// Requests that it tries.
    #[serde(default)]
    attempts: Vec<Attempt>,
}

/// The provider.
pub struct Hostile {
    behaviour: Behaviour,
    only: Option<String>,
    cloud: Option<http::BaseUrl>,
    bytes: usize,
    attempts: Vec<Attempt>,
}

export_provider!(Hostile, instances, load_balancers);

impl Provider for Hostile {
    type Configuration = Configuration;

    fn describe() -> Description {
        Description::new("hostile", env!("CARGO_PKG_VERSION")).provider_id_scheme("hostile")
    }

    fn configure(configuration: Configuration) -> Result<Self, Vec<Problem>> {
        let Configuration { behaviour, only, cloud, bytes, attempts } = configuration;
        match behaviour {
            Behaviour::LoopInConfigure => forever(),
            Behaviour::AskInConfigure => Err(vec![Problem::new("cloud", ask_at_once())]),
            _ => Ok(Self { behaviour, only, cloud, bytes, attempts }),
        }
    }

    fn settings(&self) -> Settings {
        if self.behaviour == Behaviour::WrongSettings { wrong_settings() } else { Settings::default() }
    }
}

impl Instances for Hostile {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let behaviour = if self.is_called(&node.name) { self.behaviour } else { Behaviour::Echo };
        if let Some(cloud) = self.cloud.as_ref().filter(|_| behaviour == Behaviour::Ask) {
            http::get(cloud.join([&node.name])).send().await?.error_for_status()?;
        }
        if let Some(cloud) = self.cloud.as_ref().filter(|_| behaviour == Behaviour::Bodies) {
            let request = http::post(cloud.join([&node.name])).body("text/plain", vec![b'x'; self.bytes]);
            let answer = request.send().await?.error_for_status()?.bytes;
            return Ok(Answer::Found(Instance { zone: Some(answer.len().to_string()), ..echo(node) }));
        }
        if let Behaviour::Leak | Behaviour::LeakAndPanic = behaviour {
            return Ok(self.leak(behaviour, echo(node)));
        }
        misbehave(behaviour, &self.attempts, echo(node)).await
    }

    async fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        if self.behaviour == Behaviour::Overload {
            return Err(overload(nodes));
        }
        let mut answers = one_by_one(self, purpose, nodes).await;
        if self.behaviour == Behaviour::Misaligned && nodes.iter().any(|node| self.is_called(&node.name)) {
            black_box(answers.pop());
        }
        Ok(answers)
    }
}

impl Hostile {
    /// Whether what is named so triggers the misdeed.
    fn is_called(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

fn echo(node: &NodeReference) -> Instance {
    let provider_id = format!("hostile://{}", node.name);
    Instance { provider_id, state: State::Running, ..Instance::default() }
}
