//! The machine of the measurement.

use std::fs;
use std::process::Command;

use crate::Failure;

/// Prints the machine, and how busy it is.
pub(crate) fn print() -> Result<(), Failure> {
    println!("Machine");
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kilobytes: u64 = field(&memory, "MemTotal").trim_end_matches(" kB").parse()?;
    let rustc = Command::new("rustc").arg("--version").output()?;
    let facts = [
        ("processor", field(&cpus, "model name").to_owned()),
        ("cores", std::thread::available_parallelism()?.to_string()),
        ("memory", format!("{} GiB", kilobytes.div_ceil(1 << 20))),
        ("kernel", fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned()),
        ("rustc", String::from_utf8_lossy(&rustc.stdout).trim().trim_start_matches("rustc ").to_owned()),
        ("wasmtime", locked("wasmtime")?),
        ("load", load()?),
    ];
    for (name, value) in facts {
        println!("  {name:<12}{value}");
    }
    Ok(())
}

/// How many threads wanted to run, on average of the last 1, 5 and 15 minutes.
pub(crate) fn load() -> Result<String, Failure> {
    let load = fs::read_to_string("/proc/loadavg")?;
    Ok(load.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

/// The value in the first line `NAME : VALUE` of a file under `/proc`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map_or("unknown", |(_, value)| value.trim())
}

/// The version of a crate that this was built with.
fn locked(name: &str) -> Result<String, Failure> {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"))?;
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\"")).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = "));
    Ok(version.unwrap_or("unknown").trim_matches('"').to_owned())
}
