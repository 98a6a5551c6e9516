//! Tests of the effects that a command leaves besides its reply. They check the effects while the loop does not
//! know yet that the writes are on the disk. Seeded bugs show that the tests notice errors.

use crate::engine::{Db, Durability, Options, Ticket};
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use perdura_base::flaw::{Flaw, arm};
use std::path::Path;

mod dead;
mod gone;
mod keys;
mod rungs;
mod several;
mod unsynced;

/// Sends a line and returns the durability that the client's pending replies wait for. `None`:
/// they wait for nothing.
fn send(state: &mut State, client: usize, line: &str) -> Option<Durability> {
    let mut connection = state.connections.take(client).expect("a client");
    connection.take(state, format!("{line}\r\n").as_bytes());
    let replies = std::mem::take(&mut connection.replies);
    state.connections.put(client, connection);
    replies.waits_for()
}

/// Sends words and returns the client's pending replies.
fn ask(state: &mut State, client: usize, words: &[&str]) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    call(state, client, &words).0
}

/// Sends words and returns the client's pending replies, and the durability that they wait for.
fn call(state: &mut State, client: usize, words: &[&[u8]]) -> (String, Option<Durability>) {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    let mut connection = state.connections.take(client).expect("a client");
    connection.take(state, &request);
    state.connections.put(client, connection);
    owed(state, client)
}

/// Takes a client's pending replies, and the durability that they wait for.
fn owed(state: &mut State, client: usize) -> (String, Option<Durability>) {
    let mut connection = state.connections.take(client).expect("a client");
    let replies = std::mem::take(&mut connection.replies);
    state.connections.put(client, connection);
    let text = String::from_utf8_lossy(&replies.buf).into_owned();
    (text, replies.waits_for())
}

/// A library of functions that is named `mine`.
const LIBRARY: &str = "#!lua name=mine\n\
    redis.register_function('gone', function(keys) redis.call('DEL', keys[1]) end)\n\
    redis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";

/// Returns the bytes of one word of a request. `$dump` is a payload for RESTORE, and `$functions` is a
/// payload for FUNCTION RESTORE. `$sha` is a script that deletes the stream `s`. `$mine`, `$changed` and
/// `$yours` are libraries. `$` with any other name is the dump of the key with that name.
fn word_of(state: &mut State, client: usize, word: &str) -> Vec<u8> {
    let Some(name) = word.strip_prefix('$').filter(|name| !name.is_empty()) else {
        return word.as_bytes().to_vec();
    };
    match name {
        "dump" => perdura_rdb::dump(&perdura_rdb::Value::String(b"value".to_vec())),
        "functions" => perdura_rdb::dump_functions(std::iter::once(LIBRARY.as_bytes())),
        "mine" => LIBRARY.into(),
        "changed" => LIBRARY.replace("'f'", "'g'").into(),
        "yours" => LIBRARY
            .replace("mine", "yours")
            .replace("'f'", "'g'")
            .replace("'gone'", "'went'")
            .into(),
        "sha" => {
            let reply = ask(state, client, &["SCRIPT", "LOAD", "redis.call('DEL','s')"]);
            reply.lines().nth(1).expect("a name").into()
        }
        key => {
            let mut connection = state.connections.take(client).expect("a client");
            connection.take(state, format!("DUMP {key}\r\n").as_bytes());
            state.connections.put(client, connection);
            finish_jobs(state);
            let mut connection = state.connections.take(client).expect("a client");
            let reply = std::mem::take(&mut connection.replies).buf;
            state.connections.put(client, connection);
            let start = reply
                .iter()
                .position(|byte| *byte == b'\n')
                .expect("a length")
                + 1;
            reply[start..reply.len() - 2].to_vec()
        }
    }
}

/// Does the loop's work until no command runs in steps or beside the loop.
fn finish_jobs(state: &mut State) {
    // A command that the log has no room for waits its turn.
    while !state.jobs.is_empty() || state.beside.is_busy() {
        state.step_job();
        state.land();
    }
}

/// Connects a new client.
fn newcomer(state: &mut State) -> usize {
    let index = state.connections.reserve();
    let id = 1000 + state.stats.accepted;
    state.stats.accepted += 1;
    let connection = testbed::connection(state, testbed::socket(), index, id);
    state.connections.put(index, connection);
    index
}

/// Disconnects a client, whatever it waits for.
fn leave(state: &mut State, client: usize) {
    let mut connection = state.connections.take(client).expect("a client");
    state.forget(&mut connection.session);
    state.connections.release(client);
}

/// Makes all earlier writes durable, so that no reply waits for them any more. Later writes are not made durable.
fn sync(state: &mut State) {
    let db = state.db().expect("a database").clone();
    db.wait(Ticket {
        epoch: state.newest,
    })
    .expect("it becomes durable");
    state.reached = db.reached();
}

