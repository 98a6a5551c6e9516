//! Our server and a Redis. Each server listens on a Unix socket, because a TCP port could be taken by a third process.

use crate::wire::Wire;
use anyhow::{Context, Result, bail};
use perdura_server::{DebugAccess, Server, ServerOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A started server must answer within this time.
const START: Duration = Duration::from_secs(60);

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Ours,
    /// Redis.
    Theirs,
}

/// A Redis 7.0 on a Unix socket, without persistence. Dropping this ends it.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts an empty Redis with its socket in `dir`.
    ///
    /// # Errors
    /// Fails if `redis-server` is missing, is not version 7.0, or does not start.
    pub fn start(dir: &Path) -> Result<Redis> {
        let version = Command::new("redis-server").arg("--version").output();
        let version = version
            .context("redis-server 7.0 is needed: scripts/install-test-deps.sh installs it")?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if !version.contains("v=7.0.") {
            bail!("redis-server 7.0 is needed, and this is {version}");
        }
        let socket = dir.join("redis");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--loglevel", "warning", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .context("starting redis-server")?;
        let redis = Redis { process, socket };
        await_answer(&redis.socket)?;
        Ok(redis)
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn connect(&self) -> Result<Wire> {
        Wire::connect(&self.socket)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // If the process has ended or cannot be killed, nothing is left to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until the server on a socket answers.
///
/// # Errors
/// An error if the server has not answered within a minute. It contains the reason why the last attempt failed.
pub fn await_answer(socket: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let answer = Wire::connect(socket).and_then(|mut w| w.call(&["PING"]));
        match answer {
            Ok(reply) if reply.kind == b'+' => return Ok(()),
            Ok(reply) if begun.elapsed() > START => {
                bail!("{} answers {reply}", socket.display())
            }
            Err(e) if begun.elapsed() > START => return Err(e),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Our server and a Redis.
#[derive(Debug)]
pub struct Pair {
    dir: TempDir,
    /// Changes the options of our database before each start.
    configure: fn(&mut perdura::Options),
    redis: Redis,
    server: Option<Server>,
    lives: u32,
    step_elements: u64,
}

impl Pair {
    /// Starts the two servers without data.
    ///
    /// # Errors
    /// A missing `redis-server`, a wrong version of `redis-server`, or a failure to start a server.
    pub fn start() -> Result<Pair> {
        Self::start_with(|db| {
            db.partitions = 16;
            db.segment_bytes = 4 << 20;
            db.memory_limit = Some(1 << 30);
        })
    }

    /// Like [`start`](Self::start), but `configure` changes the options of our database.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_with(configure: fn(&mut perdura::Options)) -> Result<Pair> {
        let dir = TempDir::new()?;
        let redis = Redis::start(dir.path())?;
        let mut pair = Pair {
            dir,
            configure,
            redis,
            server: None,
            lives: 0,
            step_elements: 0,
        };
        pair.begin()?;
        Ok(pair)
    }

    fn path(&self, side: Side) -> PathBuf {
        match side {
            Side::Ours => self.dir.path().join(format!("perdura.{}", self.lives)),
            Side::Theirs => self.redis.socket.clone(),
        }
    }

    fn begin(&mut self) -> Result<()> {
        self.lives += 1;
        // One client speaks at a time, so the order of requests does not depend on the number of loops.
        let loops = std::env::var("PERDURA_DIFF_LOOPS").ok();
        let loops = loops.map(|loops| loops.parse().context("PERDURA_DIFF_LOOPS is no number"));
        let options = ServerOptions {
            loops: loops.transpose()?,
            listen: Vec::new(),
            unix_socket: Some(self.path(Side::Ours)),
            enable_debug_command: DebugAccess::Local,
            ..ServerOptions::default()
        };
        let mut db = perdura::Options::new(self.dir.path().join("data"));
        (self.configure)(&mut db);
        // Redis has this limit, too. Other limits are derived from it.
        db.value_bytes_max = 512 << 20;
        self.server = Some(Server::start(options, db)?);
        await_answer(&self.path(Side::Ours))?;
        let mut wire = self.connect(Side::Ours)?;
        self.call_steps(&mut wire)
    }

    /// Makes our server split commands on more than `elements` elements into steps, from now on and after every
    /// restart. 0 restores the usual number.
    ///
    /// # Errors
    /// Errors of the socket, and a refusal.
    pub fn step(&mut self, elements: u64) -> Result<()> {
        self.step_elements = elements;
        let mut wire = self.connect(Side::Ours)?;
        self.call_steps(&mut wire)
    }

    fn call_steps(&self, wire: &mut Wire) -> Result<()> {
        let elements = self.step_elements.to_string();
        match wire.call(&["DEBUG", "STEP-ELEMENTS", &elements])? {
            reply if reply.kind == b'+' => Ok(()),
            reply => bail!("DEBUG STEP-ELEMENTS answers {reply}"),
        }
    }

    /// Returns the process id of Redis.
    pub fn redis_pid(&self) -> u32 {
        self.redis.process.id()
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn connect(&self, side: Side) -> Result<Wire> {
        Wire::connect(&self.path(side))
    }

    /// Ends our server without a checkpoint and starts it again, as after a crash.
    ///
    /// # Errors
    /// A failure to end or to start the server.
    pub fn restart(&mut self) -> Result<()> {
        let Some(server) = self.server.take() else {
            return self.begin();
        };
        let mut wire = self.connect(Side::Ours)?;
        if let Ok(reply) = wire.call(&["SHUTDOWN", "NOSAVE"]) {
            bail!("SHUTDOWN NOSAVE answers {reply}");
        }
        server.join().context("the server's end")?;
        self.begin()
    }

    /// Starts our server in an empty directory, whatever the state of the old server is.
    ///
    /// # Errors
    /// A failure to start the server.
    pub fn renew(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.stop()));
            if !matches!(stopped, Ok(Ok(()))) {
                eprintln!("the server before this one did not end well");
            }
        }
        std::fs::remove_dir_all(self.dir.path().join("data"))?;
        self.begin()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.stop()));
        }
    }
}
