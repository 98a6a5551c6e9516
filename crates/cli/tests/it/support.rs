//! Servers for tests, and a client that is small enough to be obviously right.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The path of the built command.
pub const PERDURA: &str = env!("CARGO_BIN_EXE_perdura");

/// Settings for many small files.
pub const SMALL: [&str; 4] = ["--segment-size", "1MiB", "--checkpoint-log-size", "4MiB"];

/// A server must answer within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the command and waits for its end.
pub fn perdura(args: &[&str]) -> Output {
    Command::new(PERDURA)
        .args(args)
        .env_remove("PERDURA_REQUIREPASS")
        .output()
        .unwrap()
}

/// Runs the command. Returns the exit code and the whole output.
pub fn ended(args: &[&str]) -> (i32, String) {
    let output = perdura(args);
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Returns the reason for a failure from a line on stderr: from a verb's message, or from an event in the log. `None`:
/// the line is no message and no event.
pub fn reason_in(line: &str) -> Option<&str> {
    let of_log = || line.split_once(" ERROR cli: ").map(|(_, reason)| reason);
    line.strip_prefix("perdura: ").or_else(of_log)
}

/// Returns a path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A running server, which is killed when this value is dropped.
pub struct Server {
    child: Child,
    port: u16,
    stderr: PathBuf,
}

impl Server {
    /// Starts a server with small files and waits until it answers.
    pub fn start(data: &Path, extra: &[&str]) -> Server {
        let mut server = Server::spawn(data, extra);
        server.await_ready();
        server
    }

    /// Starts a server without waiting until it answers.
    pub fn spawn(data: &Path, extra: &[&str]) -> Server {
        Server::spawn_with(data, extra, &[])
    }

    /// Starts a server with environment variables, without waiting until it answers.
    pub fn spawn_with(data: &Path, extra: &[&str], variables: &[(&str, String)]) -> Server {
        Server::spawn_by(Command::new(PERDURA), data, extra, variables)
    }

    /// Starts a server with limits on file descriptors and waits until it answers. `limits` has the form `soft:hard`.
    pub fn start_limited(limits: &str, data: &Path, extra: &[&str]) -> Server {
        let mut by = Command::new("prlimit");
        by.args([&format!("--nofile={limits}"), PERDURA]);
        let mut server = Server::spawn_by(by, data, extra, &[]);
        server.await_ready();
        server
    }

    fn spawn_by(
        mut program: Command,
        data: &Path,
        extra: &[&str],
        variables: &[(&str, String)],
    ) -> Server {
        let port = free_port();
        program
            .args([
                "serve",
                "--data",
                arg(data),
                "--listen",
                &format!("127.0.0.1:{port}"),
            ])
            .args(SMALL)
            .args(extra)
            .env_remove("PERDURA_REQUIREPASS")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Server::run(program, port)
    }

    /// Starts a command that serves on a port. Does not wait until it answers.
    pub fn run(mut command: Command, port: u16) -> Server {
        let stderr = std::env::temp_dir().join(format!("perdura-test-{port}.stderr"));
        let file = std::fs::File::create(&stderr).unwrap();
        let child = command.stderr(file).spawn().unwrap();
        Server {
            child,
            port,
            stderr,
        }
    }

    /// Returns the ends of the pipes to the process, if [`run`](Self::run) began it with pipes.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Waits until the database has opened.
    pub fn await_ready(&mut self) {
        let begin = Instant::now();
        loop {
            let pong = self.connect().and_then(|mut client| client.ask(&["PING"]));
            if matches!(pong, Ok(Reply::Status(text)) if text == "PONG") {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", self.said());
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "the server does not answer: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns everything that the server has written to stderr.
    ///
    /// A thread of the server writes the log with a short delay. When two readings agree, the thread has caught up.
    pub fn said(&self) -> String {
        let look = || std::fs::read_to_string(&self.stderr).unwrap_or_default();
        let (begin, mut said) = (Instant::now(), look());
        loop {
            std::thread::sleep(Duration::from_millis(25));
            let now = look();
            if now == said || begin.elapsed() > Duration::from_secs(2) {
                return now;
            }
            said = now;
        }
    }

    /// Waits until a line of the server's log contains `words`. Then checks that each of `once` is in exactly one
    /// line.
    pub fn await_line(&self, words: &str, once: &[&str]) {
        let begin = Instant::now();
        while !self.said().contains(words) {
            assert!(begin.elapsed() < PATIENCE, "{words}: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = self.said();
        for words in once {
            let count = said.lines().filter(|line| line.contains(words)).count();
            assert_eq!(count, 1, "{words}: {said}");
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the server ends by itself. Returns the exit status and the messages.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, self.said());
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "the server does not end: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server cleanly with SIGTERM, and waits for the end.
    pub fn stop(self) {
        signal(self.pid(), rustix::process::Signal::TERM);
        self.end();
    }

    /// Waits for a clean end, however long it takes.
    pub fn end(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.said());
    }

    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(self.port)
    }

    /// Returns the value of a field of INFO log.
    pub fn log_field(&self, name: &str) -> String {
        let Reply::Bulk(Some(info)) = self.ask(&["INFO", "log"]) else {
            panic!("no INFO");
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no field {name} in {info}"))
            .to_owned()
    }

    /// Sends one request on a new connection.
    pub fn ask(&self, words: &[&str]) -> Reply {
        self.connect().unwrap().ask(words).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.stderr);
    }
}

/// Sends a signal to a process that a test has started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
    /// A message of RESP3 that is not a reply.
    Push(Vec<Reply>),
}

/// A connection.
pub struct Client {
    socket: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Client> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            socket: BufReader::new(socket),
        })
    }

    /// Connects, and selects a database by its number.
    pub fn connect_to(port: u16, db: u8) -> io::Result<Client> {
        let mut client = Client::connect(port)?;
        client.ask(&["SELECT", &db.to_string()])?;
        Ok(client)
    }

    /// Sets the longest time to wait for a reply.
    pub fn set_patience(&mut self, patience: Duration) {
        self.socket
            .get_ref()
            .set_read_timeout(Some(patience))
            .unwrap();
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.get_mut().write_all(bytes)
    }

    pub fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&request(&words))?;
        self.reply()
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.socket.read_line(&mut line)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let bad = || io::Error::new(io::ErrorKind::InvalidData, line.clone());
        // A line without its end means that the connection ended within the line.
        let text = line
            .strip_suffix("\r\n")
            .ok_or_else(|| io::Error::other("cut off"))?;
        let (kind, rest) = text.split_at_checked(1).ok_or_else(bad)?;
        let number = || rest.parse::<i64>().map_err(|_| bad());
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Bulk(None)),
                Ok(len) => {
                    let mut body = vec![0; len + 2];
                    self.socket.read_exact(&mut body)?;
                    body.truncate(len);
                    Ok(Reply::Bulk(Some(body)))
                }
            },
            "_" => Ok(Reply::Bulk(None)),
            "%" => {
                let pairs = usize::try_from(number()?).map_err(|_| bad())?;
                self.replies(2 * pairs).map(Reply::Array)
            }
            ">" => {
                let len = usize::try_from(number()?).map_err(|_| bad())?;
                self.replies(len).map(Reply::Push)
            }
            "*" => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Bulk(None)),
                Ok(len) => self.replies(len).map(Reply::Array),
            },
            _ => Err(bad()),
        }
    }

    fn replies(&mut self, len: usize) -> io::Result<Vec<Reply>> {
        (0..len).map(|_| self.reply()).collect()
    }
}

/// Returns a request's bytes.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns the number in an environment variable. If the variable is not set, returns `default`.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().expect(name))
}
