//! Tests of several event loops: the clients of one server, spread over loops, that act on each other.

use super::client::{Client, Running, local, small, start_with};
use perdura_server::ServerOptions;
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub const LOOPS: usize = 3;

/// Returns a server of several loops with a client on each. Loop 0 gets the first client, loop 1 the second, and so on.
pub fn start() -> (Running, Vec<Client<TcpStream>>) {
    let running = start_with(ServerOptions {
        loops: NonZeroUsize::new(LOOPS),
        enable_debug_command: perdura_server::DebugAccess::Local,
        ..local()
    });
    // The client that has waited until the database was open has gone, or is about to.
    running.await_figure("connected_clients", 1);
    let mut clients: Vec<_> = Vec::new();
    for at in 0..LOOPS {
        let mut client = running.connect();
        assert_eq!(client.send("PING"), "+PONG");
        clients.push(client);
        let name = format!("loop_{at}_clients");
        assert_eq!(clients[0].figure(&name), 1, "each loop gets a client");
    }
    (running, clients)
}

/// Sets a flag when it is dropped, also by a failed assertion. The flag ends a thread that the test waits for.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn id_of(client: &mut Client<TcpStream>) -> String {
    client.send("CLIENT ID")[1..].to_owned()
}

#[test]
fn fifty_clients_are_spread_evenly_and_counted_together() {
    let (running, mut clients) = start();
    clients.extend((LOOPS..50).map(|_| running.connect()));
    for client in &mut clients {
        client.expect(&[("PING", "+PONG")]);
    }
    let first = &mut clients[0];
    assert_eq!(first.figure("loops"), 3);
    for at in 0..LOOPS {
        let count = first.figure(&format!("loop_{at}_clients"));
        assert!((16..=17).contains(&count), "loop {at} has {count}");
    }
    assert_eq!(first.figure("connected_clients"), 50);
    assert_eq!(first.send("CLIENT LIST").matches("id=").count(), 50);
    first.expect(&[("CONFIG RESETSTAT", "+OK")]);
    for client in &mut clients {
        client.expect(&[("SET k v", "+OK")]);
    }
    // INFO counts itself. It shows older figures of another loop that does not end its round in time.
    let begin = Instant::now();
    let exact = (51..).find(|count| {
        let shown = clients[7].figure("total_commands_processed");
        shown == *count || begin.elapsed() > Duration::from_secs(30)
    });
    let shown = clients[7].figure("total_commands_processed");
    assert_eq!(exact.map(|count| count + 1), Some(shown));
    clients[1].expect(&[("CONFIG RESETSTAT", "+OK")]);
    assert_eq!(clients[2].figure("total_commands_processed"), 1);
}

#[test]
fn a_message_a_pushed_item_and_an_end_of_waiting_reach_clients_of_other_loops() {
    let (running, mut clients) = start();
    clients[1].send("SUBSCRIBE news");
    clients[0].expect(&[("PUBLISH news one", ":1")]);
    clients[2].expect(&[("PUBLISH news two", ":1")]);
    for text in ["one", "two"] {
        let message = format!("[\"message\", \"news\", \"{text}\"]");
        assert_eq!(clients[1].read(), message);
    }
    let waits = |client: &mut Client<TcpStream>, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        client.push(&words);
        running.await_figure("blocked_clients", 1);
    };
    waits(&mut clients[2], "BLPOP l 0");
    clients[0].expect(&[("RPUSH l x", ":1")]);
    assert_eq!(clients[2].read(), "[\"l\", \"x\"]");
    let id = id_of(&mut clients[2]);
    waits(&mut clients[2], "BLPOP l 0");
    clients[0].expect(&[(&format!("CLIENT UNBLOCK {id}"), ":1")]);
    assert_eq!(clients[2].read(), "nil array");
    waits(&mut clients[2], "BLPOP l 0.05");
    assert_eq!(clients[2].read(), "nil array");
    waits(&mut clients[2], "BLPOP l 0");
    clients[0].expect(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
    assert_eq!(clients[2].read(), "closed");
    clients[0].expect(&[("RPUSH l y", ":1"), ("LLEN l", ":1")]);
}