/// Makes a server that has a database and two clients, and runs no loop.
fn ready(around: &Testbed, dir: &Path) -> State {
    let mut options = Options::new(dir.join("data"));
    options.segment_bytes = 4 << 20;
    opened(around, options)
}

fn opened(around: &Testbed, options: Options) -> State {
    let db = Db::open(options.clone()).expect("a database");
    let mut state = around.state(ServerOptions::default(), options);
    state.stage = Stage::Ready(db);
    state.load_functions().expect("functions");
    for id in [1, 2] {
        let index = state.connections.reserve();
        let connection = testbed::connection(&state, testbed::socket(), index, id);
        state.connections.put(index, connection);
    }
    state
}

/// Checks that a test passes without a seeded bug and fails with it.
fn notices(flaw: Flaw, holds: fn() -> bool) {
    assert!(holds(), "without {flaw:?}");
    arm(Some(flaw));
    let held = holds();
    arm(None);
    assert!(!held, "{flaw:?} is not noticed");
}

/// A script is run again when it uses a key that it did not declare.
#[test]
fn what_a_script_publishes_is_sent_once_although_it_runs_again() {
    notices(Flaw::MessageOfRerunKept, || {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = ready(&around, dir.path());
        ask(&mut state, 0, &["SUBSCRIBE", "channel"]);
        let script = "redis.call('PUBLISH', 'channel', 'once') for i = 1, 20 do redis.call('SET', 'k' .. i, i) end";
        let reply = ask(&mut state, 1, &["EVAL", script, "0"]);
        assert_eq!(reply, "$-1\r\n");
        let connection = state.connections.get(0).expect("a client");
        let told = String::from_utf8_lossy(&connection.replies.buf).into_owned();
        told.matches("once").count() == 1
    });
}

#[test]
fn a_waiting_consumer_is_told_of_an_entry_when_its_delivery_is_durable() {
    notices(Flaw::DeliveryShownEarly, || {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = ready(&around, dir.path());
        let made = ask(
            &mut state,
            0,
            &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"],
        );
        assert_eq!(made, "+OK\r\n");
        let read = [
            "XREADGROUP",
            "GROUP",
            "g",
            "c",
            "BLOCK",
            "0",
            "STREAMS",
            "s",
            ">",
        ];
        assert_eq!(ask(&mut state, 0, &read), "");
        ask(&mut state, 1, &["XADD", "s", "*", "field", "entry"]);
        let replies = &state.connections.get(0).expect("a client").replies;
        let told = String::from_utf8_lossy(&replies.buf).into_owned();
        assert!(told.contains("entry"), "{told}");
        replies.waits_firmly()
    });
}

#[test]
fn a_library_is_there_after_a_restart() {
    notices(Flaw::LibraryNotWritten, || {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut state = ready(&around, dir.path());
        let library = "#!lua name=mine\nredis.register_function('f', function() return 7 end)";
        let name = ask(&mut state, 0, &["FUNCTION", "LOAD", library]);
        assert_eq!(name, "$4\r\nmine\r\n");
        assert_eq!(ask(&mut state, 0, &["FCALL", "f", "0"]), ":7\r\n");
        state
            .db()
            .expect("a database")
            .checkpoint()
            .expect("all is durable");
        drop(state);
        let mut state = ready(&around, dir.path());
        ask(&mut state, 0, &["FCALL", "f", "0"]) == ":7\r\n"
    });
}

/// The log has two streams here, and prepares segments one at a time. So one stream waits for its first segment.
#[test]
fn a_library_that_is_loaded_right_after_the_start_waits_for_its_segment() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().expect("a directory");
        let around = Testbed::new();
        let mut options = Options::new(dir.path().join("data"));
        options.streams = 2;
        let mut state = opened(&around, options);
        let library = "#!lua name=mine\nredis.register_function('f', function() return 7 end)";
        let mut reply = ask(&mut state, 0, &["FUNCTION", "LOAD", library]);
        let begin = std::time::Instant::now();
        while reply.is_empty() {
            assert!(begin.elapsed().as_secs() < 30, "the log gets no segment");
            state.end_wait_for_log();
            let mut connection = state.connections.take(0).expect("a client");
            connection.take(&mut state, b"");
            let replies = std::mem::take(&mut connection.replies);
            state.connections.put(0, connection);
            reply = String::from_utf8_lossy(&replies.buf).into_owned();
        }
        assert_eq!(reply, "$4\r\nmine\r\n");
    }
}

#[test]
fn waitaof_waits_firmly_for_the_newest_write_of_another_client() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    for client in [0, 1] {
        send(&mut state, client, "CLIENT DURABILITY mem");
    }
    assert_eq!(send(&mut state, 0, "WAITAOF 1 0 0"), None);
    assert_eq!(send(&mut state, 1, "SET k v"), Some(Durability::Mem));
    assert_eq!(send(&mut state, 0, "PING"), None);
    assert_eq!(send(&mut state, 0, "WAITAOF 1 0 0"), Some(Durability::Disk));
}
