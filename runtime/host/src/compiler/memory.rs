//! How much memory a compiler may take where its container has a limit.
//!
//! Whoever reaches that limit takes the others along: Kubernetes has the kernel end all processes of a container and not
//! just the largest one (`memory.oom.group`), so a component that is hard to compile would end the host, at each start
//! again. The compiler must run out of memory before its container does.

use std::fs;
use std::path::Path;

/// Where Linux keeps what it knows about groups of processes, containers among them.
const GROUPS: &str = "/sys/fs/cgroup";

/// What the limits of the container leave to this process, in bytes; none where there is no limit.
pub(super) fn left() -> Option<u64> {
    left_below(Path::new(GROUPS), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The least that is left in the group of a process and in those that it is in. `groups` is `/proc/self/cgroup`.
fn left_below(root: &Path, groups: &str) -> Option<u64> {
    // Of the second version; in the first the kernel ends one process.
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(path);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(left_in).min()
}

/// Three quarters of what is free: the host receives the code while the compiler still has it.
fn left_in(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let most = number(&read("memory.max")?)?; // no number is `max`, no limit
    let statistics = read("memory.stat")?;
    let of = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(number).unwrap_or(0)
    };
    // What the kernel keeps of files goes where memory is short, but for those that are in memory only.
    let kept = of("file").saturating_sub(of("shmem"));
    let used = number(&read("memory.current")?)?.saturating_sub(kept);
    Some(most.saturating_sub(used) / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(folder: &Path, most: &str, used: u64, files: u64, shared: u64) {
        fs::create_dir_all(folder).unwrap();
        let statistics = format!("anon 7\nfile {files}\nfile_mapped 9\nshmem {shared}\n");
        for (name, text) in
            [("memory.max", most), ("memory.current", &used.to_string()), ("memory.stat", &statistics)]
        {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn three_quarters_are_left_of_what_the_tightest_group_does_not_use() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let left = |groups| left_below(root, groups);
        assert_eq!(left("0::/\n"), None, "the machine's own group has no such files");
        group(&root.join("pod"), &(600 * MIB).to_string(), 200 * MIB, 0, 0);
        group(&root.join("pod/free"), "max", 100 * MIB, 0, 0);
        assert_eq!(left("1:memory:/old\n0::/pod/free\n"), Some(300 * MIB));
        group(&root.join("pod/tight"), &(512 * MIB).to_string(), 400 * MIB, 100 * MIB, 12 * MIB);
        assert_eq!(left("0::/pod/tight\n"), Some(150 * MIB), "88 MiB of the 400 are files");
        group(&root.join("pod/full"), &(512 * MIB).to_string(), 513 * MIB, 0, 0);
        assert_eq!(left("0::/pod/full\n"), Some(0));
        assert_eq!(left("1:memory:/pod/full\n"), None);
    }
}
