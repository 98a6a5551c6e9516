//! A server process and two node processes, with a client that keeps receipts of the writes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Client, PERDURA, Reply, Server, arg, free_port, number_from_env};

/// Returns the time within which acknowledgements must resume after a node has failed. The short form of the tests
/// allows more time, because it runs beside other tests on busy cores.
pub fn resumes() -> Duration {
    let is_long = std::env::var_os("PERDURA_MIRROR_ROUNDS").is_some();
    Duration::from_secs(if is_long { 1 } else { 5 })
}

/// The time that a test continues to write after a failure.
pub const GOES_ON: Duration = Duration::from_secs(2);

/// A node in a separate process, which is killed when this value is dropped.
pub struct Node {
    pub child: Child,
    pub address: String,
    pub args: Vec<String>,
    /// The words before the node's command line, for example `ip netns exec NAME`.
    within: Vec<String>,
    /// The file that receives the node's stderr.
    stderr: PathBuf,
}

impl Node {
    fn start(address: &str, (within, args): (Vec<String>, Vec<String>), stderr: PathBuf) -> Node {
        let said = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&stderr);
        let mut words = within.iter().map(String::as_str).chain([PERDURA, "logd"]);
        let child = Command::new(words.next().unwrap())
            .args(words)
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.unwrap())
            .spawn()
            .unwrap();
        Node {
            child,
            address: address.to_owned(),
            args,
            within,
            stderr,
        }
    }

    pub fn kill(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the node again, with an empty memory.
    pub fn again(&mut self) {
        self.kill();
        let command = (
            std::mem::take(&mut self.within),
            std::mem::take(&mut self.args),
        );
        *self = Node::start(&self.address, command, self.stderr.clone());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A database with two nodes, and the acknowledgements that its client has received.
pub struct World {
    pub dir: tempfile::TempDir,
    pub data: PathBuf,
    pub flags: Vec<String>,
    pub nodes: [Node; 2],
    pub random: fastrand::Rng,
    next: u64,
    /// The acknowledged keys, each with its receipt.
    pub acked: Vec<(u64, String)>,
}

/// A function that returns a node's arguments, given its number, the test's directory and the node's address.
pub type NodeArgs<'a> = dyn Fn(usize, &Path, &str) -> Vec<String> + 'a;

/// Returns the arguments of a node that uses neither a key nor TLS.
pub fn plain(_number: usize, _dir: &Path, address: &str) -> Vec<String> {
    ["--listen", address, "--ring", "8MiB"]
        .map(str::to_owned)
        .to_vec()
}

impl World {
    pub fn new() -> World {
        World::with(&plain)
    }

    pub fn with(node_args: &NodeArgs<'_>) -> World {
        // The nodes use another IP address than the servers. So no server can take the port of a killed node before the
        // node is started again.
        let addresses = [(); 2].map(|()| format!("127.0.0.2:{}", free_port()));
        World::at(addresses, &[], node_args)
    }

    /// Starts two nodes with these addresses in these network namespaces. Without namespaces, they run in the current
    /// one.
    pub fn at(addresses: [String; 2], namespaces: &[&str], node_args: &NodeArgs<'_>) -> World {
        let dir = tempfile::tempdir().unwrap();
        let nodes = [0, 1].map(|number| {
            let address = &addresses[number];
            let args = node_args(number, dir.path(), address);
            let stderr = dir.path().join(format!("node-{number}.stderr"));
            let within = match namespaces.get(number) {
                None => Vec::new(),
                Some(name) => ["ip", "netns", "exec", name].map(str::to_owned).to_vec(),
            };
            Node::start(address, (within, args), stderr)
        });
        let view = dir.path().join("view");
        let flags = [
            "--log-nodes",
            &format!("{},{}", nodes[0].address, nodes[1].address),
            "--log-view",
            arg(&view),
            "--log-one-machine",
            "--log-tail",
            "4MiB",
            "--durability",
            "mirror",
        ];
        World {
            data: dir.path().join("db"),
            flags: flags.map(str::to_owned).to_vec(),
            dir,
            nodes,
            random: fastrand::Rng::with_seed(number_from_env("PERDURA_MIRROR_SEED", 3)),
            next: 0,
            acked: Vec::new(),
        }
    }

    pub fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.flags
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect()
    }

    pub fn serve(&self) -> Server {
        let server = Server::start(&self.data, &self.flags(&[]));
        await_mirror(&server);
        server
    }

    /// Writes keys for the time `pause`. Returns the longest time between two acknowledgements.
    pub fn write(&mut self, client: &mut Client, pause: Duration) -> Duration {
        let (begun, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while begun.elapsed() < pause {
            let key = self.next;
            self.next += 1;
            let value = "v".repeat(self.random.usize(1..3000));
            if !matches!(
                client.ask(&["SET", &format!("k{key}"), &value]),
                Ok(Reply::Status(_))
            ) {
                break;
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
            let Ok(Reply::Array(fields)) = client.ask(&["CLIENT", "RECEIPT"]) else {
                break;
            };
            let Some(Reply::Bulk(Some(token))) = fields.last() else {
                panic!("{fields:?}");
            };
            self.acked
                .push((key, String::from_utf8(token.clone()).unwrap()));
        }
        longest
    }

    /// Starts a server. If the server refuses to start, returns its message. Returns `None` if the server starts.
    pub fn refusal(&self) -> Option<String> {
        let mut server = Server::spawn(&self.data, &self.flags(&[]));
        loop {
            let has_ended = server.has_ended();
            if server.said().contains("--accept-loss") {
                let (status, said) = server.wait();
                assert!(!status.success(), "{said}");
                return Some(said);
            }
            if server.said().contains("Ready to accept") {
                server.kill();
                return None;
            }
            assert!(!has_ended, "{}", server.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Checks that the server has every acknowledged key.
    pub fn check(&self, server: &Server) {
        let mut client = server.connect().unwrap();
        let mut count = |keys: &[(u64, String)]| {
            let names: Vec<String> = keys.iter().map(|(key, _)| format!("k{key}")).collect();
            let words: Vec<&str> = ["EXISTS"]
                .into_iter()
                .chain(names.iter().map(String::as_str))
                .collect();
            client.ask(&words).unwrap()
        };
        for keys in self.acked.chunks(500) {
            if count(keys) == Reply::Number(i64::try_from(keys.len()).unwrap()) {
                continue;
            }
            for of in keys {
                let found = count(std::slice::from_ref(of));
                assert_eq!(
                    found,
                    Reply::Number(1),
                    "k{} was acknowledged: {}",
                    of.0,
                    of.1
                );
            }
        }
    }
}

pub fn await_mirror(server: &Server) {
    await_field(server, "log_mirror_mode", "mirror");
}

/// Waits until the field `name` of INFO log contains `words`.
pub fn await_field(server: &Server, name: &str, words: &str) {
    let begun = Instant::now();
    loop {
        let found = server.log_field(name);
        if found.contains(words) {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{name}: {found}, not {words}: {}",
            server.said()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
