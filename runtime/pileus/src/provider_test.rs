//! `pileus provider test`: the contract's promises, held against any component, whatever language it was written in.
//!
//! It runs in three steps that know little of each other. `gather` asks the provider everything, through the host and
//! the gate as in a cluster, and `facts` and `changes` are what it saw. The checks (`info`, `configuration`, `instances`,
//! `batches`, `trouble`, `load_balancers`, `routes`) are values, each with a pure function from facts to a verdict. `report` tells authors, or machines, what came out.
//! `cloud` is the cloud as the provider meets it: the real one, or one that is in trouble.

mod batches;
mod changes;
mod check;
mod cloud;
mod configuration;
mod facts;
mod gather;
mod info;
mod instances;
mod load_balancers;
mod report;
mod routes;
#[cfg(test)]
mod samples;
pub(crate) mod subject;
mod trouble;
mod words;
mod wrong_documents;

use std::hash::{BuildHasher as _, RandomState};
use std::io::{IsTerminal as _, Write as _};

use pileus_host::{Component, Engine};

use crate::cli::{self, LogFormat};
use crate::error::Error;
use crate::provider::{compiled_code, compiler};
use crate::signals::stop_on_signal;
use crate::{telemetry, terminal};
use gather::Subject;
use report::Report;
use subject::Given;

/// Tests a provider and prints the report.
pub(crate) async fn run(arguments: cli::ProviderTest) -> Result<(), Error> {
    let cli::ProviderTest {
        component,
        provider,
        config,
        grant,
        node,
        gone,
        allow_changes,
        json,
        log_filter,
        compiled,
    } = arguments;
    telemetry::start(LogFormat::Text, &log_filter)?;
    let given = Given::read(component, provider.as_deref(), config.as_deref(), grant)?;
    let Given { component: path, configuration, access } = given;
    let file = path.display().to_string();
    let failed = |source| Error::Provider { provider: file.clone(), source };
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let bytes = pileus_host::read_component(&path).await.map_err(failed)?;
    progress("compiling the component");
    // Whatever is said next begins on a line of its own.
    let component =
        Component::load(&engine, bytes).await.inspect_err(|_| clear_progress()).map_err(failed)?;
    let (digest, contract) = (component.digest.to_string(), component.contract.clone());
    // Random, so that it is nobody's however often a cloud was tested.
    let nobody = format!("pileus-nobody-{:08x}", RandomState::new().hash_one(0_u8) >> 32);
    let may_change = allow_changes.then(stop_on_signal).transpose()?;
    let subject = Subject { component, configuration, access, nodes: node, gone, nobody, may_change };
    let facts = Box::pin(gather::facts(subject, &mut progress)).await;
    clear_progress();
    let facts = facts?;

    let report = Report::new(file.clone(), digest, contract, &facts);
    let text = if json { terminal::json(&report.json()) } else { report.text() };
    // A reader that has gone away (`pileus provider test … | head -1`) is no failure.
    let _gone = std::io::stdout().write_all(text.as_bytes());
    match report.failed() {
        0 => Ok(()),
        failed => Err(Error::Nonconforming { provider: file, failed }),
    }
}

/// Says on a terminal what is going on, on one line that is overwritten.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what} …");
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
