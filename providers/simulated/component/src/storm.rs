//! Load balancers in a cloud where everything happens that can: answers are lost after the write took effect, the host is
//! killed between any two requests and forgets its notes, operations fail late, others write in between, and the cloud
//! refuses. Whatever the history, once that is over the cloud holds what the Services want, and nothing is written any more.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pileus_guest::testing::{Exchange, Host, Sent, get};
use pileus_guest::{Error, Service, ServiceAction, ServiceChange, ServiceProgress, Target};
use serde_json::{Value, json};

use crate::Simulated;
use crate::load_balancer::tests::{call, changed, service};

/// A small generator, so that a history is told by its seed (Numerical Recipes' constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// The cloud: by kind and name, what was asked for and how far it is.
struct Cloud {
    things: BTreeMap<(String, String), Value>,
    dice: Dice,
    is_stormy: bool,
    is_dead: bool,
    etags: u64,
    writes: usize,
}

impl Cloud {
    fn answer(&mut self, sent: &Sent) -> Exchange {
        let refused = |status: u16| get("").status(status);
        let lost = || get("").failing(Error::unavailable("lost"));
        self.is_dead |= self.is_stormy && self.dice.one_in(40);
        if self.is_dead {
            return lost();
        }
        if self.is_stormy && self.dice.one_in(12) {
            return refused([429, 503][usize::from(self.dice.one_in(2))]);
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
        if self.is_stormy && sent.method != "GET" && self.dice.one_in(8) { lost() } else { answer }
    }

    /// Ends some operations, a few of them badly.
    fn advance(&mut self) {
        let mut ended = Vec::new();
        for (key, thing) in &mut self.things {
            let state = thing["state"].as_str().unwrap().to_owned();
            if ["active", "failed"].contains(&&*state) || self.dice.one_in(2) {
                continue;
            }
            self.etags += 1;
            thing["etag"] = json!(self.etags);
            if self.is_stormy && self.dice.one_in(6) {
                thing["state"] = json!("failed");
            } else if state == "deleting" {
                ended.push(key.clone());
            } else {
                thing["state"] = json!("active");
                thing["holds"] = thing["frontends"].clone();
            }
        }
        self.things.retain(|key, _| !ended.contains(key));
    }

    fn list(&self, kind: &str) -> Exchange {
        let all: Vec<_> =
            self.things.iter().filter(|((of, _), _)| of == kind).map(|(_, thing)| thing).collect();
        get("").json(json!({"items": all}))
    }

    fn show(&self, kind: &str, name: &str) -> Exchange {
        match self.things.get(&(kind.to_owned(), name.to_owned())) {
            Some(thing) => get("").header("etag", &thing["etag"].to_string()).json(thing),
            None => get("").status(404),
        }
    }

    fn write(&mut self, method: &str, kind: &str, name: &str, sent: &Sent) -> Result<Exchange, u16> {
        let key = (kind.to_owned(), name.to_owned());
        let before = self.things.get(&key).cloned();
        let is_shared = kind == "shared-load-balancers";
        if is_shared {
            let is_right = match (sent.header("if-match"), sent.header("if-none-match"), &before) {
                (Some(etag), None, Some(thing)) => etag == thing["etag"].to_string().as_str(),
                (None, Some("*"), None) => true,
                (Some(_), None, None) | (None, Some("*"), Some(_)) => false,
                other => panic!("written without a condition: {other:?}"),
            };
            if !is_right || self.is_stormy && self.dice.one_in(5) {
                return Err(412);
            }
        }
        if before.iter().any(|thing| !["active", "failed"].contains(&thing["state"].as_str().unwrap())) {
            return Err(409);
        }
        self.etags += 1;
        let (state, goal) = match (method, &before) {
            ("DELETE", None) => return Err(404),
            ("DELETE", Some(thing)) => {
                assert!(
                    kind != "addresses" || !self.is_used(name),
                    "address {name} was deleted while it was in use"
                );
                ("deleting", thing.clone())
            }
            (_, None) => ("creating", serde_json::from_slice(&sent.body).unwrap()),
            (_, Some(thing)) => ("updating", changed(thing, &serde_json::from_slice(&sent.body).unwrap())),
        };
        if is_shared && method == "PUT" {
            assert_ne!(goal["frontends"], json!([]), "a load balancer that nobody needs");
            for frontend in goal["frontends"].as_array().unwrap() {
                let address = ("addresses".to_owned(), frontend["address"].as_str().unwrap().to_owned());
                let state = self.things.get(&address).map(|address| address["state"].as_str().unwrap());
                let has_it = self.is_used(&address.1);
                assert!(
                    has_it || state == Some("active"),
                    "frontend {frontend} without its address: {state:?}"
                );
            }
        }
        let told = json!({
            "name": name, "state": state, "error": "late", "etag": self.etags, "addresses": ["198.51.100.1"],
            "value": "198.51.100.1", "hostname": "a.example", "holds": before.map_or(json!([]), |it| it["holds"].clone()),
        });
        self.things.insert(key, changed(&goal, &told));
        let status = if method == "DELETE" { 202 } else { 201 };
        Ok(self.show(kind, name).status(status))
    }

    /// Whether a shared load balancer holds an address: by what it shows, or by what it had when its last write began.
    fn is_used(&self, address: &str) -> bool {
        let shared = self.things.iter().filter(|((kind, _), _)| kind == "shared-load-balancers");
        shared.flat_map(|(_, it)| [&it["frontends"], &it["holds"]]).any(|frontends| {
            frontends.as_array().is_some_and(|all| all.iter().any(|frontend| frontend["address"] == address))
        })
    }
}

/// The cluster's side: what each Service wants (its port), and the note about it.
struct Cluster {
    style: &'static str,
    cloud: Rc<RefCell<Cloud>>,
    wanted: BTreeMap<String, Option<u16>>,
    notes: BTreeMap<String, String>,
    targets: u64,
}

impl Cluster {
    fn service(uid: &str, port: u16) -> Service {
        let mut service = service(uid);
        service.ports[0].port = port;
        service
    }

