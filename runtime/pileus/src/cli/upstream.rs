//! Advice about the flags of other cloud-controller-managers that Pileus doesn't have. An operator who migrates a
//! cluster starts from its command line, so the error says for each of these flags what replaces it.

use clap::error::{ContextKind, ContextValue, ErrorKind};

const PROVIDER: &str = "use --provider FILE.yaml, whose document names the provider";
const CONFIGURATION: &str = "move its content to spec.configuration, and its secrets to spec.credentials, of the document of \
                             --provider FILE.yaml";
const CIDRS: &str = "not needed: kube-controller-manager assigns Pod CIDRs to Nodes and has the same flag";
const NOTHING: &str = "not needed: it has no effect upstream any more";
const ACCOUNT: &str =
    "not needed: all controllers use the service account of the Pod and the role of deploy/rbac.yaml";
const START: &str = "not needed: all controllers start at once";
const RESYNC: &str = "use --node-status-update-frequency, --load-balancer-audit-period and \
                      --route-reconciliation-period";
const CLIENT: &str = "not needed: the API server's priority and fairness applies";
const CONTENT: &str = "not needed: requests to the API server are JSON";
const GATES: &str = "not needed: Pileus has no feature gates";
const MIGRATION: &str = "not supported: there is one Lease (--leader-elect-resource-name), so stop other managers of these \
                         controllers first";
const TOGETHER: &str = "not needed: Nodes are looked up in batches, in as few calls as possible";
const MASTER: &str = "use --kubeconfig FILE, which names the API server";
const PROFILING: &str = "not supported: see /metrics and /debug/gate instead";
const ADDRESS: &str = "use --admin-address ADDRESS:PORT, which serves plain HTTP";
const SHARING: &str = "not supported: the admin server does not share its address and port";
const TLS: &str =
    "not supported: the admin server speaks plain HTTP, so restrict who can reach --admin-address";
const AUTHENTICATION: &str =
    "not supported: the admin server does not authenticate, so restrict who can reach --admin-address";
const WEBHOOKS: &str = "not needed: Pileus has no webhooks";
const FORMAT: &str = "use --log-format text or --log-format json";
const VERBOSITY: &str = "use --log-filter debug, or name modules, as in --log-filter info,pileus_gate=debug";
const LOG: &str = "not needed: each log entry goes to standard error at once";

/// Advice, and the flags of upstream 1.36 and of klog that it is for. A name that ends in a dash stands for all flags
/// with that prefix.
pub(crate) const TABLE: &[(&str, &[&str])] = &[
    (PROVIDER, &["cloud-provider"]),
    (CONFIGURATION, &["cloud-config"]),
    (CIDRS, &["allocate-node-cidrs", "cidr-allocator-type"]),
    (NOTHING, &["node-sync-period", "allow-untagged-cloud", "external-cloud-volume-plugin"]),
    (ACCOUNT, &["use-service-account-credentials"]),
    (START, &["controller-start-interval"]),
    (RESYNC, &["min-resync-period"]),
    (CLIENT, &["kube-api-qps", "kube-api-burst"]),
    (CONTENT, &["kube-api-content-type"]),
    (GATES, &["feature-gates"]),
    (MIGRATION, &["enable-leader-migration", "leader-migration-config"]),
    (TOGETHER, &["concurrent-node-syncs", "concurrent-node-status-updates"]),
    (MASTER, &["master"]),
    (PROFILING, &["profiling", "contention-profiling"]),
    (ADDRESS, &["bind-address", "secure-port"]),
    (SHARING, &["permit-port-sharing", "permit-address-sharing"]),
    (TLS, &["cert-dir", "tls-", "disable-http2-serving", "http2-max-streams-per-connection"]),
    (AUTHENTICATION, &["authentication-", "authorization-", "client-ca-file", "requestheader-"]),
    (WEBHOOKS, &["webhooks", "webhook-"]),
    (FORMAT, &["logging-format"]),
    (VERBOSITY, &["v", "vmodule"]),
    (
        LOG,
        &[
            "log-flush-frequency",
            "log-text-",
            "log-json-",
            "logtostderr",
            "alsologtostderr",
            "stderrthreshold",
        ],
    ),
];

