//! An inspection as text.

use owo_colors::Style;
use pileus_gate::{Credential, Refusal};
use pileus_host::{Capability, Description, PublishedLimit, RequestedEndpoint, Settings, sanitize};

use super::artifact::InspectedArtifact;
use super::binary::{Binary, Producer};
use super::rules::{effect, table};
use super::{CodeSource, Inspection, controllers, provides};
use crate::access_review::{AccessReview, ComparedLimit, DeniedRule, RequestedHost, rate, warnings};
use crate::terminal::styled;

/// How many items of a list are shown after the first. A provider could hide what comes before with thousands of items.
const MAX_ITEMS: usize = 99;

/// How many rules are shown: more than a provider for a whole cloud needs.
const MAX_RULES: usize = 300;

/// The report for an inspection.
pub(super) fn report(inspection: &Inspection) -> String {
    let mut report = Report::default();
    report.title(&inspection.source);
    for (label, values) in inspection.artifact.iter().flat_map(InspectedArtifact::lines) {
        report.list(label, &values);
    }
    add_component(&mut report, inspection);
    add_description(&mut report, inspection);
    if let Some(settings) = &inspection.settings {
        add_settings(&mut report, settings, inspection);
    } else {
        let advice = "depend on the configuration; pass one with --provider FILE.yaml";
        report.line("hosts and rules", advice);
    }
    report.text
}

fn add_component(report: &mut Report, inspection: &Inspection) {
    let Inspection { digest, size, code: (source, took), contract, exports, imports, binary, limits, .. } =
        inspection;
    let code = match source {
        CodeSource::Compiler => format!("compiled in {} ms", took.as_millis()),
        CodeSource::Cache => format!("code from the cache in {} ms", took.as_millis()),
    };
    report.line("digest", digest);
    report.line("size", &format!("{} kB, {code}", size.div_ceil(1000)));
    let accepts = pileus_host::CONTRACT_VERSION;
    report.line("contract", &format!("pileus:provider@{contract} (this host accepts {accepts}.x)"));
    report.list("exports", exports);
    let import =
        |import: &String| format!("{import}: {}", provides(import).unwrap_or("linked, provides nothing"));
    report.list("imports", &imports.iter().map(import).collect::<Vec<_>>());
    let Binary { memory, tables, producers } = binary;
    let kib = memory.div_ceil(1 << 10);
    report.line("memory", &format!("{kib} KiB initially, at most {} MiB per call", limits.memory >> 20));
    let most = limits.table_elements;
    report.line("tables", &format!("{tables} elements initially, at most {most}"));
    let producer = |Producer { field, name, version }: &Producer| {
        format!("{field} {name} {version}").trim_end().to_owned()
    };
    report.list("built with", &producers.iter().map(producer).collect::<Vec<_>>());
}

fn add_description(report: &mut Report, inspection: &Inspection) {
    let Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations,
        service_facts,
        node_labels,
        call_shapes: _, // shown with each capability
    } = &inspection.description;
    report.line("provider", &format!("{name} {version}"));
    let capability = |capability: &Capability| {
        let shape = inspection.description.call_shape(*capability);
        let concurrency = if shape.side_by_side { "concurrent calls" } else { "one call at a time" };
        let used = match controllers(*capability) {
            [] => "not used by a controller yet".to_owned(),
            names => format!("used by {}", names.join(", ")),
        };
        format!("{capability}: up to {} items per call, {concurrency}, {used}", shape.largest_batch)
    };
    report.list("capabilities", &inspection.capabilities.iter().map(capability).collect::<Vec<_>>());
    report.list(
        "provider IDs",
        &provider_id_schemes.iter().map(|scheme| format!("{scheme}://…")).collect::<Vec<_>>(),
    );
    report.list("Node labels used", node_labels);
    let annotations = service_annotations.iter().map(|annotation| {
        let default =
            annotation.default.as_deref().map(|value| format!(", default {value}")).unwrap_or_default();
        format!("{} ({}{default}): {}", annotation.name, annotation.value.as_str(), annotation.description)
    });
    report.list("annotations used", &annotations.collect::<Vec<_>>());
    report.list("Service data used", &service_facts.names().map(str::to_owned).collect::<Vec<_>>());
    report.list("configuration", &fields_of(configuration_schema));
    let fact = |(name, fact): (&String, &String)| format!("{name}: {fact}");
    report.list("identity", &inspection.identity.iter().map(fact).collect::<Vec<_>>());
}

