//! What a command leaves beside its reply, looked at before the loop has heard of the disk.

use crate::engine::{Db, Options};
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use std::sync::Arc;

/// Sends a line and says whether what the client is owed then waits, and waits for the disk
/// whatever the client has chosen.
fn send(state: &mut State, client: usize, line: &str) -> (bool, bool) {
    let mut connection = state.connections.take(client).expect("a client");
    connection.take(state, format!("{line}\r\n").as_bytes());
    let replies = std::mem::take(&mut connection.replies);
    state.connections.put(client, connection);
    (replies.waits(), replies.waits_firmly())
}

#[test]
fn waitaof_waits_firmly_for_the_newest_write_of_another_client() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(dir.path().join("data"));
    options.segment_bytes = 4 << 20;
    let db = Db::open(options.clone()).expect("a database");
    let around = Testbed::new();
    let mut state = around.state(ServerOptions::default(), options, Arc::new(|_| {}));
    state.stage = Stage::Ready(db);
    for id in [1, 2] {
        let index = state.connections.reserve();
        let connection = testbed::connection(&state, testbed::socket(), index, id);
        state.connections.put(index, connection);
        send(&mut state, index, "CLIENT DURABILITY mem");
    }
    assert_eq!(send(&mut state, 0, "WAITAOF 1 0 0"), (false, false));
    assert_eq!(send(&mut state, 1, "SET k v"), (true, false));
    assert_eq!(send(&mut state, 0, "PING"), (false, false));
    assert_eq!(send(&mut state, 0, "WAITAOF 1 0 0"), (true, true));
}
