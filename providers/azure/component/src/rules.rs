//! What requests mean, and the limits that Azure publishes: those of the resource manager for a subscription, and those of the compute and
//! network providers for a subscription and region. A cluster is in one region, so the subscription stands for both.

use pileus_guest::http::BaseUrl;
use pileus_guest::{Effect, Limit, Place, Rule};

use crate::arm::PAGE;

/// The resources of a resource group.
const GROUP: &str = "/subscriptions/*/resourceGroups/*/providers";

/// A limit of one subscription.
pub(crate) struct SubscriptionLimit {
    /// Its name, without the subscription.
    pub(crate) name: &'static str,
    /// How many requests may come at once.
    pub(crate) burst: u32,
    /// How many more may come each minute.
    pub(crate) per_minute: u32,
    /// The header and the name by which answers tell what is left.
    told_by: Option<(&'static str, &'static str)>,
}

/// The header by which the compute provider tells what is left of its policies.
const POLICIES: &str = "x-ms-ratelimit-remaining-resource";

/// All limits. The network provider counts requests in five minutes; half of them may come at once.
pub(crate) const LIMITS: [SubscriptionLimit; 9] = [
    limit("subscription-reads", 250, 1_500, Some(("x-ms-ratelimit-remaining-subscription-reads", ""))),
    limit("subscription-writes", 200, 600, Some(("x-ms-ratelimit-remaining-subscription-writes", ""))),
    limit("machine-lists", 900, 300, Some((POLICIES, "Microsoft.Compute/HighCostGet"))),
    limit("machine-reads", 24_000, 8_000, Some((POLICIES, "Microsoft.Compute/LowCostGet"))),
    limit("scale-set-lists", 1_080, 360, Some((POLICIES, "Microsoft.Compute/HighCostGetVMScaleSet"))),
    limit("scale-set-machine-reads", 6_000, 2_000, Some((POLICIES, "Microsoft.Compute/GetVMScaleSetVM"))),
    limit("operation-reads", 15_000, 5_000, Some((POLICIES, "Microsoft.Compute/GetOperation"))),
    limit("network-reads", 5_000, 1_000, None),
    limit("network-writes", 500, 100, None),
];

const fn limit(
    name: &'static str,
    burst: u32,
    per_minute: u32,
    told_by: Option<(&'static str, &'static str)>,
) -> SubscriptionLimit {
    SubscriptionLimit { name, burst, per_minute, told_by }
}

/// Requests to the metadata service of the machine.
const METADATA: &str = "metadata";

/// The limits of a subscription. `{1}` is its ID, which is the first segment that a rule leaves open.
pub(crate) fn limits() -> impl Iterator<Item = Limit> {
    LIMITS.into_iter().map(|SubscriptionLimit { name, burst, per_minute, told_by }| {
        let limit = Limit::new(format!("{name}-{{1}}"), burst, per_minute);
        match told_by {
            Some((header, name)) => limit.told_by(header, name),
            None => limit,
        }
    })
}

/// The rules about the resource manager. Machines and their network interfaces are one cache scope; no write of this provider
/// changes a fact about a machine, so none empties it.
pub(crate) fn arm(arm: &BaseUrl) -> Vec<Rule> {
    let read = |path: &str, limit: &str| {
        let rule = arm.rule("GET", &format!("{GROUP}{path}"), Effect::Read).fold_case();
        rule.cache_scope("machines-{1}-{2}").limit("subscription-reads-{1}").limit(format!("{limit}-{{1}}"))
    };
    let list = |path: &str, limit: &str| pages(&read(path, limit));
    let sets = "/Microsoft.Compute/virtualMachineScaleSets";
    let mut rules = Vec::new();
    for (path, limit) in [
        ("/Microsoft.Compute/virtualMachines", "machine-lists"),
        (sets, "scale-set-lists"),
        (&*format!("{sets}/*/virtualMachines"), "scale-set-lists"),
        (&*format!("{sets}/*/networkInterfaces"), "scale-set-lists"),
        (&*format!("{sets}/*/publicIPAddresses"), "scale-set-lists"),
        (&*format!("{sets}/*/virtualMachines/*/networkInterfaces"), "scale-set-lists"),
        ("/Microsoft.Network/networkInterfaces", "network-reads"),
        ("/Microsoft.Network/publicIPAddresses", "network-reads"),
    ] {
        rules.extend(list(path, limit));
    }
    for (path, limit) in [
        ("/Microsoft.Compute/virtualMachines/*", "machine-reads"),
        (&*format!("{sets}/*/virtualMachines/*"), "scale-set-machine-reads"),
        (
            &*format!(
                "{sets}/*/virtualMachines/*/networkInterfaces/*/ipConfigurations/*/publicIPAddresses/*"
            ),
            "network-reads",
        ),
        ("/Microsoft.Network/networkInterfaces/*", "network-reads"),
        ("/Microsoft.Network/publicIPAddresses/*", "network-reads"),
    ] {
        rules.push(read(path, limit));
    }
    let table = format!("{GROUP}/Microsoft.Network/routeTables/*");
    let scope = "routes-{1}-{2}-{3}";
    let reads =
        arm.rule("GET", &table, Effect::Read).limit("subscription-reads-{1}").limit("network-reads-{1}");
    let writes =
        arm.rule("PUT", &table, Effect::Write).limit("subscription-writes-{1}").limit("network-writes-{1}");
    rules.extend([reads, writes].map(|rule| rule.fold_case().cache_scope(scope)));
    let operations =
        [("Microsoft.Network", "network-reads-{1}"), ("Microsoft.Compute", "operation-reads-{1}")];
    for (namespace, limit) in operations {
        for kind in ["operations", "operationResults"] {
            let path = format!("/subscriptions/*/providers/{namespace}/locations/*/{kind}/*");
            let poll = arm.rule("GET", &path, Effect::OperationPoll).fold_case();
            rules.push(poll.limit("subscription-reads-{1}").limit(limit));
        }
    }
    rules
}

/// The rules about a paged list. Azure's services write the parameter of a page in two spellings; the gate compares it exactly, so
/// pages that have the second are named first.
fn pages(list: &Rule) -> [Rule; 2] {
    let [usual, other] = PAGE.map(|name| Place::Query(name.to_owned()));
    [list.clone().operation(other.clone(), "*").page(other), list.clone().page(usual)]
}

/// The rules about the metadata service, and its limit.
pub(crate) fn metadata(service: &BaseUrl) -> (Vec<Rule>, Limit) {
    let read = |path| service.rule("GET", path, Effect::Read).limit(METADATA).cache_scope(METADATA);
    (["/metadata/instance", "/metadata/loadbalancer"].map(read).into(), Limit::new(METADATA, 5, 300))
}
