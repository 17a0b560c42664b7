//! What cloud-provider-azure does that is in the scope of this provider, and which test covers it: `providers/azure/COVERAGE.md` is
//! made from this table. The rows of the configuration's keys come from the component's own table of keys.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::is_written;
use crate::configuration::keys::{Effect, KEYS};

/// What the document says before its tables.
const INTRODUCTION: &str = "\
# Coverage

<!-- generated: PILEUS_WRITE_DOCUMENTS=1 cargo test -p azure-provider --lib documents -->

What cloud-provider-azure does that is in the scope of this provider: each key, kind of machine, operation and reported bug. A row is `tested` by tests that exist (a test checks
it), `different` or `missing` with a reason, or `next`: it is about load balancers. Defects D1 to D23 were found by reading cloud-provider-azure at 7b31c76c. CPA is
kubernetes-sigs/cloud-provider-azure, K8S kubernetes/kubernetes.
";

/// The last of the reported bugs, and of the defects.
const BUGS: u32 = 50;
const DEFECTS: u32 = 23;

/// Something that cloud-provider-azure does, or a bug of it.
struct Row {
    what: &'static str,
    status: Status,
}

enum Status {
    /// These tests cover it.
    Tested(&'static [&'static str]),
    /// This provider does it in another way, and why.
    Different(&'static str),
    /// This provider doesn't do it, and why.
    Missing(&'static str),
    /// It comes with load balancers.
    Next(&'static str),
}

const fn tested(what: &'static str, tests: &'static [&'static str]) -> Row {
    Row { what, status: Status::Tested(tests) }
}

const fn different(what: &'static str, why: &'static str) -> Row {
    Row { what, status: Status::Different(why) }
}

const fn missing(what: &'static str, why: &'static str) -> Row {
    Row { what, status: Status::Missing(why) }
}

const fn next(what: &'static str, why: &'static str) -> Row {
    Row { what, status: Status::Next(why) }
}

/// The test of all keys.
const ALL_KEYS: &str = "each_key_is_read_in_any_case_and_told_if_it_has_no_effect";

/// The tests of the keys that have an effect.
const KEY_TESTS: &[(&[&str], &[&str])] = &[
    (
        &["cloud", "identitySystem", "resourceManagerEndpoint", "activeDirectoryEndpoint", "tokenAudience"],
        &["each_cloud_has_its_endpoints"],
    ),
    (
        &[
            "tenantId",
            "aadClientId",
            "aadClientCertPath",
            "useManagedIdentityExtension",
            "userAssignedIdentityID",
            "useFederatedWorkloadIdentityExtension",
            "aadFederatedTokenFile",
            "networkResourceTenantID",
        ],
        &["each_identity_becomes_the_hint_of_a_credential"],
    ),
    (
        &["subscriptionId", "metadataEndpoint"],
        &["a_value_of_another_type_and_a_key_that_is_there_twice_are_problems"],
    ),
    (
        &["networkResourceSubscriptionID", "routeTableName", "routeTableResourceGroup"],
        &["the_route_table_may_be_elsewhere"],
    ),
    (&["disableAzureStackCloud"], &["urls_have_the_version_of_their_api"]),
    (&["useInstanceMetadata"], &["the_metadata_service_is_asked_for_only_if_the_configuration_says_so"]),
    (&["resourceGroup"], &["many_nodes_of_all_kinds_share_the_lists_of_their_group"]),
    (&["location"], &["a_missing_table_is_created_with_tags"]),
    (&["maximumRouteCount"], &["routes_that_do_not_fit_are_refused_and_the_others_are_made"]),
    (&["vmType"], &["a_cluster_of_standalone_machines_lists_no_scale_sets"]),
    (&["tags", "tagsMap", "systemTags"], &["tags_are_added_changed_and_removed_by_the_rules"]),
    (
        &["nodeInstanceNotFoundGracePeriodInSeconds"],
        &["a_young_node_is_pending_although_its_machine_is_not_visible_yet"],
    ),
    (
        &["listVmssVirtualMachinesWithoutInstanceView"],
        &["without_the_instance_view_the_power_state_is_unknown"],
    ),
];

/// The sections. Rows of keys are added to the first.
const SECTIONS: &[(&str, &[Row])] = &[
    (
        "Configuration",
        &[
            tested(
                "JSON or YAML, keys without regard to case, unknown keys ignored",
                &[
                    "each_key_is_read_in_any_case_and_told_if_it_has_no_effect",
                    "unknown_keys_are_ignored_with_one_notice",
                ],
            ),
            tested(
                "the resource group in lower case",
                &["many_nodes_of_all_kinds_share_the_lists_of_their_group"],
            ),
            different(
                "`AZURE_TENANT_ID` and the other variables of the environment",
                "a component has no environment; the credential of the document names them",
            ),
            different(
                "a Secret as the source, and `merge`",
                "the document is the one source, from a file or the cluster",
            ),
            different(
                "dynamic reloading",
                "Pileus follows its document, and swaps a changed configuration without a restart",
            ),
        ],
    ),
    (
        "Clouds and credentials",
        &[
            tested("public and sovereign clouds, aliases, unknown names", &["each_cloud_has_its_endpoints"]),
            tested("Azure Stack with Entra and with AD FS", &["each_cloud_has_its_endpoints"]),
            tested("older API versions of Azure Stack", &["urls_have_the_version_of_their_api"]),
            different(
                "the environment file, and discovery of endpoints",
                "`configure` has no network and no files: the three keys are written down",
            ),
            tested("D4: cloud constants are changed by an override", &["each_cloud_has_its_endpoints"]),
            tested(
                "client secret, certificate, workload identity, managed identity (system, client ID, resource ID)",
                &[
                    "each_identity_becomes_the_hint_of_a_credential",
                    "a_client_secret_gets_tokens_and_a_wrong_one_is_reported",
                    "a_client_certificate_gets_tokens",
                    "a_workload_identity_gets_tokens_for_the_service_accounts_token",
                    "a_managed_identity_gets_tokens_of_the_metadata_service",
                ],
            ),
            different(
                "managed identity by object ID",
                "azure.json has no key for it; the document has `objectID`",
            ),
            missing("MSI data plane file", "only AKS itself has such files"),
            tested(
                "network resources of another tenant",
                &["each_identity_becomes_the_hint_of_a_credential"],
            ),
            different(
                "D1: retry settings never reach the clients",
                "retries are the gate's, and such keys are told as without effect",
            ),
            tested(
                "D2: rate limits have no effect",
                &["every_limit_is_counted_by_a_rule_and_only_the_table_is_written"],
            ),
            different(
                "D3: the auxiliary token is fetched for each request",
                "tokens are the gate's, which renews each once",
            ),
        ],
    ),
    (
        "Instances",
        &[
            tested(
                "provider IDs of standalone, availability-set and flexible machines, and of uniform scale sets",
                &["every_spelling_of_a_provider_id_is_of_one_machine"],
            ),
            tested(
                "historic spellings: groups in any case, `{scale set}_{number}`, more slashes",
                &["every_spelling_of_a_provider_id_is_of_one_machine"],
            ),
            tested(
                "provider IDs of other kinds are unmanaged",
                &["other_provider_ids_are_of_no_machine", "unmanaged_nodes_cost_no_request"],
            ),
            tested(
                "D7: names that contain the resource group's",
                &[
                    "a_name_that_contains_the_resource_group_stays",
                    "the_metadata_service_describes_the_machine",
                ],
            ),
            tested(
                "`kubernetes.azure.com/managed=false`",
                &["unmanaged_nodes_cost_no_request", "unmanaged_nodes_need_no_route"],
            ),
            tested(
                "`kubernetes.azure.com/resource-group`",
                &["nodes_of_other_resource_groups_are_looked_up_there"],
            ),
            next(
                "`node.kubernetes.io/exclude-from-external-load-balancers`, control-plane labels",
                "they leave Nodes out of load balancers",
            ),
            different(
                "the out-of-service taint of stopped Nodes",
                "Pileus has it for all clouds: --taint-stopped-nodes-out-of-service",
            ),
            tested(
                "uniform scale set, by ID",
                &[
                    "an_instance_of_a_uniform_scale_set_is_read_by_its_number",
                    "lists_and_single_reads_say_the_same_of_each_kind_of_machine",
                ],
            ),
            tested(
                "uniform scale set, by name: base 36, prefix or name without regard to case",
                &[
                    "a_computer_name_ends_with_a_number_in_base_36",
                    "a_node_without_an_id_is_found_by_the_number_in_its_name",
                ],
            ),
            tested("flexible scale set", &["a_node_without_an_id_is_found_among_machines_of_any_kind"]),
            tested(
                "availability set and standalone, by ID and by name",
                &[
                    "a_standalone_machine_has_its_power_state_and_both_families",
                    "a_node_without_an_id_is_found_among_machines_of_any_kind",
                ],
            ),
            tested(
                "all kinds in one cluster",
                &[
                    "many_nodes_of_all_kinds_share_the_lists_of_their_group",
                    "lists_and_single_reads_say_the_same_of_each_kind_of_machine",
                    "nodes_of_all_kinds_are_initialised_and_follow_their_machines",
                ],
            ),
            tested(
                "standalone clusters (`vmType` standard)",
                &["a_cluster_of_standalone_machines_lists_no_scale_sets"],
            ),
            tested("machines that are being created", &["a_machine_that_is_changed_is_there"]),
            tested(
                "machines that are being deleted",
                &[
                    "a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it",
                    "a_machine_that_is_being_deleted_counts_as_absent",
                    "what_happens_to_a_machine_is_reported_of_each_kind",
                ],
            ),
            tested(
                "machines that are reimaged or moved",
                &[
                    "a_machine_that_is_changed_is_there",
                    "a_machine_has_stopped_only_if_nothing_is_being_done_to_it",
                    "what_happens_to_a_machine_is_reported_of_each_kind",
                ],
            ),
            tested(
                "power states",
                &[
                    "a_machine_has_stopped_only_if_nothing_is_being_done_to_it",
                    "what_happens_to_a_machine_is_reported_of_each_kind",
                ],
            ),
            tested(
                "existence: 404 by code, missing scale set, denied, errors",
                &[
                    "a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it",
                    "each_error_has_its_kind",
                ],
            ),
            tested(
                "type, region",
                &[
                    "an_instance_of_a_uniform_scale_set_is_read_by_its_number",
                    "a_standalone_machine_has_its_power_state_and_both_families",
                ],
            ),
            tested(
                "resource managers that refuse power states in lists",
                &["machines_are_listed_without_power_states_where_they_are_refused"],
            ),
            tested("zones and fault domains", &["a_zone_is_the_clouds_or_a_fault_domain"]),
            different(
                "fault domain 0 of a machine that is in none",
                "the zone is left out, since a guess moves Pods to a wrong place",
            ),
            tested(
                "addresses and their order",
                &["addresses_are_those_of_the_primary_configuration_of_each_family"],
            ),
            tested(
                "several network interfaces, many configurations",
                &[
                    "the_primary_interface_says_so",
                    "addresses_are_those_of_the_primary_configuration_of_each_family",
                ],
            ),
            tested("public addresses of scale sets", &["public_addresses_of_a_scale_set_are_one_list"]),
            tested(
                "public addresses and interfaces of other groups",
                &["nodes_of_other_resource_groups_are_looked_up_there"],
            ),
            tested(
                "D5: power state and fault domain of standalone machines",
                &["a_standalone_machine_has_its_power_state_and_both_families"],
            ),
            tested(
                "D6: IPv6 addresses",
                &[
                    "a_standalone_machine_has_its_power_state_and_both_families",
                    "addresses_are_those_of_the_primary_configuration_of_each_family",
                ],
            ),
            missing("masks of Pod CIDRs by tags", "kube-controller-manager hands out Pod CIDRs"),
            tested(
                "caches, one request for concurrent readers",
                &["a_few_nodes_are_found_in_the_cached_lists", "five_thousand_nodes_cost_lists_alone"],
            ),
            different("D21: absence is never cached", "the gate decides what an absent answer may rest on"),
            tested(
                "a list that fails or ends early",
                &[
                    "a_list_that_fails_makes_nothing_absent",
                    "pileus_recovers_from_each_fault_and_no_node_is_lost",
                ],
            ),
        ],
    ),
    (
        "Routes",
        &[
            tested("list: all routes, Node by name, missing table", &["all_routes_of_the_table_are_listed"]),
            tested("table of another resource group or subscription", &["the_route_table_may_be_elsewhere"]),
            tested("a missing table is created", &["a_missing_table_is_created_with_tags"]),
            tested(
                "names, next hops by private IP, dual stack, one write a batch, `If-Match`",
                &[
                    "a_batch_is_one_write_that_keeps_what_others_put_there",
                    "routes_come_and_go_in_one_write_a_batch_and_lead_to_private_addresses",
                ],
            ),
            tested(
                "routes of other owners are kept, with what this provider does not read",
                &["a_batch_is_one_write_that_keeps_what_others_put_there"],
            ),
            tested(
                "routes of the former controller, in both naming styles",
                &[
                    "routes_of_the_former_controller_are_right_as_they_are",
                    "a_cluster_of_cloud_provider_azure_is_taken_over_without_a_write",
                    "a_cluster_is_given_back_as_cloud_provider_azure_would_have_made_it",
                ],
            ),
            different("cleanup of the old naming style", "a right route stays as it is"),
            tested("unmanaged Nodes", &["unmanaged_nodes_need_no_route"]),
            tested(
                "tags of the table",
                &["a_missing_table_is_created_with_tags", "tags_are_added_changed_and_removed_by_the_rules"],
            ),
            tested(
                "two clusters in one table",
                &[
                    "a_route_that_leads_elsewhere_is_changed_only_if_it_is_the_nodes_own",
                    "a_mark_is_left_out_where_it_does_not_fit",
                    "two_clusters_share_a_table",
                ],
            ),
            tested(
                "operations of both kinds; 201 `Succeeded` that names one",
                &[
                    "an_operation_runs_until_it_says_otherwise",
                    "a_write_has_ended_when_its_operation_has",
                    "routes_are_made_and_deleted_although_writes_meet_operations",
                    "a_failed_operation_is_told_and_tried_again",
                ],
            ),
            tested(
                "locks, 412, failed writes",
                &[
                    "a_refused_write_has_its_kind_and_a_lost_race_is_run_again",
                    "a_busy_table_is_waited_for_and_a_failed_one_is_written_again",
                    "pileus_recovers_from_each_fault_and_no_node_is_lost",
                ],
            ),
            tested("more than 400 routes", &["routes_that_do_not_fit_are_refused_and_the_others_are_made"]),
            tested(
                "compacted ranges with the same digits",
                &["a_route_that_leads_elsewhere_is_changed_only_if_it_is_the_nodes_own"],
            ),
            tested(
                "D18: prefix delete, hidden failure, stale cache after 412, missing table with tags",
                &[
                    "exactly_one_route_is_deleted",
                    "a_refused_write_has_its_kind_and_a_lost_race_is_run_again",
                    "all_routes_of_the_table_are_listed",
                ],
            ),
            tested("D19: sleeps under a lock", &["a_write_has_ended_when_its_operation_has"]),
        ],
    ),
    (
        "Calls, errors and limits",
        &[
            tested("API versions", &["urls_have_the_version_of_their_api"]),
            tested(
                "`nextLink`, both spellings of the page",
                &[
                    "a_list_is_read_to_its_end",
                    "a_page_of_either_spelling_belongs_to_its_list",
                    "lists_are_whole_at_any_page_size",
                ],
            ),
            tested("IDs without regard to case", &["an_id_is_split_in_any_case"]),
            tested("error bodies and codes", &["each_error_has_its_kind"]),
            tested(
                "limits of the resource manager and the providers, and headers that tell them",
                &["every_limit_is_counted_by_a_rule_and_only_the_table_is_written"],
            ),
            different(
                "limits of one resource (12 reads a minute)",
                "no resource is read that often; the answers' headers would tell",
            ),
            tested("D20: a lock closes all requests", &["each_error_has_its_kind"]),
            tested(
                "what Azure's resource manager really sends",
                &[
                    "a_recorded_machine_is_found_with_its_interface",
                    "a_recorded_route_table_gets_a_route",
                    "each_recorded_refusal_has_its_kind",
                    "recorded_interfaces_and_public_addresses_are_read",
                    "recorded_machines_are_read",
                    "recorded_operations_have_ended",
                    "recorded_scale_sets_are_read",
                ],
            ),
            different(
                "D22: names of Services and Nodes in metrics",
                "metrics are Pileus' own, and no label has such a name",
            ),
            different("D23: names of registries with dashes", "image credentials are not a provider's"),
            tested(
                "read-only members are not sent back",
                &["a_batch_is_one_write_that_keeps_what_others_put_there"],
            ),
        ],
    ),
    (
        "Node manager and metadata service",
        &[
            tested(
                "instance: ID, type, region, zone, addresses",
                &[
                    "the_metadata_service_describes_the_machine",
                    "the_metadata_service_and_the_resource_manager_agree",
                ],
            ),
            tested(
                "zones, fault domains, sub-fault domain, interconnect group",
                &["zones_and_labels_are_those_of_the_machine"],
            ),
            tested(
                "public address of the load balancer, IPv6 in brackets, failure ignored",
                &["the_load_balancers_address_is_the_machines"],
            ),
            tested(
                "missing values and answers that are not there yet",
                &["what_the_service_does_not_know_yet_is_pending"],
            ),
            tested(
                "D8: the first interface of an unordered list",
                &["the_interface_is_that_of_the_kubelets_address"],
            ),
            tested(
                "D9: proxies of the environment, five requests a second",
                &["the_metadata_service_is_asked_for_only_if_the_configuration_says_so"],
            ),
            tested(
                "an answer about another machine",
                &[
                    "an_answer_about_another_machine_is_broken",
                    "a_machine_of_another_subscription_is_refused_where_the_configuration_has_one",
                ],
            ),
            different(
                "the taint, NetworkUnavailable, the period of refreshes",
                "they are Pileus' own, for all clouds",
            ),
            different(
                "beta topology labels",
                "a Node that joins gets them without a flag; one that was initialized without them gets none",
            ),
            different("Windows", "the provider asks the same; the rest is of the node manager"),
            different(
                "ARM mode on each Node",
                "`instances` is the fallback, with the same lists: `the_resource_manager_stands_in_for_a_failing_metadata_service_only_by_flag`",
            ),
        ],
    ),
    (
        "Reported bugs",
        &[
            tested(
                "1 CPA#5904: limits starve or saturate",
                &["every_limit_is_counted_by_a_rule_and_only_the_table_is_written"],
            ),
            tested(
                "5 CPA#10604: a fresh Node is deleted",
                &["a_young_node_is_pending_although_its_machine_is_not_visible_yet"],
            ),
            tested(
                "6 CPA#2156, K8S#93287: a machine made again under its name",
                &[
                    "many_nodes_of_all_kinds_share_the_lists_of_their_group",
                    "a_machine_that_is_made_again_is_found_at_once",
                ],
            ),
            tested(
                "7 K8S#95288: a deleted scale set",
                &[
                    "a_scale_set_that_is_gone_has_no_machines",
                    "a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it",
                ],
            ),
            tested(
                "8 K8S#91183, CPA#3921: deleted standalone machines",
                &["a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it"],
            ),
            tested(
                "9 K8S#71595: scaled-in instances",
                &["a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it"],
            ),
            tested(
                "10 CPA#10194, CPA#798: standalone machines in a cluster of scale sets",
                &["a_node_without_an_id_is_found_among_machines_of_any_kind"],
            ),
            tested("11 CPA#247: a read for each machine", &["five_thousand_nodes_cost_lists_alone"]),
            tested(
                "12 AKS#1187, AKS#1413: clusters throttle each other",
                &["five_thousand_nodes_cost_lists_alone"],
            ),
            tested("14 CPA#1155: an empty provider ID", &["what_the_service_does_not_know_yet_is_pending"]),
            tested(
                "15 CPA#4428: the shutdown taint stays",
                &["a_machine_has_stopped_only_if_nothing_is_being_done_to_it"],
            ),
            tested(
                "16 CPA#8175, CPA#8427, CPA#657: stale routes",
                &["a_route_that_leads_elsewhere_is_changed_only_if_it_is_the_nodes_own"],
            ),
            tested("17 CPA#8820: a missing table with tags", &["all_routes_of_the_table_are_listed"]),
            tested(
                "36 CPA#1296: a new resource group is not found, empty answers",
                &[
                    "a_list_without_its_parent_is_empty_and_an_empty_answer_is_no_list",
                    "each_error_has_its_kind",
                ],
            ),
            tested(
                "40 CPA#7048: the tag value \"null\"",
                &["tags_are_added_changed_and_removed_by_the_rules"],
            ),
            tested(
                "41 K8S#71994: groups in another case",
                &["every_spelling_of_a_provider_id_is_of_one_machine"],
            ),
            different("44 CAPZ#2591, CPA#3283: Windows node managers", "the node manager's deployment"),
            different("45 kops#17607: the node manager before the network", "the node manager's deployment"),
            different(
                "46 CAPZ#4462: workload identity is hard to set up",
                "the README has the document, and `inspect` shows what the configuration asks for",
            ),
            different("47 CPA#8383: calls without a timeout", "each call has a deadline of the host"),
            next(
                "D10 to D17: load balancers and security groups",
                "they are about load balancers and what belongs to them",
            ),
            next(
                "2, 3, 4, 13, 18 to 35, 37 to 39, 48 to 50: load balancers, security groups, private links, disks",
                "they are about load balancers and what belongs to them",
            ),
            different("42, 43 CPA#8592, K8S#92326: image credentials", "not a provider's"),
        ],
    ),
];

#[test]
fn the_coverage_is_that_of_the_table() {
    let text = SECTIONS.iter().fold(INTRODUCTION.to_owned(), |mut text, (title, rows)| {
        write!(text, "\n## {title}\n\n| what | how | where |\n|---|---|---|\n").unwrap();
        text.extend(rows.iter().map(Row::line));
        if *title == "Configuration" {
            text.extend(KEYS.iter().map(key_line));
            let limits = "the limits of one kind of request, told as without effect";
            text.push_str(&tested(limits, &[ALL_KEYS]).line());
        }
        text
    });
    is_written("COVERAGE.md", &text);
}

/// The row of a key. Each key that has an effect needs a test of its own.
fn key_line(key: &crate::configuration::keys::Key) -> String {
    let name = format!("`{}`", key.name);
    match key.effect {
        Effect::Later => line(&name, &Status::Next("told as without effect; it is about load balancers")),
        Effect::Nothing(_) => line(&format!("{name}, told as without effect"), &Status::Tested(&[ALL_KEYS])),
        Effect::Secret(_) => line(&format!("{name}, refused"), &Status::Tested(&[ALL_KEYS])),
        Effect::Read | Effect::Credential => {
            let mut tests = KEY_TESTS.iter().filter(|(keys, _)| keys.contains(&key.name));
            let (_, tests) = tests.next().unwrap_or_else(|| panic!("KEY_TESTS names no test of {name}"));
            line(&name, &Status::Tested(tests))
        }
    }
}

impl Row {
    fn line(&self) -> String {
        line(self.what, &self.status)
    }
}

fn line(what: &str, status: &Status) -> String {
    let (how, evidence) = match status {
        Status::Tested(tests) => {
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            ("tested", tests.join(", "))
        }
        Status::Different(why) => ("different", (*why).to_owned()),
        Status::Missing(why) => ("missing", (*why).to_owned()),
        Status::Next(why) => ("next", (*why).to_owned()),
    };
    format!("| {what} | {how} | {evidence} |\n")
}

#[test]
fn each_test_that_the_coverage_names_exists() {
    let tests = tests();
    let of_rows = SECTIONS.iter().flat_map(|(_, rows)| *rows).filter_map(|row| match row.status {
        Status::Tested(tests) => Some((row.what, tests)),
        _ => None,
    });
    let of_keys = KEY_TESTS.iter().map(|(keys, tests)| (keys[0], *tests));
    for (what, named) in of_rows.chain(of_keys).chain([("all keys", &[ALL_KEYS][..])]) {
        assert!(!named.is_empty(), "no test of: {what}");
        for test in named {
            assert!(tests.contains(*test), "there is no test {test}, which is said to cover: {what}");
        }
    }
    let known: BTreeSet<_> = KEYS.iter().map(|key| key.name).collect();
    for key in KEY_TESTS.iter().flat_map(|(keys, _)| *keys) {
        assert!(known.contains(key), "KEY_TESTS names {key}, which is no key");
    }
}

#[test]
fn each_reported_bug_and_each_defect_has_a_row() {
    let rows = || SECTIONS.iter().flat_map(|(_, rows)| *rows).map(|row| row.what);
    let (_, bugs) = SECTIONS.iter().find(|(title, _)| *title == "Reported bugs").unwrap();
    let bugs: BTreeSet<_> = bugs.iter().flat_map(|row| numbers(row.what, "")).collect();
    assert_eq!(bugs, (1..=BUGS).collect());
    let defects: BTreeSet<_> = rows().flat_map(|what| numbers(what, "D")).collect();
    assert_eq!(defects, (1..=DEFECTS).collect());
}

/// The numbers at the beginning of a text, each after a prefix, as in `1, 3 to 5: …`.
fn numbers(what: &str, prefix: &str) -> Vec<u32> {
    let (mut numbers, mut is_range) = (Vec::new(), false);
    for word in what.split(' ') {
        if word == "to" {
            is_range = true;
            continue;
        }
        let number = word.trim_end_matches([',', ':']).strip_prefix(prefix).and_then(|it| it.parse().ok());
        let Some(number) = number else { break };
        let first = numbers.last().filter(|_| is_range).map_or(number, |last| last + 1);
        numbers.extend(first..=number);
        is_range = false;
    }
    numbers
}

/// The names of all tests of this component, and of those with a real API server.
fn tests() -> BTreeSet<String> {
    let component = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let cluster = component.join("../../../runtime/pileus/tests/cluster");
    let mut folders = vec![component.join("src"), component.join("tests"), cluster];
    let mut tests = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                tests.extend(tests_of(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    tests
}

/// The names of the functions below `#[test]` and `#[tokio::test]`.
fn tests_of(source: &str) -> Vec<String> {
    let (mut tests, mut is_test) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        let name =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split('(').next());
        match name {
            Some(name) if is_test => {
                tests.push(name.to_owned());
                is_test = false;
            }
            Some(_) => {}
            None => {
                is_test = line.starts_with("#[test]")
                    || line.starts_with("#[tokio::test")
                    || (is_test && line.starts_with('#'));
            }
        }
    }
    tests
}

#[test]
fn only_functions_that_run_as_tests_are_tests() {
    let source = "#[test]\nfn a() {}\nfn b() {}\n    #[tokio::test]\n    #[ignore]\n    async fn c() {}\n#[test]\nmod d {}\nfn e() {}";
    assert_eq!(tests_of(source), ["a", "c"]);
}
