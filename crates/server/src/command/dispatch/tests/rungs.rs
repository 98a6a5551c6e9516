//! Tests of receipts, and of the durability that replies wait for if two clients have chosen different rungs.

use super::{ask, notices, opened, ready, send};
use crate::engine::{Durability, Options, Receipt};
use crate::state::State;
use crate::testbed::{self, Testbed};
use perdura_base::flaw::Flaw;
use std::time::{Duration, Instant};

/// The client that gets messages. The commands of the client [`SENDER`] cause them.
const RECEIVER: usize = 0;
const SENDER: usize = 1;

/// Returns all pairs of different durabilities.
fn pairs() -> impl Iterator<Item = [Durability; 2]> {
    let all = Durability::ALL;
    let pair = move |one| all.map(|other| [one, other]);
    all.into_iter()
        .flat_map(pair)
        .filter(|[one, other]| one != other)
}

/// Checks that messages caused by the sender wait for the *receiver's* chosen rung.
fn waits_for_the_receivers_rung(prepare: &[&str], cause: &[&str]) {
    for [receivers, senders] in pairs() {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = ready(&around, dir.path());
        for (client, durability) in [(RECEIVER, receivers), (SENDER, senders)] {
            let line = format!("CLIENT DURABILITY {}", durability.name());
            assert_eq!(send(&mut state, client, &line), None);
        }
        for line in prepare {
            send(&mut state, RECEIVER, line);
        }
        for line in cause {
            send(&mut state, SENDER, line);
        }
        let receiver = state.connections.get(RECEIVER).expect("a client");
        assert!(receiver.replies.unsent() > 0, "{cause:?} told nothing");
        assert_eq!(
            receiver.replies.waits_for(),
            Some(receivers),
            "{cause:?} by a client at {senders:?}"
        );
    }
}

#[test]
fn a_reply_that_read_anothers_write_waits_for_the_readers_rung() {
    for [readers, writers] in pairs() {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = ready(&around, dir.path());
        for (client, durability) in [(RECEIVER, readers), (SENDER, writers)] {
            let line = format!("CLIENT DURABILITY {}", durability.name());
            send(&mut state, client, &line);
        }
        assert_eq!(send(&mut state, SENDER, "SET k v"), Some(writers));
        assert_eq!(send(&mut state, RECEIVER, "GET k"), Some(readers));
    }
}

#[test]
fn a_message_outside_a_transaction_waits_for_the_receivers_rung() {
    waits_for_the_receivers_rung(&["SUBSCRIBE news"], &["SET k v", "PUBLISH news text"]);
}

#[test]
fn a_message_of_a_block_waits_for_the_receivers_rung() {
    let cause = ["MULTI", "SET k v", "PUBLISH news text", "EXEC"];
    waits_for_the_receivers_rung(&["SUBSCRIBE news"], &cause);
}

#[test]
fn a_key_event_waits_for_the_receivers_rung() {
    let prepare = [
        "CONFIG SET notify-keyspace-events KEA",
        "SUBSCRIBE __keyevent@0__:set",
    ];
    waits_for_the_receivers_rung(&prepare, &["SET k v"]);
}

#[test]
fn an_invalidation_waits_for_the_receivers_rung() {
    let prepare = ["HELLO 3", "CLIENT TRACKING ON", "GET k"];
    waits_for_the_receivers_rung(&prepare, &["SET k v"]);
}

#[test]
fn a_client_that_was_woken_waits_for_its_own_rung() {
    waits_for_the_receivers_rung(&["BLPOP list 0"], &["LPUSH list item"]);
}

#[test]
fn a_session_begins_with_the_configured_rung_and_goes_back_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    assert_eq!(send(&mut state, 0, "SET k v"), Some(Durability::Disk));
    ask(&mut state, 0, &["CONFIG", "SET", "durability", "MIRROR"]);
    let shown = ask(&mut state, 0, &["CONFIG", "GET", "durability"]);
    assert_eq!(shown, "*2\r\n$10\r\ndurability\r\n$6\r\nmirror\r\n");
    // A client that is connected keeps its choice.
    assert_eq!(send(&mut state, 0, "SET k v"), Some(Durability::Disk));
    let index = state.connections.reserve();
    let newcomer = testbed::connection(&state, testbed::socket(), index, 3);
    state.connections.put(index, newcomer);
    assert_eq!(send(&mut state, index, "SET k v"), Some(Durability::Mirror));
    send(&mut state, index, "CLIENT DURABILITY mem");
    assert_eq!(send(&mut state, index, "SET k v"), Some(Durability::Mem));
    send(&mut state, index, "RESET");
    assert_eq!(send(&mut state, index, "SET k v"), Some(Durability::Mirror));
}

