//! `pileus provider test`: tests a component of any language against the contract.
//!
//! The test has three independent steps. `probe` calls the provider through the host and the gate, as in a cluster, and
//! records its observations in `facts` and `changes`. The checks (`info`, `configuration`, `instances`, `batches`,
//! `faults`, `refusals`, `load_balancers`, `service_reports`, `routes`) are values, each with a pure function from the observations to a result.
//! `report` prints the results. `cloud` stands in for the cloud: it forwards to the real one, or fails.

mod batches;
mod changes;
mod check;
mod cloud;
mod configuration;
mod describe;
mod facts;
mod faults;
mod info;
mod input;
mod instances;
mod load_balancers;
mod probe;
mod refusals;
mod report;
mod routes;
#[cfg(test)]
mod samples;
mod service_reports;
mod wrong_documents;

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;

use pileus_host::Engine;

use crate::cli::{self, LogFormat};
use crate::error::Error;
use crate::folders::compiled_code;
use crate::provider::{compile, compiler};
use crate::signals::stop_on_signal;
use crate::sources::read_file;
use crate::terminal::{clear_progress, progress};
use crate::{telemetry, terminal};
use input::TestInput;
pub(crate) use input::configuration_text;
use probe::Subject;
use report::Report;

/// Tests a provider and prints the report.
///
/// # Errors
/// [`Error::Nonconforming`] if a check fails, [`Error::NotTested`] if all have to run and one did not; other errors if the
/// test can't run.
pub(crate) async fn run(arguments: cli::ProviderTest) -> Result<(), Error> {
    let cli::ProviderTest {
        component,
        provider,
        config,
        grant,
        node,
        gone,
        allow_changes,
        require_all,
        json,
        log_filter,
        compiled,
    } = arguments;
    telemetry::start(LogFormat::Text, &log_filter)?;
    let input = TestInput::read(component, provider.as_deref(), config.as_deref(), grant)?;
    let TestInput { component: path, trust, configuration, access } = input;
    let file = path.display().to_string();
    let failed = |source| Error::Provider { provider: file.clone(), source };
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let verified = read_file(&path, &trust).await?;
    let component = compile(&engine, verified).await.map_err(failed)?;
    let (digest, contract) = (component.digest.to_string(), component.contract.clone());
    // Random, so that it is unknown_node's however often a cloud was tested.
    let unknown_node = format!("pileus-unknown-{:08x}", RandomState::new().hash_one(0_u8) >> 32);
    let change_permit = allow_changes.then(stop_on_signal).transpose()?;
    let subject =
        Subject { component, configuration, access, nodes: node, gone, unknown_node, change_permit };
    let facts = Box::pin(probe::facts(subject, &mut progress)).await;
    clear_progress();
    let facts = facts?;

    let report = Report::new(file.clone(), digest, contract, &facts);
    let text = if json { terminal::json(&report.json()) } else { report.text() };
    // A reader that closes the pipe early (`pileus provider test … | head -1`) isn't an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    match (report.failed(), report.not_run()) {
        (0, not_run) if not_run > 0 && require_all => Err(Error::NotTested { provider: file, not_run }),
        (0, _) => Ok(()),
        (failed, _) => Err(Error::Nonconforming { provider: file, failed }),
    }
}
