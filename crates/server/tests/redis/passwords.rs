//! Tests of passwords: stored forms, checks in a second thread, and guessing.

use super::client::{Client, Running, local, start, start_with};
use perdura_server::ServerOptions;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
/// SHA-256 of `password`.
const SHA256: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
/// A stored password that costs half a second of work and 64 MiB per check. No known password matches.
const SLOW: &str = "$argon2id$v=19$m=65536,t=8,p=1$c2FsdHNhbHRzYWx0$\
                    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Returns the line of a user in ACL LIST.
fn line(client: &mut Client<TcpStream>, user: &str) -> String {
    let list = client.send("ACL LIST");
    let start = format!("user {user} ");
    let mut lines = list.split('"').filter(|line| line.starts_with(&start));
    lines.next().expect("a user").to_owned()
}

/// Returns the stored passwords of a user, from the user's line in the reply to ACL LIST.
fn passwords(client: &mut Client<TcpStream>, user: &str) -> Vec<String> {
    let line = line(client, user);
    let words = line.split(' ').filter_map(|word| word.strip_prefix('#'));
    words.map(str::to_owned).collect()
}

fn with_users(users: &[String]) -> Running {
    start_with(ServerOptions {
        users: users.to_vec(),
        ..local()
    })
}

fn login(running: &Running, name: &str, password: &str) -> String {
    running.connect().send(&format!("AUTH {name} {password}"))
}

#[test]
fn passwords_at_rest_are_argon2id_and_the_form_of_redis_is_read() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[
        ("ACL SETUSER new on >password", "+OK"),
        (
            "ACL SETUSER old on +@all #5e88",
            "-ERR Error in ACL SETUSER modifier '#5e88': The password hash \
             must be exactly 64 characters and contain only lowercase hexadecimal characters",
        ),
        (&format!("ACL SETUSER old on #{SHA256}"), "+OK"),
    ]);
    let stored = passwords(&mut root, "new");
    assert_eq!(stored.len(), 1);
    assert!(
        stored[0].starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
        "{stored:?}"
    );
    assert_eq!(passwords(&mut root, "old"), [SHA256]);
    let shown = root.send("ACL GETUSER new");
    assert!(
        shown.contains(&format!("\"passwords\", [\"{}\"]", stored[0])),
        "{shown}"
    );
    for name in ["new", "old"] {
        assert_eq!(login(&running, name, "password"), "+OK");
        assert_eq!(login(&running, name, "passwort"), WRONG);
        // A password that the user has already, in any form, is not added again.
        root.expect(&[
            (&format!("ACL SETUSER {name} >password #{SHA256}"), "+OK"),
            (&format!("ACL SETUSER {name} >other <password"), "+OK"),
        ]);
        assert_eq!(passwords(&mut root, name).len(), 1, "{name}");
        assert_eq!(login(&running, name, "password"), WRONG);
        assert_eq!(login(&running, name, "other"), "+OK");
        assert!(
            root.send(&format!("ACL SETUSER {name} <password"))
                .contains("does not exist")
        );
    }
    // The rule `!` removes a password by its stored form, and an argon2id password also by its SHA-256.
    let other = passwords(&mut root, "new").remove(0);
    root.expect(&[
        (&format!("ACL SETUSER new !{other} >password"), "+OK"),
        (&format!("ACL SETUSER new !{SHA256}"), "+OK"),
    ]);
    assert!(passwords(&mut root, "new").is_empty());
    assert!(
        root.send("ACL SETUSER new #$argon2id$v=19$m=99999")
            .contains("argon2id")
    );
    // A command in a block cannot wait for the other thread.
    root.expect(&[
        ("MULTI", "+OK"),
        ("ACL SETUSER new >third", "+QUEUED"),
        ("ACL LIST", "+QUEUED"),
    ]);
    assert!(root.send("EXEC").starts_with("[+OK, -TRYAGAIN"));
    assert_eq!(passwords(&mut root, "new").len(), 1);
}

