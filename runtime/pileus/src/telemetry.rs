//! The log: where it goes and how it looks.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::error::Error;

/// Starts the log, which goes to standard error.
///
/// # Errors
/// [`Error::Flag`] where the filter makes no sense.
pub(crate) fn start(format: LogFormat, filter: &str) -> Result<(), Error> {
    let wrong = |problem: String| Error::Flag { flag: "log-filter", value: filter.to_owned(), problem };
    let parsed = EnvFilter::try_new(filter).map_err(|error| wrong(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(|error| wrong(error.to_string()))
}
