//! Fault injection for load balancers. Responses are lost after the write took effect, the host is killed between any two
//! requests and loses its notes, operations fail late, others write in between, and the cloud refuses requests. After any
//! such history, once the faults end, the cloud holds what the Services ask for, and nothing more is written.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pileus_guest::testing::{Exchange, Host, SentRequest, get};
use pileus_guest::{Error, Service, ServiceAction, ServiceChange, ServiceProgress, Target};
use serde_json::{Value, json};

use crate::Simulated;
use crate::load_balancer::tests::{call, changed, service};

/// A small random generator, so that a seed reproduces a history (Numerical Recipes' constants).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// The cloud: its resources by kind and name.
struct Cloud {
    resources: BTreeMap<(String, String), Value>,
    random: Random,
    injects_faults: bool,
    host_is_killed: bool,
    etags: u64,
    writes: usize,
}

impl Cloud {
    fn answer(&mut self, sent: &SentRequest) -> Exchange {
        let refused = |status: u16| get("").status(status);
        let lost = || get("").failing(Error::unavailable("lost"));
        self.host_is_killed |= self.injects_faults && self.random.one_in(40);
        if self.host_is_killed {
            return lost();
        }
        if self.injects_faults && self.random.one_in(12) {
            return refused([429, 503][usize::from(self.random.one_in(2))]);
        }
        self.advance();
        let path = sent.url.trim_start_matches("http://cloud.test/v1/");
        let answer = match (&*sent.method, path.split_once('/')) {
            ("GET", None) => self.list(path.split('?').next().unwrap()),
            (_, None) => panic!("{} {path}", sent.method),
            ("GET", Some((kind, name))) => self.show(kind, name),
            (method, Some((kind, name))) => {
                self.writes += 1;
                self.write(method, kind, name, sent).unwrap_or_else(refused)
            }
        };
        if self.injects_faults && sent.method != "GET" && self.random.one_in(8) { lost() } else { answer }
    }

    /// Completes some operations. A few of them fail.
    fn advance(&mut self) {
        let mut ended = Vec::new();
        for (key, resource) in &mut self.resources {
            let state = resource["state"].as_str().unwrap().to_owned();
            if ["active", "failed"].contains(&&*state) || self.random.one_in(2) {
                continue;
            }
            self.etags += 1;
            resource["etag"] = json!(self.etags);
            if self.injects_faults && self.random.one_in(6) {
                resource["state"] = json!("failed");
            } else if state == "deleting" {
                ended.push(key.clone());
            } else {
                resource["state"] = json!("active");
                resource["holds"] = resource["frontends"].clone();
            }
        }
        self.resources.retain(|key, _| !ended.contains(key));
    }

    fn list(&self, kind: &str) -> Exchange {
        let all: Vec<_> =
            self.resources.iter().filter(|((of, _), _)| of == kind).map(|(_, resource)| resource).collect();
        let items = if kind == "load-balancers" { "loadBalancers" } else { kind };
        get("").json(json!({items: all}))
    }

    fn show(&self, kind: &str, name: &str) -> Exchange {
        match self.resources.get(&(kind.to_owned(), name.to_owned())) {
            Some(resource) => get("").header("etag", &resource["etag"].to_string()).json(resource),
            None => get("").status(404),
        }
    }

