//! Prints what the swaps took, and what their load met beside them and without them.

use std::time::Duration;

use super::Run;
use super::layer::PAUSE;
use super::log::{self, Lookup};
use super::pause::{longest_pause, waits};
use super::progress::{State, Swap};
use crate::pileus::between;
use crate::report::{Samples, heading, note, row, size, time};

/// More Nodes than this at once are looked up in a list of all machines.
const SINGLE_READS: u64 = 3;

/// The time in each state, and which swaps were stopped.
pub(super) fn print_swaps(swaps: &[Swap]) {
    heading(&format!("{} swaps, the time in each state", swaps.len()), &["min", "median", "max"]);
    for state in State::ALL {
        let stays = swaps.iter().flat_map(|swap| &swap.states).filter(|stay| stay.state == state);
        row(&state.to_string(), &samples(stays.map(|stay| stay.took)).spread());
    }
    let whole = swaps.iter().map(|swap| swap.states.iter().map(|stay| stay.took).sum());
    row("all of it", &samples(whole).spread());
    note("a state that ends before the status is written counts for the one before it");
    let went = swaps.iter().filter(|swap| swap.stopped.is_none()).count();
    note(&format!("{went} of {} swaps went through", swaps.len()));
    for (number, swap) in swaps.iter().enumerate() {
        if let Some(why) = &swap.stopped {
            note(&format!("swap {} was stopped: {why}", number + 1));
        }
    }
}

/// How the Nodes and Services of both runs fared.
pub(super) fn print_load((services, length): (usize, Duration), runs: [&Run; 2]) {
    let title = format!("50 lookups/s, {services} Services, swaps for {}", time(length));
    heading(&title, &["swaps", "quiet", "target"]);
    line("calls that failed", runs.map(|run| run.failed), "0");
    line("load balancers that are missing", runs.map(|run| run.missing), "0");
    let made = u64::try_from(services).unwrap_or(u64::MAX);
    line("writes that are repeated", runs.map(|run| run.calls.writes().saturating_sub(made)), "0");
    line("nodes that were initialized", runs.map(|run| run.answered.len()), "");
    line("nodes that were not", runs.map(|run| run.unanswered), "0");
    let waits = runs.map(|run| waits(&run.answered));
    for (label, percent) in [("median", 50), ("p99", 99), ("longest", 100)] {
        let times = waits.each_ref().map(|samples| time(samples.percentile(percent)));
        line(&format!("from joining to initialized, {label}"), times, "");
    }
    let pauses = runs.map(|run| longest_pause(&run.answered));
    let [_, quiet] = pauses;
    line("longest pause between two of them", pauses.map(time), &time(quiet + PAUSE));
    for (run, name) in runs.into_iter().zip(["beside swaps", "in the quiet run"]) {
        for (problem, count) in log::problems(&run.lines) {
            note(&format!("{name}, {count} times: {problem}"));
        }
    }
}

/// What was read of the cloud, and how long the node controller's calls took.
pub(super) fn print_reads(sweep: u64, swaps: usize, runs: [&Run; 2]) {
    heading("Lookups of nodes that wait, and reads", &["swaps", "quiet", "target"]);
    let lookups = runs.map(|run| log::lookups(&run.lines));
    // A lookup that reads the list, or waits for a dry run that does, takes as long as the cloud's pages take.
    let waits = |lookup: &Lookup| lookup.reads > SINGLE_READS || lookup.shares;
    print_took("a lookup without the list", &lookups, |lookup| !waits(lookup));
    print_took("a lookup that waits for the list", &lookups, waits);
    let beyond = |lookup: &Lookup| {
        let needed = if lookup.nodes > SINGLE_READS { sweep } else { lookup.nodes };
        lookup.reads.saturating_sub(needed)
    };
    let sum = |lookups: &Vec<Lookup>| lookups.iter().map(beyond).sum::<u64>();
    line("reads beyond what each needs", lookups.each_ref().map(sum), "0");
    let reads = runs.map(|run| log::reads(&run.lines));
    line("reads for all lookups", reads.map(|reads| reads.lookups), "");
    line("reads for a node whose name joins again", reads.map(|reads| reads.confirmations), "");
    let [_, quiet] = reads.map(|reads| reads.services);
    line("reads for Services", reads.map(|reads| reads.services), &quiet.to_string());
    line("reads for no controller: dry runs", reads.map(|reads| reads.dry_runs), "");
    line("all reads, by the cloud's count", runs.map(|run| run.calls.reads()), "");
    let [dry_runs, _] = reads.map(|reads| reads.dry_runs);
    note(&format!("{} reads for each dry run", dry_runs / swaps.max(1)));
}

/// What the lookups of this kind took.
fn print_took(label: &str, runs: &[Vec<Lookup>; 2], is_meant: impl Fn(&Lookup) -> bool) {
    let took = |lookups: &Vec<Lookup>| -> Vec<Duration> {
        lookups.iter().filter(|lookup| is_meant(lookup)).map(|lookup| lookup.took).collect()
    };
    let took = runs.each_ref().map(took);
    line(&format!("{label}, how many"), took.each_ref().map(Vec::len), "");
    let times = took.map(|took| samples(took.into_iter()));
    for (name, percent) in [("median", 50), ("p99", 99), ("longest", 100)] {
        let cells = times.each_ref().map(|samples| time(samples.percentile(percent)));
        let [_, quiet] = &times;
        let target = if percent == 99 { time(quiet.percentile(percent) * 2) } else { String::new() };
        line(&format!("{label}, {name}"), cells, &target);
    }
}

/// The lookups that begin while a swap is in each state.
pub(super) fn print_lookups(swaps: &[Swap], beside: &Run) {
    let lookups = log::lookups(&beside.lines);
    heading("Lookups by the state of the swap beside them", &["lookups", "median", "p99", "longest"]);
    for state in State::ALL {
        let stays = swaps.iter().flat_map(|swap| &swap.states).filter(|stay| stay.state == state);
        let in_state = stays.flat_map(|stay| {
            lookups.iter().filter(|it| stay.began <= it.began && between(stay.began, it.began) < stay.took)
        });
        let took: Vec<_> = in_state.map(|lookup| lookup.took).collect();
        let (count, times) = (took.len().to_string(), samples(took.into_iter()));
        let cells = [50, 99, 100].map(|percent| time(times.percentile(percent)));
        row(&state.to_string(), &[&[count][..], &cells].concat());
    }
}

/// The memory of Pileus at these moments, and at most.
pub(super) fn print_memory(memory: &[(String, u64)], peak: u64) {
    heading("Resident memory of the program", &["measured"]);
    for (moment, bytes) in memory {
        row(moment, &[size(*bytes)]);
    }
    row("at most", &[size(peak)]);
}

/// A line with the figures of both runs and the target.
fn line(label: &str, [swaps, quiet]: [impl ToString; 2], target: &str) {
    row(label, &[swaps.to_string(), quiet.to_string(), target.to_owned()]);
}

fn samples(times: impl Iterator<Item = Duration>) -> Samples {
    let mut samples = Samples::default();
    samples.extend(times);
    samples
}
