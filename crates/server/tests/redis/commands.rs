use super::client::start;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WRONG_TTL: &str = "-ERR invalid expire time in";

#[test]
fn strings_answer_as_redis_does() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("GET k", "nil"),
        ("SET k v", "+OK"),
        ("get k", "\"v\""),
        ("SET k w NX", "nil"),
        ("SET k w XX", "+OK"),
        ("SET k x GET", "\"w\""),
        ("SET new x GET", "nil"),
        ("SET new y NX GET", "\"x\""),
        ("SET none y XX GET", "nil"),
        ("EXISTS none", ":0"),
        ("SETNX k z", ":0"),
        ("SETNX fresh z", ":1"),
        ("GETSET fresh y", "\"z\""),
        ("GETDEL fresh", "\"y\""),
        ("GETDEL fresh", "nil"),
        ("STRLEN k", ":1"),
        ("STRLEN none", ":0"),
        ("APPEND k yz", ":3"),
        ("APPEND a one", ":3"),
        ("GET k", "\"xyz\""),
        ("MSET a 1 b 2 c 3", "+OK"),
        ("MGET a none c", "[\"1\", nil, \"3\"]"),
        ("MSETNX d 4 a 5", ":0"),
        ("EXISTS d", ":0"),
        ("MSETNX d 4 e 5", ":1"),
        ("MGET d e", "[\"4\", \"5\"]"),
        ("EXISTS a a none b", ":3"),
        ("TOUCH a none", ":1"),
        ("TYPE a", "+string"),
        ("TYPE none", "+none"),
        ("DEL a none b", ":2"),
        ("UNLINK c c", ":1"),
        ("DBSIZE", ":4"),
    ]);
}

#[test]
fn wrong_options_have_the_errors_of_redis() {
    let running = start();
    let mut client = running.connect();
    let syntax = "-ERR syntax error";
    let integer = "-ERR value is not an integer or out of range";
    client.expect(&[
        ("SET k v NX XX", syntax),
        ("SET k v EX", syntax),
        ("SET k v EX 10 PX 10", syntax),
        ("SET k v EX 10 KEEPTTL", syntax),
        ("SET k v KEEPTTL PXAT 10", syntax),
        ("SET k v FOO", syntax),
        ("SET k v EX abc", integer),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v PX -1", "-ERR invalid expire time in 'set' command"),
        (
            "SET k v EX 9223372036854775807",
            "-ERR invalid expire time in 'set' command",
        ),
        ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command"),
        (
            "PSETEX k -5 v",
            "-ERR invalid expire time in 'psetex' command",
        ),
        ("SETEX k x v", integer),
        ("GETEX k EX 0", "nil"),
        ("GETEX k EX 1 PERSIST", syntax),
        ("GETEX k KEEPTTL", syntax),
        (
            "MSET a",
            "-ERR wrong number of arguments for 'mset' command",
        ),
        (
            "MSET a 1 b",
            "-ERR wrong number of arguments for 'mset' command",
        ),
        (
            "MSETNX a 1 b",
            "-ERR wrong number of arguments for 'msetnx' command",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        (
            "get a b",
            "-ERR wrong number of arguments for 'get' command",
        ),
        ("FLUSHDB NOW", syntax),
        ("FLUSHALL ASYNC SYNC", syntax),
        (
            "foo",
            "-ERR unknown command 'foo', with args beginning with: ",
        ),
        (
            "foo a b",
            "-ERR unknown command 'foo', with args beginning with: 'a' 'b' ",
        ),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT -1", "-ERR DB index is out of range"),
        ("SELECT x", integer),
        ("ROLE", "[\"master\", :0, []]"),
        ("EXISTS k", ":0"),
    ]);
}

#[test]
fn counters_count_and_keep_their_expiry() {
    let running = start();
    let mut client = running.connect();
    let integer = "-ERR value is not an integer or out of range";
    client.expect(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 50", ":-9"),
        ("GET n", "\"-9\""),
        ("EXPIRE n 100", ":1"),
        ("INCR n", ":-8"),
        ("TTL n", ":100"),
        ("APPEND n x", ":3"),
        ("TTL n", ":100"),
        ("INCR n", integer),
        ("INCRBY n x", integer),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("SET n 01", "+OK"),
        ("INCR n", integer),
        (
            "DECRBY n -9223372036854775808",
            "-ERR decrement would overflow",
        ),
        ("SET f 10.50", "+OK"),
        ("INCRBYFLOAT f 0.1", "\"10.6\""),
        ("INCRBYFLOAT f -5", "\"5.6\""),
        ("SET f 5.0e3", "+OK"),
        ("INCRBYFLOAT f 2.0e2", "\"5200\""),
        ("INCRBYFLOAT none 3", "\"3\""),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        (
            "INCRBYFLOAT f inf",
            "-ERR increment would produce NaN or Infinity",
        ),
        ("SET f abc", "+OK"),
        ("INCRBYFLOAT f 1", "-ERR value is not a valid float"),
    ]);
}

