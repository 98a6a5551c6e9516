//! A server and its nodes, each a process. The tests use wrong settings, peers that do not speak the protocol, and
//! failing machines. Each problem must cause a clear message or a change of view, and no data may be lost.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::node_processes::{World, await_field, await_mirror, plain};
use crate::support::{Reply, Server, arg, ended, signal};

/// Starts a server that must refuse to start. Returns the server's exit code and message.
fn refused(world: &World, flags: &[&str]) -> (i32, String) {
    let (status, said) = Server::spawn(&world.data, &world.flags(flags)).wait();
    (status.code().unwrap_or(-1), said)
}

/// Writes to a server and kills it. Afterwards only the nodes have the last part of the log.
fn fallen(world: &mut World) {
    let server = world.serve();
    let mut client = server.connect().unwrap();
    world.write(&mut client, Duration::from_millis(100));
    server.kill();
    assert!(world.acked.len() > 3, "{} writes", world.acked.len());
}

/// Starts the server and checks that no acknowledged write is missing.
fn all_is_there(world: &World) {
    let server = world.serve();
    world.check(&server);
    server.stop();
}

fn views(world: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.dir.path().join("view")).unwrap();
    let mut views: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    views.sort();
    views
}

#[test]
fn a_view_that_is_torn_gone_or_of_another_database_is_refused_and_loses_nothing() {
    let mut world = World::new();
    fallen(&mut world);
    let newest = views(&world).pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    let mut flipped = bytes.clone();
    flipped[40] ^= 1;
    let other = World::new();
    other.serve().stop();
    let of_other = std::fs::read(views(&other).pop().unwrap()).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (
            &bytes[..bytes.len() / 2],
            "a view whose checksum does not match",
        ),
        (&[], "shorter than a view"),
        (&flipped, "a view whose checksum does not match"),
        (&of_other, "it is the view of database"),
    ];
    for (found, words) in cases {
        std::fs::write(&newest, found).unwrap();
        let (code, said) = refused(&world, &[]);
        assert!(code == 3 && said.contains(words), "{words}: {code}: {said}");
    }
    let away = world.dir.path().join("away");
    let view = world.dir.path().join("view");
    std::fs::rename(&view, &away).unwrap();
    let (code, said) = refused(&world, &[]);
    assert!(
        code == 2 && said.contains("It is another directory, or it has lost its newest view"),
        "{code}: {said}"
    );
    std::fs::remove_dir_all(&view).unwrap();
    std::fs::rename(&away, &view).unwrap();
    std::fs::write(&newest, &bytes).unwrap();
    all_is_there(&world);
}

#[test]
fn a_wrong_key_is_told_to_a_start_and_while_it_runs() {
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, format!("the key with the name {name}\n")).unwrap();
        path
    };
    let (right, wrong) = (key("right"), key("wrong"));
    let mut world = World::with(&|number, dir, address| {
        let mut args = plain(number, dir, address);
        args.extend(["--key-file", arg(&right)].map(str::to_owned));
        args
    });
    world
        .flags
        .extend(["--log-key-file", arg(&right)].map(str::to_owned));
    fallen(&mut world);
    let (code, said) = refused(&world, &["--log-key-file", arg(&wrong)]);
    assert!(
        code == 2 && said.contains("the node has another key"),
        "{code}: {said}"
    );
    let keyless: Vec<String> = world.flags.drain(world.flags.len() - 2..).collect();
    let (code, said) = refused(&world, &[]);
    assert!(
        code == 2 && said.contains("the node needs a key, but this database has none"),
        "{code}: {said}"
    );
    world.flags.extend(keyless);
    all_is_there(&world);
    let server = Server::start(&world.data, &world.flags(&["--log-key-file", arg(&wrong)]));
    await_field(
        &server,
        "log_mirror_nodes_1_trouble",
        "the node has another key",
    );
    assert_eq!(server.log_field("log_mirror_mode"), "disk");
    server.stop();
    all_is_there(&world);
}

#[test]
fn nodes_whose_rings_are_too_small_or_too_few_are_no_mirror_until_they_are_larger() {
    let mut world = World::with(&|number, dir, address| {
        let mut args = plain(number, dir, address);
        if number == 0 {
            args.extend(["--ring", "4MiB"].map(str::to_owned));
        }
        args
    });
    world
        .flags
        .extend(["--log-tail", "8MiB", "--streams", "2"].map(str::to_owned));
    let server = Server::start(&world.data, &world.flags(&[]));
    let words = "the node's rings have 4194304 bytes, but the log's tail may have 8388608. Start \
                 the node with a larger --ring";
    await_field(&server, "log_mirror_nodes_0_trouble", words);
    let mut client = server.connect().unwrap();
    world.write(&mut client, Duration::from_millis(50));
    assert_eq!(server.log_field("log_mirror_mode"), "disk");
    world.nodes[0]
        .args
        .extend(["--ring", "8MiB", "--rings-max", "1"].map(str::to_owned));
    world.nodes[0].again();
    await_field(
        &server,
        "log_mirror_nodes_0_trouble",
        "the node has 1 rings, its most",
    );
    world.write(&mut client, Duration::from_millis(50));
    assert_eq!(server.log_field("log_mirror_mode"), "disk");
    world.nodes[0]
        .args
        .extend(["--rings-max", "4"].map(str::to_owned));
    world.nodes[0].again();
    await_mirror(&server);
    world.write(&mut client, Duration::from_millis(50));
    server.kill();
    all_is_there(&world);
}