    fn write(&mut self, method: &str, kind: &str, name: &str, sent: &SentRequest) -> Result<Exchange, u16> {
        let key = (kind.to_owned(), name.to_owned());
        let before = self.resources.get(&key).cloned();
        let is_shared = kind == "shared-load-balancers";
        if is_shared {
            let is_right = match (sent.header("if-match"), sent.header("if-none-match"), &before) {
                (Some(etag), None, Some(resource)) => etag == resource["etag"].to_string().as_str(),
                (None, Some("*"), None) => true,
                (Some(_), None, None) | (None, Some("*"), Some(_)) => false,
                other => panic!("unconditional write: {other:?}"),
            };
            if !is_right || self.injects_faults && self.random.one_in(5) {
                return Err(412);
            }
        }
        if before.iter().any(|resource| !["active", "failed"].contains(&resource["state"].as_str().unwrap()))
        {
            return Err(409);
        }
        self.etags += 1;
        let (state, desired) = match (method, &before) {
            ("DELETE", None) => return Err(404),
            ("DELETE", Some(resource)) => {
                assert!(
                    kind != "addresses" || !self.is_used(name),
                    "address {name} was deleted while it was in use"
                );
                ("deleting", resource.clone())
            }
            (_, None) => ("creating", serde_json::from_slice(&sent.body).unwrap()),
            (_, Some(resource)) => {
                ("updating", changed(resource, &serde_json::from_slice(&sent.body).unwrap()))
            }
        };
        if is_shared && method == "PUT" {
            assert_ne!(desired["frontends"], json!([]), "a shared load balancer without frontends");
            for frontend in desired["frontends"].as_array().unwrap() {
                let address = ("addresses".to_owned(), frontend["address"].as_str().unwrap().to_owned());
                let state = self.resources.get(&address).map(|address| address["state"].as_str().unwrap());
                let has_it = self.is_used(&address.1);
                assert!(
                    has_it || state == Some("active"),
                    "frontend {frontend} without its address: {state:?}"
                );
            }
        }
        let cloud_fields = json!({
            "name": name, "state": state, "error": "late", "etag": self.etags, "addresses": ["198.51.100.1"],
            "value": "198.51.100.1", "hostname": "a.example", "holds": before.map_or(json!([]), |it| it["holds"].clone()),
        });
        self.resources.insert(key, changed(&desired, &cloud_fields));
        let status = if method == "DELETE" { 202 } else { 201 };
        Ok(self.show(kind, name).status(status))
    }

    /// Whether a shared load balancer uses an address, now or when its last write began.
    fn is_used(&self, address: &str) -> bool {
        let shared = self.resources.iter().filter(|((kind, _), _)| kind == "shared-load-balancers");
        shared.flat_map(|(_, it)| [&it["frontends"], &it["holds"]]).any(|frontends| {
            frontends.as_array().is_some_and(|all| all.iter().any(|frontend| frontend["address"] == address))
        })
    }
}

/// The cluster's side: the desired port of each Service, None if it is deleted, and the note about it.
struct Cluster {
    style: &'static str,
    cloud: Rc<RefCell<Cloud>>,
    desired: BTreeMap<String, Option<u16>>,
    notes: BTreeMap<String, String>,
    targets: u64,
}

impl Cluster {
    fn service(uid: &str, port: u16) -> Service {
        let mut service = service(uid);
        service.ports[0].port = port;
        service
    }

    /// Calls the provider for some Services, and forgets deleted ones. Returns whether all were done.
    fn reconcile(&mut self, uids: &[String]) -> bool {
        let change = |uid: &String| match self.desired[uid] {
            Some(port) => ServiceAction::Ensure(Self::service(uid, port)),
            None => ServiceAction::Delete(Self::service(uid, 1)),
        };
        let mut call = call(uids.iter().map(change).collect());
        let target = |number| Target { provider_id: format!("simulated://m-{number}"), ..Target::default() };
        call.targets = (0..self.targets).map(target).collect();
        for (ServiceChange { resume, .. }, uid) in call.changes.iter_mut().zip(uids) {
            *resume = self.notes.remove(uid);
        }
        let cloud = Rc::clone(&self.cloud);
        let host = Host::new()
            .configuration(json!({"endpoint": "http://cloud.test", "loadBalancers": self.style}))
            .cloud(move |sent| cloud.borrow_mut().answer(sent));
        let outcomes = host.change_load_balancers::<Simulated>(&call);
        if std::mem::take(&mut self.cloud.borrow_mut().host_is_killed) {
            self.notes.clear();
            return false;
        }
        let mut all_done = true;
        for (outcome, uid) in outcomes.into_iter().flatten().zip(uids) {
            match outcome {
                Ok(ServiceProgress::Done(_)) if self.desired[uid].is_none() => {
                    let _ = self.desired.remove(uid);
                }
                Ok(ServiceProgress::Done(_)) => {}
                Ok(ServiceProgress::InProgress(progress, _)) => {
                    all_done = false;
                    self.notes.extend(progress.resume.map(|note| (uid.clone(), note)));
                }
                other => {
                    let cloud = self.cloud.borrow();
                    assert!(
                        cloud.injects_faults
                            || matches!(&other, Err(error) if error.message.contains("late")),
                        "{other:?}"
                    );
                    all_done = false;
                }
            }
        }
        all_done
    }

