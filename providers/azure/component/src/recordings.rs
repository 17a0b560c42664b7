//! Exchanges that were recorded with Azure's resource manager, in `recordings/exchanges.json`: what it really sends is read, and
//! each refusal has its kind. See `recordings/README.md` for where they come from.

use std::collections::BTreeSet;

use pileus_guest::testing::{Exchange, Host, SentRequest, get};
use pileus_guest::{
    Address, AddressKind, Answer, Cluster, ErrorKind, Instance, InstanceState, NodeReference, Purpose, Route,
    RouteAction, RouteChange, RouteProgress,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Azure;
use crate::arm::operation;

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// A request and its answer. Other requests' bodies aren't needed.
#[derive(Clone, Deserialize)]
pub(crate) struct Recording {
    method: String,
    /// With the query.
    path: String,
    status: u16,
    headers: serde_json::Map<String, Value>,
    pub(crate) body: Value,
}

impl Recording {
    /// The path below the resource group's providers, without the query.
    fn place(&self) -> &str {
        place(&self.path)
    }

    fn answer(&self, exchange: Exchange) -> Exchange {
        let exchange = exchange.status(self.status);
        let exchange = if self.body.is_null() { exchange } else { exchange.json(&self.body) };
        self.headers
            .iter()
            .fold(exchange, |exchange, (name, value)| exchange.header(name, value.as_str().unwrap()))
    }
}

fn place(path: &str) -> &str {
    path.split('?').next().unwrap().split("/resourceGroups/").last().unwrap()
}

pub(crate) fn all() -> Vec<Recording> {
    serde_json::from_str(include_str!("recordings/exchanges.json")).unwrap()
}

/// The answer of a read of this place in a resource group.
pub(crate) fn read(place: &str) -> Recording {
    let found = all().into_iter().find(|it| it.method == "GET" && it.place() == place);
    found.unwrap_or_else(|| panic!("no read of {place} was recorded"))
}

/// A host whose cloud answers as it was recorded. A resource that was only recorded when it was written is read as such.
fn host(more: &Value) -> Host {
    let recordings = all();
    let answer = move |sent: &SentRequest| {
        let exchange = Exchange::new(&*sent.method, &*sent.url);
        if sent.is_cache_only() {
            return exchange.status(504).header("pileus-gate", "not-cached");
        }
        let is_it = |it: &&Recording| it.place().eq_ignore_ascii_case(place(&sent.url));
        let read = |it: &&Recording| sent.method == "GET" && it.method == "PUT" && it.status < 300;
        let mut of_place = recordings.iter().filter(is_it);
        let found = of_place.clone().find(|it| it.method == sent.method).or_else(|| of_place.find(read));
        let mut found =
            found.cloned().unwrap_or_else(|| panic!("{} {} wasn't recorded", sent.method, sent.url));
        // No table with routes was recorded.
        if let Ok(Value::Object(written)) = serde_json::from_slice(&sent.body) {
            found.body["properties"]["routes"] = written["properties"]["routes"].clone();
        }
        found.answer(exchange)
    };
    let mut document = json!({"subscriptionId": SUBSCRIPTION, "resourceGroup": "aks-cit-VirtualMachine"});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Host::new().configuration(document).cloud(answer)
}

#[test]
fn a_recorded_machine_is_found_with_its_interface() {
    let id = format!(
        "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/aks-cit-virtualmachine/providers/Microsoft.Compute/virtualMachines/testResource"
    );
    let node = NodeReference::new("sample-compute").with_provider_id(&id);
    let answers = host(&json!({})).lookup::<Azure>(Purpose::Confirm, &[node]).unwrap();
    let expected = Instance {
        provider_id: id,
        instance_type: Some("Standard_D2s_v3".to_owned()),
        region: Some("eastus2".to_owned()),
        addresses: vec![
            Address::new(AddressKind::InternalIp, "10.1.0.4"),
            Address::new(AddressKind::Hostname, "sample-compute"),
        ],
        state: InstanceState::Unknown,
        ..Instance::default()
    };
    assert_eq!(answers, [Ok(Answer::Found(expected))]);
}

/// A table that says `Succeeded` names an operation all the same. It is written under its etag, and what it has is kept.
#[test]
fn a_recorded_route_table_gets_a_route() {
    let host = host(&json!({"resourceGroup": "aks-cit-RouteTable", "routeTableName": "testResource"}));
    let addresses = vec![Address::new(AddressKind::InternalIp, "10.0.0.4")];
    let (node, destination) = ("vm-1".to_owned(), "10.244.1.0/24".to_owned());
    let action = RouteAction::Create(Route { node, addresses, destination, ..Route::default() });
    let changes = [RouteChange { action, resume: None, extra: Vec::new() }];
    let outcomes = host.change_routes::<Azure>(&Cluster::default(), &changes).unwrap();
    let [Ok(RouteProgress::InProgress(progress))] = &outcomes[..] else { panic!("{outcomes:?}") };
    let operation = progress.resume.clone().unwrap();
    assert!(operation.contains("/locations/eastus/operations/"), "{operation}");
    let [_, write] = host.requests().try_into().unwrap();
    assert_eq!(write.header("if-match"), Some(format!("W/\"{SUBSCRIPTION}\"").as_str()));
    let route = json!({"name": "vm-1____102441024", "properties": {
        "addressPrefix": "10.244.1.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.0.0.4",
    }});
    let expected =
        json!({"location": "eastus", "properties": {"disableBgpRoutePropagation": false, "routes": [route]}});
    assert_eq!(serde_json::from_slice::<Value>(&write.body).unwrap(), expected);
}

#[test]
fn recorded_operations_have_ended() {
    let operations = all().into_iter().filter(|it| it.path.contains("/operations/"));
    let mut providers = BTreeSet::new();
    for recording in operations {
        let url = format!("https://management.azure.com{}", recording.path);
        let host = Host::new().exchange(recording.answer(get(&*url)));
        assert_eq!(host.run(operation::poll(&url)), Ok(pileus_guest::operation::Status::Succeeded), "{url}");
        providers.insert(
            recording.path.split("/providers/").last().unwrap().split('/').next().unwrap().to_owned(),
        );
    }
    assert_eq!(providers.into_iter().collect::<Vec<_>>(), ["Microsoft.Compute", "Microsoft.Network"]);
}

#[test]
fn each_recorded_refusal_has_its_kind() {
    const URL: &str = "https://management.azure.com/subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/\
                       virtualMachines/vm?api-version=2025-04-01&%24expand=instanceView";
    let expected = |status: u16, code: &str| match (status, code) {
        (404, "ResourceNotFound" | "NotFound") => Ok(Answer::Absent),
        (404, "ResourceGroupNotFound") => Err(ErrorKind::Unavailable(None)),
        (412, "PreconditionFailed") => Err(ErrorKind::Conflict(None)),
        (400, "InvalidParameter") => Err(ErrorKind::Invalid),
        other => panic!("{other:?} isn't expected"),
    };
    let node = NodeReference::new("vm").with_provider_id(
        "azure:///subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachines/vm",
    );
    let mut codes = BTreeSet::new();
    for recording in all().iter().filter(|it| it.status >= 400) {
        let code = recording.body["error"]["code"].as_str().unwrap();
        // What it means doesn't depend on the resource.
        let host = Host::new().configuration(crate::tests::minimal()).exchange(recording.answer(get(URL)));
        let answer = host.lookup::<Azure>(Purpose::Confirm, std::slice::from_ref(&node)).unwrap().remove(0);
        assert_eq!(
            answer.map_err(|error| error.kind),
            expected(recording.status, code),
            "{}",
            recording.path
        );
        codes.insert(code.to_owned());
    }
    assert_eq!(codes.len(), 5, "{codes:?}");
}