#[test]
fn a_password_from_a_file_is_tried_once_and_known_from_then_on() {
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on +@all ~* >one >two", "+OK")]);
    let stored = passwords(&mut root, "a");
    let rules = format!("a on +@all ~* #{} #{}", stored[0], stored[1]);
    let running = with_users(&[rules.clone(), rules.replacen('a', "b", 1)]);
    assert_eq!(login(&running, "a", "three"), WRONG);
    assert_eq!(login(&running, "a", "two"), "+OK");
    assert_eq!(login(&running, "a", "one"), "+OK");
    let hello = running.connect().send("HELLO 3 AUTH b one SETNAME me");
    assert!(hello.starts_with("{\"server\": \"redis\""), "{hello}");
    assert_eq!(running.connect().send("HELLO 3 AUTH b three"), WRONG);
    // A stored password is removed by its plain text, although no client has logged in with it yet.
    let mut root = running.connect();
    root.expect(&[("ACL SETUSER b <two", "+OK")]);
    assert_eq!(passwords(&mut root, "b"), [stored[0].clone()]);
    // One login is in a block, and one follows it in the same write.
    let running = with_users(&[rules]);
    let mut client = running.connect();
    client
        .write(b"MULTI\r\nAUTH a two\r\nACL WHOAMI\r\nEXEC\r\nACL WHOAMI\r\nAUTH a x\r\nPING\r\n");
    for reply in [
        "+OK",
        "+QUEUED",
        "+QUEUED",
        "[+OK, \"a\"]",
        "\"a\"",
        WRONG,
        "+PONG",
    ] {
        assert_eq!(client.read(), reply);
    }
}

#[test]
fn many_first_logins_at_once_are_all_answered() {
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on +@all ~* >one", "+OK")]);
    let stored = passwords(&mut root, "a").remove(0);
    let running = with_users(&[format!("a on +@all ~* #{stored}")]);
    let mut clients: Vec<_> = (0..100).map(|_| running.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let word = if number % 10 == 9 { "two" } else { "one" };
        client.push(&[b"AUTH", b"a", word.as_bytes()]);
        client.push(&[b"ACL", b"WHOAMI"]);
    }
    // The server does not wait for clients that have left.
    clients.drain(..5);
    for (number, client) in (5..).zip(&mut clients) {
        let (reply, name) = match number % 10 {
            9 => (WRONG, "\"default\""),
            _ => ("+OK", "\"a\""),
        };
        assert_eq!(
            (client.read().as_str(), client.read().as_str()),
            (reply, name)
        );
    }
}

#[test]
fn the_loop_goes_on_while_a_password_is_tried_and_its_memory_is_on_the_account() {
    let running = with_users(&[format!("slow on #{SLOW}")]);
    let (mut guesser, mut other) = (running.connect(), running.connect());
    let short = Some(Duration::from_micros(1));
    guesser.socket().set_read_timeout(short).expect("a timeout");
    guesser.push(&[b"AUTH", b"slow", b"guess"]);
    let (mut pings, mut most) = (0, 0);
    let output = |client: &mut Client<TcpStream>| client.figure("memory_passwords");
    while guesser.socket().peek(&mut [0]).is_err() {
        other.expect(&[("PING", "+PONG")]);
        pings += 1;
        most = most.max(output(&mut other));
    }
    assert!(pings > 20, "{pings}");
    assert!(most >= 64 << 20, "{most}");
    assert!(output(&mut other) < 1 << 20);
    assert_eq!(guesser.read(), WRONG);
}

#[test]
fn wrong_passwords_cost_growing_delays_and_right_ones_of_others_none() {
    let running = start();
    let mut root = running.connect();
    root.expect(&[("ACL SETUSER a on >right", "+OK")]);
    let mut guesser = running.connect();
    let begin = Instant::now();
    for _ in 0..4 {
        assert_eq!(guesser.send("AUTH a wrong"), WRONG);
    }
    let took = begin.elapsed();
    assert!(
        took >= Duration::from_millis(20 + 40 + 80 + 160),
        "{took:?}"
    );
    // The wrong passwords of an address are remembered after its connection has closed. A login as an unknown
    // user is answered no faster.
    let begin = Instant::now();
    assert_eq!(login(&running, "nobody", "x"), WRONG);
    assert!(begin.elapsed() >= Duration::from_millis(320));
    // These requests are deferred for seconds, while many clients log in from the same address.
    for _ in 0..5 {
        guesser.push(&[b"AUTH", b"a", b"wrong"]);
    }
    for _ in 0..50 {
        assert_eq!(login(&running, "a", "right"), "+OK");
    }
    let short = Some(Duration::from_micros(1));
    guesser.socket().set_read_timeout(short).expect("a timeout");
    let mut answered = Vec::new();
    // The time-out ends the read.
    let _ = guesser.socket().read_to_end(&mut answered);
    let answers = answered
        .windows(9)
        .filter(|bytes| *bytes == b"WRONGPASS")
        .count();
    assert!(answers < 5, "five answers take twenty seconds");
}

/// Connects, logs in and sends one request, `count` times.
fn log_in_often(running: &Running, name: &str, count: u32) {
    for _ in 0..count {
        let mut client = running.connect();
        client.push(&[b"AUTH", name.as_bytes(), b"password"]);
        client.push(&[b"PING"]);
        assert_eq!(
            (client.read().as_str(), client.read().as_str()),
            ("+OK", "+PONG")
        );
    }
}

