use pileus_guest::ErrorKind;
use pileus_guest::testing::{Host, get};
use serde_json::{Value, json};

use super::*;
use crate::configuration::Configuration;
use crate::tests::with;

fn azure(more: &Value) -> Azure {
    serde_json::from_value::<Configuration>(with(more)).unwrap().check().ok().unwrap()
}

fn group() -> Group {
    Group { subscription: "sub".to_owned(), name: "group".to_owned() }
}

/// Sections 1.6 and 5.1.
#[test]
fn urls_have_the_version_of_their_api() {
    let public = azure(&json!({}));
    let stack = json!({"cloud": "AzureStackCloud", "resourceManagerEndpoint": "https://arm.stack"});
    let mut modern = stack.clone();
    modern["disableAzureStackCloud"] = json!(true);
    let (stack, modern) = (azure(&stack), azure(&modern));
    let rows = [
        (Api::Machines, "Microsoft.Compute", "2025-04-01", "2017-12-01"),
        (Api::ScaleSets, "Microsoft.Compute", "2025-04-01", "2019-07-01"),
        (Api::SetNetwork, "Microsoft.Compute", "2018-10-01", "2018-10-01"),
        (Api::Network, "Microsoft.Network", "2025-05-01", "2018-11-01"),
    ];
    for (api, namespace, new, old) in rows {
        let path =
            format!("subscriptions/sub/resourceGroups/group/providers/{namespace}/things/a%20b?api-version=");
        let url = |azure: &Azure| azure.url(&group(), api, &["things", "a b"]);
        assert_eq!(url(&public), format!("https://management.azure.com/{path}{new}"));
        assert_eq!(url(&stack), format!("https://arm.stack/{path}{old}"));
        assert_eq!(url(&modern), format!("https://arm.stack/{path}{new}"));
    }
    let id = "/subscriptions/SUB/resourceGroups/Group/providers/Microsoft.Network/networkInterfaces/nic";
    assert_eq!(
        public.url_of(id, Api::Network),
        format!("https://management.azure.com{id}?api-version=2025-05-01")
    );
}

/// Section 1.2 (`networkResourceSubscriptionID`) and 1.3 (`routeTableResourceGroup`).
#[test]
fn the_route_table_may_be_elsewhere() {
    let rows = [
        (json!({}), "sub/resourceGroups/group"),
        (json!({"routeTableResourceGroup": "Net"}), "sub/resourceGroups/Net"),
        (json!({"networkResourceSubscriptionID": "other"}), "other/resourceGroups/group"),
    ];
    for (more, place) in rows {
        let expected = format!(
            "https://management.azure.com/subscriptions/{place}/providers/Microsoft.Network/routeTables/table?api-version=2025-05-01"
        );
        assert_eq!(azure(&more).route_table_url(), Ok(expected), "{more}");
    }
    assert_eq!(
        azure(&json!({"routeTableName": null})).route_table_url().unwrap_err().kind,
        ErrorKind::Invalid
    );
}

const URL: &str = "https://arm.test/list?api-version=1";

fn listed(host: &Host) -> (Vec<u32>, Result<(), ErrorKind>) {
    let (items, end) = host.run(list::<u32>(URL.to_owned(), Source::Cloud));
    (items, end.map_err(|error| error.kind))
}

/// Section 5.1: `nextLink` is followed as it comes, until it is missing.
#[test]
fn a_list_is_read_to_its_end() {
    for token in PAGE {
        let next = format!("https://arm.test/list?{token}=a%2Fb&api-version=1");
        let host = Host::new()
            .exchange(get(URL).json(json!({"value": [1, 2], "nextLink": next})))
            .exchange(get(next).json(json!({"value": [3], "nextLink": ""})));
        assert_eq!(listed(&host), (vec![1, 2, 3], Ok(())));
    }
}

/// Bug 7 (K8S#95288) and bug 36 (CPA#1296): a list below something that is gone is empty, and an answer that isn't a list says nothing.
#[test]
fn a_list_without_its_parent_is_empty_and_an_empty_answer_is_no_list() {
    let error = |code: &str| json!({"error": {"code": code, "message": "no"}});
    let rows = [
        (get(URL).status(404).json(error("ParentResourceNotFound")), (vec![], Ok(()))),
        (get(URL).status(404).json(error("ResourceNotFound")), (vec![], Ok(()))),
        (
            get(URL).status(404).json(error("ResourceGroupNotFound")),
            (vec![], Err(ErrorKind::Unavailable(None))),
        ),
        (get(URL).status(404), (vec![], Err(ErrorKind::Unavailable(None)))),
        (get(URL), (vec![], Err(ErrorKind::Broken))),
        (get(URL).json(json!({})), (vec![], Err(ErrorKind::Unavailable(None)))),
    ];
    for (answer, expected) in rows {
        assert_eq!(listed(&Host::new().exchange(answer.clone())), expected, "{answer}");
    }
}
