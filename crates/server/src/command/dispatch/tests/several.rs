//! Tests of several loops that share a database. Each loop has a thread, and no sockets. `scripts/mistakes.py`
//! shows that each test can fail.

use super::{ask, call, leave, owed};
use crate::engine::{Db, Durability, Options};
use crate::options::ServerOptions;
use crate::pubsub::Topic;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The loops of a server, each with some clients. The clients' ids are their numbers over all loops, beginning with 1.
struct Loops {
    states: Vec<State>,
    _beds: Vec<Testbed>,
    _dir: tempfile::TempDir,
}

impl Loops {
    fn new(loops: usize, clients: usize) -> Loops {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = Options::new(dir.path().join("data"));
        options.segment_bytes = 4 << 20;
        let db = Db::open(options.clone()).expect("a database");
        let beds: Vec<Testbed> = (0..loops).map(|_| Testbed::new()).collect();
        let mut states = Testbed::states(&beds, &ServerOptions::default(), &options);
        for (at, state) in states.iter_mut().enumerate() {
            state.stage = Stage::Ready(db.clone());
            for client in 0..clients {
                let index = state.connections.reserve();
                let id = 1 + u64::try_from(at * clients + client).expect("a number");
                let connection = testbed::connection(state, testbed::socket(), index, id);
                state.connections.put(index, connection);
            }
        }
        Loops {
            states,
            _beds: beds,
            _dir: dir,
        }
    }

    /// Calls `run` with each loop and its index, each in its own thread. Returns the results in the loops' order.
    fn run<R: Send>(&mut self, run: impl Fn(usize, &mut State) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let (run, loops) = (&run, self.states.iter_mut().enumerate());
            let threads: Vec<_> = loops
                .map(|(at, state)| scope.spawn(move || run(at, state)))
                .collect();
            let ended = threads.into_iter().map(|one| one.join());
            ended.map(|one| one.expect("a loop")).collect()
        })
    }
}

/// Returns the text of the only bulk string of a reply.
fn bulk(reply: &str) -> &str {
    reply.lines().nth(1).unwrap_or("0")
}

#[test]
fn no_increment_under_watch_is_lost_when_several_loops_make_them() {
    const ROUNDS: usize = 60;
    let mut loops = Loops::new(3, 1);
    let made = loops.run(|_, state| {
        let mut made = 0;
        for _ in 0..ROUNDS {
            ask(state, 0, &["WATCH", "k"]);
            let now = ask(state, 0, &["GET", "k"]);
            let next = bulk(&now).parse::<usize>().expect("a number") + 1;
            ask(state, 0, &["MULTI"]);
            // These commands run before the block's transaction, and take time.
            for _ in 0..1000 {
                ask(state, 0, &["ECHO", "text"]);
            }
            ask(state, 0, &["SET", "k", &next.to_string()]);
            made += usize::from(ask(state, 0, &["EXEC"]).starts_with("*1"));
        }
        made
    });
    let made: usize = made.into_iter().sum();
    assert!(
        made >= ROUNDS,
        "each round of all loops, at least one commits"
    );
    let state = &mut loops.states[0];
    let held = ask(state, 0, &["GET", "k"]);
    assert!(state.common.watches.is_empty(), "no watch is left");
    assert_eq!(bulk(&held), made.to_string());
}

/// The destination of moved items. Its partition is not latched at first, so a transaction that moves an item begins
/// again.
const MOVED: &str = "moved";

/// The number of items that each of two loops pushes.
const ITEMS: usize = 300;

#[test]
fn each_item_reaches_one_client_and_nobody_waits_beside_an_item() {
    let mut loops = Loops::new(3, 2);
    let ended = AtomicUsize::new(0);
    for (client, list) in [(0, "list0"), (1, "list1")] {
        let reply = move_item(&mut loops.states[2], client, list);
        assert_eq!(reply, "", "nothing is there yet");
    }
    let got = loops.run(|at, state| {
        if at == 2 {
            return wait_for_items(state, &ended);
        }
        for item in 0..ITEMS {
            let (list, item) = (format!("list{}", item % 2), format!("{at}-{item}"));
            ask(state, 0, &["RPUSH", &list, &item]);
            state.read_mail();
        }
        ended.fetch_add(1, Ordering::SeqCst);
        0
    });
    let state = &mut loops.states[0];
    let all = ask(state, 0, &["LRANGE", MOVED, "0", "-1"]);
    let items: Vec<&str> = all.lines().filter(|line| line.contains('-')).collect();
    let different: BTreeSet<&&str> = items.iter().collect();
    let all = [got[2], items.len(), different.len()];
    assert_eq!(all, [2 * ITEMS; 3]);
}

/// Moves an item to [`MOVED`], or waits for an item.
fn move_item(state: &mut State, client: usize, list: &str) -> String {
    let request = ["BLMOVE", list, MOVED, "LEFT", "RIGHT", "0"];
    ask(state, client, &request)
}

