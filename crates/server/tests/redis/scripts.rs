//! Tests of scripts over real sockets. Each script is one transaction.

use super::client::{Client, local, small, start};
use perdura_server::Server;
use std::net::TcpStream;
use tempfile::TempDir;

/// Runs a script without declared keys.
fn eval(client: &mut Client<TcpStream>, source: &str) -> String {
    client.call(&[b"EVAL", source.as_bytes(), b"0"])
}

#[test]
fn a_script_that_declares_no_key_reaches_all_of_them_in_one_transaction() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    let source = "for i = 1, 200 do redis.call('SET', 'k' .. i, i) end return redis.call('DBSIZE')";
    assert_eq!(eval(&mut client, source), ":200");
    assert_eq!(other.send("MGET k1 k200"), "[\"1\", \"200\"]");
    let sum = "local n = 0 for _, k in ipairs(redis.call('KEYS', 'k*')) do n = n + redis.call('GET', k) end return n";
    assert_eq!(eval(&mut client, sum), ":20100");
    assert_eq!(
        client.call(&[
            b"EVAL",
            b"return {KEYS[1], ARGV[1], #KEYS}",
            b"1",
            b"a",
            b"b"
        ]),
        "[\"a\", \"b\", :1]"
    );
}

/// Returns the processor time that the server's loop has taken, in seconds.
pub(super) fn loop_seconds(client: &mut Client<TcpStream>) -> f64 {
    let info = client.send("INFO cpu");
    let of = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value
            .and_then(|text| text.trim().parse::<f64>().ok())
            .expect("a figure")
    };
    of("used_cpu_user_main_thread:") + of("used_cpu_sys_main_thread:")
}

#[test]
fn all_attempts_of_a_script_have_one_second_together() {
    let running = start();
    let mut client = running.connect();
    // `timed` measures the loop's processor time, so that other load on the machine does not count.
    let mut timed = |source: &str| {
        let before = loop_seconds(&mut client);
        let reply = eval(&mut client, source);
        (reply, loop_seconds(&mut client) - before)
    };
    // The measured time has steps of a few milliseconds, so `max` keeps it from being 0.
    let long = "for i = 1, 1e7 do end return 1";
    let (_, new) = timed(long);
    let (_, took) = timed(long);
    let most = 0.6 / took.min(new).max(0.005);
    // The script first computes for more than half a second, and then uses keys that it has not declared. Each key in a
    // further partition makes the script run again. So every run takes more than half a second.
    let late = format!(
        "for i = 1, 1e7 * {most:.1} do end for i = 1, 12 do redis.call('GET', 'late' .. i) end while true do end"
    );
    let (reply, took) = timed(&late);
    assert!(reply.contains("longer than the 1000 ms allowed"), "{reply}");
    // If each run had a second for itself, the runs would take more than six seconds.
    assert!(took < 3.0, "{took} s");
}

#[test]
fn an_error_keeps_what_was_written_and_a_limit_undoes_it() {
    let running = start();
    let mut client = running.connect();
    let reply = eval(
        &mut client,
        "redis.call('SET', 'a', 1) redis.call('LPUSH', 'a', 2) redis.call('SET', 'b', 1)",
    );
    assert!(reply.starts_with("-WRONGTYPE "), "{reply}");
    assert_eq!(client.send("MGET a b"), "[\"1\", nil]");
    let endless = "redis.call('SET', 'c', 1) while true do pcall(redis.call, 'INCR', 'c') end";
    let reply = eval(&mut client, endless);
    assert_eq!(
        reply,
        "-ERR the script was ended: it ran longer than the 1000 ms allowed. Nothing of it was kept"
    );
    let greedy = "redis.call('SET', 'c', 1) return string.rep('x', 2^30)";
    let reply = eval(&mut client, greedy);
    assert!(
        reply.contains("more memory than the 67108864 bytes allowed"),
        "{reply}"
    );
    let long = "redis.call('SET', 'c', 1) local s = string.rep('x', 2^24) return {s, s, s, s, s}";
    let reply = eval(&mut client, long);
    assert!(reply.contains("its reply is longer"), "{reply:.200}");
    assert_eq!(client.send("EXISTS c"), ":0");
    // A block in which a limit is exceeded has no effect either.
    client.expect(&[("MULTI", "+OK"), ("SET d 1", "+QUEUED")]);
    assert_eq!(eval(&mut client, greedy), "+QUEUED");
    assert!(client.send("EXEC").starts_with("-ERR the script was ended"));
    client.expect(&[("EXISTS d", ":0"), ("PING", "+PONG")]);
}