#[test]
fn expiry_follows_its_conditions() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("TTL k", ":-2"),
        ("PTTL k", ":-2"),
        ("EXPIRETIME k", ":-2"),
        ("PERSIST k", ":0"),
        ("EXPIRE k 10", ":0"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("PEXPIRETIME k", ":-1"),
        ("EXPIRE k 10 XX", ":0"),
        ("EXPIRE k 10 GT", ":0"),
        ("EXPIRE k 10 NX", ":1"),
        ("EXPIRE k 20 NX", ":0"),
        ("EXPIRE k 20 LT", ":0"),
        ("EXPIRE k 20 GT", ":1"),
        ("EXPIRE k 5 LT", ":1"),
        ("TTL k", ":5"),
        ("PERSIST k", ":1"),
        ("PERSIST k", ":0"),
        ("EXPIRE k 5 LT", ":1"),
        ("EXPIREAT k 4000000000", ":1"),
        ("EXPIRETIME k", ":4000000000"),
        ("PEXPIREAT k 4000000000123", ":1"),
        ("PEXPIRETIME k", ":4000000000123"),
        ("SET k w KEEPTTL", "+OK"),
        ("PEXPIRETIME k", ":4000000000123"),
        ("GETEX k", "\"w\""),
        (
            "GETEX k EX 0",
            "-ERR invalid expire time in 'getex' command",
        ),
        ("PEXPIRETIME k", ":4000000000123"),
        ("GETEX k PERSIST", "\"w\""),
        ("TTL k", ":-1"),
        ("GETEX k EXAT 4000000000", "\"w\""),
        ("EXPIRETIME k", ":4000000000"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("SET k v PXAT 4000000000123", "+OK"),
        ("PEXPIRETIME k", ":4000000000123"),
        ("SETEX k 100 v", "+OK"),
        ("TTL k", ":100"),
        ("EXPIRE k -1", ":1"),
        ("EXISTS k", ":0"),
        ("SET k v EXAT 1", "+OK"),
        ("GET k", "nil"),
        ("SET k v", "+OK"),
        ("GETEX k PXAT 1", "\"v\""),
        ("GET k", "nil"),
        ("EXPIRE k 1 FOO", "-ERR Unsupported option FOO"),
        (
            "EXPIRE k 1 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "EXPIRE k 1 GT LT",
            "-ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE k x", "-ERR value is not an integer or out of range"),
    ]);
    for command in ["expire", "expireat", "pexpire"] {
        let reply = client.send(&format!("{command} k 9223372036854775807"));
        let want = format!("{WRONG_TTL} '{command}' command");
        assert_eq!(reply, want);
    }
    client.expect(&[("PSETEX short 90000 v", "+OK"), ("GET short", "\"v\"")]);
    client.expect(&[("PSETEX short 1 v", "+OK")]);
    std::thread::sleep(Duration::from_millis(10));
    client.expect(&[
        ("GET short", "nil"),
        ("TTL short", ":-2"),
        ("SET short v NX", "+OK"),
    ]);
}