#[test]
fn settings_users_and_pauses_hold_for_the_clients_of_all_loops_at_once() {
    let (running, mut clients) = start();
    clients[1].expect(&[
        ("CONFIG SET slowlog-max-len 7", "+OK"),
        ("ACL SETUSER bob on >secret ~* +@all", "+OK"),
    ]);
    for client in &mut clients {
        client.expect(&[("CONFIG GET slowlog-max-len", "[\"slowlog-max-len\", \"7\"]")]);
    }
    clients[2].expect(&[("AUTH bob secret", "+OK"), ("SET k 1", "+OK")]);
    clients[0].expect(&[("ACL SETUSER bob -set", "+OK")]);
    let denied = "-NOPERM this user has no permissions to run the 'set' command";
    clients[2].expect(&[("SET k 2", denied)]);
    assert!(clients[1].send("ACL LOG").contains("\"bob\""));
    clients[0].expect(&[("ACL DELUSER bob", ":1")]);
    assert_eq!(clients[2].read(), "closed");
    clients[2] = running.connect();
    clients[2].expect(&[("PING", "+PONG"), ("CLIENT PAUSE 20000 WRITE", "+OK")]);
    clients[1].push(&[b"SET", b"k", b"3"]);
    thread::sleep(Duration::from_millis(50));
    clients[0].expect(&[("GET k", "\"1\""), ("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(clients[1].read(), "+OK");
    clients[1].expect(&[("CONFIG SET requirepass pass", "+OK")]);
    let mut stranger = running.connect();
    stranger.expect(&[("PING", "-NOAUTH Authentication required.")]);
}

#[test]
fn scripts_and_functions_are_known_to_all_loops_and_forgotten_by_all() {
    let (_running, mut clients) = start();
    let sha = clients[0].send("SCRIPT LOAD return(7)");
    let sha = sha.trim_matches('"').to_owned();
    let call = format!("EVALSHA {sha} 0");
    for client in &mut clients {
        client.expect(&[(&call, ":7")]);
    }
    clients[2].expect(&[("SCRIPT FLUSH", "+OK")]);
    for client in &mut clients {
        assert!(client.send(&call).starts_with("-NOSCRIPT"));
    }
    let library = |value: u8| {
        format!("#!lua name=lib\nredis.register_function('f', function() return {value} end)")
    };
    for (at, value) in [(1, 1), (0, 2), (2, 3)] {
        let code = library(value);
        let words = [&b"FUNCTION"[..], b"LOAD", b"REPLACE", code.as_bytes()];
        assert_eq!(clients[at].call(&words), "\"lib\"");
        for client in &mut clients {
            client.expect(&[("FCALL f 0", &format!(":{value}"))]);
        }
    }
    clients[1].expect(&[("FUNCTION DELETE lib", "+OK")]);
    for client in &mut clients {
        client.expect(&[("FCALL f 0", "-ERR Function not found")]);
    }
}

#[test]
fn a_watched_key_that_another_loop_changes_voids_a_block_and_its_plain_commands() {
    let (_running, mut clients) = start();
    clients[0].expect(&[
        ("WATCH k", "+OK"),
        ("MULTI", "+OK"),
        ("CLIENT SETNAME void", "+QUEUED"),
        ("SET k 0", "+QUEUED"),
    ]);
    clients[1].expect(&[("SET k 1", "+OK")]);
    clients[0].expect(&[("EXEC", "nil array"), ("CLIENT GETNAME", "nil")]);
    clients[0].expect(&[
        ("WATCH k", "+OK"),
        ("MULTI", "+OK"),
        ("CLIENT SETNAME kept", "+QUEUED"),
        ("CLIENT LIST TYPE pubsub", "+QUEUED"),
        ("SET k 2", "+QUEUED"),
        ("EXEC", "[+OK, \"\", +OK]"),
        ("CLIENT GETNAME", "\"kept\""),
    ]);
    clients[2].expect(&[("GET k", "\"2\"")]);
}

#[test]
fn increments_under_watch_by_clients_of_all_loops_are_all_there() {
    const ROUNDS: usize = 300;
    let (_running, clients) = start();
    let threads = clients.into_iter().map(|mut client| {
        thread::spawn(move || {
            let mut made = 0;
            for _ in 0..ROUNDS {
                client.send("WATCH k");
                let now = client.send("GET k");
                let now: usize = now.trim_matches('"').parse().unwrap_or(0);
                client.send("MULTI");
                client.send(&format!("SET k {}", now + 1));
                made += usize::from(client.send("EXEC") == "[+OK]");
            }
            (made, client)
        })
    });
    let threads: Vec<_> = threads.collect();
    let ended: Vec<_> = threads
        .into_iter()
        .map(|t| t.join().expect("a client"))
        .collect();
    let made: usize = ended.iter().map(|(made, _)| made).sum();
    let mut clients: Vec<_> = ended.into_iter().map(|(_, client)| client).collect();
    assert!(made >= ROUNDS, "each round of all, at least one commits");
    clients[0].expect(&[("GET k", &format!("\"{made}\""))]);
}

#[test]
fn a_command_beside_a_loop_postpones_other_loops_requests_for_its_keys_only() {
    let (_running, mut clients) = start();
    let members: Vec<String> = (0..60_000).map(|n| format!("member{n}")).collect();
    for chunk in members.chunks(5000) {
        let mut words = vec![&b"SADD"[..], b"big"];
        words.extend(chunk.iter().map(|member| member.as_bytes()));
        assert!(clients[0].call(&words).starts_with(':'));
    }
    // More arguments than the loop takes at once: the command runs beside the loop.
    let mut words = vec![&b"SREM"[..], b"big"];
    words.extend(members.iter().map(|member| member.as_bytes()));
    clients[0].push(&words);
    for _ in 0..50 {
        clients[1].expect(&[("PING", "+PONG")]);
        let left = clients[2].send("SCARD big");
        assert!(left == ":60000" || left == ":0", "half a command: {left}");
    }
    assert_eq!(clients[0].read(), ":60000");
    clients[2].expect(&[("SCARD big", ":0")]);
}

#[test]
fn keys_in_steps_sees_the_changes_of_other_loops() {
    let (_running, mut clients) = start();
    clients[0].expect(&[("DEBUG STEP-ELEMENTS 50", "+OK")]);
    // With 20,000 keys, a walk takes several rounds. Other loops seldom get a latch between two steps of one round.
    let script = "for at = 1, 20000 do redis.call('SET', 'stays' .. at, 'v') end return 1";
    assert_eq!(clients[0].call(&[b"EVAL", script.as_bytes(), b"0"]), ":1");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut clients = clients.into_iter();
        let (mut walker, mut changer) =
            (clients.next().expect("one"), clients.next().expect("one"));
        let ended = &ended;
        scope.spawn(move || {
            let mut at = 0;
            while !ended.load(Ordering::SeqCst) {
                // One of the two keys is always there, and never both.
                let (from, to) = if at % 2 == 0 { ("a", "b") } else { ("b", "a") };
                changer.send(&format!("SET {from} v"));
                changer.send(&format!("RENAME {from} {to}"));
                changer.send(&format!("DEL {to}"));
                at += 1;
            }
        });
        let _ends = Ends(ended);
        for _ in 0..30 {
            let reply = walker.send("KEYS *");
            assert_eq!(reply.matches("stays").count(), 20_000);
            let both = reply.contains("\"a\"") && reply.contains("\"b\"");
            assert!(!both, "KEYS shows the keys of one moment");
        }
    });
}

#[test]
fn a_message_waits_for_the_write_that_it_tells_of() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let mut data = small(&dir.path().join("data"));
    data.flush_every = Duration::from_secs(1);
    let options = ServerOptions {
        loops: NonZeroUsize::new(LOOPS),
        ..local()
    };
    let server = perdura_server::Server::start(options, data).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    let (mut writer, mut reader) = (running.connect(), running.connect());
    reader.send("SUBSCRIBE news");
    writer.expect(&[
        ("CLIENT DURABILITY mem", "+OK"),
        ("SET k v", "+OK"),
        // The log has just been written, and will not be written again for a second.
        ("WAITDUR disk 0", ":1"),
        ("MULTI", "+OK"),
        ("SET k w", "+QUEUED"),
        ("PUBLISH news changed", "+QUEUED"),
        ("EXEC", "[+OK, :1]"),
    ]);
    let patience = |reader: &mut Client<TcpStream>, time| {
        let set = reader.socket().set_read_timeout(Some(time));
        set.expect("a timeout");
    };
    patience(&mut reader, Duration::from_millis(200));
    assert_eq!(reader.read(), "closed", "nothing has come yet");
    patience(&mut reader, Duration::from_secs(20));
    assert_eq!(reader.read(), "[\"message\", \"news\", \"changed\"]");
}