/// Makes a server that writes the log at most once a second.
fn slow(around: &Testbed, dir: &std::path::Path) -> State {
    let mut options = Options::new(dir.join("data"));
    options.segment_bytes = 4 << 20;
    options.flush_every = Duration::from_secs(1);
    opened(around, options)
}

/// Sets a client's durability to `mem`, and lets the client write just after the log was written. So the client's write
/// is not logged for a while.
fn write_and_see_it_wait(state: &mut State, client: usize) {
    send(state, client, "CLIENT DURABILITY mem");
    let db = state.db().expect("a database").clone();
    let begun = Instant::now();
    loop {
        send(state, client, "SET k v");
        let before = db.durable();
        std::thread::sleep(Duration::from_millis(1));
        if db.durable() > before {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no write");
    }
    send(state, client, "SET k w");
}

/// Returns the receipt for a client's newest write, and the durability that the reply waits for.
fn receipt(state: &mut State, client: usize) -> (Receipt, Option<Durability>) {
    let mut connection = state.connections.take(client).expect("a client");
    connection.take(state, b"CLIENT RECEIPT\r\n");
    let replies = std::mem::take(&mut connection.replies);
    state.connections.put(client, connection);
    let text = String::from_utf8_lossy(&replies.buf).into_owned();
    let token = text.lines().last().expect("a token");
    (token.parse().expect(&text), replies.waits_for())
}

#[test]
fn a_receipt_is_never_rounded_up() {
    notices(Flaw::ReceiptRoundedUp, || {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = slow(&around, dir.path());
        write_and_see_it_wait(&mut state, 0);
        let (given, waits_for) = receipt(&mut state, 0);
        let reached = state.db().expect("a database").reached();
        let is_true = given.durability.is_reached(given.epoch, reached);
        is_true || waits_for >= Some(given.durability)
    });
}

#[test]
fn a_receipt_names_what_is_reached_or_what_its_reply_waits_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = slow(&around, dir.path());
    assert_eq!(ask(&mut state, 0, &["CLIENT", "RECEIPT"]), "$-1\r\n");
    ask(&mut state, 0, &["GET", "k"]);
    let none = ask(&mut state, 0, &["CLIENT", "RECEIPT"]);
    assert_eq!(none, "$-1\r\n", "it has only read");
    write_and_see_it_wait(&mut state, 0);
    let (given, waits_for) = receipt(&mut state, 0);
    assert_eq!(given.durability, Durability::Mem);
    assert_eq!(waits_for, Some(Durability::Mem));
    for durability in [Durability::Mirror, Durability::Disk] {
        send(
            &mut state,
            0,
            &format!("CLIENT DURABILITY {}", durability.name()),
        );
        let (higher, waits_for) = receipt(&mut state, 0);
        assert_eq!(
            higher,
            Receipt {
                durability,
                ..given
            }
        );
        assert_eq!(waits_for, Some(durability));
    }
    // Another client's write is not a write of this client.
    send(&mut state, 1, "SET k other");
    ask(&mut state, 0, &["GET", "k"]);
    assert_eq!(receipt(&mut state, 0).0.epoch, given.epoch);
    let db = state.db().expect("a database").clone();
    db.checkpoint().expect("all is durable");
    send(&mut state, 0, "CLIENT DURABILITY mem");
    assert_eq!(receipt(&mut state, 0).0.durability, Durability::Disk);
    send(&mut state, 0, "RESET");
    assert_eq!(ask(&mut state, 0, &["CLIENT", "RECEIPT"]), "$-1\r\n");
}

/// The reply of a block is sealed after the block's last command. Here the last command chooses a lower
/// durability.
#[test]
fn a_receipt_in_a_block_waits_for_its_rung_although_the_client_then_chooses_less() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = slow(&around, dir.path());
    write_and_see_it_wait(&mut state, 0);
    send(&mut state, 0, "CLIENT DURABILITY disk");
    for line in ["MULTI", "CLIENT RECEIPT", "CLIENT DURABILITY mem"] {
        send(&mut state, 0, line);
    }
    assert_eq!(send(&mut state, 0, "EXEC"), Some(Durability::Disk));
    assert_eq!(receipt(&mut state, 0).0.durability, Durability::Mem);
}

