//! The memory of the program's code. A process that runs for months on each machine of a cluster and is idle between two
//! refreshes needn't keep there what it has run at its start, and what it will run again in minutes.

use std::fs;
use std::io;

use rustix::mm::{Advice, madvise};

/// Gives back the memory of the files of the program and its libraries. What runs next comes back from the kernel's page cache,
/// in units of 16 pages. The kernel itself takes such memory only when it runs short.
///
/// # Errors
/// Where the kernel doesn't say what is mapped, or refuses. The process goes on as before.
pub(crate) fn release() -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let text = fs::read_to_string("/proc/self/smaps")?;
    for (start, bytes) in unchanged(&text, &program.to_string_lossy()) {
        forget(start, bytes)?;
    }
    Ok(())
}

/// The addresses and sizes of the program's and its libraries' mappings in this text of `/proc/self/smaps`, as far as their
/// content is the file's: they can't be written, and weren't. The loader has written others before it made them read-only.
fn unchanged(text: &str, program: &str) -> Vec<(usize, usize)> {
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("Anonymous:") {
            found.extend(mapping.take().filter(|_| size.trim() == "0 kB"));
        } else if line.split_ascii_whitespace().next().is_some_and(|field| !field.ends_with(':')) {
            mapping = read_only(line, program);
        }
    }
    found
}

/// Reads the first line of a mapping. None for one of another file, or one that can be written.
fn read_only(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_read_only = matches!(fields.next()?, "r--p" | "r-xp");
    let file = line.get(line.find('/')?..)?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    Some((start, end.checked_sub(start)?)).filter(|_| is_read_only && (file == program || is_library(file)))
}

/// Whether the loader maps such a file.
fn is_library(file: &str) -> bool {
    file.rsplit('/').next().is_some_and(|name| name.contains(".so"))
}

#[expect(unsafe_code, reason = "the kernel takes an address")]
fn forget(start: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the program and its libraries stay mapped as long as the process lives, so this is still the mapping that was
    // read. Its pages are the file's, and an access reads them from there again. A compiled component is unmapped when it is
    // replaced, so it is not among these files.
    unsafe { madvise(std::ptr::without_provenance_mut(start), bytes, Advice::LinuxDontNeed)? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/opt/pileus 1/pileus";

    fn mapping(permissions: &str, file: &str, anonymous: usize) -> String {
        format!(
            "7f0000001000-7f0000003000 {permissions} 00001000 fe:00 42                 {file}\n\
             Size:                  8 kB\n\
             Anonymous:             {anonymous} kB\n\
             VmFlags: rd ex mr mw me \n"
        )
    }

    #[test]
    fn only_what_is_as_in_the_files_of_the_program_is_given_back() {
        for permissions in ["r-xp", "r--p"] {
            for file in [FILE, "/usr/lib/x86_64-linux-gnu/libc.so.6"] {
                let text = mapping(permissions, file, 0) + &mapping("rw-p", "[heap]", 0);
                assert_eq!(unchanged(&text, FILE), [(0x7f00_0000_1000, 0x2000)]);
            }
        }
        for (permissions, file, anonymous) in [
            ("r--p", FILE, 4),
            ("r-xp", FILE, 8),
            ("rw-p", FILE, 0),
            ("rwxp", FILE, 0),
            ("r-xs", FILE, 0),
            ("---p", FILE, 0),
            ("r-xp", "/opt/pileus 1/pileus (deleted)", 0),
            ("r-xp", "/var/lib/pileus.so/compiled/0123-4567.cwasm", 0),
            ("r-xp", "", 0),
            ("r-xp", "[vdso]", 0),
        ] {
            // The size that is missing here must not be taken from the mapping after it.
            let cut: String = mapping("r-xp", FILE, 0).split_inclusive('\n').take(2).collect();
            let text = cut + &mapping(permissions, file, anonymous);
            assert_eq!(unchanged(&text, FILE), [], "{permissions} {file} {anonymous}");
        }
    }

    #[test]
    fn a_process_gives_back_what_it_has_read_and_goes_on() {
        // Files of a tmpfs count as shared memory.
        let is_of_files = |line: &&str| line.starts_with("RssFile:") || line.starts_with("RssShmem:");
        let resident = || -> usize {
            let text = fs::read_to_string("/proc/self/status").unwrap();
            let sizes =
                text.lines().filter(is_of_files).filter_map(|line| line.split_ascii_whitespace().nth(1));
            sizes.map(|size| size.parse::<usize>().unwrap()).sum()
        };
        let before = resident();
        release().unwrap();
        let after = resident();
        assert!(after < before, "{after} kB are resident, {before} kB before");
    }
}
