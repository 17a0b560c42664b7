//! `pileus status`: who leads, which releases run and are on their way, and what fails, in one look. All of it comes from the
//! API server.

use std::fmt::Write as _;
use std::io::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use pileus_controllers::claims::Claims;
use pileus_controllers::facts::node::{Node, NodeFacts};
use pileus_gate::Fence;
use serde_json::{Value, json};

use crate::error::Error;
use crate::providers::api_resource;
use crate::{cli, cluster, terminal};

/// How many warnings are shown.
const WARNINGS: usize = 5;
/// How many held Nodes are named.
const NAMES: usize = 5;

/// What the API server says about Pileus.
struct Found {
    /// Who leads, and when the Lease was renewed last.
    leader: Option<(String, Option<Timestamp>)>,
    providers: Vec<DynamicObject>,
    /// Nodes whose deletion is on hold.
    held: Vec<String>,
    /// The last warnings about providers, the newest first.
    warnings: Vec<Warning>,
}

struct Warning {
    at: Option<Timestamp>,
    provider: String,
    reason: String,
    message: String,
}

/// Prints the status.
pub(crate) async fn run(arguments: cli::Status) -> Result<(), Error> {
    let now = Timestamp::now();
    let json = arguments.json;
    let found = read(arguments).await?;
    let text = if json { terminal::json(&object(&found)) } else { text(&found, now) };
    // A reader that closes the pipe early (`pileus status | head -1`) isn't an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

async fn read(arguments: cli::Status) -> Result<Found, Error> {
    let cli::Status { provider, access, leader_elect_resource_name, leader_elect_resource_namespace, .. } =
        arguments;
    let config = cluster::operator_config(access, "status").await?;
    let client = config.client(Fence::default())?;
    let failed =
        |what: &str, error: kube::Error| Error::Cluster { what: what.to_owned(), source: error.into() };
    let all = ListParams::default();
    let listed = Api::<DynamicObject>::all_with(client.clone(), &api_resource()).list(&all).await;
    let mut providers = listed.map_err(|error| failed("list cloudproviders", error))?.items;
    if let Some(name) = &provider {
        let chosen = choose(&providers, Some(name))?.clone();
        providers = vec![chosen];
    }
    let leases = Api::<Lease>::namespaced(client.clone(), &leader_elect_resource_namespace);
    let lease = leases.get_opt(&leader_elect_resource_name).await;
    let lease = lease.map_err(|error| failed("read the Lease", error))?.and_then(|lease| lease.spec);
    let leader = lease.and_then(|lease| Some((lease.holder_identity?, lease.renew_time.map(|time| time.0))));
    let nodes = Api::<Node>::all(client.clone()).list(&all).await;
    let nodes = nodes.map_err(|error| failed("list nodes", error))?.items.into_iter();
    let held =
        nodes.filter_map(|node| NodeFacts::read(node, &Claims::default()).ok()).filter(|node| node.is_held);
    let about = ListParams::default().fields("involvedObject.kind=CloudProvider,type=Warning");
    let events = Api::<Event>::all(client).list(&about).await;
    let events = events.map_err(|error| failed("list events", error))?.items;
    let mut warnings: Vec<_> = events.into_iter().map(Warning::of).collect();
    warnings.sort_by_key(|warning| std::cmp::Reverse(warning.at));
    warnings.truncate(WARNINGS);
    Ok(Found { leader, providers, held: held.map(|node| node.name).collect(), warnings })
}

impl Warning {
    fn of(event: Event) -> Self {
        let at = event.event_time.map(|time| time.0).or(event.last_timestamp.map(|time| time.0));
        Self {
            at,
            provider: event.involved_object.name.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        }
    }
}

/// The provider of this name, or the only one.
///
/// # Errors
/// [`Error::NoSuchProvider`] where it doesn't exist, or several exist and the command names no provider.
pub(crate) fn choose<'a>(
    providers: &'a [DynamicObject],
    name: Option<&str>,
) -> Result<&'a DynamicObject, Error> {
    let names: Vec<_> = providers.iter().map(DynamicObject::name_any).collect();
    let wrong = |problem: &str| Err(Error::NoSuchProvider(problem.to_owned()));
    match (name, providers) {
        (Some(name), _) => match providers.iter().find(|provider| provider.name_any() == name) {
            Some(provider) => Ok(provider),
            None if names.is_empty() => wrong("there is no CloudProvider in this cluster"),
            None => wrong(&format!("there is no CloudProvider {name}; there are {}", names.join(", "))),
        },
        (None, [provider]) => Ok(provider),
        (None, []) => wrong("there is no CloudProvider in this cluster"),
        (None, _) => wrong(&format!("there are several CloudProviders; name one of {}", names.join(", "))),
    }
}

