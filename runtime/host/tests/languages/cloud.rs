//! The simulated cloud as a process, and a cloud with a fixed response.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A running cloud. Ends when dropped.
pub(crate) struct Cloud {
    process: Child,
    pub(crate) port: u16,
}

impl Cloud {
    /// A cloud with the machines `node-1` and so on.
    pub(crate) fn start(machines: usize) -> Self {
        let own = std::env::current_exe().unwrap();
        let program = own.ancestors().nth(2).unwrap().join("simulated-cloud");
        let mut process = Command::new(&program)
            .args(["--machines", &machines.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; run `cargo build -p simulated-cloud`", program.display())
            });
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { process, port }
    }

    /// The provider's configuration for it.
    pub(crate) fn configuration(&self) -> String {
        format!(r#"{{"endpoint": "http://127.0.0.1:{}"}}"#, self.port)
    }

    /// Sends a request to the cloud, and returns the whole response, including its head.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\nContent-Length: {length}"
        );
        write!(stream, "{head}\r\nContent-Type: application/json\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
        answer
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a cloud that answers the first request with this body, and returns its port.
pub(crate) fn answering(body: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = BufReader::new(&stream);
        for line in request.lines() {
            if line.unwrap().is_empty() {
                break;
            }
        }
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    });
    port
}