#[test]
fn a_client_of_any_loop_ends_the_server() {
    for at in 0..LOOPS {
        let (running, mut clients) = start();
        clients[0].expect(&[("SET k v", "+OK")]);
        clients[at].push(&[b"SHUTDOWN", b"NOSAVE"]);
        assert_eq!(clients[at].read(), "closed");
        running.server.join().expect("a clean end");
    }
}

#[test]
fn the_maximum_number_of_clients_counts_those_of_all_loops() {
    let running = start_with(ServerOptions {
        loops: NonZeroUsize::new(LOOPS),
        maxclients: 5,
        ..local()
    });
    running.await_figure("connected_clients", 1);
    let mut clients: Vec<_> = (0..5).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.expect(&[("PING", "+PONG")]);
    }
    let refused = "-ERR max number of clients reached";
    assert_eq!(running.connect().read(), refused);
    clients.pop();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut newcomer = running.connect();
        newcomer.push(&[b"PING"]);
        match newcomer.read().as_str() {
            "+PONG" => break,
            other => assert_eq!(other, refused),
        }
        assert!(Instant::now() < deadline, "the place is not free");
    }
}

#[test]
fn tracked_keys_that_other_loops_change_are_reported_before_later_replies() {
    let (_running, mut clients) = start();
    clients[0].send("HELLO 3");
    clients[0].expect(&[("CLIENT TRACKING on", "+OK")]);
    for round in 0..200 {
        clients[1].expect(&[("SET k v", "+OK")]);
        clients[0].expect(&[("GET k", "\"v\"")]);
        clients[1].expect(&[(&format!("SET k {round}"), "+OK")]);
        assert_eq!(clients[0].read(), ">[\"invalidate\", [\"k\"]]");
    }
    // A report to a client of a third loop.
    let id = id_of(&mut clients[2]);
    clients[2].send("SUBSCRIBE __redis__:invalidate");
    clients[0].expect(&[
        ("CLIENT TRACKING off", "+OK"),
        (&format!("CLIENT TRACKING on REDIRECT {id}"), "+OK"),
        ("GET k", "\"199\""),
    ]);
    clients[1].expect(&[("SET k 2", "+OK")]);
    let report = "[\"message\", \"__redis__:invalidate\", [\"k\"]]";
    assert_eq!(clients[2].read(), report);
    // The report must not wait for a round of the tracking client's loop, which runs a script.
    for round in 0..5 {
        clients[0].expect(&[("GET k", "\"2\"")]);
        let script = "local n = 0 while n < 1000000 do n = n + 1 end return n";
        clients[0].push(&[b"EVAL", script.as_bytes(), b"0"]);
        clients[1].expect(&[("SET k 2", "+OK")]);
        clients[2].push(&[b"PING", b"later"]);
        assert_eq!(clients[2].read(), report, "round {round}");
        assert_eq!(clients[2].read(), "[\"pong\", \"later\"]");
        assert_eq!(clients[0].read(), ":1000000");
    }
}
