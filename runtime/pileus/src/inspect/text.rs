//! An inspection for people.

use owo_colors::Style;
use pileus_gate::Credential;
use pileus_host::{Capability, Description, PublishedLimit, RequestedEndpoint, Settings, sanitize};

use super::binary::{Binary, Producer};
use super::rules::table;
use super::{CodeSource, Inspection, controllers, gives};
use crate::comparison::{ComparedLimit, rate};
use crate::terminal::styled;

/// How many more than one of a list are shown: a provider may say thousands, to hide what comes before.
const SHOWN: usize = 99;

/// How many rules are shown, which come last: more than a provider for a whole cloud needs.
const SHOWN_RULES: usize = 300;

/// The whole text.
pub(super) fn report(inspection: &Inspection) -> String {
    let mut report = Report::default();
    report.title(&inspection.file);
    say_component(&mut report, inspection);
    say_description(&mut report, inspection);
    if let Some(settings) = &inspection.settings {
        say_settings(&mut report, settings, inspection);
    } else {
        let advice = "they follow from its configuration; give one with --provider FILE.yaml";
        report.line("wishes and rules", advice);
    }
    report.text
}

fn say_component(report: &mut Report, inspection: &Inspection) {
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
    let import = |import: &String| format!("{import}: {}", gives(import).unwrap_or("linked, gives nothing"));
    report.list("imports", &imports.iter().map(import).collect::<Vec<_>>());
    let Binary { memory, tables, producers } = binary;
    let kib = memory.div_ceil(1 << 10);
    report.line("memory", &format!("{kib} KiB at first, at most {} MiB a call", limits.memory >> 20));
    let most = limits.table_elements;
    report.line("tables", &format!("{tables} elements at first, at most {most}"));
    let producer = |Producer { field, name, version }: &Producer| {
        format!("{field} {name} {version}").trim_end().to_owned()
    };
    report.list("made with", &producers.iter().map(producer).collect::<Vec<_>>());
}

fn say_description(report: &mut Report, inspection: &Inspection) {
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
    let can = |capability: &Capability| {
        let shape = inspection.description.call_shape(*capability);
        let turns = if shape.side_by_side { "calls side by side" } else { "one call at a time" };
        let used = match controllers(*capability) {
            [] => "no controller of this host uses it yet".to_owned(),
            names => format!("used by {}", names.join(", ")),
        };
        format!("{capability}: up to {} a call, {turns}, {used}", shape.largest_batch)
    };
    report.list("can", &inspection.capabilities.iter().map(can).collect::<Vec<_>>());
    report.list(
        "provider IDs",
        &provider_id_schemes.iter().map(|scheme| format!("{scheme}://…")).collect::<Vec<_>>(),
    );
    report.list("reads labels", node_labels);
    let annotations = service_annotations.iter().map(|annotation| {
        let default =
            annotation.default.as_deref().map(|value| format!(", default {value}")).unwrap_or_default();
        format!("{} ({}{default}): {}", annotation.name, annotation.value.as_str(), annotation.description)
    });
    report.list("reads annotations", &annotations.collect::<Vec<_>>());
    report.list("reads of Services", &service_facts.names().map(str::to_owned).collect::<Vec<_>>());
    report.list("configuration", &fields_of(configuration_schema));
}

/// The top-level fields of a JSON Schema, a line each.
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

fn say_settings(report: &mut Report, settings: &Settings, inspection: &Inspection) {
    let Settings { endpoints: wishes, rules, limits, one_at_a_time: _ } = settings; // shown with each capability
    let wish = |wish: &RequestedEndpoint| {
        let verdict = match inspection.given(wish) {
            None => String::new(),
            Some(given) if given.granted_by.is_empty() => " [NOT GRANTED]".to_owned(),
            Some(given) => {
                let credentials = match given.credentials.as_slice() {
                    [] => "no credential".to_owned(),
                    names => format!("credential {}", names.join(", ")),
                };
                format!(" [granted by {}, {credentials}]", given.granted_by.join(", "))
            }
        };
        format!("{}{verdict}: {}", wish.endpoint, wish.reason)
    };
    report.list("wishes", &wishes.iter().map(wish).collect::<Vec<_>>());
    let limit = |limit: &PublishedLimit| {
        format!("{}: {} at once, {} a minute", limit.key, limit.capacity, limit.per_minute)
    };
    report.list("cloud's limits", &limits.iter().map(limit).collect::<Vec<_>>());
    let tightened = inspection.comparison.iter().flat_map(|compared| &compared.limits);
    let tightened = tightened.filter_map(|ComparedLimit { key, declared, allowed }| {
        let declared = declared.map_or_else(|| "not known".to_owned(), rate);
        Some(format!("{key}: {}, where the cloud's is {declared}", rate((*allowed)?)))
    });
    report.list("tightened to", &tightened.collect::<Vec<_>>());
    let credentials = inspection.comparison.iter().flat_map(|compared| &compared.credentials);
    let credentials = credentials.map(|Credential { name, hosts, plain, addresses: _, kind }| {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let plain = if *plain { ", also without TLS" } else { "" };
        format!("{name}: {}, for {}{plain}", kind.label(), hosts.join(", "))
    });
    report.list("credentials", &credentials.collect::<Vec<_>>());
    let lists = rules.iter().filter(|rule| rule.page.is_some()).count();
    let lists = if lists > 0 { format!(", {lists} about lists in pages") } else { String::new() };
    let about = format!("{} about what its requests mean{lists}; the first that matches holds", rules.len());
    report.line("rules", &about);
    report.line("", "read: changes nothing; may be repeated, and answered from the cache");
    report.line("", "write: changes something; drops what the cache has of its scope");
    report.line("", "operation-poll: changes nothing, but something is on its way to change");
    report.line("", "what no rule matches: a write that drops all of the cache");
    let shown = rules.get(..SHOWN_RULES).unwrap_or(rules);
    for line in table(shown) {
        report.text.extend(["    ", &line, "\n"]);
    }
    if rules.len() > shown.len() {
        report.line("", &format!("and {} more, which --json shows", rules.len() - shown.len()));
    }
}

/// Lines of a name and what stands beside it.
#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn title(&mut self, title: &str) {
        self.text.extend([&styled(title, Style::new().bold()), "\n"]);
    }

    fn line(&mut self, name: &str, value: &str) {
        let name = styled(&format!("{name:<18}"), Style::new().dimmed());
        self.text.extend(["  ", &name, &sanitize(value), "\n"]);
    }

    fn list(&mut self, name: &str, values: &[String]) {
        let Some((first, rest)) = values.split_first() else { return self.line(name, "none") };
        self.line(name, first);
        for value in rest.iter().take(SHOWN) {
            self.line("", value);
        }
        if rest.len() > SHOWN {
            self.line("", &format!("and {} more, which --json shows", rest.len() - SHOWN));
        }
    }
}