#[test]
fn scripts_are_known_by_their_sha1_until_they_are_flushed() {
    let running = start();
    let mut client = running.connect();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.";
    client.expect(&[(&*format!("EVALSHA {sha} 0"), unknown)]);
    assert_eq!(
        client.call(&[b"SCRIPT", b"LOAD", b"return 1"]),
        format!("\"{sha}\"")
    );
    client.expect(&[
        (&*format!("EVALSHA {sha} 0"), ":1"),
        (&*format!("EVALSHA_RO {} 0", sha.to_uppercase()), ":1"),
        (&*format!("SCRIPT EXISTS {sha} x"), "[:1, :0]"),
        ("SCRIPT FLUSH", "+OK"),
        (&*format!("EVALSHA {sha} 0"), unknown),
    ]);
    assert_eq!(eval(&mut client, "return 1"), ":1");
    client.expect(&[(&*format!("EVALSHA {sha} 0"), ":1")]);
    let reply = client.call(&[b"SCRIPT", b"LOAD", b"return ("]);
    assert!(
        reply.starts_with("-ERR Error compiling script (new function): user_script:1:"),
        "{reply}"
    );
    assert_eq!(client.figure("number_of_cached_scripts"), 1);
}

#[test]
fn a_script_in_a_block_is_part_of_it() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SELECT 2", "+OK"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
    ]);
    let source =
        "redis.call('SELECT', 5) redis.call('SET', 'a', 'five') return redis.call('GET', 'a')";
    assert_eq!(eval(&mut client, source), "+QUEUED");
    assert_eq!(
        eval(&mut client, "return redis.call('GET', 'a')"),
        "+QUEUED"
    );
    client.expect(&[
        ("INCR a", "+QUEUED"),
        ("EXEC", "[+OK, \"five\", \"1\", :2]"),
        ("SELECT 5", "+OK"),
        ("GET a", "\"five\""),
    ]);
}

/// Job-queue programs call MEMORY USAGE in a script to read the memory that their tasks take. The script also reads
/// keys that it does not declare.
#[test]
fn memory_usage_in_a_script_sees_what_the_script_wrote() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[("SET before 1", "+OK")]);
    let source = "redis.call('SET', 'now', string.rep('x', 1000)) local now, before, none = \
                  redis.call('MEMORY', 'USAGE', 'now'), redis.call('MEMORY', 'usage', 'before', 'SAMPLES', 1), \
                  redis.call('MEMORY', 'USAGE', 'none') return {now > 1000, before > 0 and before < 100, none}";
    assert_eq!(eval(&mut client, source), "[:1, :1, nil]");
    let reply = eval(
        &mut client,
        "return redis.call('MEMORY', 'USAGE', 'now', 'SAMPLES')",
    );
    assert!(reply.starts_with("-ERR syntax error"), "{reply}");
}