/// Advice for each upstream flag on a command line that clap rejected for one of them; empty if clap rejected it for
/// another reason.
pub(super) fn advice<'a>(error: &clap::Error, arguments: impl Iterator<Item = &'a str>) -> Vec<String> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    if error.kind() != ErrorKind::UnknownArgument || advice_for(wrong.trim_start_matches('-')).is_none() {
        return Vec::new();
    }
    let long = arguments.filter_map(|argument| argument.strip_prefix("--"));
    let long = long.map(|flag| flag.split('=').next().unwrap_or_default());
    let short = (!wrong.starts_with("--")).then(|| wrong.trim_start_matches('-'));
    let mut lines = Vec::new();
    for flag in long.chain(short) {
        let Some(advice) = advice_for(flag) else { continue };
        let line = format!("--{flag}: {advice}");
        // Some flags may be repeated, such as --tls-sni-cert-key.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The advice for a flag. Upstream accepts underscores for dashes.
fn advice_for(flag: &str) -> Option<&'static str> {
    let flag = flag.replace('_', "-");
    let is_it = |name: &&str| flag == *name || (name.ends_with('-') && flag.starts_with(name));
    TABLE.iter().find(|(_, names)| names.iter().any(is_it)).map(|(advice, _)| *advice)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::super::Pileus;
    use super::*;

    /// All flags of upstream's cloud-controller-manager 1.36.
    const UPSTREAM: &[&str] = &[
        "allocate-node-cidrs",
        "allow-untagged-cloud",
        "authentication-kubeconfig",
        "authentication-skip-lookup",
        "authentication-token-webhook-cache-ttl",
        "authentication-tolerate-lookup-failure",
        "authorization-always-allow-paths",
        "authorization-kubeconfig",
        "authorization-webhook-cache-authorized-ttl",
        "authorization-webhook-cache-unauthorized-ttl",
        "bind-address",
        "cert-dir",
        "cidr-allocator-type",
        "client-ca-file",
        "cloud-config",
        "cloud-provider",
        "cluster-cidr",
        "cluster-name",
        "concurrent-node-status-updates",
        "concurrent-node-syncs",
        "concurrent-service-syncs",
        "configure-cloud-routes",
        "contention-profiling",
        "controller-start-interval",
        "controllers",
        "disable-http2-serving",
        "enable-leader-migration",
        "external-cloud-volume-plugin",
        "feature-gates",
        "help",
        "http2-max-streams-per-connection",
        "kube-api-burst",
        "kube-api-content-type",
        "kube-api-qps",
        "kubeconfig",
        "leader-elect",
        "leader-elect-lease-duration",
        "leader-elect-renew-deadline",
        "leader-elect-resource-lock",
        "leader-elect-resource-name",
        "leader-elect-resource-namespace",
        "leader-elect-retry-period",
        "leader-migration-config",
        "log-flush-frequency",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "logging-format",
        "master",
        "min-resync-period",
        "node-monitor-period",
        "node-status-update-frequency",
        "node-sync-period",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "requestheader-allowed-names",
        "requestheader-client-ca-file",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-uid-headers",
        "requestheader-username-headers",
        "route-reconciliation-period",
        "secure-port",
        "tls-cert-file",
        "tls-cipher-suites",
        "tls-curve-preferences",
        "tls-min-version",
        "tls-private-key-file",
        "tls-sni-cert-key",
        "use-service-account-credentials",
        "v",
        "version",
        "vmodule",
        "webhook-bind-address",
        "webhook-cert-dir",
        "webhook-disable-http2-serving",
        "webhook-secure-port",
        "webhook-tls-cert-file",
        "webhook-tls-cipher-suites",
        "webhook-tls-curve-preferences",
        "webhook-tls-min-version",
        "webhook-tls-private-key-file",
        "webhook-tls-sni-cert-key",
        "webhooks",
    ];

    #[test]
    fn each_flag_of_upstream_exists_or_has_advice_and_none_has_both() {
        let mut command = Pileus::command();
        command.build();
        let run = command.find_subcommand("run").unwrap();
        let own: Vec<_> =
            [&command, run].iter().flat_map(|it| it.get_arguments()).filter_map(|it| it.get_long()).collect();
        for flag in UPSTREAM {
            assert!(own.contains(flag) != advice_for(flag).is_some(), "{flag}");
        }
        for flag in &own {
            assert!(advice_for(flag).is_none(), "{flag}");
        }
        for (advice, _) in TABLE {
            let is_end = |c: char| !c.is_ascii_lowercase() && c != '-';
            for flag in advice.split("--").skip(1).filter_map(|rest| rest.split(is_end).next()) {
                assert!(own.contains(&flag), "there is no --{flag}: {advice}");
            }
        }
    }

    #[test]
    fn all_upstream_flags_of_a_command_line_are_reported_at_once_and_typos_are_left_to_clap() {
        let lines = |line: &str| {
            let arguments: Vec<_> = line.split(' ').collect();
            advice(&Pileus::try_parse_from(&arguments).unwrap_err(), arguments.iter().copied())
        };
        let of = |flag: &str, advice: &str| format!("--{flag}: {advice}");
        let all = [of("v", VERBOSITY), of("cloud-provider", PROVIDER), of("tls_cert_file", TLS)];
        assert_eq!(lines("pileus run --v=2 --cloud-provider=azure --cluster-name a --tls_cert_file x"), all);
        // Upstream's program has no subcommands.
        assert_eq!(lines("pileus --cloud-provider azure"), [of("cloud-provider", PROVIDER)]);
        assert_eq!(lines("pileus run -v 2 --profiling"), [of("profiling", PROFILING), of("v", VERBOSITY)]);
        for line in ["pileus run --v=2 --v 4", "pileus run -v=2 --v=2", "pileus run -v2"] {
            assert_eq!(lines(line), [of("v", VERBOSITY)], "{line}");
        }
        for line in ["pileus run --speed 9", "pileus plan -v --speed", "pileus fly --v", "pileus --help"] {
            assert_eq!(lines(line), [""; 0], "{line}");
        }
    }
}
