//! A cloud in Azure's order: a Service has a public address, which Services may share; a frontend in a load balancer; and its
//! address in a rule of a security group, which Services share by port. The cloud panics if the order is wrong.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::testing::{self, Exchange, Host, SentRequest};
use crate::{ErrorKind, Ingress, ServiceAction, http};

const NAMES: &[&str] = &["address", "balancer", "rules"];
const BASE: &str = "http://cloud.test/";

/// What a Service asks for. Its label `address` names its address.
struct Wanted {
    address: String,
    port: u16,
    ip: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    name: String,
    ip: String,
    owners: BTreeSet<String>,
    #[serde(flatten)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum State {
    #[default]
    Active,
    Busy,
    Failed,
}

impl State {
    fn status(self) -> Status {
        match self {
            Self::Active => Status::Succeeded,
            Self::Busy => Status::running(),
            Self::Failed => Status::failed(None),
        }
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Balancer {
    frontends: BTreeMap<String, (String, u16)>,
    #[serde(flatten, skip_serializing)]
    state: State,
}

impl SharedDocument<Wanted> for Balancer {
    fn status(&self) -> Status {
        self.state.status()
    }

    fn matches(&self, task: &Task<'_, Wanted>) -> bool {
        let wanted = task.desired.as_ref().map(|wanted| (wanted.address.clone(), wanted.port));
        self.frontends.get(task.uid()) == wanted.as_ref()
    }

    fn apply(&mut self, task: &Task<'_, Wanted>) {
        self.frontends.remove(task.uid());
        let wanted = task.desired.as_ref().map(|wanted| (wanted.address.clone(), wanted.port));
        self.frontends.extend(wanted.map(|wanted| (task.uid().to_owned(), wanted)));
    }
}

/// The addresses that each port is open for. A rule bears no name of a Service.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Rules {
    open: BTreeMap<u16, BTreeSet<String>>,
    #[serde(flatten, skip_serializing)]
    state: State,
}

impl Rules {
    /// The rule of a task, which for a removal follows from the last known Service.
    fn rule<'a>(task: &'a Task<'_, Wanted>) -> Option<(u16, &'a str)> {
        if let Some(wanted) = &task.desired {
            return Some((wanted.port, wanted.ip.as_deref()?));
        }
        let ServiceAction::Delete(last) = &task.change.action else { return None };
        match &last.status.first()?.point {
            crate::IngressPoint::Ip(ip) => Some((last.ports.first()?.port, ip)),
            crate::IngressPoint::Hostname(_) => None,
        }
    }
}

impl SharedDocument<Wanted> for Rules {
    fn status(&self) -> Status {
        self.state.status()
    }

    fn matches(&self, task: &Task<'_, Wanted>) -> bool {
        let is_open =
            |(port, ip)| self.open.get(&port).is_some_and(|open: &BTreeSet<String>| open.contains(ip));
        Self::rule(task).is_none_or(|rule| is_open(rule) != task.is_removal())
    }

    fn apply(&mut self, task: &Task<'_, Wanted>) {
        let Some((port, ip)) = Self::rule(task) else { return };
        let open = self.open.entry(port).or_default();
        if task.is_removal() {
            open.remove(ip);
        } else {
            open.insert(ip.to_owned());
        }
    }
}

