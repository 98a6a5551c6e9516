//! A server with its nodes, as processes that are killed and stopped: what was acknowledged in memory comes back, or
//! the start says that it cannot and receipts agree with what is there.
//!
//!   PERDURA_MIRROR_ROUNDS=200 cargo test -p perdura-cli --test it mirrored      the long way

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Client, PERDURA, Reply, Server, arg, free_port, number_from_env, signal};

/// Acknowledgements come back this long after a node has failed. The short form runs beside other tests on busy cores.
fn resumes() -> Duration {
    let is_long = std::env::var_os("PERDURA_MIRROR_ROUNDS").is_some();
    Duration::from_secs(if is_long { 1 } else { 5 })
}

/// Writes go on for so long after a failure.
const GOES_ON: Duration = Duration::from_secs(2);

struct Node {
    child: Child,
    address: String,
}

impl Node {
    fn start(address: &str) -> Node {
        let child = Command::new(PERDURA)
            .args(["logd", "--listen", address, "--ring", "8MiB"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Node {
            child,
            address: address.to_owned(),
        }
    }

    fn kill(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn again(&mut self) {
        self.kill();
        *self = Node::start(&self.address);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A database with two nodes, and what its client was told.
struct World {
    _dir: tempfile::TempDir,
    data: PathBuf,
    flags: Vec<String>,
    nodes: [Node; 2],
    random: fastrand::Rng,
    next: u64,
    /// Keys that were acknowledged, with their receipts.
    acked: Vec<(u64, String)>,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let nodes = [(); 2].map(|()| Node::start(&format!("127.0.0.1:{}", free_port())));
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
            _dir: dir,
            nodes,
            random: fastrand::Rng::with_seed(number_from_env("PERDURA_MIRROR_SEED", 3)),
            next: 0,
            acked: Vec::new(),
        }
    }

    fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.flags
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect()
    }

    fn serve(&self) -> Server {
        let server = Server::start(&self.data, &self.flags(&[]));
        await_mirror(&server);
        server
    }

    /// Writes for a while; returns when it was last told that a write is acknowledged, and the longest pause.
    fn write(&mut self, client: &mut Client, pause: Duration) -> Duration {
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

    /// What a start says that refuses the database; `None` if it does not.
    fn refusal(&self) -> Option<String> {
        let server = Server::spawn(&self.data, &self.flags(&[]));
        loop {
            if server.said().contains("--accept-loss") {
                let (status, said) = server.wait();
                assert!(!status.success(), "{said}");
                return Some(said);
            }
            if server.said().contains("Ready to accept") {
                server.kill();
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All that was acknowledged is there.
    fn check(&self, server: &Server) {
        let mut client = server.connect().unwrap();
        for (key, token) in &self.acked {
            let found = client.ask(&["EXISTS", &format!("k{key}")]).unwrap();
            assert_eq!(found, Reply::Number(1), "k{key} was acknowledged: {token}");
        }
    }
}

fn await_mirror(server: &Server) {
    let begun = Instant::now();
    while server.log_field("log_mirror_mode") != "mirror" {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{}",
            server.said()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a data directory has what a receipt says.
fn is_kept(data: &Path, token: &str) -> bool {
    let checked = Command::new(PERDURA)
        .args(["receipt", "check", "--data", arg(data), token])
        .output();
    let code = checked.unwrap().status.code().unwrap();
    assert!(code == 0 || code == 3, "{token}: exit {code}");
    code == 0
}

#[test]
fn what_was_acknowledged_in_memory_survives_every_single_failure() {
    let mut world = World::new();
    for round in 0..number_from_env("PERDURA_MIRROR_ROUNDS", 10) {
        let server = world.serve();
        world.check(&server);
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(100));
        let node = world.random.usize(..2);
        match round % 5 {
            0 => server.kill(),
            1 => {
                // Its processes stop where they are, and are killed there.
                signal(server.pid(), Signal::STOP);
                server.kill();
            }
            2 => {
                world.nodes[node].kill();
                let longest = world.write(&mut client, GOES_ON);
                assert!(longest < resumes(), "writes paused for {longest:?}");
                world.nodes[node].again();
                await_mirror(&server);
                world.write(&mut client, Duration::from_millis(50));
                server.kill();
            }
            3 => {
                signal(world.nodes[node].child.id(), Signal::STOP);
                let longest = world.write(&mut client, GOES_ON);
                assert!(longest < resumes(), "writes paused for {longest:?}");
                signal(world.nodes[node].child.id(), Signal::CONT);
                await_mirror(&server);
                server.kill();
            }
            _ => {
                server.kill();
                world.nodes[node].again();
            }
        }
    }
    let server = world.serve();
    world.check(&server);
    assert!(world.acked.len() > 200, "{} writes", world.acked.len());
    server.stop();
    let alone = Server::start(&world.data, &[]);
    world.check(&alone);
    alone.kill();
}

#[test]
fn what_both_nodes_and_the_writer_lost_is_named_and_receipts_agree() {
    let mut world = World::new();
    for _ in 0..number_from_env("PERDURA_MIRROR_ROUNDS", 10).div_ceil(4) {
        let server = world.serve();
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(80));
        server.kill();
        world.nodes.iter_mut().for_each(Node::again);
        let Some(said) = world.refusal() else {
            // On busy cores a node may have been suspected when all three were killed: then the disk had all.
            let server = world.serve();
            world.check(&server);
            server.stop();
            continue;
        };
        assert!(said.contains("it was started again since"), "{said}");
        let flags = world.flags(&["--accept-loss"]);
        let server = Server::start(&world.data, &flags);
        assert!(
            server.said().contains("is kept up to epoch"),
            "{}",
            server.said()
        );
        let mut client = server.connect().unwrap();
        let acked = std::mem::take(&mut world.acked);
        let is_there = |client: &mut Client, key: u64| {
            client.ask(&["EXISTS", &format!("k{key}")]).unwrap() == Reply::Number(1)
        };
        let kept = acked
            .iter()
            .take_while(|(key, _)| is_there(&mut client, *key))
            .count();
        assert!(
            kept > 0 || acked.is_empty(),
            "all of {} are lost",
            acked.len()
        );
        // Receipts on both sides of where the log ends.
        let near = kept.saturating_sub(4)..acked.len().min(kept + 4);
        for (at, (key, token)) in acked.iter().enumerate().take(near.end).skip(near.start) {
            assert_eq!(is_there(&mut client, *key), at < kept, "k{key} of {kept}");
            assert_eq!(is_kept(&world.data, token), at < kept, "k{key}: {token}");
        }
        server.stop();
    }
}