/// A thread that listens at a node's address but does not speak the node's protocol. It answers every connection with
/// fixed bytes. Then it closes the connection or leaves it open.
struct Stranger {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    address: String,
}

impl Stranger {
    fn new(address: &str, says: &[u8], hangs_up: bool) -> Stranger {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, says) = (Arc::clone(&stop), says.to_vec());
        let thread = std::thread::spawn(move || {
            let mut kept: Vec<TcpStream> = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                if let Ok((mut socket, _)) = listener.accept() {
                    // The stranger reads the writer's hello. The writer may already be gone.
                    let _ = socket.set_nonblocking(false);
                    let _ = socket.read(&mut [0; 4096]);
                    let _ = socket.write_all(&says);
                    if !hangs_up {
                        kept.push(socket);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Stranger {
            stop,
            thread: Some(thread),
            address,
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Returns the strangers to test, each as a tuple: a name, the bytes that the stranger sends, a flag and a message. The
/// flag is true if the stranger closes the connection. The database must report the message.
fn sayings() -> [(&'static str, Vec<u8>, bool, &'static str); 5] {
    let mut half = 100_u32.to_le_bytes().to_vec();
    half.extend([7; 46]);
    [
        (
            "4 GiB",
            u32::MAX.to_le_bytes().to_vec(),
            false,
            "a frame of 4294967295 bytes",
        ),
        (
            "garbage",
            b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
            false,
            "a frame of",
        ),
        ("half a block", half, true, "the node closed the connection"),
        (
            "hangs up",
            Vec::new(),
            true,
            "the node closed the connection",
        ),
        ("zeros", vec![0; 64], false, "a frame of 0 bytes"),
    ]
}

#[test]
fn peers_that_are_no_nodes_leave_a_running_database_on_its_disk() {
    for (name, says, hangs_up, words) in sayings() {
        let dir = tempfile::tempdir().unwrap();
        let strangers = [(); 2].map(|()| Stranger::new("127.0.0.1:0", &says, hangs_up));
        let nodes = format!("{},{}", strangers[0].address, strangers[1].address);
        let (data, view) = (dir.path().join("db"), dir.path().join("view"));
        let flags = [
            "--log-nodes",
            &nodes,
            "--log-view",
            arg(&view),
            "--log-one-machine",
            "--durability",
            "mirror",
        ];
        let server = Server::start(&data, &flags);
        await_field(&server, "log_mirror_nodes_0_trouble", words);
        assert_eq!(server.log_field("log_mirror_mode"), "disk", "{name}");
        assert_eq!(
            server.ask(&["SET", "key", "value"]),
            Reply::Status("OK".into())
        );
        server.kill();
        drop(strangers);
        let server = Server::start(&data, &[]);
        let found = server.ask(&["GET", "key"]);
        assert_eq!(found, Reply::Bulk(Some(b"value".to_vec())), "{name}");
    }
}

#[test]
fn a_takeover_goes_by_the_node_that_is_left_whatever_answers_for_the_other_one() {
    let mut sayings = sayings().to_vec();
    sayings.push(("nothing", Vec::new(), false, ""));
    for (name, says, hangs_up, _) in sayings {
        let mut world = World::new();
        fallen(&mut world);
        world.nodes[0].kill();
        let address = world.nodes[0].address.clone();
        let stranger = Stranger::new(&address, &says, hangs_up);
        let begun = Instant::now();
        let server = Server::start(&world.data, &world.flags(&[]));
        world.check(&server);
        assert!(begun.elapsed() < Duration::from_secs(10), "{name}");
        server.kill();
        drop(stranger);
    }
}

/// Neither node can be reached. The server must name both nodes in its message and give up within the time limit.
#[test]
fn a_takeover_without_any_node_names_each_and_gives_up_in_its_time() {
    let mut world = World::new();
    fallen(&mut world);
    signal(world.nodes[0].child.id(), Signal::STOP);
    world.nodes[1].kill();
    let begun = Instant::now();
    let (code, said) = refused(&world, &[]);
    assert!(begun.elapsed() < Duration::from_secs(25));
    assert!(
        code == 2 && said.contains("--accept-loss"),
        "{code}: {said}"
    );
    for node in &world.nodes {
        assert!(said.contains(&format!("{}: ", node.address)), "{said}");
    }
    assert!(
        said.contains("it does not answer") && said.contains("refused"),
        "{said}"
    );
    signal(world.nodes[0].child.id(), Signal::CONT);
    world.nodes[1].again();
    all_is_there(&world);
}

#[test]
fn two_nodes_that_are_one_or_on_one_machine_are_refused_or_named() {
    let world = World::new();
    let same = format!("{0},{0}", world.nodes[0].address);
    let (code, said) = refused(&world, &["--log-nodes", &same]);
    assert!(
        code == 2 && said.contains("is given twice"),
        "{code}: {said}"
    );
    let address = &world.nodes[0].address;
    // This is another spelling of the same address.
    let again = address.replace("127.0.0.2", "127.2");
    let twice = format!("{address},{again}");
    let cases = [
        (twice.as_str(), "yes", "it is the same node as"),
        (&world.flags[1], "no", "log-one-machine"),
    ];
    for (number, (nodes, one_machine, words)) in cases.into_iter().enumerate() {
        let data = world.dir.path().join(format!("db-{number}"));
        let view = world.dir.path().join(format!("view-{number}"));
        let one_machine = format!("--log-one-machine={one_machine}");
        let flags = [
            "--log-nodes",
            nodes,
            "--log-view",
            arg(&view),
            &one_machine,
            "--log-tail",
            "4MiB",
        ];
        let server = Server::start(&data, &flags);
        await_field(&server, "log_mirror_nodes_1_trouble", words);
        assert_eq!(server.log_field("log_mirror_mode"), "disk");
        server.stop();
    }
    let (code, said) = ended(&["serve", "--data", arg(&world.data), "--log-nodes", "one"]);
    assert!(code == 2, "{code}: {said}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), &to).unwrap()),
        }
    }
}

/// The writer is stopped, as if its machine slept. Another process takes over with a copy of the writer's data. Then
/// the old writer continues.
#[test]
fn a_writer_that_was_replaced_while_it_slept_acknowledges_nothing_more_and_stops() {
    for rung in ["mirror", "disk"] {
        a_replaced_writer_acknowledges_nothing(rung);
    }
}

/// Replaces a stopped writer. Checks that the old writer acknowledges no later write, even if a client asks only for
/// durability on the old writer's disk.
fn a_replaced_writer_acknowledges_nothing(rung: &str) {
    let mut world = World::new();
    let old = world.serve();
    let mut client = old.connect().unwrap();
    let set = client.ask(&["CLIENT", "DURABILITY", rung]);
    assert!(matches!(set, Ok(Reply::Status(_))), "{set:?}");
    world.write(&mut client, Duration::from_millis(100));
    signal(old.pid(), Signal::STOP);
    let data = world.dir.path().join("db-2");
    copy(&world.data, &data);
    let new = Server::start(&data, &world.flags(&[]));
    world.check(&new);
    signal(old.pid(), Signal::CONT);
    client.set_patience(Duration::from_secs(10));
    let late = client.ask(&["SET", "late", "value"]);
    assert!(
        !matches!(late, Ok(Reply::Status(_))),
        "on {rung}, {late:?}: {}",
        old.said()
    );
    let (status, said) = old.wait();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("replaces view"), "{said}");
    assert_eq!(new.ask(&["EXISTS", "late"]), Reply::Number(0));
    world.check(&new);
    new.stop();
}

/// A second machine may reach the data directory, so the writer has a lease. The writer is stopped for longer than the
/// lease, as if the machine slept. After the stop the writer must end. The next writer must not begin before the lease
/// has ended.
#[test]
fn a_writer_that_has_not_asked_the_arbiter_within_its_lease_stops_and_the_next_one_waits_for_that()
{
    let mut world = World::new();
    world.nodes.iter_mut().for_each(|node| node.kill());
    let leased =
        |world: &World| Server::start(&world.data, &world.flags(&["--log-lease", "400ms"]));
    let server = leased(&world);
    let mut client = server.connect().unwrap();
    world.write(&mut client, Duration::from_secs(1));
    assert!(!world.acked.is_empty(), "{}", server.said());
    signal(server.pid(), Signal::STOP);
    std::thread::sleep(Duration::from_millis(700));
    signal(server.pid(), Signal::CONT);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("longer than the lease (log-lease)"), "{said}");
    let begun = Instant::now();
    let next = leased(&world);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(450), "{waited:?}");
    world.check(&next);
    next.stop();
}
