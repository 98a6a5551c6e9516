//! Tests of `perdura logd`: the options, and killed nodes.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perdura_base::{Pos, StreamId, Uuid};
use perdura_logd::{Client, TcpNet};
use perdura_mirror::hard_copy::list;
use perdura_mirror::{Caller, Generation, Key, NodeInc, Reason, Reply, Request};

use crate::support::{PERDURA, arg, ended, signal};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node in a separate process, which is killed when this value is dropped.
pub struct Node {
    pub child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    /// The first line that the node printed.
    said: String,
    pub address: String,
}

impl Node {
    pub fn start(listen: &str, extra: &[&str]) -> Node {
        Node::start_under(listen, extra, &[])
    }

    fn start_under(listen: &str, extra: &[&str], variables: &[(&str, &Path)]) -> Node {
        let mut child = Command::new(PERDURA)
            .args(["logd", "--listen", listen])
            .args(extra)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        let words = said.split_once(" on ").unwrap_or_else(|| panic!("{said}"));
        let address = words
            .1
            .split([':', ' '])
            .take(2)
            .collect::<Vec<_>>()
            .join(":");
        Node {
            child,
            stderr,
            said,
            address,
        }
    }

    fn client(&self) -> Client {
        let net = TcpNet::new(&[], None).unwrap();
        let caller = Caller {
            uuid: Uuid([3; 16]),
            generation: Generation(1),
            key: Key::none(),
            ring_bytes_min: 4 << 20,
        };
        Client::connect(&net, &self.address, &caller, PATIENCE).unwrap()
    }

    /// Returns the next line that the node prints.
    pub fn says(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    pub fn inc(&self) -> NodeInc {
        let inc = self.client().identity().inc;
        assert!(self.said.contains(&inc.to_string()), "{}", self.said);
        inc
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const OPEN: Request<'_> = Request::Open {
    generation: Generation(1),
    stream: StreamId(0),
    start: Pos(0),
};

fn append(pos: u64) -> Request<'static> {
    Request::Append {
        generation: Generation(1),
        stream: StreamId(0),
        pos: Pos(pos),
        low: Pos(0),
        bytes: b"0123456789",
        pad: 0,
    }
}

#[test]
fn a_killed_node_comes_back_as_another_one_that_holds_nothing() {
    let mut node = Node::start("127.0.0.1:0", &["--ring", "8MiB"]);
    let address = node.address.clone();
    let mut writer = node.client();
    writer.ask(&OPEN).unwrap();
    for number in 0..100 {
        let reply = writer.ask(&append(number * 10)).unwrap();
        assert!(matches!(Reply::decode(&reply), Ok(Reply::Held(_))));
    }
    let inc = node.inc();
    signal(node.child.id(), rustix::process::Signal::KILL);
    node.child.wait().unwrap();
    writer.ask(&append(1000)).unwrap_err();

    let node = Node::start(&address, &["--ring", "8MiB"]);
    assert_ne!(node.inc(), inc);
    let mut writer = node.client();
    let seal = Request::Seal {
        generation: Generation(1),
    };
    let reply = writer.ask(&seal).unwrap();
    assert!(matches!(Reply::decode(&reply), Ok(Reply::Sealed(sealed)) if sealed.rings.is_empty()));
    let reply = writer.ask(&append(1000)).unwrap();
    assert!(
        matches!(Reply::decode(&reply), Ok(Reply::Refused(why)) if why.reason == Reason::NoRing)
    );
}

#[test]
fn a_node_that_is_stopped_says_so_and_to_its_service_manager_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut node = Node::start_under("127.0.0.1:0", &[], &[("NOTIFY_SOCKET", &path)]);
    let hear = |wanted: &str| {
        let mut buffer = [0; 4096];
        loop {
            let len = socket
                .recv(&mut buffer)
                .unwrap_or_else(|e| panic!("no {wanted}: {e}"));
            if String::from_utf8_lossy(&buffer[..len]).contains(wanted) {
                return;
            }
        }
    };
    hear("READY=1");
    let mut writer = node.client();
    writer.ask(&OPEN).unwrap();
    writer.ask(&append(0)).unwrap();
    hear("1 rings of 1 databases, 10 bytes");
    signal(node.child.id(), rustix::process::Signal::TERM);
    hear("STOPPING=1");
    assert!(node.child.wait().unwrap().success());
    let mut rest = String::new();
    node.stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("The node ends"), "{rest}");
}

