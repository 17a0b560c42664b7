//! The log: its format, its filter, and where it goes. With `--log-format json` every line on standard error is a JSON
//! object, from the first one to the last: also the error that ends the process, and a panic.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::panic::PanicHookInfo;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::error::Error;

/// What is left out unless the filter names it: the Kubernetes client logs answers of the API server as Rust source code,
/// and Pileus logs the result of each request itself.
const LEFT_OUT: &str = "kube_client=off,kube_runtime=off";

/// Starts logging to standard error.
///
/// # Errors
/// [`Error::Flag`] if the filter is invalid.
pub(crate) fn start(format: LogFormat, filter: &str) -> Result<(), Error> {
    let invalid = |problem: String| Error::Flag { flag: "log-filter", value: filter.to_owned(), problem };
    let parsed =
        EnvFilter::try_new(format!("{LEFT_OUT},{filter}")).map_err(|error| invalid(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(|error| invalid(error.to_string()))
}

/// The format that a command line asks for, before it is parsed: an error in it is logged, too.
pub(crate) fn format(arguments: &[OsString]) -> LogFormat {
    let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
    let mut format = None;
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            Some(("--log-format", value)) => format = Some(value),
            None if argument == "--log-format" => format = arguments.next(),
            _ => {}
        }
    }
    if format == Some("json") { LogFormat::Json } else { LogFormat::Text }
}

/// Logs panics in this format. Rust's own text for them is several lines.
pub(crate) fn log_panics(format: LogFormat) {
    if format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| write_line(&panic_fields(panic))));
    }
}

fn panic_fields(panic: &PanicHookInfo<'_>) -> Map<String, Value> {
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current().name().map(str::to_owned);
    fields(
        "panic",
        json!({"error": panic.payload_as_str().unwrap_or_default(), "location": location, "thread": thread}),
    )
}

/// Writes the error that ends the process, in this format.
pub(crate) fn write_error(format: LogFormat, error: &str, exit_code: u8) {
    match format {
        LogFormat::Text => eprintln!("pileus: {error}"),
        LogFormat::Json => {
            write_line(&fields("pileus has failed", json!({"error": error, "exit_code": exit_code})));
        }
    }
}

/// The fields of a line, as those of the log have them.
fn fields(message: &str, own: Value) -> Map<String, Value> {
    let common =
        json!({"timestamp": Timestamp::now(), "level": "ERROR", "message": message, "target": "pileus"});
    [common, own]
        .into_iter()
        .filter_map(|value| if let Value::Object(map) = value { Some(map) } else { None })
        .flatten()
        .collect()
}

fn write_line(fields: &Map<String, Value>) {
    let line = format!("{}\n", Value::Object(fields.clone()));
    // Nothing can be done where standard error is closed.
    let _closed = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_known_before_the_command_line_is_parsed() {
        let json = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            format(&arguments) == LogFormat::Json
        };
        assert!(json("pileus run --log-format json --nonsense"));
        assert!(json("pileus run --log-format=json"));
        assert!(json("pileus run --log-format text --log-format json"));
        assert!(!json("pileus run --log-format text"));
        assert!(!json("pileus run --log-format"));
        assert!(!json("pileus inspect --json"));
    }
}
