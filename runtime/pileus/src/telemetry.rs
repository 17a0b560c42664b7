//! The log: its format, its filter, and where it goes.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::error::Error;

/// Starts logging to standard error.
///
/// # Errors
/// [`Error::Flag`] if the filter is invalid.
pub(crate) fn start(format: LogFormat, filter: &str) -> Result<(), Error> {
    let invalid = |problem: String| Error::Flag { flag: "log-filter", value: filter.to_owned(), problem };
    let parsed = EnvFilter::try_new(filter).map_err(|error| invalid(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(|error| invalid(error.to_string()))
}