#[test]
fn an_address_that_strangers_can_reach_needs_a_key_and_tls_or_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "sixteen bytes at least\n").unwrap();
    let short = dir.path().join("short");
    std::fs::write(&short, "short\n").unwrap();
    let (key, short) = (arg(&key), arg(&short));
    let cases: [(&[&str], &str); 9] = [
        (&["--listen", "0.0.0.0:0"], "set a key (--key-file)"),
        (&["--listen", "0.0.0.0:0", "--allow-plaintext"], "set a key"),
        (&["--tls-listen", "0.0.0.0:0"], "set a key"),
        (
            &["--listen", "0.0.0.0:0", "--key-file", key],
            "allow-plaintext",
        ),
        (
            &["--tls-listen", "0.0.0.0:0", "--key-file", key],
            "tls-cert-file",
        ),
        (&["--key-file", short], "a key has 16 to 4096"),
        (&["--ring", "1MiB"], "a ring must hold the longest block"),
        (&["--rings-max", "0"], "1 to 4096"),
        (&["--listen", "nowhere"], "nowhere"),
    ];
    for (args, words) in cases {
        let (code, text) = ended(&[&["logd"], args].concat());
        assert_eq!(code, 2, "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
    let (code, text) = ended(&["logd", "--key-file", arg(&dir.path().join("missing"))]);
    assert_eq!(code, 1, "{text}");
    let node = Node::start("0.0.0.0:0", &["--key-file", key, "--allow-plaintext"]);
    assert!(node.said.contains("with a key"), "{}", node.said);
    let (code, text) = ended(&["logd", "--listen", &node.address]);
    assert_eq!(code, 2, "{text}");
    let taken = node.address.replace("0.0.0.0", "127.0.0.1");
    let (code, text) = ended(&["logd", "--listen", &taken]);
    assert!(code == 1 && text.contains(&taken), "{code}: {text}");
}

#[test]
fn the_hard_copy_of_a_killed_node_is_there_for_its_next_life_until_it_is_retired() {
    let dir = tempfile::tempdir().unwrap();
    let copies = dir.path().join("copies");
    let extra = ["--dir", arg(&copies), "--ring", "8MiB"];
    let mut node = Node::start("127.0.0.1:0", &extra);
    let mut writer = node.client();
    writer.ask(&OPEN).unwrap();
    for number in 0..100 {
        writer.ask(&append(number * 10)).unwrap();
    }
    let begin = std::time::Instant::now();
    let disk = perdura_device::FileDisk::at(&copies);
    let copied = || {
        let found = match list(&disk) {
            // The node has replaced the copy between the look at the names and the opening.
            Err(error) if error.is_not_found() => return 0,
            found => found.unwrap(),
        };
        let ring = found.first().and_then(|found| found.ring.clone().ok());
        ring.map_or(0, |ring| ring.end.0)
    };
    while copied() < 1000 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, text) = ended(&[&["logd", "--listen", "127.0.0.1:0"], &extra[..]].concat());
    assert!(code == 1 && text.contains("copies"), "{code}: {text}");
    signal(node.child.id(), rustix::process::Signal::KILL);
    node.child.wait().unwrap();

    let mut node = Node::start("127.0.0.1:0", &extra);
    let said = node.says();
    assert!(said.contains("1 files of earlier lives"), "{said}");
    assert_eq!(copied(), 1000);
    let retire = Request::Retire {
        generation: Generation(2),
    };
    node.client().ask(&retire).unwrap();
    while copied() > 0 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}
