//! `pileus inspect`: what a component is, before anybody trusts it with a cluster.

use std::io::Write as _;

use owo_colors::{OwoColorize as _, Stream, Style};
use pileus_host::{Code, Component, Description, Engine, Limits, Settings};
use prometheus_client::registry::Registry;

use crate::cli;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::start::{compiled_code, compiler, coverage};

/// Prints what a component is.
pub(crate) async fn run(arguments: cli::Inspect) -> Result<(), Error> {
    let cli::Inspect { component: path, provider, compiled } = arguments;
    let document = provider.as_deref().map(CloudProvider::read).transpose()?;
    let failed = |source| Error::Provider { provider: path.display().to_string(), source };
    let limits = Limits::default();
    let metrics = pileus_host::Metrics::register(&mut Registry::default());
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let bytes = pileus_host::read(&path).await.map_err(failed)?;
    let component = Component::load(&engine, bytes).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics).await.map_err(failed)?;

    let mut report = Report::default();
    report.title(&path.display().to_string());
    say_component(&mut report, &component);
    say_description(&mut report, &component, &description);
    let configuration = document.as_ref().map_or("{}", |document| document.configuration.as_str());
    match (component.configure(configuration, &limits, &metrics).await, &document) {
        (Ok(settings), document) => say_settings(&mut report, &settings, document.as_ref()),
        // Without a document there is nothing that the operator could have got wrong.
        (Err(pileus_host::Error::Configuration(_)), None) => {
            report.line("wishes", "they follow from its configuration; give one with --provider FILE.yaml");
        }
        (Err(error), _) => return Err(failed(error)),
    }
    report.print();
    Ok(())
}

fn say_component(report: &mut Report, component: &Component) {
    let code = match component.code {
        Code::Compiled(took) => format!("compiled in {} ms", took.as_millis()),
        Code::Cached(took) => format!("code from the cache in {} ms", took.as_millis()),
    };
    report.line("digest", &component.digest.to_string());
    report.line("size", &format!("{} kB, {code}", component.size.div_ceil(1000)));
    let accepts = pileus_host::CONTRACT;
    let contract = &component.contract;
    report.line("contract", &format!("pileus:provider@{contract} (this host accepts {accepts}.x)"));
    report.list("exports", &component.exports);
    report.list("imports", &component.imports);
}

fn say_description(report: &mut Report, component: &Component, description: &Description) {
    let Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations,
        node_labels,
        call_shapes: _, // shown with each capability
    } = description;
    report.line("provider", &format!("{name} {version}"));
    let can = component.capabilities.iter().map(|capability| {
        let shape = description.call_shape(*capability);
        let turns = if shape.side_by_side { "calls side by side" } else { "one call at a time" };
        format!("{capability}: up to {} a call, {turns}", shape.largest_batch)
    });
    report.list("can", &can.collect::<Vec<_>>());
    report.list(
        "provider IDs",
        &provider_id_schemes.iter().map(|scheme| format!("{scheme}://…")).collect::<Vec<_>>(),
    );
    report.list("reads labels", node_labels);
    let annotations = service_annotations.iter().map(|annotation| {
        let default =
            annotation.default.as_deref().map(|value| format!(", default {value}")).unwrap_or_default();
        format!("{} ({}{default}): {}", annotation.name, annotation.value, annotation.description)
    });
    report.list("reads annotations", &annotations.collect::<Vec<_>>());
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
        printable(&format!("{name} ({kind}{must}){about}"))
    };
    fields.map(line).collect()
}

/// A stranger's text, without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn say_settings(report: &mut Report, settings: &Settings, document: Option<&CloudProvider>) {
    let granted = document.map(|document| coverage(&document.grants, settings));
    let wish = |wish: &pileus_host::Wish| {
        let verdict = granted.as_ref().map_or(String::new(), |coverage| {
            let found = coverage.granted.iter().find(|(endpoint, _)| *endpoint == wish.endpoint);
            match found {
                Some((_, grants)) => format!(" [granted by {}]", grants.join(", ")),
                None => " [NOT GRANTED]".to_owned(),
            }
        });
        format!("{}{verdict}: {}", wish.endpoint, wish.reason)
    };
    report.list("wishes", &settings.wishes.iter().map(wish).collect::<Vec<_>>());
    let limit = |limit: &pileus_host::PublishedLimit| {
        format!("{}: {} at once, {} a minute", limit.key, limit.capacity, limit.per_minute)
    };
    report.list("cloud's limits", &settings.limits.iter().map(limit).collect::<Vec<_>>());
}

/// Lines of a name and what stands beside it.
#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn title(&mut self, title: &str) {
        let bold = title.if_supports_color(Stream::Stdout, |text| text.style(Style::new().bold()));
        self.text.extend([&bold.to_string(), "\n"]);
    }

    fn line(&mut self, name: &str, value: &str) {
        let name = format!("{name:<18}");
        let name = name.if_supports_color(Stream::Stdout, |text| text.dimmed());
        self.text.extend(["  ", &name.to_string(), value, "\n"]);
    }

    fn list(&mut self, name: &str, values: &[String]) {
        match values.split_first() {
            None => self.line(name, "none"),
            Some((first, rest)) => {
                self.line(name, first);
                for value in rest {
                    self.line("", value);
                }
            }
        }
    }

    /// A reader that has gone away (`pileus inspect … | head -1`) is no failure.
    fn print(&self) {
        let _gone = std::io::stdout().write_all(self.text.as_bytes());
    }
}
