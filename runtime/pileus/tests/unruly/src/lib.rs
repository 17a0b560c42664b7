//! A provider for the simulated cloud that breaks one promise of the contract, which its configuration names. The tests of
//! the conformance test use it. It reads one instance for each Node, as simple providers do.

mod instances;
mod load_balancers;
mod routes;

use std::collections::BTreeMap;

use instances::{Machine, Page};
use pileus_guest::{
    Annotation, AnnotationType, Answer, CallShape, Description, Effect, Error, Instance, Instances,
    NodeReference, Place, Problem, Provider, Purpose, ServiceFacts, Settings, Stance, export_provider, http,
    lookup_each,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wasip2::clocks::monotonic_clock;

/// The annotation that it sets on Services.
const LOAD_BALANCER: &str = "unruly.example/load-balancer";

/// The status of refusals with a code.
const CODED_STATUS: u16 = 400;

/// The promise to break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Breaks {
    /// None.
    #[default]
    Nothing,
    /// It accepts unknown fields.
    TakesRubbish,
    /// It panics at an unknown field.
    TrapsOnRubbish,
    /// It doesn't say which field is wrong.
    NamesNoField,
    /// It returns other settings each time.
    ChangesItsMind,
    /// Answers are in reverse order.
    Order,
    /// The last answer of several is missing.
    OneTooFew,
    /// An absent instance is an error.
    AbsentIsAnError,
    /// An error is reported as absent.
    ErrorsAreAbsent,
    /// All errors are of one kind.
    ErrorsAreBroken,
    /// Provider IDs have a scheme that it didn't declare.
    ForeignScheme,
    /// It ignores provider IDs of other providers, and looks up the name instead.
    IgnoresForeignIds,
    /// Lookups by provider ID return fewer fields.
    ForgetsById,
    /// Lookups by name fail.
    FailsByName,
    /// Lookups take ten times as long, and half a second at least.
    Slow,
    /// One absent Node fails the call.
    OneForAll,
    /// Answers differ from call to call.
    Restless,
    /// It starts the instances that it looks up, and ignores the results.
    Writes,
    /// It sends requests that no rule covers.
    NoRules,
    /// It confirms deletions from a list.
    ConfirmsByList,
    /// It confirms deletions without asking the cloud.
    ConfirmsUnasked,
    /// Deleted instances are unmanaged.
    NeverGone,
    /// An incomplete list counts as complete.
    HalfAList,
    /// It waits without end if the cloud doesn't respond.
    IgnoresTheDeadline,
    /// It panics if the cloud fails.
    TrapsInTrouble,
    /// It panics in a large batch.
    TrapsOnMany,
    /// It finds no provider ID in a batch.
    LosesIdsInBatches,
    /// It ignores the error codes that its settings declare.
    MisreadsCodes,
    /// What it creates has no UID labels.
    ForgetsOwners,
    /// It lists load balancers with the UID of another Service.
    ListsOtherOwners,
    /// It writes a load balancer at every call.
    AlwaysWrites,
    /// It ignores changed targets.
    KeepsTargets,
    /// Services have all targets of the call.
    IgnoresSelections,
    /// It reports a wrong ingress while a load balancer is being created.
    ReportsIngressTooEarly,
    /// Its notices have another message each time.
    RewordsNotices,
    /// It sets an annotation that it didn't declare.
    SetsUndeclaredAnnotations,
    /// It removes load balancers of Services that the call doesn't name.
    ForgetsOthers,
    /// It reports a deletion as done without deleting.
    KeepsWhatIsDeleted,
    /// Deleting what is gone is an error.
    GoneIsAnError,
    /// A failed list is empty.
    ErrorsAreEmptyLists,
    /// A failed change is done.
    ErrorsAreDone,
    /// Routes are created before others are deleted.
    CreatesBeforeItDeletes,
    /// It lists routes without their Nodes.
    ListsRoutesWithoutNodes,
}

/// The configuration of the provider.
#[derive(Deserialize, JsonSchema)]
pub struct Configuration {
    /// The base URL of the simulated cloud's API.
    endpoint: http::BaseUrl,
    /// The promise to break.
    #[serde(default)]
    breaks: Breaks,
    /// All other fields.
    #[serde(flatten)]
    #[schemars(skip)]
    rubbish: BTreeMap<String, Value>,
}

