//! A child process with captured output that never outlives the process that started it.
//!
//! Dropping kills it. If nothing is dropped, because a test was killed, the kernel kills the child: `setpriv` sets
//! `PR_SET_PDEATHSIG` between fork and exec, so that this crate needs no unsafe code.

use std::{
    fs::OpenOptions,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{self, Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{sync::watch, time};

use crate::Error;

/// How many lines of a log an error shows: enough for a usual stack trace, and short enough for a terminal.
const TAIL: usize = 40;

/// A running child process. Killed when dropped.
#[must_use = "a process is killed when it is dropped"]
pub struct Process {
    name: String,
    child: Child,
    log: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts a program with an empty standard input. `name` is its name in errors.
    ///
    /// Program, arguments, environment variables and folder of `command` are used; its other settings are ignored. If the
    /// program doesn't exist, the process ends at once, and its log says so.
    pub fn start(name: &str, command: &Command) -> Result<Self, Error> {
        let failed = |source| Error::Start { name: name.to_owned(), source };
        let mut child = spawn(with_death_signal(command)).map_err(failed)?;
        let (lines, log) = watch::channel(Vec::new());
        if let Some(output) = child.stdout.take() {
            capture(output, lines.clone());
        }
        if let Some(output) = child.stderr.take() {
            capture(output, lines);
        }
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The process ID, for reading its memory and threads from `/proc`.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines that the process has written to standard output and standard error so far.
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Appends the process's past and future output to a file, for people to read while it runs.
    pub fn copy_log(&self, path: &Path) -> Result<(), Error> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.map_err(Error::file(path))?;
        let mut log = self.log.clone();
        tokio::spawn(async move {
            let mut written = 0;
            loop {
                let new = log.borrow_and_update().get(written..).unwrap_or_default().to_vec();
                written += new.len();
                // A full disk ends the copy, not the process.
                let copied = new.iter().try_for_each(|line| writeln!(file, "{line}"));
                if copied.is_err() || log.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Waits for a line of past or future output, and returns the first one.
    ///
    /// # Errors
    ///
    /// [`Error::Process`] if the process closes its output first, or at the deadline.
    pub async fn await_line(
        &self,
        wanted: impl Fn(&str) -> bool,
        deadline: Duration,
    ) -> Result<String, Error> {
        let mut log = self.log.clone();
        let first = |lines: &Vec<String>| lines.iter().find(|line| wanted(line)).cloned();
        let found = time::timeout(deadline, log.wait_for(|lines| first(lines).is_some())).await;
        match found {
            Ok(Ok(lines)) => Ok(first(&lines).unwrap_or_default()),
            Ok(Err(_closed)) => Err(self.failed("ended early")),
            Err(_elapsed) => {
                Err(self.failed(&format!("has not printed the expected line within {deadline:?}")))
            }
        }
    }

    /// The exit status, once the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits for the end. Kills the process after the grace period.
    pub async fn stop(mut self, grace: Duration) -> Result<ExitStatus, Error> {
        if self.ended().is_none() {
            self.signal(Signal::TERM)?;
            let mut log = self.log.clone();
            // The end closes the output, which can be awaited without polling.
            let _ = time::timeout(grace, log.wait_for(|_| false)).await;
        }
        self.kill().map_err(|source| Error::Start { name: self.name.clone(), source })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|source| Error::Start { name: self.name.clone(), source: source.into() })
    }

    /// An error about this process, with the end of its log.
    pub fn failed(&self, problem: &str) -> Error {
        let lines = self.log.borrow();
        let tail = lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n");
        Error::Process { name: self.name.clone(), problem: problem.to_owned(), log: tail }
    }

    fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Wraps a command in `setpriv`, which sets the death signal, and in a shell, which checks that the parent has not died
/// before that. Each replaces itself with the next, so that the process ID stays.
fn with_death_signal(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped
        .args(["--pdeathsig", "KILL", "--", "sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#])
        .arg(process::id().to_string())
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    // A process group of its own: Ctrl-C in a terminal reaches the parent only, which then ends its children in order.
    wrapped.process_group(0);
    wrapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    wrapped
}

/// Starts a child from a thread that lives as long as this process.
///
/// The kernel sends the death signal when the *thread* that started a child ends. Threads of a test or a runtime end long
/// before the process.
fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, child) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    SPAWNER.send((command, answer)).map_err(|_| gone(mpsc::RecvError))?;
    child.recv().map_err(gone)?
}

/// Appends `output` to the log, line by line, until it is closed. This is a thread, since pipes have to be read even while
/// the test's runtime is busy or gone.
fn capture(output: impl Read + Send + 'static, lines: watch::Sender<Vec<String>>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            lines.send_modify(|lines| lines.push(text));
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{env, fs, time::Instant};

    use super::*;

    const SOON: Duration = Duration::from_mins(1);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("shell", &command).unwrap()
    }

    /// Whether a process exists and is not a zombie.
    fn is_alive(pid: u32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
    }

    fn dies(pid: u32) -> bool {
        let start = Instant::now();
        while is_alive(pid) && start.elapsed() < SOON {
            thread::yield_now();
        }
        !is_alive(pid)
    }

    #[tokio::test]
    async fn a_line_is_found_regardless_of_when_it_was_written() {
        let process = shell("echo one; echo two >&2; read never");
        for line in ["two", "one", "two"] {
            assert_eq!(process.await_line(|text| text == line, SOON).await.unwrap(), line);
        }
    }

    #[tokio::test]
    async fn a_log_is_copied_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let process = shell("echo one; echo two");
        process.await_line(|line| line == "two", SOON).await.unwrap();
        process.copy_log(&path).unwrap();
        let start = Instant::now();
        while fs::read_to_string(&path).unwrap() != "one\ntwo\n" {
            assert!(start.elapsed() < SOON);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_process_that_ends_early_shows_its_log() {
        let error = shell("echo no such cloud").await_line(|line| line == "ready", SOON).await.unwrap_err();
        assert_eq!(error.to_string(), "shell ended early; the end of its log:\nno such cloud");
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_named() {
        let process = Process::start("cloud", &Command::new("/no/such/cloud")).unwrap();
        let error = process.await_line(|_| false, SOON).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/cloud"), "{error}");
    }

    #[tokio::test]
    async fn stop_sends_sigterm_first() {
        let process = shell("trap 'exit 7' TERM; echo ready; while true; do sleep 0.01; done");
        process.await_line(|line| line == "ready", SOON).await.unwrap();
        assert_eq!(process.stop(SOON).await.unwrap().code(), Some(7));
    }

    #[tokio::test]
    async fn stop_kills_a_process_that_ignores_sigterm() {
        let process = shell("trap '' TERM; echo ready; while true; do sleep 0.01; done");
        process.await_line(|line| line == "ready", SOON).await.unwrap();
        assert_eq!(process.stop(Duration::from_millis(50)).await.unwrap().code(), None);
    }

    #[test]
    fn a_process_outlives_the_thread_that_started_it() {
        let process = thread::spawn(|| shell("exec sleep 600")).join().unwrap();
        assert!(is_alive(process.id()));
        let pid = process.id();
        drop(process);
        assert!(dies(pid));
    }

    /// The test plays both roles: it starts itself with this variable set, as the parent that is killed.
    #[test]
    fn a_process_dies_with_its_parent() {
        const PARENT: &str = "PILEUS_DEV_TEST_IS_PARENT";
        if env::var_os(PARENT).is_some() {
            let process = shell("exec sleep 600");
            println!("\nchild {}", process.id());
            thread::park();
        }
        let mut parent = Command::new(env::current_exe().unwrap());
        parent.args(["--exact", "process::tests::a_process_dies_with_its_parent", "--nocapture"]);
        let mut parent = parent.env(PARENT, "1").stdout(Stdio::piped()).spawn().unwrap();
        let child = BufReader::new(parent.stdout.take().unwrap())
            .lines()
            .find_map(|line| line.unwrap().strip_prefix("child ")?.parse::<u32>().ok())
            .unwrap();
        assert!(is_alive(child));
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(dies(child));
    }
}