#[test]
fn databases_are_apart_and_flushed_apart() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SET k 0", "+OK"),
        ("SELECT 15", "+OK"),
        ("GET k", "nil"),
        ("SET k 15", "+OK"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SET k 15", "+OK"),
        ("SELECT 0", "+OK"),
        ("GET k", "\"0\""),
        ("FLUSHDB ASYNC", "+OK"),
        ("GET k", "nil"),
        ("FLUSHALL SYNC", "+OK"),
        ("SELECT 15", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn the_server_describes_itself() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SET k v EX 100", "+OK"),
        ("GET k", "\"v\""),
        ("GET none", "nil"),
    ]);
    let info = client.send("INFO");
    for field in [
        "# Server",
        "redis_version:7.0.15",
        "perdura_version:",
        "connected_clients:",
        "used_memory:",
        "maxmemory_policy:noeviction",
        "loading:0",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "# Log",
        "# Checkpoint",
        "# Recovery",
        "db0:keys=1,expires=1,avg_ttl=0",
    ] {
        assert!(info.contains(field), "{field} is missing in {info}");
    }
    let keyspace = client.send("INFO keyspace");
    assert_eq!(
        keyspace,
        "\"# Keyspace\r\ndb0:keys=1,expires=1,avg_ttl=0\r\n\""
    );
    client.expect(&[
        ("CONFIG GET save", "[\"save\", \"\"]"),
        ("CONFIG GET appendonly", "[\"appendonly\", \"yes\"]"),
        ("CONFIG GET nothing", "[]"),
        (
            "CONFIG GET maxmemory-p*",
            "[\"maxmemory-policy\", \"noeviction\"]",
        ),
        ("CONFIG SET timeout 7", "+OK"),
        ("CONFIG GET timeout", "[\"timeout\", \"7\"]"),
        ("CONFIG SET maxmemory 2gb", "+OK"),
        ("CONFIG GET maxmemory", "[\"maxmemory\", \"2147483648\"]"),
        (
            "CONFIG SET maxmemory-policy allkeys-lru",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - only \
             noeviction is supported for now",
        ),
        (
            "CONFIG SET nothing 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nothing'",
        ),
        ("CONFIG SET port 1 timeout", "-ERR syntax error"),
        (
            "CONFIG GET",
            "-ERR wrong number of arguments for 'config|get' command",
        ),
        (
            "CONFIG FOO",
            "-ERR unknown subcommand 'FOO'. Try CONFIG HELP.",
        ),
        ("CONFIG RESETSTAT", "+OK"),
        (
            "COMMAND DOCS echo",
            "[\"echo\", [\"summary\", \"Answers its argument.\", \"since\", \"1.0.0\", \
             \"group\", \"connection\"]]",
        ),
        (
            "COMMAND INFO echo nothing",
            "[[\"echo\", :2, [+fast], :0, :0, :0, [+@fast, +@connection], [], [], []], nil array]",
        ),
        ("COMMAND GETKEYS MSET a 1 b 2", "[\"a\", \"b\"]"),
        ("COMMAND LIST FILTERBY PATTERN getr*", "[\"getrange\"]"),
        ("PING hi", "\"hi\""),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command",
        ),
        ("ECHO hi", "\"hi\""),
        ("BGSAVE NOW", "-ERR syntax error"),
    ]);
    let before = client.send("INFO persistence");
    assert!(before.contains("rdb_last_bgsave_time_sec:-1"), "{before}");
    std::thread::sleep(Duration::from_millis(1_100));
    client.expect(&[("SAVE", "+OK")]);
    let after = client.send("INFO persistence");
    assert!(after.contains("rdb_last_bgsave_time_sec:0"), "{after}");
    assert!(after.contains("rdb_last_bgsave_status:ok"), "{after}");
    assert!(after.contains("rdb_bgsave_in_progress:0"), "{after}");
    assert!(
        saved_at(&after) > saved_at(&before),
        "the end of a checkpoint is the time of the last save"
    );
    assert!(client.send("TIME").starts_with("[\"1"));
    let saved: u64 = client.send("LASTSAVE")[1..].parse().expect("seconds");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    assert!(now - saved < 100);
    assert_eq!(saved, saved_at(&after));
    let bgsave = client.send("BGSAVE");
    assert!(bgsave == "+Background saving started" || bgsave.starts_with("-ERR Background save"));
}

fn saved_at(info: &str) -> u64 {
    let time = info
        .lines()
        .find_map(|line| line.strip_prefix("rdb_last_save_time:"));
    time.expect("a field").parse().expect("seconds")
}

#[test]
fn keys_and_values_may_hold_any_bytes() {
    let running = start();
    let mut client = running.connect();
    let key = [0, b'\r', b'\n', 0xff];
    for len in [0, 1, 100, 16_000, 17_000, 300_000] {
        let value: Vec<u8> = (0..len)
            .map(|i: u32| b'a' + i.to_le_bytes()[0] % 26)
            .collect();
        assert_eq!(client.call(&[b"SET", &key, &value]), "+OK");
        let text = String::from_utf8(value).expect("letters");
        assert_eq!(client.call(&[b"GET", &key]), format!("\"{text}\""));
        assert_eq!(
            client.call(&[b"APPEND", &key, b"!"]),
            format!(":{}", len + 1)
        );
        assert_eq!(
            client.call(&[b"MGET", &key, b"none"]),
            format!("[\"{text}!\", nil]")
        );
    }
}

