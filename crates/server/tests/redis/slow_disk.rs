//! Tests of a server with a slow log disk: a sync ends only when the test allows it.

use super::client::{Client, Running, local, small};
use perdura::files;
use perdura::{Db, Result};
use perdura_device::{Disk, DiskLayer, File, FileLayer};
use perdura_server::Server;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A gate that stops syncs. `state` holds whether the gate is shut, and how many syncs wait at it.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set_shut(&self, shut: bool) {
        self.state.lock().expect("a gate").0 = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().expect("a gate");
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).expect("a gate");
        }
        state.1 -= 1;
    }

    fn await_sync(&self) {
        let mut state = self.state.lock().expect("a gate");
        while state.1 == 0 {
            state = self.changed.wait(state).expect("a gate");
        }
    }
}

struct GatedDisk(Arc<dyn Disk>, Arc<Gate>);

struct GatedFile(Arc<dyn File>, Arc<Gate>);

impl DiskLayer for GatedDisk {
    fn behind(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile(file, Arc::clone(&self.1)))
    }
}

impl FileLayer for GatedFile {
    fn behind(&self) -> &dyn File {
        self.0.as_ref()
    }

    fn sync(&self) -> Result<()> {
        self.1.pass();
        self.0.sync()
    }
}

fn start() -> (Running, Arc<Gate>) {
    let dir = TempDir::new().expect("a directory");
    let data = small(&dir.path().join("data"));
    let gate = Arc::new(Gate::default());
    let theirs = Arc::clone(&gate);
    let open = move |progress| {
        let (mut disks, locks) = files::open(&data)?;
        disks.logs = vec![Arc::new(GatedDisk(Arc::clone(&disks.data), theirs))];
        Db::open_on(data, disks, locks, progress)
    };
    let mut options = local();
    options.enable_debug_command = perdura_server::DebugAccess::Yes;
    let server = Server::start_with(options, 1 << 20, open).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    (running, gate)
}

#[test]
fn the_gated_disk_conforms() {
    perdura_device::conformance::disk(|| {
        let memory = Arc::new(perdura_device::MemDisk::new());
        Arc::new(GatedDisk(memory, Arc::default()))
    });
}

/// Returns whether the server sends a reply within a tenth of a second.
fn is_answered(client: &mut Client<TcpStream>) -> bool {
    let socket = client.socket();
    let limit = |ms| Some(Duration::from_millis(ms));
    socket.set_read_timeout(limit(100)).expect("a timeout");
    let peeked = socket.peek(&mut [0]);
    socket.set_read_timeout(limit(20_000)).expect("a timeout");
    match peeked {
        Ok(bytes) => bytes > 0,
        Err(e) => {
            assert!(matches!(
                e.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut
            ));
            false
        }
    }
}

/// Shuts the gate and writes at the durability `mem`. The flusher's sync then hangs at the gate. Returns the
/// client that has written.
fn write_unsynced(running: &Running, gate: &Gate) -> Client<TcpStream> {
    let mut client = running.connect();
    client.expect(&[("CLIENT DURABILITY mem", "+OK")]);
    gate.set_shut(true);
    client.push(&[b"SET", b"k", b"v"]);
    gate.await_sync();
    client
}

/// An invalidation reveals a write, so it waits for the disk like the write's own reply. If the tracking table is full
/// and drops a key, the invalidation of this key waits for nothing.
#[test]
fn no_invalidation_leaves_before_the_write_that_it_tells_of_is_durable() {
    for options in ["", "BCAST", "BCAST PREFIX k", "NOLOOP"] {
        let (running, gate) = start();
        let mut client = running.connect();
        assert!(client.send("HELLO 3").contains("proto"));
        let on = format!("CLIENT TRACKING ON {options}");
        client.expect(&[(on.trim_end(), "+OK"), ("GET k", "nil")]);
        let mut writer = write_unsynced(&running, &gate);
        let early = is_answered(&mut client);
        gate.set_shut(false);
        assert_eq!(client.read(), ">[\"invalidate\", [\"k\"]]");
        assert_eq!(writer.read(), "+OK");
        assert!(!early, "{on}: it told of a write that was not durable");
    }
}

#[test]
fn debug_digest_waits_for_what_it_has_seen() {
    let (running, gate) = start();
    let _writer = write_unsynced(&running, &gate);
    let mut client = running.connect();
    client.push(&[b"DEBUG", b"DIGEST"]);
    let early = is_answered(&mut client);
    gate.set_shut(false);
    assert!(client.read().len() > 40, "a digest");
    assert!(!early, "it told of a write that was not durable");
}

#[test]
fn no_mem_reply_leaves_while_a_write_older_than_the_bound_is_not_durable() {
    let (running, gate) = start();
    let mut writer = write_unsynced(&running, &gate);
    let mut second = running.connect();
    second.expect(&[("CLIENT DURABILITY mem", "+OK")]);
    std::thread::sleep(Duration::from_millis(11));
    second.push(&[b"SET", b"other", b"v"]);
    let early = is_answered(&mut second);
    second.push(&[b"GET", b"k"]);
    let early = early || is_answered(&mut second);
    gate.set_shut(false);
    assert_eq!(second.read(), "+OK");
    assert_eq!(second.read(), "\"v\"");
    assert_eq!(writer.read(), "+OK");
    assert!(!early, "a reply left while the disk was too far behind");
}

#[test]
fn a_half_closed_client_gets_its_replies_when_the_log_has_caught_up() {
    let (running, gate) = start();
    let mut filler = running.connect();
    filler.expect(&[("CLIENT DURABILITY mem", "+OK")]);
    let filling_id = filler.send("CLIENT ID").replace(':', "");
    gate.set_shut(true);
    let mut control = running.connect();
    // A client's `qbuf` counts a complete request until it runs.
    let kept = |control: &mut Client<TcpStream>, own: &str, least: usize| {
        let list = control.send(&format!("CLIENT LIST ID {own}"));
        let mut words = list
            .split(' ')
            .filter_map(|word| word.strip_prefix("qbuf="));
        let bytes = words.next().and_then(|bytes| bytes.parse::<usize>().ok());
        bytes.expect("a figure") >= least
    };
    let mut client = running.connect();
    let mut filling = 0_u8;
    // This loop fills the log until the log is so far behind that a write waits before it runs.
    loop {
        filling += 1;
        assert!(filling < 60, "the log is never behind");
        filler.push(&[b"SET", b"big", &vec![filling; 1 << 20]]);
        std::thread::sleep(Duration::from_millis(20));
        if kept(&mut control, &filling_id, 1 << 20) {
            break;
        }
    }
    client.push(&[b"SET", b"x", b"y"]);
    client.push(&[b"GET", b"x"]);
    let half = client.socket().shutdown(Shutdown::Write);
    half.expect("half a close");
    let early = is_answered(&mut client);
    gate.set_shut(false);
    let replies = [(); 3].map(|()| client.read());
    assert_eq!(replies, ["+OK", "\"y\"", "closed"]);
    assert!(!early, "it did not wait for the log");
}
