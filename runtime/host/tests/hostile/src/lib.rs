//! A provider that misbehaves as its configuration says, for the sandbox tests. It uses the SDK where the SDK allows the
//! misbehavior, and bypasses it elsewhere. Only `describe` always behaves well, because it has no configuration.

mod attempt;
mod behavior;
mod hoard;
mod leak;
mod load_balancers;

use std::hint::black_box;

use attempt::Attempt;
use behavior::{forever, misbehave, overload, send_while_configuring, wrong_settings};
use pileus_guest::{
    Answer, Description, Effect, Error, Instance, InstanceState, Instances, LocalAnswer, LocalInstance,
    NodeReference, Problem, Provider, Purpose, Settings, export_provider, http, lookup_each,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a call does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Behavior {
    /// Answers `hostile://NAME`, as it should.
    #[default]
    Echo,
    /// Computes without end.
    Loop,
    /// Recurses without end.
    Recurse,
    /// Allocates memory until it gets no more.
    Grow,
    /// Executes `unreachable`.
    Trap,
    /// Panics.
    Panic,
    /// Sleeps past every deadline.
    Sleep,
    /// Sleeps for 12 ms, 50 times: waits long and computes nothing. Allowed.
    Nap,
    /// Sends the cloud a request for each Node. Allowed.
    Ask,
    /// Sends the cloud a body of the configured size for each Node, and answers with the size of the response. Allowed,
    /// within limits.
    Bodies,
    /// Sends a request to a denied host, and answers with the error.
    DeniedHost,
    /// Writes to standard output without end.
    StdoutFlood,
    /// Writes to the host's log without end.
    LogFlood,
    /// Returns one answer too few.
    Misaligned,
    /// Answers with very long texts.
    HugeAnswer,
    /// Reports an invalid address for a Service.
    NoAddress,
    /// Reports a Service's address in the IP mode that its label `ip-mode` names, or without one. Allowed.
    IpModes,
    /// Lists more load balancers than the host accepts.
    ManyOwned,
    /// Asks for 1 GiB of random bytes.
    RandomFlood,
    /// Opens pollables without end.
    Handles,
    /// Reads its environment, and answers with the results as labels.
    Peek,
    /// Tries the configured requests, and answers with their outcomes as labels.
    Attempt,
    /// Sends the first configured request a thousand times, reads no response, and answers with the number of responses.
    Hoard,
    /// Starts the configured requests, and answers while they are in flight.
    Abandon,
    /// Builds requests with long heads without end, and sends none.
    Heads,
    /// Builds header fields without end.
    FieldSets,
    /// Copies header fields without end.
    FieldCopies,
    /// Opens requests with bodies without end, writes into each, and sends none.
    UnsentBodies,
    /// Sends the first configured request as often as handles allow, and writes into all bodies in turn.
    ManyBodies,
    /// Returns settings with the longest texts.
    HugeSettings,
    /// Returns as many problems with its configuration as it can.
    HugeProblems,
    /// Tries the configured requests, and takes every outcome for an answer: instances are absent, lists are empty, and what
    /// is to be deleted is gone.
    FailOpen,
    /// As `fail-open`, but every instance is stopped, and each Service is another controller's.
    FailAside,
    /// Prints everything that it can see, including its memory, sends it to its cloud, and answers with it.
    Leak,
    /// Panics with everything that it can see.
    LeakAndPanic,
    /// Panics for more than four Nodes, and answers for fewer that the cloud throttles requests.
    Overload,
    /// Computes without end while it is configured.
    LoopInConfigure,
    /// Returns settings that the gate rejects.
    WrongSettings,
    /// Sends a request while it is configured, and reports the outcome as a problem.
    AskInConfigure,
}

/// The configuration of the provider.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// What a call does.
    #[serde(default)]
    behaviour: Behavior,
    /// The name of the only Node or Service that triggers the behavior. None means all.
    only: Option<String>,
    /// The base URL of a cloud that answers about a Node at the path of its name.
    cloud: Option<http::BaseUrl>,
    /// How many bytes to send.
    #[serde(default)]
    bytes: usize,
    /// Requests to try.
    #[serde(default)]
    attempts: Vec<Attempt>,
}

/// The provider.
pub struct Hostile {
    behaviour: Behavior,
    only: Option<String>,
    cloud: Option<http::BaseUrl>,
    bytes: usize,
    attempts: Vec<Attempt>,
}

export_provider!(Hostile, instances, local_instance, load_balancers);

impl Provider for Hostile {
    type Configuration = Configuration;

    fn describe() -> Description {
        let described = Description::new("hostile", env!("CARGO_PKG_VERSION")).provider_id_scheme("hostile");
        hoard::describe(described)
    }

    fn configure(configuration: Configuration) -> Result<Self, Vec<Problem>> {
        let Configuration { behaviour, only, cloud, bytes, attempts } = configuration;
        match behaviour {
            Behavior::LoopInConfigure => forever(),
            Behavior::HugeProblems => Err(hoard::problems()),
            Behavior::AskInConfigure => Err(vec![Problem::new("cloud", send_while_configuring())]),
            _ => Ok(Self { behaviour, only, cloud, bytes, attempts }),
        }
    }

    fn settings(&self) -> Settings {
        match self.behaviour {
            Behavior::WrongSettings => wrong_settings(),
            Behavior::HugeSettings => hoard::settings(),
            // A lookup sends nothing but reads, so it calls this one.
            Behavior::Leak => {
                let rule = self.cloud.iter().map(|cloud| cloud.rule("POST", "/memory", Effect::Read));
                rule.fold(Settings::default(), Settings::rule)
            }
            _ => Settings::default(),
        }
    }
}

impl Instances for Hostile {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let behaviour = if self.is_triggered_by(&node.name) { self.behaviour } else { Behavior::Echo };
        if let Some(cloud) = self.cloud.as_ref().filter(|_| behaviour == Behavior::Ask) {
            http::get(cloud.join([&node.name])).send().await?.error_for_status()?;
        }
        if let Some(cloud) = self.cloud.as_ref().filter(|_| behaviour == Behavior::Bodies) {
            let request = http::post(cloud.join([&node.name])).body("text/plain", vec![b'x'; self.bytes]);
            let answer = request.send().await?.error_for_status()?.bytes;
            return Ok(Answer::Found(Instance { zone: Some(answer.len().to_string()), ..echo(node) }));
        }
        if let Behavior::Leak | Behavior::LeakAndPanic = behaviour {
            return Ok(self.leak(behaviour, echo(node)));
        }
        misbehave(behaviour, &self.attempts, echo(node)).await
    }

    async fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        if self.behaviour == Behavior::Overload {
            return Err(overload(nodes));
        }
        let mut answers = lookup_each(self, purpose, nodes).await;
        if self.behaviour == Behavior::Misaligned && nodes.iter().any(|node| self.is_triggered_by(&node.name))
        {
            black_box(answers.pop());
        }
        Ok(answers)
    }
}

impl LocalInstance for Hostile {
    async fn describe_local_instance(&self, node: &NodeReference) -> Result<LocalAnswer, Error> {
        match self.lookup(Purpose::Initialise, node).await? {
            Answer::Found(instance) => Ok(LocalAnswer::Found(instance)),
            other => Err(Error::broken(format!("an instance can't say that it is {other:?}"))),
        }
    }
}

impl Hostile {
    /// Whether a Node or Service of this name triggers the behavior.
    fn is_triggered_by(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

fn echo(node: &NodeReference) -> Instance {
    let provider_id = format!("hostile://{}", node.name);
    Instance { provider_id, state: InstanceState::Running, ..Instance::default() }
}