#[test]
fn keys_change_names_and_databases_and_are_found_by_scans() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("RENAME a b", "-ERR no such key"),
        ("SET a 1 EX 100", "+OK"),
        ("RENAME a a", "+OK"),
        ("RENAME a b", "+OK"),
        ("TTL b", ":100"),
        ("SET c 2", "+OK"),
        ("RENAMENX b c", ":0"),
        ("COPY b d", ":1"),
        ("COPY b d", ":0"),
        ("COPY c d REPLACE", ":1"),
        ("TTL d", ":-1"),
        (
            "COPY c c",
            "-ERR source and destination objects are the same",
        ),
        ("COPY c c DB 3", ":1"),
        ("MOVE c 3", ":0"),
        ("MOVE d 3", ":1"),
        ("EXISTS d", ":0"),
        ("SWAPDB 0 3", "+OK"),
        ("MGET b c d", "[nil, \"2\", \"2\"]"),
        ("SELECT 3", "+OK"),
        ("KEYS [b-b]*", "[\"b\"]"),
        ("FLUSHDB", "+OK"),
        ("SWAPDB 3 0", "+OK"),
        ("DBSIZE", ":2"),
        ("SCAN 0 TYPE list", "[\"0\", []]"),
        ("SCAN 0 MATCH d*", "[\"0\", [\"d\"]]"),
        ("OBJECT ENCODING d", "\"int\""),
        ("OBJECT ENCODING nothing", "nil"),
        ("SWAPDB 0 16", "-ERR DB index is out of range"),
    ]);
}

#[test]
fn elements_are_sorted_by_themselves_and_by_other_keys() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("RPUSH l 3 1 20", ":3"),
        ("SORT l", "[\"1\", \"3\", \"20\"]"),
        // Zeros are equal, whatever their signs.
        ("RPUSH zeros 1 0 -0 00", ":4"),
        ("SORT zeros", "[\"-0\", \"0\", \"00\", \"1\"]"),
        ("SORT zeros DESC", "[\"1\", \"00\", \"0\", \"-0\"]"),
        // A count of keys is read as the C library reads numbers.
        ("COMMAND GETKEYS EVAL s +1 a b", "[\"a\"]"),
        (
            "COMMAND GETKEYS ZUNIONSTORE d 2x a b",
            "[\"a\", \"b\", \"d\"]",
        ),
        ("COMMAND GETKEYS EVAL s 3x a b", "[]"),
        ("SORT l ALPHA DESC LIMIT 0 2", "[\"3\", \"20\"]"),
        ("MSET w_1 9 w_3 5 w_20 7 n_1 one n_3 three", "+OK"),
        (
            "SORT l BY w_* GET # GET n_*",
            "[\"3\", \"three\", \"20\", nil, \"1\", \"one\"]",
        ),
        ("HSET h_3 rank 1 name c", ":2"),
        ("SORT l BY nosort GET h_*->name", "[\"c\", nil, nil]"),
        ("SORT l STORE sorted", ":3"),
        ("LRANGE sorted 0 -1", "[\"1\", \"3\", \"20\"]"),
        ("SORT_RO l STORE x", "-ERR syntax error"),
        ("SADD s a b", ":2"),
        (
            "SORT s",
            "-ERR One or more scores can't be converted into double",
        ),
        (
            "SORT h_3",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("SORT nothing STORE sorted", ":0"),
        ("EXISTS sorted", ":0"),
    ]);
}

#[test]
fn what_dump_answers_restores_a_key_of_every_type() {
    let running = start();
    let mut client = running.connect();
    for fill in [
        "SET k value",
        "RPUSH k a b a",
        "SADD k a 17",
        "HSET k f v g w",
        "ZADD k 1.5 a -inf b",
    ] {
        client.send("DEL k");
        client.send("DEL copy");
        client.send(fill);
        client.push(&[b"DUMP", b"k"]);
        let payload = client.read_bulk();
        let restore: [&[u8]; 4] = [b"RESTORE", b"copy", b"100000", &payload];
        assert_eq!(client.call(&restore), "+OK", "{fill}");
        assert_eq!(
            client.call(&restore),
            "-BUSYKEY Target key name already exists."
        );
        client.push(&[b"DUMP", b"copy"]);
        assert_eq!(client.read_bulk(), payload, "{fill}");
        assert!(client.send("PTTL copy").len() > 4);
    }
    let text = "-ERR DUMP payload version or checksum are wrong";
    client.expect(&[("RESTORE x 0 nonsense", text), ("DUMP nothing", "nil")]);
}