async fn change(call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
    let mut steps = Steps::new(call, NAMES, |service| {
        let address = service.labels[0].1.clone();
        Ok(Wanted { address, port: service.ports[0].port, ip: None })
    });
    steps.poll(poll).await;
    if steps.free().next().is_none() {
        return Ok(steps.outcomes());
    }
    let all: Vec<Address> = http::get(format!("{BASE}addresses")).send().await?.json()?;
    let found: BTreeMap<String, Address> = all.into_iter().map(|it| (it.name.clone(), it)).collect();
    let of = |task: &Task<'_, Wanted>| match &task.desired {
        Some(wanted) => vec![wanted.address.clone()],
        None => {
            found.values().filter(|it| it.owners.contains(task.uid())).map(|it| it.name.clone()).collect()
        }
    };
    let write =
        async |name: &String, tasks: &[&Task<'_, Wanted>]| address(name, found.get(name), tasks).await;
    for turn in steps.turns("balancer") {
        match turn.step {
            "address" => steps.things(turn, of, write).await,
            "balancer" => steps.document::<Balancer>(turn, format!("{BASE}balancer"), |_| true).await,
            _ => steps.document::<Rules>(turn, format!("{BASE}rules"), |_| true).await,
        }
        for task in steps.free_mut() {
            let Some(wanted) = &mut task.desired else { continue };
            wanted.ip = found.get(&wanted.address).map(|address| address.ip.clone());
            if turn.step == "balancer" {
                task.report = ServiceReport::new(wanted.ip.iter().map(Ingress::ip));
            }
        }
    }
    Ok(steps.outcomes())
}

