//! A Redis server of a test.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A server, which ends with this.
pub(crate) struct RedisServer {
    process: Child,
    pub(crate) port: u16,
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl RedisServer {
    /// Starts a server; `None`, and a line that says so, if there is none on this machine.
    pub(crate) fn start() -> Option<Self> {
        // A port that is free at this moment.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(port)
    }

    pub(crate) fn start_at(port: u16) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        let Ok(process) = command.stdout(Stdio::null()).spawn() else {
            println!("skipped: no redis-server");
            return None;
        };
        let mut server = Self { process, port };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.process.try_wait().unwrap().is_none(), "the server has ended");
            thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}