/// Lets both clients of a loop move items until they have moved all. Ends early if no item comes although all have been
/// pushed. Returns the number of items that the clients got.
fn wait_for_items(state: &mut State, ended: &AtomicUsize) -> usize {
    let (mut got, mut idle, begin) = (0, 0, Instant::now());
    while got < 2 * ITEMS && idle < 100 && begin.elapsed() < Duration::from_secs(20) {
        state.read_mail();
        let before = got;
        for (client, list) in [(0, "list0"), (1, "list1")] {
            got += owed(state, client).0.matches('$').count();
            let connection = state.connections.get(client).expect("a client");
            if !connection.blocked {
                let reply = move_item(state, client, list);
                got += reply.matches('$').count();
            }
        }
        if got == before && ended.load(Ordering::SeqCst) == 2 {
            idle += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }
    got
}

#[test]
fn an_item_that_is_pushed_after_a_client_has_left_stays() {
    let mut loops = Loops::new(2, 1);
    let [first, second] = &mut loops.states[..] else {
        unreachable!("two loops");
    };
    assert_eq!(ask(first, 0, &["BLPOP", "list", "0"]), "");
    leave(first, 0);
    assert_eq!(ask(second, 0, &["RPUSH", "list", "item"]), ":1\r\n");
    assert_eq!(ask(second, 0, &["LLEN", "list"]), ":1\r\n");
}

#[test]
fn all_subscribers_of_a_channel_get_its_messages_in_one_order() {
    const MESSAGES: usize = 300;
    let mut loops = Loops::new(2, 2);
    for state in &mut loops.states {
        ask(state, 1, &["SUBSCRIBE", "channel"]);
    }
    let got = loops.run(|at, state| {
        let mut got = String::new();
        for message in 0..MESSAGES {
            let text = format!("{at}-{message}");
            ask(state, 0, &["PUBLISH", "channel", &text]);
            got += &owed(state, 1).0;
        }
        got
    });
    let texts = |mut got: String, state: &mut State| -> Vec<String> {
        state.read_mail();
        got += &owed(state, 1).0;
        let texts = got.lines().filter(|line| line.contains('-'));
        texts.map(String::from).collect()
    };
    let each = got.into_iter().zip(&mut loops.states);
    let each: Vec<Vec<String>> = each.map(|(got, state)| texts(got, state)).collect();
    assert_eq!(each[0].len(), 2 * MESSAGES);
    assert_eq!(each[0], each[1]);
}

/// A thread beside the loop may post a letter at any time, such as an event of a key that has expired.
#[test]
fn what_was_sent_before_a_request_comes_before_its_reply_and_waits_for_its_write() {
    let mut loops = Loops::new(1, 2);
    let state = &mut loops.states[0];
    ask(state, 0, &["SUBSCRIBE", "channel"]);
    let newest = state.db().expect("a database").exposure().current;
    let post = |state: &State| {
        let topic = Topic::Channel;
        state.common.publish(topic, b"channel", b"early", newest);
    };
    post(state);
    let (told, waits_for) = call(state, 0, &[b"UNSUBSCRIBE", b"channel"]);
    let place = |word: &str| told.find(word).expect("it is told");
    assert!(place("early") < place("unsubscribe"), "{told}");
    assert_eq!(
        waits_for,
        Some(Durability::Disk),
        "the write is not durable"
    );
    ask(state, 0, &["SUBSCRIBE", "channel"]);
    post(state);
    state.common.topics.with(|topics| {
        let connection = state.connections.iter_mut().next().expect("a client").1;
        let mut own = connection.session.subscriptions.take().expect("a topic");
        topics.forget(&mut own, connection.session.seat.id);
    });
    assert_eq!(ask(state, 0, &["PING"]), "+PONG\r\n", "it listens no more");
}

#[test]
fn a_waiting_client_that_the_engine_refuses_gets_the_error_and_the_writer_does_not() {
    let mut loops = Loops::new(2, 2);
    for state in &mut loops.states {
        state.options.reply_bytes_max = 2000;
    }
    let [waiting, writing] = &mut loops.states[..] else {
        unreachable!("two loops");
    };
    let text = "x".repeat(1500);
    for _ in 0..2 {
        ask(writing, 0, &["XADD", "long", "*", "field", &text]);
    }
    for (client, count) in [(0, "10"), (1, "1")] {
        let read = ["XREAD", "COUNT", count, "BLOCK", "0", "STREAMS", "s", "0"];
        assert_eq!(ask(waiting, client, &read), "");
    }
    assert_eq!(ask(writing, 0, &["RENAME", "long", "s"]), "+OK\r\n");
    waiting.read_mail();
    let [refused, served] = [0, 1].map(|client| owed(waiting, client).0);
    assert!(refused.starts_with("-ERR the reply is longer"), "{refused}");
    assert!(served.contains(&text), "{served}");
    assert_eq!(ask(writing, 0, &["XLEN", "s"]), ":2\r\n");
}