/// Takes the step for one address, on behalf of all tasks that name it.
async fn address(name: &str, found: Option<&Address>, tasks: &[&Task<'_, Wanted>]) -> Result<Status, Error> {
    match found.map_or(Status::Succeeded, |address| address.state.status()) {
        Status::Failed(error) if tasks.iter().any(|task| task.has_waited_for("address")) => {
            return Err(error);
        }
        status @ Status::Running(_) => return Ok(status),
        Status::Failed(_) | Status::Succeeded => {}
    }
    let before = found.map(|address| address.owners.clone()).unwrap_or_default();
    let mut owners = before.clone();
    for task in tasks {
        if task.is_removal() {
            owners.remove(task.uid());
        } else {
            owners.insert(task.uid().to_owned());
        }
    }
    let url = format!("{BASE}addresses/{name}");
    if owners.is_empty() {
        return crate::operation::deletion_status(http::delete(url).send().await?);
    }
    if owners == before && found.is_some_and(|address| address.state == State::Active) {
        return Ok(Status::Succeeded);
    }
    let written = http::put(url).json(&owners).send().await?.error_for_status()?;
    Ok(crate::operation::begun(&written).map_or(Status::Succeeded, Status::Running))
}

async fn poll(url: &str) -> Result<Status, Error> {
    let state: Value = match http::get(url).send().await?.or_absent()? {
        Some(response) => response.json()?,
        None => return Ok(Status::Succeeded),
    };
    Ok(match (state["status"].as_str(), state["error"].as_str()) {
        (Some("running"), _) => Status::running(),
        (_, Some(reason)) => Status::failed(Some(reason)),
        _ => Status::Succeeded,
    })
}

/// The cloud: its resources by path, and the operations that run on them.
#[derive(Default)]
struct Cloud {
    resources: BTreeMap<String, Value>,
    operations: Vec<Operation>,
    /// How often an operation is asked before it ends.
    polls: usize,
    /// Whether each request counts as asking all operations.
    goes_on_unasked: bool,
    /// Statuses for the next requests of a kind, for example `PUT balancer`.
    refusals: Vec<(&'static str, u16)>,
    /// The operations on these paths fail.
    failing: Vec<&'static str>,
    /// What is random, if anything.
    random: Option<u64>,
    writes: Vec<String>,
    requests: usize,
}

struct Operation {
    path: String,
    polls_left: usize,
    has_ended: bool,
    /// The resource once the operation has succeeded. None if it is removed.
    becomes: Option<Value>,
    error: Option<&'static str>,
}

impl Cloud {
    fn one_in(&mut self, bound: u64) -> bool {
        let Some(random) = &mut self.random else { return false };
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33).is_multiple_of(bound)
    }

    fn answer(&mut self, sent: &SentRequest) -> Exchange {
        self.requests += 1;
        let path = sent.url.trim_start_matches(BASE).to_owned();
        let name = format!("{} {path}", sent.method);
        if let Some(place) = self.refusals.iter().position(|(of, _)| *of == name) {
            return testing::get("").status(self.refusals.remove(place).1);
        }
        if self.one_in(15) {
            return testing::get("").failing(Error::unavailable("lost before it came"));
        }
        if self.goes_on_unasked {
            (0..self.operations.len()).for_each(|number| drop(self.ask(number)));
        }
        if let Some(number) = path.strip_prefix("operations/") {
            return testing::get("").json(self.ask(number.parse().unwrap()));
        }
        if sent.method == "GET" {
            return self.show(&path);
        }
        let refused = self.refuse(sent, &path);
        let answer =
            refused.map_or_else(|| self.write(sent, path, name), |status| testing::get("").status(status));
        if self.one_in(8) {
            testing::get("").failing(Error::unavailable("lost after it came"))
        } else {
            answer
        }
    }

    fn show(&self, path: &str) -> Exchange {
        if path == "addresses" {
            let all = self.resources.iter().filter(|(path, _)| path.starts_with("addresses/"));
            return testing::get("").json(all.map(|(_, it)| it).collect::<Vec<_>>());
        }
        match self.resources.get(path) {
            Some(resource) => testing::get("").json(resource).header("etag", &resource["etag"].to_string()),
            None => testing::get("").status(404),
        }
    }

    fn refuse(&mut self, sent: &SentRequest, path: &str) -> Option<u16> {
        let there = self.resources.get(path);
        let etag = there.map(|resource| resource["etag"].to_string());
        let is_document = !path.starts_with("addresses/");
        match (sent.header("if-match"), sent.header("if-none-match")) {
            (None, None) => assert!(!is_document, "unconditional write of {path}"),
            (matched, _) if matched != etag.as_deref() || self.one_in(6) => return Some(412),
            _ => {}
        }
        let there = self.resources.get(path);
        there.filter(|resource| resource["state"] == "busy").map(|_| 409)
    }

    fn write(&mut self, sent: &SentRequest, path: String, name: String) -> Exchange {
        let body: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
        let ip = format!("192.0.2.{}", path.bytes().map(u32::from).sum::<u32>() % 250);
        let becomes = match path.strip_prefix("addresses/") {
            _ if sent.method == "DELETE" => None,
            Some(name) => Some(json!({"name": name, "ip": ip, "owners": body})),
            None => Some(body),
        };
        self.check(&path, becomes.as_ref());
        self.writes.push(name);
        let etag = self.requests;
        let with = |value: &Value, state| {
            let mut value = value.clone();
            value.as_object_mut().unwrap().extend([("state".into(), state), ("etag".into(), etag.into())]);
            value
        };
        let fails = self.failing.iter().any(|failing| *failing == path) || self.one_in(10);
        let before = self.resources.get(&path).cloned().or_else(|| becomes.clone());
        let shown = with(becomes.as_ref().or(before.as_ref()).unwrap_or(&json!({})), "busy".into());
        self.resources.insert(path.clone(), shown.clone());
        self.operations.push(Operation {
            path,
            polls_left: self.polls,
            has_ended: false,
            becomes: becomes.map(|becomes| with(&becomes, "active".into())),
            error: fails.then_some("no capacity left"),
        });
        let number = self.operations.len() - 1;
        testing::get("")
            .status(201)
            .json(shown)
            .header("etag", &etag.to_string())
            .header("operation-location", &format!("{BASE}operations/{number}"))
    }

    /// Panics if a write comes before what it needs, or takes away what is in use.
    fn check(&self, path: &str, becomes: Option<&Value>) {
        let of = |path: &str, field: &str| -> BTreeMap<String, Value> {
            let it = self.resources.get(path).map(|it| it[field].clone()).filter(Value::is_object);
            it.map(|it| serde_json::from_value(it).unwrap()).unwrap_or_default()
        };
        let is_active = |path: &str| self.resources.get(path).is_some_and(|it| it["state"] == "active");
        let ip_of = |name: &str| self.resources.get(&format!("addresses/{name}")).map(|it| it["ip"].clone());
        let frontends = of("balancer", "frontends");
        let open: Vec<_> =
            of("rules", "open").values().flat_map(|ips| ips.as_array().unwrap().clone()).collect();
        match (path.strip_prefix("addresses/"), becomes) {
            (Some(name), None) => {
                assert!(!frontends.values().any(|it| it[0] == name), "{name} is removed before its frontend");
            }
            (None, Some(value)) if path == "balancer" => {
                for (uid, frontend) in value["frontends"].as_object().unwrap() {
                    let address = frontend[0].as_str().unwrap();
                    let is_new = frontends.get(uid) != Some(frontend);
                    assert!(
                        !is_new || is_active(&format!("addresses/{address}")),
                        "{address} isn't there yet"
                    );
                }
                for (uid, frontend) in &frontends {
                    let name = frontend[0].as_str().unwrap();
                    let is_last = !value["frontends"].as_object().unwrap().values().any(|it| it[0] == name);
                    let is_open = ip_of(name).is_some_and(|ip| open.contains(&ip));
                    assert!(!(is_last && is_open), "{uid} is removed before its rule");
                }
            }
            (None, Some(value)) => {
                let ips = value["open"].as_object().unwrap().values().flat_map(|ips| ips.as_array().unwrap());
                let used: Vec<_> =
                    frontends.values().filter_map(|it| ip_of(it[0].as_str().unwrap())).collect();
                for ip in ips.filter(|ip| !open.contains(ip)) {
                    assert!(used.contains(ip), "{ip} is opened before its frontend");
                }
            }
            _ => {}
        }
    }

    /// Says how an operation is, and ends it once it has been asked often enough.
    fn ask(&mut self, number: usize) -> Value {
        let Operation { path, polls_left, has_ended, becomes, error } = &mut self.operations[number];
        if *polls_left > 0 {
            *polls_left -= 1;
            return json!({"status": "running"});
        }
        if !std::mem::replace(has_ended, true) {
            match (&*error, becomes) {
                (Some(_), _) => self.resources.get_mut(path.as_str()).unwrap()["state"] = json!("failed"),
                (None, Some(value)) => drop(self.resources.insert(path.clone(), value.clone())),
                (None, None) => drop(self.resources.remove(path.as_str())),
            }
        }
        json!({"status": "ended", "error": error})
    }
}

/// The cluster's side: its Services, those that are to be removed, and the notes about them.
#[derive(Default)]
struct Cluster {
    cloud: Rc<RefCell<Cloud>>,
    services: BTreeMap<String, Service>,
    removed: BTreeSet<String>,
    notes: BTreeMap<String, String>,
}

impl Cluster {
    fn add(&mut self, uid: &str, address: &str, port: u16) {
        let port = crate::ServicePort { port, ..crate::ServicePort::default() };
        let labels = vec![("address".to_owned(), address.to_owned())];
        let service = Service { uid: uid.to_owned(), labels, ports: vec![port], ..Service::default() };
        self.services.insert(uid.to_owned(), service);
    }

    /// One call about all Services. Returns the outcomes by UID, and how many requests of each kind were sent.
    fn call(&mut self) -> (BTreeMap<String, ServiceOutcome>, Vec<String>) {
        let change = |(uid, service): (&String, &Service)| ServiceChange {
            resume: self.notes.get(uid).cloned(),
            ..ServiceChange::from(if self.removed.contains(uid) {
                ServiceAction::Delete(service.clone())
            } else {
                ServiceAction::Ensure(service.clone())
            })
        };
        let call =
            ServiceCall { changes: self.services.iter().map(change).collect(), ..ServiceCall::default() };
        let cloud = Rc::clone(&self.cloud);
        let host = Host::new().cloud(move |sent| cloud.borrow_mut().answer(sent));
        let outcomes = host.run(change_all(&call));
        let uids = call.changes.iter().map(|change| change.service_uid().to_owned());
        let outcomes: BTreeMap<_, _> = uids.zip(outcomes).collect();
        self.notes.clear();
        for (uid, outcome) in &outcomes {
            let report = match outcome {
                Ok(ServiceProgress::InProgress(progress, report)) => {
                    self.notes.extend(progress.resume.clone().map(|note| (uid.clone(), note)));
                    report
                }
                Ok(ServiceProgress::Done(_)) if self.removed.remove(uid) => {
                    self.services.remove(uid);
                    continue;
                }
                Ok(ServiceProgress::Done(report)) => report,
                _ => continue,
            };
            if let (Some(service), false) = (self.services.get_mut(uid), report.status.is_empty()) {
                service.status.clone_from(&report.status);
            }
        }
        (
            outcomes,
            host.requests()
                .iter()
                .map(|sent| format!("{} {}", sent.method, &sent.url[BASE.len()..]))
                .collect(),
        )
    }

    /// The notes of a call's outcomes, an empty one for what is done, and the kind of an error.
    fn notes(&mut self) -> (Vec<String>, Vec<String>) {
        let (outcomes, requests) = self.call();
        let note = |outcome: ServiceOutcome| match outcome {
            Ok(ServiceProgress::InProgress(progress, _)) => progress.resume.unwrap(),
            Ok(_) => String::new(),
            Err(error) => error.message,
        };
        (outcomes.into_values().map(note).collect(), requests)
    }

    fn owners(&self, address: &str) -> Option<Value> {
        self.cloud.borrow().resources.get(&format!("addresses/{address}")).map(|it| it["owners"].clone())
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.cloud.borrow_mut().writes)
    }
}

