//! What to do about the flags of upstream's cloud-controller-managers that Pileus doesn't have. Whoever moves a cluster over
//! brings a command line along; of each flag on it they should read what takes its place, and not that there is none such.

use clap::error::{ContextKind, ContextValue, ErrorKind};

const PROVIDER: &str = "the provider is what the document of --provider FILE.yaml names";
const CONFIGURATION: &str = "write what is in it under spec.configuration, and secrets under spec.credentials, of the \
                             document of --provider FILE.yaml";
const CIDRS: &str =
    "leave it to kube-controller-manager, which gives nodes their ranges and has the same flag";
const NOTHING: &str = "leave it out; it does nothing any more";
const ACCOUNT: &str =
    "leave it out; all controllers have the service account of the Pod, and the role of deploy/rbac.yaml";
const CONTROLLERS: &str = "leave it out; each controller runs that the component can serve, as `pileus inspect` shows, and \
                           routes where --cluster-cidr is given and --configure-cloud-routes isn't false";
const START: &str = "leave it out; all controllers start at once";
const RESYNC: &str = "leave it out; the cloud is looked at again each --node-status-update-frequency, \
                      --load-balancer-audit-period and --route-reconciliation-period";
const CLIENT: &str = "leave it out; the API server itself says when it has enough";
const CONTENT: &str = "leave it out; the API server is spoken to in JSON";
const GATES: &str = "leave it out; Pileus has no feature gates";
const MIGRATION: &str = "leave it out; there is one Lease, that of --leader-elect-resource-name, and whoever else runs \
                         these controllers has to be stopped first";
const TOGETHER: &str = "leave it out; nodes are looked up together, in as few calls as the component takes";
const MASTER: &str = "name the API server in the file of --kubeconfig";
const PROFILING: &str = "leave it out; /metrics and /debug/gate show where the time goes";
const ADDRESS: &str = "say --admin-address ADDRESS:PORT, which is for plain HTTP";
const SHARING: &str = "leave it out; the admin server shares its address and port with nobody";
const TLS: &str = "leave it out; the admin server speaks plain HTTP, so let --admin-address be one that only those reach who \
                   may read it";
const ASKS_NOBODY: &str = "leave it out; the admin server asks nobody who they are, so let --admin-address be one that only \
                           those reach who may read it";
const WEBHOOKS: &str = "leave it out; Pileus has no webhooks";
const FORMAT: &str = "say --log-format text or --log-format json";
const VERBOSITY: &str = "say --log-filter debug, or of parts, as in --log-filter info,pileus_gate=debug";
const LOG: &str = "leave it out; each line of the log goes to standard error at once";

/// Flags of upstream 1.36 and of klog, and what to do instead.
const TABLE: &[(&str, &[&str])] = &[
    (PROVIDER, &["cloud-provider"]),
    (CONFIGURATION, &["cloud-config"]),
    (CIDRS, &["allocate-node-cidrs", "cidr-allocator-type"]),
    (NOTHING, &["node-sync-period", "allow-untagged-cloud", "external-cloud-volume-plugin"]),
    (ACCOUNT, &["use-service-account-credentials"]),
    (CONTROLLERS, &["controllers"]),
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
    (ASKS_NOBODY, &["authentication-", "authorization-", "client-ca-file", "requestheader-"]),
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

/// The flags on a command line that was refused for one of them, each with what to do instead; none where it was refused
/// for something else.
pub(super) fn told<'a>(refused: &clap::Error, arguments: impl Iterator<Item = &'a str>) -> Vec<String> {
    let Some(ContextValue::String(wrong)) = refused.get(ContextKind::InvalidArg) else { return Vec::new() };
    if refused.kind() != ErrorKind::UnknownArgument || instead(wrong.trim_start_matches('-')).is_none() {
        return Vec::new();
    }
    let long = arguments.filter_map(|argument| argument.strip_prefix("--"));
    let long = long.map(|flag| flag.split('=').next().unwrap_or_default());
    let short = (!wrong.starts_with("--")).then(|| wrong.trim_start_matches('-'));
    let mut told = Vec::new();
    for flag in long.chain(short) {
        let Some(instead) = instead(flag) else { continue };
        let line = format!("--{flag}: {instead}");
        // Some are given once for each of several values, as --tls-sni-cert-key.
        if !told.contains(&line) {
            told.push(line);
        }
    }
    told
}

/// What to do instead of giving this flag. Upstream takes underscores for dashes; a name in the table that ends in a dash
/// stands for all flags that begin so.
fn instead(flag: &str) -> Option<&'static str> {
    let flag = flag.replace('_', "-");
    let is_it = |name: &&str| flag == *name || (name.ends_with('-') && flag.starts_with(name));
    TABLE.iter().find(|(_, names)| names.iter().any(is_it)).map(|(instead, _)| *instead)
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
    fn each_flag_of_upstream_is_honoured_or_answered_and_none_is_both() {
        let mut command = Pileus::command();
        command.build();
        let run = command.find_subcommand("run").unwrap();
        let own: Vec<_> =
            [&command, run].iter().flat_map(|it| it.get_arguments()).filter_map(|it| it.get_long()).collect();
        for flag in UPSTREAM {
            assert!(own.contains(flag) != instead(flag).is_some(), "{flag}");
        }
        for flag in &own {
            assert!(instead(flag).is_none(), "{flag}");
        }
        for (advice, _) in TABLE {
            let ends = |c: char| !c.is_ascii_lowercase() && c != '-';
            for flag in advice.split("--").skip(1).filter_map(|rest| rest.split(ends).next()) {
                assert!(own.contains(&flag), "there is no --{flag}: {advice}");
            }
        }
    }

    #[test]
    fn all_of_a_command_line_is_told_at_once_and_a_slip_is_left_to_others() {
        let told = |line: &str| {
            let arguments: Vec<_> = line.split(' ').collect();
            told(&Pileus::try_parse_from(&arguments).unwrap_err(), arguments.iter().copied())
        };
        let of = |flag: &str, instead: &str| format!("--{flag}: {instead}");
        let all = [of("v", VERBOSITY), of("cloud-provider", PROVIDER), of("tls_cert_file", TLS)];
        assert_eq!(told("pileus run --v=2 --cloud-provider=azure --cluster-name a --tls_cert_file x"), all);
        // It is `pileus run`, and upstream's is no subcommand.
        assert_eq!(told("pileus --cloud-provider azure"), [of("cloud-provider", PROVIDER)]);
        assert_eq!(told("pileus run -v 2 --profiling"), [of("profiling", PROFILING), of("v", VERBOSITY)]);
        for line in ["pileus run --v=2 --v 4", "pileus run -v=2 --v=2", "pileus run -v2"] {
            assert_eq!(told(line), [of("v", VERBOSITY)], "{line}");
        }
        for line in [
            "pileus run --speed 9",
            "pileus plan -v --speed",
            "pileus run",
            "pileus fly --v",
            "pileus --help",
        ] {
            assert_eq!(told(line), [""; 0], "{line}");
        }
    }
}