    fn uids(&self) -> Vec<String> {
        self.desired.keys().cloned().collect()
    }

    /// The port of each load balancer in the cloud, by name.
    fn ports(&self) -> BTreeMap<String, u64> {
        let port = |resource: &Value| {
            (resource["name"].as_str().unwrap().to_owned(), resource["ports"][0]["port"].as_u64().unwrap())
        };
        let cloud = self.cloud.borrow();
        let of = |kind: &str| {
            cloud
                .resources
                .iter()
                .filter(|((of, _), _)| of == kind)
                .map(|(_, it)| it.clone())
                .collect::<Vec<_>>()
        };
        if self.style == "perService" {
            return of("load-balancers").iter().map(port).collect();
        }
        let shared = of("shared-load-balancers");
        let frontends: BTreeMap<_, _> =
            shared.iter().flat_map(|it| it["frontends"].as_array().unwrap().iter().map(port)).collect();
        let addresses: Vec<_> =
            of("addresses").iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        assert!(frontends.keys().eq(&addresses), "{frontends:?} {addresses:?}");
        assert_eq!(shared.len(), usize::from(!frontends.is_empty()));
        frontends
    }
}

fn run_history(style: &'static str, seed: u64) {
    let cloud = Cloud {
        resources: BTreeMap::new(),
        random: Random(seed),
        injects_faults: true,
        host_is_killed: false,
        etags: 0,
        writes: 0,
    };
    let cloud = Rc::new(RefCell::new(cloud));
    let (desired, notes) = (BTreeMap::new(), BTreeMap::new());
    let mut cluster = Cluster { style, cloud, desired, notes, targets: 1 };
    let mut random = Random(seed ^ 0xdead);
    for _ in 0..60 {
        let uid = format!("u{}", random.below(7));
        let port = (!random.one_in(3)).then(|| u16::try_from(80 + random.below(3)).unwrap());
        // A Service that never existed needs no deletion.
        if port.is_some() || cluster.desired.contains_key(&uid) {
            cluster.desired.insert(uid, port);
        }
        cluster.targets += u64::from(random.one_in(10));
        let mut uids = cluster.uids();
        uids.retain(|_| !random.one_in(3));
        if !uids.is_empty() {
            cluster.reconcile(&uids);
        }
    }
    cluster.cloud.borrow_mut().injects_faults = false;
    let settled = (0..60).any(|_| cluster.reconcile(&cluster.uids()));
    assert!(settled, "{style} {seed}: it never completes");
    let desired: BTreeMap<_, _> =
        cluster.desired.iter().map(|(uid, port)| (uid.clone(), u64::from(port.unwrap()))).collect();
    assert_eq!(cluster.ports(), desired, "{style} {seed}");
    let machines: BTreeSet<_> = (0..cluster.targets).map(|number| format!("m-{number}")).collect();
    for ((kind, _), resource) in &cluster.cloud.borrow().resources {
        assert_eq!(resource["state"], "active");
        let has =
            resource["machines"].as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned());
        let has: BTreeSet<_> = has.collect();
        assert!(kind == "addresses" || has == machines, "{style} {seed}: {has:?}");
    }
    let writes = cluster.cloud.borrow().writes;
    assert!(
        cluster.reconcile(&cluster.uids()) && cluster.cloud.borrow().writes == writes,
        "{style} {seed}: written again"
    );
}

#[test]
fn after_any_faults_each_service_has_its_load_balancer_and_nothing_is_left_over() {
    for seed in 0..8 {
        run_history("perService", seed);
        run_history("shared", seed);
    }
}