/// The provider.
pub struct Unruly {
    cloud: http::BaseUrl,
    breaks: Breaks,
}

export_provider!(Unruly, instances, load_balancers, routes);

impl Provider for Unruly {
    type Configuration = Configuration;

    fn describe() -> Description {
        // More than the 100 requests that the conformance test allows to a cloud.
        let shape = CallShape { largest_batch: 150, side_by_side: true };
        Description::new("unruly", env!("CARGO_PKG_VERSION"))
            .provider_id_scheme("unruly")
            .instances(shape)
            .service_facts(ServiceFacts { known: true, ..ServiceFacts::default() })
            .service_annotation(Annotation::new(
                "unruly.example/node-selector",
                AnnotationType::NodeSelector,
                "Which Nodes are targets",
            ))
            .service_annotation(
                Annotation::new(LOAD_BALANCER, AnnotationType::Text, "The load balancer's name").written(),
            )
    }

    #[expect(clippy::panic, reason = "the broken promise")]
    fn configure(Configuration { endpoint, breaks, rubbish }: Configuration) -> Result<Self, Vec<Problem>> {
        let problem = |name: &String| match breaks {
            Breaks::TrapsOnRubbish => panic!("unknown field {name}"),
            Breaks::NamesNoField => Problem::new("", "something is wrong"),
            _ => Problem::new(name.clone(), "there is no such field"),
        };
        let problems: Vec<_> = rubbish.keys().map(problem).collect();
        if problems.is_empty() || breaks == Breaks::TakesRubbish {
            Ok(Self { cloud: endpoint, breaks })
        } else {
            Err(problems)
        }
    }

    fn settings(&self) -> Settings {
        let mut reason = "to read instances".to_owned();
        if self.breaks == Breaks::ChangesItsMind {
            reason.push_str(&random());
        }
        let settings = Settings::default().endpoint(self.cloud.endpoint(&reason));
        if self.breaks == Breaks::NoRules {
            return settings.notice(Problem::new("breaks", "a promise is broken on purpose"));
        }
        let pages = || Place::Query("cursor".to_owned());
        let codes = self.cloud.codes(http::CodePlace::Json("code".to_owned()));
        settings
            .codes(codes.code(CODED_STATUS, "too-many-requests", http::Meaning::Throttled))
            .rule(self.cloud.rule("GET", "/v1/machines", Effect::Read).page(pages()))
            .rule(self.cloud.rule("GET", "/v1/machines/*", Effect::Read))
            .rule(self.cloud.rule("POST", "/v1/machines/*/start", Effect::Write))
            .rule(self.cloud.rule("GET", "/v1/load-balancers", Effect::Read).page(pages()))
            .rule(self.cloud.rule("GET", "/v1/load-balancers/*", Effect::Read))
            .rule(self.cloud.rule("GET", "/v1/routes", Effect::Read).page(pages()))
    }
}

impl Instances for Unruly {
    #[expect(clippy::panic, reason = "the broken promise")]
    async fn lookup(&self, purpose: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        match self.find(purpose, node).await {
            Ok(Some(machine)) => self.found(machine, node).await,
            Ok(None) => match self.breaks {
                Breaks::AbsentIsAnError => Err(Error::broken(format!("node {} has no machine", node.name))),
                Breaks::NeverGone if purpose == Purpose::Confirm => Ok(Answer::Unmanaged(Stance::LeftAlone)),
                _ => Ok(Answer::Absent),
            },
            Err(_) if self.breaks == Breaks::ErrorsAreAbsent => Ok(Answer::Absent),
            Err(error) if self.breaks == Breaks::ErrorsAreBroken => Err(Error::broken(error.to_string())),
            Err(error) if self.breaks == Breaks::TrapsInTrouble => panic!("{error}"),
            Err(error) => Err(error),
        }
    }