#[test]
fn every_kind_of_write_counts_for_a_receipt() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    send(&mut state, 0, "CLIENT DURABILITY mem");
    let mut last = 0;
    let library = "#!lua name=mine\nredis.register_function('f', function() return 7 end)";
    let writes: [&[&[&str]]; 6] = [
        &[&["SET", "k", "v"]],
        &[&["MULTI"], &["SET", "k", "w"], &["EXEC"]],
        &[&["EVAL", "redis.call('SET', 'k', 1)", "0"]],
        &[&["FUNCTION", "LOAD", library]],
        &[&["SWAPDB", "0", "1"]],
        &[&["FLUSHALL"]],
    ];
    for write in writes {
        // Each write gets a later epoch than the previous write.
        state
            .db()
            .expect("a database")
            .checkpoint()
            .expect("durable");
        for request in write {
            ask(&mut state, 0, request);
        }
        let epoch = receipt(&mut state, 0).0.epoch.0;
        assert!(epoch > last, "{write:?}: {epoch} after {last}");
        last = epoch;
    }
    // Another client's push ends the wait of BLPOP. Then BLPOP counts as a write of the client that
    // waited.
    ask(&mut state, 0, &["BLPOP", "list", "0"]);
    state
        .db()
        .expect("a database")
        .checkpoint()
        .expect("durable");
    send(&mut state, 1, "RPUSH list item");
    assert!(receipt(&mut state, 0).0.epoch.0 > last, "BLPOP");
}

/// Sends WAITDUR and returns the reply, which is empty if the client has to wait.
fn waitdur(state: &mut State, client: usize, args: &[&str]) -> String {
    ask(state, client, &[&["WAITDUR"], args].concat())
}

/// Does the loop's work as if the time `later` had passed, and returns the client's replies.
fn after(state: &mut State, client: usize, later: Duration) -> String {
    state.reached = state.db().expect("a database").reached();
    state.end_rung_waits(Instant::now() + later);
    let mut connection = state.connections.take(client).expect("a client");
    let replies = std::mem::take(&mut connection.replies);
    state.connections.put(client, connection);
    String::from_utf8_lossy(&replies.buf).into_owned()
}

#[test]
fn waitdur_waits_for_the_rung_or_until_the_time_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = slow(&around, dir.path());
    assert_eq!(waitdur(&mut state, 0, &["disk", "0"]), ":1\r\n");
    for (args, error) in [
        (["disc", "0"], "the durability is mem, mirror or disk"),
        (["disk", "x"], "timeout is not an integer or out of range"),
        (["disk", "-1"], "timeout is negative"),
    ] {
        let reply = waitdur(&mut state, 0, &args);
        assert_eq!(reply, format!("-ERR {error}\r\n"));
    }
    write_and_see_it_wait(&mut state, 0);
    assert_eq!(waitdur(&mut state, 0, &["mem", "0"]), ":1\r\n");
    let second = Duration::from_secs(1);
    for rung in ["disk", "MIRROR"] {
        assert_eq!(waitdur(&mut state, 0, &[rung, "500"]), "");
        assert_eq!(after(&mut state, 0, Duration::ZERO), "", "neither");
        assert_eq!(after(&mut state, 0, second), ":0\r\n");
    }
    assert_eq!(waitdur(&mut state, 0, &["disk", "0"]), "");
    let db = state.db().expect("a database").clone();
    db.checkpoint().expect("all is durable");
    assert_eq!(after(&mut state, 0, Duration::ZERO), ":1\r\n");
    assert!(state.rung_waits.is_empty());
}

#[test]
fn waitdur_waits_for_what_others_have_written_if_the_client_was_told_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = slow(&around, dir.path());
    write_and_see_it_wait(&mut state, 1);
    assert_eq!(waitdur(&mut state, 0, &["disk", "0"]), ":1\r\n");
    send(&mut state, 0, "CLIENT DURABILITY mem");
    ask(&mut state, 0, &["GET", "k"]);
    assert_eq!(waitdur(&mut state, 0, &["disk", "0"]), "");
}

#[test]
fn waitdur_does_not_block_within_a_block() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = slow(&around, dir.path());
    write_and_see_it_wait(&mut state, 0);
    for line in ["MULTI", "WAITDUR disk 0", "WAITDUR mem 0"] {
        send(&mut state, 0, line);
    }
    let replies = ask(&mut state, 0, &["EXEC"]);
    assert_eq!(replies, "*2\r\n:0\r\n:1\r\n");
}
