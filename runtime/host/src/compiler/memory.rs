//! How much memory the compiler may use where its container has a memory limit.
//!
//! When a container reaches its limit, Kubernetes has the kernel kill all its processes and not just the largest one
//! (`memory.oom.group`). So a component that is hard to compile would kill the host, again at each start. The compiler
//! must run out of memory before its container does.

use std::fs;
use std::path::Path;

/// Where Linux mounts control groups, by which containers are limited.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The bytes that the container's limits leave to this process. `None` where there is no limit.
pub(super) fn available() -> Option<u64> {
    available_below(Path::new(CGROUP_ROOT), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The least that is available in the process's control group and its ancestors. `groups` is the text of
/// `/proc/self/cgroup`.
fn available_below(root: &Path, groups: &str) -> Option<u64> {
    // Control groups of version 2 only; with version 1 the kernel kills a single process.
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(path);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(available_in).min()
}

/// Three quarters of what is free: the host receives the code while the compiler still has it.
fn available_in(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let limit = number(&read("memory.max")?)?; // `max`, which doesn't parse, means no limit
    let statistics = read("memory.stat")?;
    let statistic = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(number).unwrap_or(0)
    };
    // The kernel frees its cache of files when memory is short, but not files that exist in memory only.
    let reclaimable = statistic("file").saturating_sub(statistic("shmem"));
    let used = number(&read("memory.current")?)?.saturating_sub(reclaimable);
    Some(limit.saturating_sub(used) / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(folder: &Path, limit: &str, used: u64, files: u64, shared: u64) {
        fs::create_dir_all(folder).unwrap();
        let statistics = format!("anon 7\nfile {files}\nfile_mapped 9\nshmem {shared}\n");
        for (name, text) in
            [("memory.max", limit), ("memory.current", &used.to_string()), ("memory.stat", &statistics)]
        {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn three_quarters_of_the_free_memory_of_the_tightest_group_are_available() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let available = |groups| available_below(root, groups);
        assert_eq!(available("0::/\n"), None, "the root group has no such files");
        group(&root.join("pod"), &(600 * MIB).to_string(), 200 * MIB, 0, 0);
        group(&root.join("pod/free"), "max", 100 * MIB, 0, 0);
        assert_eq!(available("1:memory:/old\n0::/pod/free\n"), Some(300 * MIB));
        group(&root.join("pod/tight"), &(512 * MIB).to_string(), 400 * MIB, 100 * MIB, 12 * MIB);
        assert_eq!(available("0::/pod/tight\n"), Some(150 * MIB), "88 MiB of the 400 are files");
        group(&root.join("pod/full"), &(512 * MIB).to_string(), 513 * MIB, 0, 0);
        assert_eq!(available("0::/pod/full\n"), Some(0));
        assert_eq!(available("1:memory:/pod/full\n"), None);
    }
}