#[test]
fn what_a_script_may_not_do_is_refused_with_the_words_of_redis() {
    let running = start();
    let mut client = running.connect();
    for (command, why) in [
        (
            "'BLPOP', 'a', 0",
            "This Redis command is not allowed from script",
        ),
        ("'MULTI'", "This Redis command is not allowed from script"),
        (
            "'MEMORY', 'STATS'",
            "This Redis command is not allowed from script",
        ),
        (
            "'EVAL', 'return 1', 0",
            "This Redis command is not allowed from script",
        ),
        (
            "'CONFIG', 'GET', 'save'",
            "This Redis command is not allowed from script",
        ),
        ("'nope'", "Unknown Redis command called from script"),
        (
            "'GET'",
            "Wrong number of args calling Redis command from script",
        ),
    ] {
        let reply = eval(&mut client, &format!("return redis.call({command})"));
        assert!(
            reply.starts_with(&format!("-ERR {why} script: ")),
            "{reply}"
        );
    }
    // Instead of waiting, a blocking command replies as if its timeout had passed.
    assert_eq!(
        eval(
            &mut client,
            "return redis.call('BLMPOP', 0, 1, 'a', 'LEFT')"
        ),
        "nil"
    );
    let writes = "-ERR Write commands are not allowed from read-only scripts. script: ";
    for write in ["'SET', 'a', 1", "'PUBLISH', 'a', 'b'"] {
        let source = format!("return redis.call({write})");
        let reply = client.call(&[b"EVAL_RO", source.as_bytes(), b"0"]);
        assert!(reply.starts_with(writes), "{reply}");
        let reply = eval(&mut client, &format!("#!lua flags=no-writes\n{source}"));
        assert!(reply.starts_with(writes), "{reply}");
    }
}

#[test]
fn the_callers_rules_hold_for_each_command() {
    let running = start();
    let (mut client, mut admin) = (running.connect(), running.connect());
    admin.expect(&[
        ("ACL SETUSER u on nopass +@all -set ~k* &c*", "+OK"),
        ("ACL LOG RESET", "+OK"),
    ]);
    client.expect(&[("AUTH u x", "+OK")]);
    for (command, why) in [
        ("'SET', 'k', 1", "run this command or subcommand"),
        (
            "'GET', 'z'",
            "access at least one of the keys mentioned in the command arguments",
        ),
        (
            "'PUBLISH', 'z', 1",
            "publish to the channel mentioned in the command",
        ),
    ] {
        let reply = eval(&mut client, &format!("return redis.call({command})"));
        let text = format!("-ERR The user executing the script can't {why} script: ");
        assert!(reply.starts_with(&text), "{reply}");
    }
    assert_eq!(eval(&mut client, "return redis.call('INCR', 'k')"), ":1");
    let checked = "return {redis.acl_check_cmd('GET', 'k') and 1 or 0, redis.acl_check_cmd('GET', 'z') and 1 or 0}";
    assert_eq!(eval(&mut client, checked), "[:1, :0]");
    let log = admin.send("ACL LOG");
    assert_eq!(log.matches("\"lua\"").count(), 3, "{log}");
}