/// A release of a status in words: its version and digest.
pub(crate) fn release_words(release: Option<&Value>) -> String {
    let text = |pointer: &str| release.and_then(|release| release.pointer(pointer)?.as_str());
    let Some(digest) = text("/release/component") else { return "no release".to_owned() };
    let digest: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
    let settings = text("/release/settings").unwrap_or_default().trim_start_matches("sha256:");
    let settings: String = settings.chars().take(12).collect();
    format!("{} ({digest}, settings {settings})", text("/version").unwrap_or("unknown version"))
}

fn text(found: &Found, now: Timestamp) -> String {
    let mut text = String::new();
    let age = |time: Timestamp| words(now.duration_since(time));
    match &found.leader {
        Some((leader, Some(renewed))) => {
            line(&mut text, "leader", &format!("{leader}, renewed {} ago", age(*renewed)));
        }
        Some((leader, None)) => line(&mut text, "leader", leader),
        None => line(&mut text, "leader", "none"),
    }
    if !found.held.is_empty() {
        let shown = found.held.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
        let held = format!(
            "{} nodes are not deleted: {shown}; see `pileus release-deletion --help`",
            found.held.len()
        );
        line(&mut text, "held", &held);
    }
    if found.providers.is_empty() {
        line(
            &mut text,
            "providers",
            "none: apply a CloudProvider, or Pileus follows --provider FILE, which has no status",
        );
    }
    for provider in &found.providers {
        text.push('\n');
        line(&mut text, "provider", &format!("{} {}", provider.name_any(), source(provider)));
        releases(&mut text, provider, &age);
        let conditions = provider.data.pointer("/status/conditions").and_then(Value::as_array);
        for condition in conditions.into_iter().flatten() {
            let of = |name: &str| condition.get(name).and_then(Value::as_str).unwrap_or_default();
            // Only what isn't as it should be.
            let is_good = match of("type") {
                "Degraded" | "Progressing" => of("status") == "False",
                _ => of("status") == "True",
            };
            if !is_good {
                line(
                    &mut text,
                    &format!("  {}", of("type")),
                    &format!("{}: {}", of("status"), of("message")),
                );
            }
        }
    }
    if !found.warnings.is_empty() {
        text.push_str("\nwarnings\n");
    }
    for Warning { at, provider, reason, message } in &found.warnings {
        let at = at.map_or_else(|| "?".to_owned(), age);
        line(&mut text, &format!("  {at} ago"), &format!("{provider} {reason}: {message}"));
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a text can't fail.
    let _written = writeln!(text, "{name:<12} {value}");
}

fn source(provider: &DynamicObject) -> String {
    let of = |name: &str| provider.data.pointer(&format!("/spec/source/{name}")).and_then(Value::as_str);
    match (of("image"), of("versions")) {
        (Some(image), Some(versions)) => format!("{image} {versions}"),
        (Some(image), None) => image.to_owned(),
        _ => String::new(),
    }
}

fn releases(text: &mut String, provider: &DynamicObject, age: &impl Fn(Timestamp) -> String) {
    let status =
        |name: &str| provider.data.pointer(&format!("/status/{name}")).filter(|value| !value.is_null());
    let since = |release: &Value| {
        let time = release.get("since").and_then(Value::as_str).and_then(|time| time.parse().ok());
        time.map_or_else(String::new, |time| format!(", {}", age(time)))
    };
    let why = |release: &Value| release.get("why").and_then(Value::as_str).unwrap_or_default().to_owned();
    for name in ["active", "previous"] {
        if let Some(release) = status(name) {
            line(
                text,
                &format!("  {name}"),
                &format!("{}{}: {}", release_words(Some(release)), since(release), why(release)),
            );
        }
    }
    if let Some(candidate) = status("candidate") {
        let phase = candidate.pointer("/phase/name").and_then(Value::as_str).unwrap_or_default();
        line(
            text,
            "  candidate",
            &format!("{}{}: {phase}", release_words(Some(candidate)), since(candidate)),
        );
        let shown = candidate.pointer("/differences/shown").and_then(Value::as_array);
        for difference in shown.into_iter().flatten().filter_map(Value::as_str) {
            line(text, "", difference);
        }
    }
    for release in status("rejected").and_then(Value::as_array).into_iter().flatten() {
        line(
            text,
            "  rejected",
            &format!("{}{}: {}", release_words(Some(release)), since(release), why(release)),
        );
    }
    if status("paused") == Some(&Value::Bool(true)) {
        line(text, "  swaps", "paused; `pileus resume` ends that");
    }
}

/// A duration in one or two units.
fn words(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

fn object(found: &Found) -> Value {
    let provider = |provider: &DynamicObject| {
        let status = provider.data.get("status").cloned().unwrap_or_else(|| json!({}));
        json!({"name": provider.name_any(), "source": source(provider), "status": status})
    };
    let warning = |warning: &Warning| {
        let Warning { at, provider, reason, message } = warning;
        json!({"at": at, "provider": provider, "reason": reason, "message": message})
    };
    json!({
        "leader": found.leader.as_ref().map(|(leader, renewed)| json!({"identity": leader, "renewed": renewed})),
        "heldNodes": found.held,
        "providers": found.providers.iter().map(provider).collect::<Vec<_>>(),
        "warnings": found.warnings.iter().map(warning).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, status: &Value) -> DynamicObject {
        let spec = json!({"source": {"image": "ghcr.io/a/b:1.3"}});
        DynamicObject::new(name, &api_resource()).data(json!({"spec": spec, "status": status}))
    }

    #[test]
    fn the_text_shows_what_runs_and_what_is_wrong() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let release = |byte: &str| {
            json!({
                "component": format!("sha256:{}", byte.repeat(64)),
                "settings": format!("sha256:{}", "0".repeat(64)),
            })
        };
        let status = json!({
            "active": {"release": release("a"), "version": "1.2.0", "since": at(100), "why": "the spec asks for it"},
            "candidate": {
                "release": release("b"), "version": "1.3.0", "since": at(4000), "phase": {"name": "held"},
                "differences": {"lookups": 1, "writes": 0, "shown": ["node a: absent instead of found"]},
            },
            "conditions": [
                {"type": "Ready", "status": "True", "message": "it serves"},
                {"type": "Degraded", "status": "True", "message": "it is held"},
            ],
        });
        let warning = Warning {
            at: Some(at(4000)),
            provider: "a".to_owned(),
            reason: "ProviderHeld".to_owned(),
            message: "it is held".to_owned(),
        };
        let found = Found {
            leader: Some(("vm_1".to_owned(), Some(at(4057)))),
            providers: vec![provider("a", &status)],
            held: vec!["n".to_owned()],
            warnings: vec![warning],
        };
        assert_eq!(
            text(&found, at(4060)),
            "leader       vm_1, renewed 3s ago\n\
             held         1 nodes are not deleted: n; see `pileus release-deletion --help`\n\
             \n\
             provider     a ghcr.io/a/b:1.3\n\
             \x20 active     1.2.0 (aaaaaaaaaaaa, settings 000000000000), 1h6m: the spec asks for it\n\
             \x20 candidate  1.3.0 (bbbbbbbbbbbb, settings 000000000000), 1m0s: held\n\
             \x20            node a: absent instead of found\n\
             \x20 Degraded   True: it is held\n\
             \n\
             warnings\n\
             \x20 1m0s ago   a ProviderHeld: it is held\n"
        );
    }

    #[test]
    fn one_provider_needs_no_name_and_several_do() {
        let (one, two) = ([provider("a", &json!({}))], ["a", "b"].map(|name| provider(name, &json!({}))));
        assert_eq!(choose(&one, None).unwrap().name_any(), "a");
        assert_eq!(choose(&two, Some("b")).unwrap().name_any(), "b");
        for (providers, name, expected) in [
            (&two[..], None, "name one of a, b"),
            (&two[..], Some("c"), "there are a, b"),
            (&[][..], None, "there is no CloudProvider in this cluster"),
            (&[][..], Some("c"), "there is no CloudProvider in this cluster"),
        ] {
            let error = choose(providers, name).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