/// The top-level fields of a JSON Schema, one line each.
fn fields_of(schema: &serde_json::Value) -> Vec<String> {
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let line = |(name, field): (&String, &serde_json::Value)| {
        let kind = field["type"].as_str().unwrap_or("any");
        let must = if required.iter().any(|required| *required == name) { ", required" } else { "" };
        let about = field["description"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
        format!("{name} ({kind}{must}){about}")
    };
    fields.map(line).collect()
}

fn add_settings(report: &mut Report, settings: &Settings, inspection: &Inspection) {
    // The last is shown with each capability.
    let Settings { endpoints, rules, limits, refusals, node_labels, notices, one_at_a_time: _ } = settings;
    let host = |host: &RequestedEndpoint| {
        let access = match inspection.access_to(host) {
            None => String::new(),
            Some(RequestedHost { granted_by, .. }) if granted_by.is_empty() => " [NOT GRANTED]".to_owned(),
            Some(RequestedHost { granted_by, credentials, .. }) => {
                let credentials = match credentials.as_slice() {
                    [] => "no credential".to_owned(),
                    names => format!("credential {}", names.join(", ")),
                };
                format!(" [granted by {}, {credentials}]", granted_by.join(", "))
            }
        };
        format!("{}{access}: {}", host.endpoint, host.reason)
    };
    report.list("requests access to", &endpoints.iter().map(host).collect::<Vec<_>>());
    if let Some(AccessReview { denied, .. }) = &inspection.access {
        let line = |DeniedRule { rule, missing, .. }: &DeniedRule| {
            format!("{} {}{}: {missing} ({})", rule.method, rule.host, rule.path, effect(rule.effect))
        };
        report.list("requests NOT GRANTED", &denied.iter().map(line).collect::<Vec<_>>());
    }
    let limit = |limit: &PublishedLimit| {
        format!("{}: burst {}, {} per minute", limit.key, limit.capacity, limit.per_minute)
    };
    let refusal = |Refusal { host, status, place: _, code, meaning }: &Refusal| {
        format!("{} with code {code} of {host} means {}", status.as_u16(), meaning.as_str())
    };
    report.list("declared refusals", &refusals.iter().map(refusal).collect::<Vec<_>>());
    report.list("node labels of this configuration", node_labels);
    report.list("notices", &notices.iter().map(ToString::to_string).collect::<Vec<_>>());
    report.list("declared limits", &limits.iter().map(limit).collect::<Vec<_>>());
    add_operator_settings(report, inspection);
    add_warnings(report, settings);
    let lists = rules.iter().filter(|rule| rule.page.is_some()).count();
    let lists = if lists > 0 { format!(", {lists} for paged lists") } else { String::new() };
    let about = format!("{} request rules{lists}; the first match applies", rules.len());
    report.line("rules", &about);
    report.line("", "read: changes nothing; may be repeated and answered from the cache");
    report.line("", "write: may change something; drops its scope from the cache");
    report.line("", "operation-poll: changes nothing, but polls a change in progress");
    report.line("", "no match: a write that drops the whole cache");
    let shown = rules.get(..MAX_RULES).unwrap_or(rules);
    for line in table(shown) {
        report.text.extend(["    ", &line, "\n"]);
    }
    if rules.len() > shown.len() {
        report.line("", &format!("and {} more (see --json)", rules.len() - shown.len()));
    }
}

/// The limits and credentials of the document.
fn add_operator_settings(report: &mut Report, inspection: &Inspection) {
    let operator_limits = inspection.access.iter().flat_map(|access| &access.limits);
    let operator_limits = operator_limits.filter_map(|ComparedLimit { key, declared, allowed, requests }| {
        if let Some(requests) = requests {
            return Some(format!("{key}: {} ({requests})", rate((*allowed)?)));
        }
        let declared = declared.map_or_else(|| "nothing".to_owned(), rate);
        Some(format!("{key}: {} (the provider declares {declared})", rate((*allowed)?)))
    });
    report.list("your limits", &operator_limits.collect::<Vec<_>>());
    let credentials = inspection.access.iter().flat_map(|access| &access.credentials);
    let credentials = credentials.map(|Credential { name, hosts, paths, plain, kind, .. }| {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let plain = if *plain { ", also without TLS" } else { "" };
        let paths: Vec<_> = paths.iter().map(|path| format!(", below {path}")).collect();
        format!("{name}: {}, for {}{}{plain}", kind.label(), hosts.join(", "), paths.concat())
    });
    report.list("credentials", &credentials.collect::<Vec<_>>());
}

fn add_warnings(report: &mut Report, settings: &Settings) {
    let warnings: Vec<_> = warnings(settings).iter().map(ToString::to_string).collect();
    if !warnings.is_empty() {
        report.list("NOT FOLLOWED", &warnings);
    }
}

/// Lines of a label and a value.
#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn title(&mut self, title: &str) {
        self.text.extend([&styled(title, Style::new().bold()), "\n"]);
    }

    fn line(&mut self, name: &str, value: &str) {
        let name = styled(&format!("{name:<20}"), Style::new().dimmed());
        self.text.extend(["  ", &name, &sanitize(value), "\n"]);
    }

    fn list(&mut self, name: &str, values: &[String]) {
        let Some((first, rest)) = values.split_first() else { return self.line(name, "none") };
        self.line(name, first);
        for value in rest.iter().take(MAX_ITEMS) {
            self.line("", value);
        }
        if rest.len() > MAX_ITEMS {
            self.line("", &format!("and {} more (see --json)", rest.len() - MAX_ITEMS));
        }
    }
}