#[test]
fn messages_and_events_leave_once_and_after_the_commit() {
    let running = start();
    let (mut client, mut listener) = (running.connect(), running.connect());
    client.expect(&[("CONFIG SET notify-keyspace-events KA", "+OK")]);
    listener.expect(&[("PSUBSCRIBE *", "[\"psubscribe\", \"*\", :1]")]);
    // The script writes undeclared keys in several partitions, so it runs more than once.
    let source = "redis.call('PUBLISH', 'c', 'm') for i = 1, 5 do redis.call('SET', 'k' .. i, i) end return 1";
    assert_eq!(eval(&mut client, source), ":1");
    let undone = "redis.call('PUBLISH', 'c', 'never') redis.call('SET', 'k9', 1) return string.rep('x', 2^30)";
    assert!(eval(&mut client, undone).starts_with("-ERR the script was ended"));
    client.expect(&[("PUBLISH end end", ":1")]);
    let mut seen = Vec::new();
    loop {
        let message = listener.read();
        if message.contains("\"end\"") {
            break;
        }
        seen.push(message);
    }
    assert_eq!(
        seen.iter().filter(|m| m.contains("\"c\", \"m\"")).count(),
        1,
        "{seen:?}"
    );
    let sets = seen.iter().filter(|m| m.contains("__keyspace@0__:k"));
    assert_eq!(sets.count(), 5, "{seen:?}");
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn clients_that_wait_or_watch_learn_of_what_a_script_writes() {
    let running = start();
    let (mut client, mut waiting) = (running.connect(), running.connect());
    waiting.push(&[b"BLPOP", b"list", b"0"]);
    running.await_figure("blocked_clients", 1);
    assert_eq!(
        eval(&mut client, "return redis.call('RPUSH', 'list', 'a', 'b')"),
        ":2"
    );
    assert_eq!(waiting.read(), "[\"list\", \"a\"]");
    waiting.expect(&[("WATCH list", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
    assert_eq!(
        eval(&mut client, "return redis.call('RPOP', 'list')"),
        "\"b\""
    );
    waiting.expect(&[("EXEC", "nil array")]);
}

#[test]
fn the_commands_of_a_script_are_counted_and_shown() {
    let running = start();
    let (mut client, mut monitor) = (running.connect(), running.connect());
    monitor.expect(&[("MONITOR", "+OK")]);
    let source =
        "redis.call('SET', 'a', 1) redis.pcall('LPUSH', 'a', 1) return redis.call('GET', 'a')";
    assert_eq!(eval(&mut client, source), "\"1\"");
    assert!(monitor.read().contains("\"EVAL\" \"redis.call"));
    for shown in [
        "[0 lua] \"SET\" \"a\" \"1\"",
        "[0 lua] \"LPUSH\"",
        "[0 lua] \"GET\" \"a\"",
    ] {
        let line = monitor.read();
        assert!(line.contains(shown), "{line}");
    }
    let stats = client.send("INFO commandstats");
    for counted in [
        "cmdstat_set:calls=1",
        "cmdstat_eval:calls=1",
        "cmdstat_lpush:calls=1",
    ] {
        assert!(stats.contains(counted), "{counted}: {stats}");
    }
    assert!(
        client
            .send("INFO errorstats")
            .contains("errorstat_WRONGTYPE:count=1")
    );
}

#[test]
fn the_same_time_and_seed_for_a_script_that_runs_again() {
    let running = start();
    let mut client = running.connect();
    // Repeated runs get the same random numbers and time. So all keys hold the same values, although different runs
    // may have written them.
    let source = "local a, b = math.random(1e9), redis.call('TIME') for i = 1, 20 do redis.call('RPUSH', 'k' .. i, a, \
                  b[1] .. b[2]) end return redis.call('LRANGE', 'k20', 0, -1)";
    let reply = eval(&mut client, source);
    assert_eq!(client.send("LRANGE k1 0 -1"), reply);
    assert_ne!(
        eval(&mut client, "return math.random(1e9)"),
        eval(&mut client, "return math.random(1e9)")
    );
}

#[test]
fn what_a_script_wrote_is_there_after_a_restart() {
    let dir = TempDir::new().expect("a directory");
    let open = || Server::start(local(), small(&dir.path().join("data"))).expect("a server");
    let connect = |server: &Server| {
        let address = server.local_addr().expect("an address");
        let mut client = Client::new(TcpStream::connect(address).expect("a connection"));
        while client.send("PING").starts_with("-LOADING") {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        client
    };
    let server = open();
    let mut client = connect(&server);
    assert_eq!(
        eval(
            &mut client,
            "for i = 1, 50 do redis.call('SET', 'k' .. i, i) end return 1"
        ),
        ":1"
    );
    assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
    server.join().expect("an end");
    let server = open();
    let mut client = connect(&server);
    client.expect(&[("DBSIZE", ":50"), ("GET k50", "\"50\"")]);
    assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
    server.join().expect("an end");
}