    #[expect(clippy::panic, reason = "the broken promise")]
    async fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let begun = monotonic_clock::now();
        let mut answers = lookup_each(self, purpose, nodes).await;
        if self.breaks == Breaks::Slow {
            // A call that the cache answers is over too soon for a difference to be more than chance.
            let took = (monotonic_clock::now() - begun).max(50_000_000);
            monotonic_clock::subscribe_duration(9 * took).block();
        }
        let is_absent = |answer: &Result<Answer, Error>| matches!(answer, Ok(Answer::Absent));
        match self.breaks {
            Breaks::Order => answers.reverse(),
            Breaks::OneTooFew if answers.len() > 1 => drop(answers.pop()),
            Breaks::OneForAll if answers.iter().any(is_absent) && nodes.len() > 1 => {
                return Err(Error::broken("a node has no machine"));
            }
            Breaks::TrapsOnMany if nodes.len() > 100 => panic!("{} nodes", nodes.len()),
            Breaks::LosesIdsInBatches if purpose == Purpose::Refresh && nodes.len() > 1 => {
                answers = nodes.iter().map(|_| Ok(Answer::Absent)).collect();
            }
            _ => {}
        }
        Ok(answers)
    }
}

impl Unruly {
    async fn find(&self, purpose: Purpose, node: &NodeReference) -> Result<Option<Machine>, Error> {
        if purpose == Purpose::Confirm && self.breaks == Breaks::ConfirmsUnasked {
            return Ok(None);
        }
        let by_list = purpose == Purpose::Confirm && self.breaks == Breaks::ConfirmsByList;
        match node.provider_id.as_deref().map(|id| (id, id.strip_prefix("unruly://"))) {
            Some((_, Some(id))) if by_list => {
                Ok(self.list().await?.into_iter().find(|machine| machine.id == id))
            }
            Some((_, Some(id))) => {
                let response = self.get(&["v1", "machines", id], None).await?;
                response.or_absent()?.map(http::Response::json).transpose()
            }
            Some((id, None)) if self.breaks != Breaks::IgnoresForeignIds => {
                Err(Error::invalid(format!("node {} has the provider ID {id} of another cloud", node.name)))
            }
            _ if self.breaks == Breaks::FailsByName => {
                Err(Error::denied(format!("node {} has no provider ID", node.name)))
            }
            _ => Ok(self.list().await?.into_iter().find(|machine| machine.name == node.name)),
        }
    }

    /// All instances, from pages of one.
    async fn list(&self) -> Result<Vec<Machine>, Error> {
        let mut all = Vec::new();
        let mut from = None;
        loop {
            let page = self.get(&["v1", "machines"], from).await.and_then(http::Response::json);
            let Page { mut machines, next } = match page {
                Err(_) if self.breaks == Breaks::HalfAList && !all.is_empty() => return Ok(all),
                page => page?,
            };
            all.append(&mut machines);
            match next {
                Some(next) => from = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn get(&self, path: &[&str], cursor: Option<String>) -> Result<http::Response, Error> {
        let from = cursor.as_ref().map(|cursor| ("cursor", cursor));
        let request = http::get(self.cloud.join(path.iter().copied()));
        let request = if path.len() == 2 { request.query("limit", "1").queries(from) } else { request };
        let response = request.send().await;
        if response.is_err()
            && self.breaks == Breaks::IgnoresTheDeadline
            && pileus_guest::deadline::has_passed()
        {
            // An hour, in nanoseconds.
            monotonic_clock::subscribe_duration(3_600_000_000_000).block();
        }
        match response {
            Ok(refused) if self.breaks == Breaks::MisreadsCodes && refused.status == CODED_STATUS => {
                Err(Error::invalid("the cloud refuses the request"))
            }
            response => response,
        }
    }

    async fn found(&self, machine: Machine, node: &NodeReference) -> Result<Answer, Error> {
        if self.breaks == Breaks::Writes {
            let started = http::post(self.cloud.join(["v1", "machines", &machine.id, "start"])).send().await;
            drop(started);
        }
        let scheme = if self.breaks == Breaks::ForeignScheme { "orderly" } else { "unruly" };
        let mut instance: Instance = machine.into_instance(scheme);
        if self.breaks == Breaks::Restless {
            instance.labels.push(("mood".to_owned(), random()));
        }
        if self.breaks == Breaks::ForgetsById && node.provider_id.is_some() {
            instance.zone = None;
        }
        Ok(Answer::Found(instance))
    }
}

fn random() -> String {
    format!("{:016x}", wasip2::random::random::get_random_u64())
}