/// Measures the cost of logins as the number of passwords that the server has checked with argon2id.
/// `PERDURA_LOGINS=10000` prints the times too, with `--nocapture`. The times do not affect the result.
#[test]
fn a_login_costs_the_same_whatever_form_the_password_has() {
    let count = std::env::var("PERDURA_LOGINS")
        .ok()
        .and_then(|text| text.parse().ok());
    let count = count.unwrap_or(50);
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on >password", "+OK")]);
    let stored = passwords(&mut root, "a").remove(0);
    let running = with_users(&[
        format!("sha on +@all #{SHA256}"),
        format!("argon on +@all #{stored}"),
    ]);
    // The client that reads the figures uses the user without a password, and does not log in.
    let mut watcher = running.connect();
    for (name, tries) in [("sha", 0), ("argon", 1)] {
        log_in_often(&running, name, 1);
        assert_eq!(
            watcher.figure("passwords_tried"),
            tries,
            "the first of {name}"
        );
    }
    for name in ["sha", "argon"] {
        let begin = Instant::now();
        log_in_often(&running, name, count);
        eprintln!("{count} logins of {name} in {:?}", begin.elapsed());
        assert_eq!(watcher.figure("passwords_tried"), 1, "{name}");
    }
}

#[test]
fn a_half_closed_client_is_told_whether_its_password_is_right() {
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on +@all ~* >one", "+OK")]);
    let stored = passwords(&mut root, "a").remove(0);
    let running = with_users(&[format!("a on +@all ~* #{stored}")]);
    let mut client = running.connect();
    client.write(b"AUTH a two\r\nAUTH a one\r\nACL WHOAMI\r\n");
    let half = client.socket().shutdown(Shutdown::Write);
    half.expect("half a close");
    let replies = [(); 4].map(|()| client.read());
    assert_eq!(replies, [WRONG, "+OK", "\"a\"", "closed"]);
}

#[test]
fn a_stranger_may_send_on_behind_a_password_that_came_in_two_reads() {
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on +@all ~* >one", "+OK")]);
    let stored = passwords(&mut root, "a").remove(0);
    let running = start_with(ServerOptions {
        requirepass: Some(String::from("secret")),
        users: vec![format!("a on +@all ~* #{stored}")],
        ..local()
    });
    let mut client = running.connect();
    client.write(b"AUTH a o");
    std::thread::sleep(Duration::from_millis(50));
    client.write(&[b"ne\r\n".as_slice(), &b"PING\r\n".repeat(1000)].concat());
    assert_eq!(client.read(), "+OK");
    for _ in 0..1000 {
        assert_eq!(client.read(), "+PONG");
    }
}

#[test]
fn every_wrong_password_of_a_block_costs_a_delay_and_others_log_in_meanwhile() {
    let first = start();
    let mut root = first.connect();
    root.expect(&[("ACL SETUSER a on +@all ~* >one >two", "+OK")]);
    let stored = passwords(&mut root, "a");
    let running = with_users(&[format!("a on +@all ~* #{} #{}", stored[0], stored[1])]);
    let mut guesser = running.connect();
    let begin = Instant::now();
    guesser.write(
        b"MULTI\r\nAUTH a w1\r\nAUTH a w2\r\nAUTH a two\r\nAUTH a w3\r\nAUTH nobody w4\r\nEXEC\r\n",
    );
    // This login comes from the guesser's address. Its password is checked between the passwords of the block.
    assert_eq!(login(&running, "a", "one"), "+OK");
    for reply in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED"] {
        assert_eq!(guesser.read(), reply);
    }
    assert_eq!(
        guesser.read(),
        format!("[{WRONG}, {WRONG}, +OK, {WRONG}, {WRONG}]")
    );
    let took = begin.elapsed();
    assert!(
        took >= Duration::from_millis(20 + 40 + 80 + 160),
        "{took:?}"
    );
    // The next request's password is checked separately, although the block had the same password.
    let begin = Instant::now();
    assert_eq!(guesser.send("AUTH a w1"), WRONG);
    assert!(begin.elapsed() >= Duration::from_millis(320));
}

#[test]
fn a_request_with_more_passwords_than_are_remembered_as_wrong_is_answered() {
    let running = with_users(&[String::from(
        "a on #$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$\
         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    )]);
    let mut client = running.connect();
    let removed: Vec<String> = (0..1100).map(|n| format!("<wrong{n}")).collect();
    let words = ["ACL", "SETUSER", "a"].map(String::from);
    let words: Vec<&[u8]> = words.iter().chain(&removed).map(|w| w.as_bytes()).collect();
    client.push(&words);
    let reply = client.read();
    assert!(reply.contains("does not exist"), "{reply}");
}