    /// Brings some of what is wanted to the provider, and forgets what is gone. Tells whether all was done.
    fn bring(&mut self, uids: &[String]) -> bool {
        let change = |uid: &String| match self.wanted[uid] {
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
        if std::mem::take(&mut self.cloud.borrow_mut().is_dead) {
            self.notes.clear();
            return false;
        }
        let mut all_done = true;
        for (outcome, uid) in outcomes.into_iter().flatten().zip(uids) {
            match outcome {
                Ok(ServiceProgress::Done { .. }) if self.wanted[uid].is_none() => {
                    let _ = self.wanted.remove(uid);
                }
                Ok(ServiceProgress::Done { .. }) => {}
                Ok(ServiceProgress::InProgress(progress)) => {
                    all_done = false;
                    self.notes.extend(progress.resume.map(|note| (uid.clone(), note)));
                }
                other => {
                    let cloud = self.cloud.borrow();
                    assert!(
                        cloud.is_stormy || matches!(&other, Err(error) if error.message.contains("late")),
                        "{other:?}"
                    );
                    all_done = false;
                }
            }
        }
        all_done
    }

    fn uids(&self) -> Vec<String> {
        self.wanted.keys().cloned().collect()
    }

    /// What the cloud has, as the port of each name.
    fn ports(&self) -> BTreeMap<String, u64> {
        let port = |thing: &Value| {
            (thing["name"].as_str().unwrap().to_owned(), thing["ports"][0]["port"].as_u64().unwrap())
        };
        let cloud = self.cloud.borrow();
        let of = |kind: &str| {
            cloud
                .things
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

fn weather(style: &'static str, seed: u64) {
    let cloud = Cloud {
        things: BTreeMap::new(),
        dice: Dice(seed),
        is_stormy: true,
        is_dead: false,
        etags: 0,
        writes: 0,
    };
    let cloud = Rc::new(RefCell::new(cloud));
    let (wanted, notes) = (BTreeMap::new(), BTreeMap::new());
    let mut cluster = Cluster { style, cloud, wanted, notes, targets: 1 };
    let mut dice = Dice(seed ^ 0xdead);
    for _ in 0..60 {
        let uid = format!("u{}", dice.below(7));
        let wish = (!dice.one_in(3)).then(|| u16::try_from(80 + dice.below(3)).unwrap());
        // What was never wanted needs no deletion.
        if wish.is_some() || cluster.wanted.contains_key(&uid) {
            cluster.wanted.insert(uid, wish);
        }
        cluster.targets += u64::from(dice.one_in(10));
        let mut uids = cluster.uids();
        uids.retain(|_| !dice.one_in(3));
        if !uids.is_empty() {
            cluster.bring(&uids);
        }
    }
    cluster.cloud.borrow_mut().is_stormy = false;
    let calmed = (0..60).any(|_| cluster.bring(&cluster.uids()));
    assert!(calmed, "{style} {seed}: it never ends");
    let wanted: BTreeMap<_, _> =
        cluster.wanted.iter().map(|(uid, port)| (uid.clone(), u64::from(port.unwrap()))).collect();
    assert_eq!(cluster.ports(), wanted, "{style} {seed}");
    let machines: BTreeSet<_> = (0..cluster.targets).map(|number| format!("m-{number}")).collect();
    for ((kind, _), thing) in &cluster.cloud.borrow().things {
        assert_eq!(thing["state"], "active");
        let has =
            thing["machines"].as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned());
        let has: BTreeSet<_> = has.collect();
        assert!(kind == "addresses" || has == machines, "{style} {seed}: {has:?}");
    }
    let writes = cluster.cloud.borrow().writes;
    assert!(
        cluster.bring(&cluster.uids()) && cluster.cloud.borrow().writes == writes,
        "{style} {seed}: written again"
    );
}

#[test]
fn after_any_storm_each_service_has_what_it_wants_and_nothing_else_is_left() {
    for seed in 0..8 {
        weather("perService", seed);
        weather("shared", seed);
    }
}
