//! A server and its nodes, each in a network namespace. The links between them are cut while a client writes.
//!
//! Run: sudo scripts/test-mirror-net.sh. PERDURA_MIRROR_ROUNDS=200 gives the long form.
//!
//! The script creates the namespaces and runs this test in the writer's namespace. `scripts/test.sh` calls the script.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::node_processes::{GOES_ON, Node, World, await_mirror, resumes};
use crate::support::{Server, number_from_env};

/// The link to a node: the node's namespace, the writer's network device, and the addresses of the two ends.
struct Link {
    namespace: &'static str,
    device: &'static str,
    ours: &'static str,
    theirs: &'static str,
}

const LINKS: [Link; 2] = [
    Link {
        namespace: "perdura-a",
        device: "to-a",
        ours: "10.231.1.1",
        theirs: "10.231.1.2",
    },
    Link {
        namespace: "perdura-b",
        device: "to-b",
        ours: "10.231.2.1",
        theirs: "10.231.2.2",
    },
];
const PORT: u16 = 7379;

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().unwrap();
    assert!(status.success(), "ip {args:?}: {status}");
}

/// The frames that a cut link loses.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// All frames, in both directions. Both ends can see that the link is down.
    Down,
    /// The frames that the writer sends.
    Up,
    /// The frames that the node sends.
    Back,
}

impl Link {
    /// Makes the link lose frames if `is_cut` is true. Otherwise makes the link work again. To lose the frames of one
    /// direction, the sender gets a hardware address that no device has. Frames to this address are lost without an
    /// error.
    fn lose(&self, cut: Cut, is_cut: bool) {
        let nobody = "02:00:00:00:00:99";
        match (cut, is_cut) {
            (Cut::Down, true) => ip(&["link", "set", self.device, "down"]),
            (Cut::Down, false) => ip(&["link", "set", self.device, "up"]),
            (Cut::Up, true) => {
                let to = ["neigh", "replace", self.theirs, "lladdr", nobody];
                ip(&[&to[..], &["dev", self.device, "nud", "permanent"]].concat());
            }
            (Cut::Up, false) => ip(&["neigh", "del", self.theirs, "dev", self.device]),
            (Cut::Back, true) => {
                let to = ["neigh", "replace", self.ours, "lladdr", nobody];
                let to = [&["-n", self.namespace][..], &to].concat();
                ip(&[&to[..], &["dev", "uplink", "nud", "permanent"]].concat());
            }
            (Cut::Back, false) => {
                ip(&[
                    "-n",
                    self.namespace,
                    "neigh",
                    "del",
                    self.ours,
                    "dev",
                    "uplink",
                ]);
            }
        }
    }
}

/// Starts a server while no node can be reached. If the view still names the nodes as a mirror, the server must refuse
/// to start. If the view had already changed, the server's disk has everything, and the start must succeed. Returns
/// whether the server refused to start.
fn start_without_nodes(world: &World) -> bool {
    let Some(said) = world.refusal() else {
        return false;
    };
    let names = LINKS.iter().all(|link| said.contains(link.theirs));
    assert!(names && said.contains("no node returns them"), "{said}");
    true
}

#[test]
#[ignore = "needs network namespaces: scripts/test-mirror-net.sh makes them"]
fn partitions_lose_nothing_that_was_acknowledged() {
    let mut world = World::at(
        [0, 1].map(|number: usize| format!("{}:{PORT}", LINKS[number].theirs)),
        &[LINKS[0].namespace, LINKS[1].namespace],
        &|_, dir, address| {
            let key = dir.join("key");
            std::fs::write(&key, "a key of the nodes of this test\n").unwrap();
            let args = ["--listen", address, "--ring", "8MiB", "--allow-plaintext"];
            let mut args = args.map(str::to_owned).to_vec();
            args.extend(["--key-file".to_owned(), key.display().to_string()]);
            args
        },
    );
    let key = world.dir.path().join("key").display().to_string();
    world.flags.extend([
        "--log-key-file".to_owned(),
        key,
        "--log-allow-plaintext".to_owned(),
    ]);
    let (mut refused, mut longest) = (0, Duration::ZERO);
    let rounds = number_from_env("PERDURA_MIRROR_ROUNDS", 6);
    for round in 0..rounds {
        let server = world.serve();
        world.check(&server);
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(100));
        let one = world.random.usize(..2);
        let cut = [Cut::Down, Cut::Up, Cut::Back][world.random.usize(..3)];
        match round % 6 {
            // One link is cut for a while.
            0 => {
                LINKS[one].lose(cut, true);
                let pause = world.write(&mut client, GOES_ON);
                assert!(pause < resumes(), "writes paused for {pause:?} ({cut:?})");
                longest = longest.max(pause);
                LINKS[one].lose(cut, false);
                await_mirror(&server);
                world.write(&mut client, Duration::from_millis(50));
                server.kill();
            }
            // Both links are cut. Writes continue on the disk.
            1 => {
                LINKS.iter().for_each(|link| link.lose(cut, true));
                let pause = world.write(&mut client, GOES_ON);
                assert!(pause < resumes(), "writes paused for {pause:?} ({cut:?})");
                longest = longest.max(pause);
                LINKS.iter().for_each(|link| link.lose(cut, false));
                await_mirror(&server);
                server.kill();
            }
            // One link is cut, and the writer is killed. The other node has everything.
            2 => {
                LINKS[one].lose(cut, true);
                let pause = Duration::from_millis(world.random.u64(..400));
                world.write(&mut client, pause);
                server.kill();
                let server = Server::start(&world.data, &world.flags(&[]));
                world.check(&server);
                LINKS[one].lose(cut, false);
                await_mirror(&server);
                server.kill();
            }
            // Both links are cut, and the writer is killed. A start before the links work may be refused.
            3 => {
                LINKS.iter().for_each(|link| link.lose(cut, true));
                // The view has hardly had time to change, so these writes are not acknowledged.
                client.set_patience(Duration::from_millis(20));
                world.write(&mut client, Duration::from_millis(20));
                server.kill();
                refused += u64::from(start_without_nodes(&world));
                LINKS.iter().for_each(|link| link.lose(cut, false));
            }
            // One link is cut, and the node at its end is killed and started again.
            4 => {
                LINKS[one].lose(cut, true);
                world.write(&mut client, Duration::from_millis(300));
                world.nodes[one].again();
                LINKS[one].lose(cut, false);
                await_mirror(&server);
                world.write(&mut client, Duration::from_millis(50));
                server.kill();
            }
            // The two links are cut in turn.
            _ => {
                let begun = Instant::now();
                while begun.elapsed() < GOES_ON {
                    let link = &LINKS[world.random.usize(..2)];
                    link.lose(cut, true);
                    let pause = Duration::from_millis(world.random.u64(..300));
                    world.write(&mut client, pause);
                    link.lose(cut, false);
                    world.write(&mut client, pause);
                }
                server.kill();
            }
        }
    }
    let server = world.serve();
    world.check(&server);
    server.stop();
    world.nodes.iter_mut().for_each(Node::kill);
    println!(
        "{rounds} rounds, {} writes acknowledged, 0 lost; {refused} starts without nodes refused; longest pause {longest:?}",
        world.acked.len()
    );
    assert!(world.acked.len() > 200 && (refused > 0 || rounds < 12));
}