async fn change_all(call: &ServiceCall) -> Vec<ServiceOutcome> {
    match change(call).await {
        Ok(outcomes) => outcomes,
        Err(error) => call.changes.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// A cluster with three Services whose steps are complete. `a` and `b` share an address.
fn settled() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.add("a", "ip-1", 80);
    cluster.add("b", "ip-1", 443);
    cluster.add("c", "ip-2", 80);
    assert!((0..9).any(|_| cluster.call().0.values().all(|it| matches!(it, Ok(ServiceProgress::Done(_))))));
    cluster.writes();
    cluster
}

#[test]
fn additions_take_the_steps_forwards_and_each_document_and_address_is_written_once() {
    let mut cluster = Cluster::default();
    cluster.cloud.borrow_mut().polls = 1;
    cluster.add("a", "ip-1", 80);
    cluster.add("b", "ip-1", 443);
    cluster.add("c", "ip-2", 80);
    let url = |number| format!("{BASE}operations/{number}");
    let at = |step: &str, numbers: [usize; 3]| numbers.map(|number| format!("{step} {}", url(number)));
    let (notes, _) = cluster.notes();
    assert_eq!(notes, at("address", [0, 0, 1]));
    let (notes, requests) = cluster.notes();
    assert_eq!(
        (notes, requests),
        (
            at("address", [0, 0, 1]).to_vec(),
            vec!["GET operations/0".to_owned(), "GET operations/1".to_owned()]
        )
    );
    let (notes, _) = cluster.notes();
    assert_eq!(notes, at("balancer", [2; 3]));
    let (outcomes, requests) = cluster.call();
    assert_eq!(requests, ["GET operations/2"], "one poll for all, and nothing else is read");
    assert!(
        outcomes
            .values()
            .all(|it| matches!(it, Ok(ServiceProgress::InProgress(_, report)) if report.status.is_empty()))
    );
    let (outcomes, _) = cluster.call();
    for outcome in outcomes.values() {
        let Ok(ServiceProgress::InProgress(progress, report)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(progress.resume.as_deref(), Some(&*format!("rules {}", url(3))));
        assert_eq!(report.status.len(), 1, "the ingress works before the rules are written");
    }
    assert_eq!(cluster.notes().1, ["GET operations/3"]);
    assert_eq!(cluster.notes().0, [""; 3]);
    let writes = cluster.writes();
    assert_eq!(writes, ["PUT addresses/ip-1", "PUT addresses/ip-2", "PUT balancer", "PUT rules"]);
    assert_eq!(cluster.owners("ip-1"), Some(json!(["a", "b"])));
    cluster.notes();
    assert!(cluster.writes().is_empty(), "nothing is written again");
}

#[test]
fn removals_take_the_steps_backwards_and_leave_what_others_share() {
    let mut cluster = settled();
    cluster.removed.extend(["a".to_owned(), "c".to_owned()]);
    let steps: Vec<_> = (0..3).map(|_| cluster.notes().0).collect();
    let step = |note: &String| note.split(' ').next().unwrap().to_owned();
    let steps: Vec<Vec<_>> = steps.iter().map(|notes| notes.iter().map(step).collect()).collect();
    let at = |name: &str, other: &str| vec![name.to_owned(), other.to_owned(), name.to_owned()];
    // The Service that stays waits for the rules, because their write may yet fail.
    assert_eq!(steps, [at("-rules", "rules"), at("-balancer", ""), at("-address", "")]);
    assert_eq!(cluster.notes().0, [""; 3]);
    let writes = cluster.writes();
    assert_eq!(writes, ["PUT rules", "PUT balancer", "PUT addresses/ip-1", "DELETE addresses/ip-2"]);
    assert_eq!((cluster.owners("ip-1"), cluster.owners("ip-2")), (Some(json!(["b"])), None));
}

#[test]
fn additions_and_removals_of_a_call_meet_in_one_write() {
    let mut cluster = settled();
    cluster.removed.insert("c".to_owned());
    cluster.add("d", "ip-3", 80);
    let last = |cluster: &mut Cluster| (0..9).find(|_| cluster.notes().0.iter().all(String::is_empty));
    assert!(last(&mut cluster).is_some());
    let writes = cluster.writes();
    assert_eq!(writes.iter().filter(|write| **write == "PUT balancer").count(), 1, "{writes:?}");
}

#[test]
fn a_member_that_fails_does_not_stop_the_others_and_its_reason_is_told_once() {
    let mut cluster = Cluster::default();
    cluster.cloud.borrow_mut().failing.push("addresses/ip-2");
    cluster.add("a", "ip-1", 80);
    cluster.add("b", "ip-2", 443);
    cluster.add("c", "ip-3", 80);
    cluster.notes();
    let (notes, _) = cluster.notes();
    assert!(notes[0].starts_with("balancer ") && notes[2].starts_with("balancer "), "{notes:?}");
    assert!(notes[1].contains("no capacity left"), "{notes:?}");
    cluster.cloud.borrow_mut().failing.clear();
    assert!(cluster.notes().0[1].starts_with("address "), "without a note it is tried again");
    assert!((0..9).any(|_| cluster.notes().0.iter().all(String::is_empty)));
}

#[test]
fn a_refused_address_fails_all_that_share_it_and_no_others() {
    let mut cluster = Cluster::default();
    cluster.cloud.borrow_mut().refusals.push(("PUT addresses/ip-1", 400));
    cluster.add("a", "ip-1", 80);
    cluster.add("b", "ip-1", 443);
    cluster.add("c", "ip-2", 80);
    let (outcomes, _) = cluster.call();
    for uid in ["a", "b"] {
        assert_eq!(outcomes[uid].as_ref().unwrap_err().kind, ErrorKind::Invalid);
    }
    assert!(matches!(outcomes["c"], Ok(ServiceProgress::InProgress(..))));
}

#[test]
fn a_document_that_others_write_is_edited_again_and_lost_notes_cost_reads_only() {
    let mut cluster = settled();
    cluster.cloud.borrow_mut().goes_on_unasked = true;
    cluster.cloud.borrow_mut().refusals.extend([("PUT balancer", 412), ("PUT rules", 412)]);
    cluster.add("d", "ip-3", 443);
    for _ in 0..9 {
        cluster.notes.clear();
        cluster.call();
    }
    assert_eq!(cluster.notes().0, [""; 4]);
    assert_eq!(cluster.writes(), ["PUT addresses/ip-3", "PUT balancer", "PUT rules"]);
}

#[test]
fn a_change_that_is_another_controllers_takes_no_step() {
    let cluster = settled();
    let changes =
        cluster.services.values().cloned().map(ServiceAction::Ensure).map(ServiceChange::from).collect();
    let call = ServiceCall { changes, ..ServiceCall::default() };
    let mut steps = Steps::new(&call, NAMES, |_| Ok(()));
    steps.leave_elsewhere(|change| change.service_uid() == "b");
    assert_eq!(steps.free_uids().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(steps.outcomes()[1], Ok(ServiceProgress::Elsewhere));
}

#[test]
fn turns_go_forwards_for_additions_backwards_for_removals_and_meet_once() {
    let call = ServiceCall::default();
    let steps = Steps::new(&call, NAMES, |_| Ok(()));
    let turns = |together| {
        let turn = |turn: Turn| match turn.of {
            Direction::Additions => format!("+{}", turn.step),
            Direction::Removals => format!("-{}", turn.step),
            Direction::Both => turn.step.to_owned(),
        };
        steps.turns(together).into_iter().map(turn).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(turns("balancer"), "-rules +address balancer +rules -address");
    assert_eq!(turns("rules"), "+address +balancer rules -balancer -address");
    assert_eq!(turns("address"), "-rules -balancer address +balancer +rules");
}

#[test]
fn after_any_faults_each_service_has_all_its_things_and_nothing_is_left_over() {
    for seed in 0..20 {
        let mut cluster = Cluster::default();
        cluster.cloud.borrow_mut().random = Some(seed);
        cluster.cloud.borrow_mut().polls = 2;
        cluster.cloud.borrow_mut().goes_on_unasked = true;
        for round in 0..40 {
            let number = (seed * 7 + round * 5) % 6;
            let (uid, address) = (format!("u{number}"), format!("ip-{}", number / 2));
            if round % 3 == 2 {
                if cluster.services.contains_key(&uid) {
                    cluster.removed.insert(uid);
                }
            } else if !cluster.services.contains_key(&uid) {
                cluster.add(&uid, &address, 80 + u16::try_from(number).unwrap());
            }
            cluster.call();
            if cluster.cloud.borrow_mut().one_in(4) {
                cluster.notes.clear();
            }
        }
        cluster.cloud.borrow_mut().random = None;
        let is_settled = (0..60).any(|_| cluster.notes().0.iter().all(String::is_empty));
        assert!(is_settled, "{seed}: it never completes: {:?}", cluster.notes());
        let cloud = cluster.cloud.borrow();
        let uids: BTreeSet<_> = cluster.services.keys().cloned().collect();
        let frontends: BTreeSet<_> =
            cloud.resources["balancer"]["frontends"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(frontends, uids, "{seed}");
        let owners = cloud.resources.iter().filter(|(path, _)| path.starts_with("addresses/"));
        let owners: BTreeSet<_> = owners
            .flat_map(|(_, it)| {
                it["owners"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(owners, uids, "{seed}");
        drop(cloud);
        cluster.writes();
        cluster.notes();
        assert!(cluster.writes().is_empty(), "{seed}: written again");
    }
}

#[test]
fn a_change_waits_as_long_as_the_cloud_says() {
    let mut cluster = Cluster::default();
    cluster.add("a", "ip-1", 80);
    let (outcomes, _) = cluster.call();
    let Ok(ServiceProgress::InProgress(progress, _)) = &outcomes["a"] else { panic!("{outcomes:?}") };
    assert_eq!(progress.after, Duration::from_secs(1));
}
