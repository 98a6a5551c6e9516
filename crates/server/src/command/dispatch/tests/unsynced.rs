//! Tests that no reply shows another client's write before the write is durable. All syncs are blocked.
//! One client makes changes, and then another client sends each of the [`REQUESTS`]. If the reply differs from the
//! reply before the changes, it must wait.

use super::{LIBRARY, ask, call, finish_jobs, leave, newcomer, owed, ready, sync, word_of};
use crate::command::steps::Steps;
use crate::command::table::all;
use crate::command::{Command, Run, flag};
use crate::engine::{Durability, Rung};
use crate::options::DebugAccess;
use crate::state::State;
use crate::testbed::Testbed;
use std::collections::BTreeSet;

const WRITER: usize = 0;

/// Commands that run outside of transactions and whose replies wait for no write. Each row ends with the reason.
const APART: &[(&str, &str)] = &[
    (
        "exec info wait waitaof waitdur client",
        "they say themselves what their reply rests on; INFO shows keys in the section Keyspace only",
    ),
    (
        "acl auth config command hello latency lolwut module role slowlog time",
        "about the server, its users and its settings, which are not in the database",
    ),
    (
        "asking discard echo multi ping quit readonly readwrite reset select unwatch watch",
        "about the connection",
    ),
    (
        "monitor psubscribe publish pubsub punsubscribe spublish ssubscribe subscribe sunsubscribe unsubscribe",
        "about who listens; the messages themselves carry epochs",
    ),
    (
        "script",
        "the server keeps scripts in memory, as Redis does; that one is known shows only that a client has sent it",
    ),
    (
        "backup bgrewriteaof bgsave lastsave save shutdown",
        "about checkpoints and backups, which hold what is durable",
    ),
    (
        "cluster failover migrate pfselftest psync replconf replicaof slaveof sync",
        "their answers are constants",
    ),
];

/// Requests for each command with a reply that may show data. A row may hold several requests, separated by `;`. Only
/// the last reply is compared.
const REQUESTS: &[&str] = &[
    "APPEND t v",
    "BITCOUNT t",
    "BITFIELD t GET u8 0",
    "BITFIELD t INCRBY u8 0 1",
    "BITFIELD_RO t GET u8 0",
    "BITOP NOT d t",
    "BITPOS t 1",
    "DECR n",
    "DECRBY n 2",
    "GET t",
    "GET m",
    "GETBIT t 1",
    "GETDEL t",
    "GETEX t",
    "GETEX t PX 100000",
    "GETRANGE t 0 1",
    "GETSET t v",
    "INCR n",
    "INCRBY n 2",
    "INCRBYFLOAT n 1.5",
    "LCS t n",
    "MGET t n m",
    "MSET t v",
    "MSETNX m v",
    "PSETEX t 100000 v",
    "SET t v",
    "SET t v NX",
    "SET t v GET",
    "SETBIT t 1 1",
    "SETEX t 100 v",
    "SETNX m v",
    "SETRANGE t 1 v",
    "STRLEN t",
    "SUBSTR t 0 1",
    "COPY t m",
    "DBSIZE",
    "DEL t m",
    "DUMP t",
    "EXISTS t m",
    "EXPIRE t 100",
    "EXPIREAT t 9999999999",
    "EXPIRETIME t",
    "FLUSHALL",
    "FLUSHDB",
    "KEYS *",
    "MOVE t 1",
    "OBJECT ENCODING t",
    "OBJECT REFCOUNT m",
    "PERSIST e",
    "PEXPIRE t 100000",
    "PEXPIREAT t 9999999999999",
    "PEXPIRETIME e",
    "PTTL t",
    "RANDOMKEY",
    "RENAME t d",
    "RENAME m d",
    "RENAMENX t n",
    "RESTORE m 0 $dump",
    "RESTORE-ASKING m 0 $dump",
    "SCAN 0 COUNT 1000",
    "SORT l",
    "SORT l BY w_* STORE d",
    "SORT_RO l ALPHA GET t",
    "SWAPDB 0 1",
    "TOUCH t m",
    "TTL t",
    "TYPE t",
    "UNLINK t",
    "HDEL h f",
    "HEXISTS h f",
    "HGET h f",
    "HGETALL h",
    "HINCRBY h g 1",
    "HINCRBYFLOAT h g 1",
    "HKEYS h",
    "HLEN h",
    "HMGET h f g",
    "HMSET h f v",
    "HRANDFIELD h 5",
    "HSCAN h 0",
    "HSET h f v",
    "HSETNX h f v",
    "HSTRLEN h f",
    "HVALS h",
    "BLMOVE l d LEFT LEFT 0",
    "BLMPOP 0 1 l LEFT",
    "BLPOP l 0",
    "BRPOP l 0",
    "BRPOPLPUSH l d 0",
    "LINDEX l 0",
    "LINSERT l BEFORE 1 x",
    "LLEN l",
    "LMOVE l d LEFT LEFT",
    "LMPOP 1 l LEFT",
    "LPOP l",
    "LPOS l 1",
    "LPUSH l x",
    "LPUSHX l x",
    "LRANGE l 0 -1",
    "LREM l 0 1",
    "LSET l 0 x",
    "LSET m 0 x",
    "LTRIM l 0 0",
    "RPOP l",
    "RPOPLPUSH l d",
    "RPUSH l x",
    "RPUSHX l x",
    "SADD s x",
    "SCARD s",
    "SDIFF s m",
    "SDIFFSTORE d s",
    "SINTER s s",
    "SINTERCARD 1 s",
    "SINTERSTORE d s",
    "SISMEMBER s 1",
    "SMEMBERS s",
    "SMISMEMBER s 1 x",
    "SMOVE s d 1",
    "SPOP s",
    "SRANDMEMBER s 9",
    "SREM s 1",
    "SSCAN s 0",
    "SUNION s m",
    "SUNIONSTORE d s",
    "BZMPOP 0 1 z MIN",
    "BZPOPMAX z 0",
    "BZPOPMIN z 0",
    "ZADD z 3 c",
    "ZCARD z",
    "ZCOUNT z 0 9",
    "ZDIFF 1 z",
    "ZDIFFSTORE d 1 z",
    "ZINCRBY z 1 a",
    "ZINTER 1 z",
    "ZINTERCARD 1 z",
    "ZINTERSTORE d 1 z",
    "ZLEXCOUNT z - +",
    "ZMPOP 1 z MIN",
    "ZMSCORE z a x",
    "ZPOPMAX z",
    "ZPOPMIN z",
    "ZRANDMEMBER z 9",
    "ZRANGE z 0 -1",
    "ZRANGEBYLEX z - +",
    "ZRANGEBYSCORE z 0 9",
    "ZRANGESTORE d z 0 -1",
    "ZRANK z b",
    "ZREM z a",
    "ZREMRANGEBYLEX z - +",
    "ZREMRANGEBYRANK z 0 0",
    "ZREMRANGEBYSCORE z 0 1",
    "ZREVRANGE z 0 -1",
    "ZREVRANGEBYLEX z + -",
    "ZREVRANGEBYSCORE z 9 0",
    "ZREVRANK z b",
    "ZSCAN z 0",
    "ZSCORE z a",
    "ZUNION 1 z",
    "ZUNIONSTORE d 1 z",
    "GEOADD geo 1 1 r",
    "GEODIST geo p q",
    "GEOHASH geo p",
    "GEOPOS geo p",
    "GEORADIUS geo 13 38 900 km",
    "GEORADIUSBYMEMBER geo p 900 km",
    "GEORADIUSBYMEMBER_RO geo p 900 km",
    "GEORADIUS_RO geo 13 38 900 km",
    "GEOSEARCH geo FROMMEMBER p BYRADIUS 900 km",
    "GEOSEARCHSTORE d geo FROMMEMBER p BYRADIUS 900 km",
    "PFADD hll c",
    "PFCOUNT hll",
    "PFDEBUG ENCODING hll",
    "PFMERGE d hll",
    "XACK x g 1-1",
    "XADD x NOMKSTREAM 2-1 f v",
    "XAUTOCLAIM x g d 0 0",
    "XCLAIM x g d 0 1-1",
    "XDEL x 1-1",
    "XGROUP CREATE x g 0",
    "XGROUP CREATE x other 0",
    "XGROUP CREATECONSUMER x g d",
    "XGROUP DESTROY x g",
    "XGROUP DELCONSUMER x g c",
    "XGROUP SETID x g 0",
    "XINFO STREAM x",
    "XINFO GROUPS x",
    "XINFO CONSUMERS x g",
    "XLEN x",
    "XPENDING x g",
    "XRANGE x - +",
    "XREAD STREAMS x 0",
    "XREAD BLOCK 0 STREAMS x 0",
    "XREADGROUP GROUP g c STREAMS x >",
    "XREADGROUP GROUP other c STREAMS x >",
    "XREVRANGE x + -",
    "XSETID x 9-9",
    "XTRIM x MAXLEN 1",
    "EVAL return(redis.call('GET','t')) 0",
    "EVAL return(redis.call('DBSIZE')) 0",
    "EVAL_RO return(redis.call('EXISTS','m')) 0",
    "EVALSHA $sha 0",
    "EVALSHA_RO $sha 0",
    "FCALL f 0",
    "FCALL g 0",
    "FCALL_RO f 0",
    "FCALL_RO g 0",
    "FUNCTION LIST",
    "FUNCTION LIST LIBRARYNAME mine WITHCODE",
    "FUNCTION STATS",
    "FUNCTION DUMP",
    "FUNCTION DELETE mine",
    "FUNCTION DELETE yours",
    "FUNCTION FLUSH",
    "FUNCTION LOAD $mine",
    "FUNCTION LOAD $yours",
    "FUNCTION RESTORE $functions",
    "MEMORY USAGE t",
    "MEMORY STATS",
    "MEMORY DOCTOR",
    "DEBUG OBJECT t",
    "DEBUG OBJECT m",
    "DEBUG DIGEST",
    "INFO KEYSPACE",
    "MULTI ; GET t ; EXEC",
    "MULTI ; FUNCTION STATS ; EXEC",
    "MULTI ; FUNCTION DELETE yours ; EXEC",
    "MULTI ; DEBUG OBJECT m ; GET d ; EXEC",
];

/// The contents of the database before the changes.
const BEFORE: &[&str] = &[
    "MSET n 10 t text",
    "SET e v PXAT 9999999999999",
    "HSET h f v g 2",
    "RPUSH l 3 1 2",
    "SADD s 1 2 3",
    "ZADD z 1 a 2 b",
    "XADD x 1-1 f v",
    "XADD x 1-2 f w",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "GEOADD geo 13 38 p 14 38 q",
    "PFADD hll a b",
    "FUNCTION LOAD $mine",
];

/// The changes, each with a flag. After every change, the commands that only read are tested. If the flag is true, the
/// commands that write are tested, too.
const CHANGES: &[(&str, bool)] = &[
    ("DEL n t e h l s z x geo hll ; FUNCTION DELETE mine", true),
    (
        "MSET h v l v s v z v x v geo v ; DEL t n hll ; RPUSH t a ; RPUSH n a ; RPUSH hll a ; FUNCTION LOAD REPLACE $changed",
        true,
    ),
    (
        "MSET m v d v ; FUNCTION LOAD $yours ; XGROUP CREATE x other $",
        true,
    ),
    (
        "APPEND t x ; INCR n ; EXPIRE t 1000 ; PERSIST e ; HSET h f2 v ; RPUSH l z ; SADD s 9 ; ZADD z 9 q ; XADD x 9-9 f v \
         ; GEOADD geo 1 1 q ; PFADD hll q w e",
        false,
    ),
    (
        "XGROUP DESTROY x g ; HDEL h f ; LPOP l ; SREM s 1 ; ZREM z a ; XDEL x 1-1",
        false,
    ),
    ("FLUSHALL ; FUNCTION FLUSH", false),
    ("SWAPDB 0 1", false),
    ("MULTI ; DEL t x ; FUNCTION FLUSH ; EXEC", false),
    (
        "EVAL redis.call('DEL','t','l')redis.call('SET','m',1) 0",
        false,
    ),
];

/// Sends requests. Returns the last reply, and the durability that the last reply waits for.
fn say(state: &mut State, client: usize, lines: &str) -> (String, Option<Durability>) {
    let mut last = (String::new(), None);
    for line in lines.split(" ; ") {
        let words: Vec<Vec<u8>> = line
            .split_whitespace()
            .map(|word| word_of(state, WRITER, word))
            .collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        last = call(state, client, &words);
        finish_jobs(state);
        let later = owed(state, client);
        if !later.0.is_empty() {
            last = later;
        }
    }
    last
}

/// Sends a request as a new client.
fn asked(state: &mut State, request: &str) -> (String, Option<Durability>) {
    let client = newcomer(state);
    let reply = say(state, client, request);
    leave(state, client);
    reply
}

fn begin_anew(state: &mut State) {
    say(state, WRITER, "FLUSHALL ; FUNCTION FLUSH");
    for line in BEFORE {
        let (reply, _) = say(state, WRITER, line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
}

/// Returns a reply without the idle times of consumers.
fn timeless(reply: &str) -> String {
    let mut lines: Vec<&str> = reply.lines().collect();
    for at in 1..lines.len() {
        if lines[at - 1] == "idle" {
            lines[at] = "";
        }
    }
    lines.join(" ")
}

fn named(line: &str) -> &'static Command {
    let name = line
        .split_whitespace()
        .next()
        .expect("a name")
        .to_lowercase();
    all().find(|command| command.name == name).expect(line)
}

fn only_reads(request: &str) -> bool {
    let apart = |command: &Command| command.has(flag::APART);
    request
        .split(" ; ")
        .map(named)
        .all(|command| command.has(flag::READ) || apart(command))
}

/// Returns the replies to all requests before any change.
fn replies_before(state: &mut State) -> Vec<String> {
    let mut before = Vec::new();
    for request in REQUESTS {
        begin_anew(state);
        let (reply, _) = asked(state, request);
        let unfit = [
            "-ERR wrong number",
            "-ERR syntax",
            "-ERR unknown",
            "-ERR Unknown",
        ];
        assert!(
            !unfit.iter().any(|text| reply.starts_with(text)),
            "{request}: {reply}"
        );
        before.push(reply);
    }
    before
}

/// Sends requests after a change that is not durable. Requests that write are sent only if `with_writes` is true.
/// Returns the requests whose replies show the change too early.
fn shown(state: &mut State, change: &str, before: &[String], with_writes: bool) -> Vec<String> {
    let mut shown = Vec::new();
    let mut is_set = false;
    for (request, before) in REQUESTS.iter().zip(before) {
        let reads = only_reads(request);
        if !reads && !with_writes {
            continue;
        }
        if !is_set {
            begin_anew(state);
            sync(state);
            say(state, WRITER, change);
            assert!(state.newest > state.reached.at(Rung::Disk), "{change}");
        }
        is_set = reads;
        let (reply, waits_for) = asked(state, request);
        let differs = !reply.is_empty() && timeless(&reply) != timeless(before);
        if differs && waits_for != Some(Durability::Disk) {
            shown.push(format!(
                "{request}: {reply:?} instead of {before:?}, behind {change}"
            ));
        }
    }
    shown
}

#[test]
fn no_reply_shows_another_clients_write_before_it_is_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    state.options.enable_debug_command = DebugAccess::Yes;
    let before = replies_before(&mut state);
    for (change, with_writes) in CHANGES {
        let found = shown(&mut state, change, &before, *with_writes);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    // The check is repeated with commands that run in steps.
    state.steps = Steps {
        long: 0,
        elements: 1,
    };
    let before = replies_before(&mut state);
    for (change, _) in CHANGES {
        let found = shown(&mut state, change, &before, false);
        assert!(found.is_empty(), "in steps: {}", found.join("\n"));
    }
}

#[test]
fn each_command_is_asked_or_shows_no_data() {
    let apart: BTreeSet<&str> = APART
        .iter()
        .flat_map(|(names, _)| names.split(' '))
        .collect();
    let asked: BTreeSet<&str> = REQUESTS
        .iter()
        .flat_map(|lines| lines.split(" ; "))
        .map(|line| named(line).name)
        .collect();
    for command in all() {
        let name = command.name;
        assert!(
            apart.contains(name) || asked.contains(name),
            "{name} is in neither list"
        );
        let is_plain = matches!(command.run, Run::Plain(_));
        assert_eq!(command.has(flag::APART), apart.contains(name), "{name}");
        assert!(
            is_plain || !command.has(flag::APART),
            "{name} runs in a transaction"
        );
    }
}

#[test]
fn a_function_that_is_not_there_any_more_is_missed_only_when_that_is_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    ask(&mut state, WRITER, &["FUNCTION", "LOAD", LIBRARY]);
    sync(&mut state);
    let stats = asked(&mut state, "FUNCTION STATS");
    assert_eq!(stats.1, None, "nothing is on its way");
    ask(&mut state, WRITER, &["FUNCTION", "DELETE", "mine"]);
    for (request, text) in [
        ("FCALL f 0", "-ERR Function not found\r\n"),
        ("FUNCTION DELETE mine", "-ERR Library not found\r\n"),
    ] {
        let (reply, waits_for) = asked(&mut state, request);
        assert_eq!((reply.as_str(), waits_for), (text, Some(Durability::Disk)));
    }
    assert_eq!(
        asked(&mut state, "FUNCTION STATS").1,
        Some(Durability::Disk)
    );
    sync(&mut state);
    assert_eq!(asked(&mut state, "FCALL f 0").1, None);
    ask(&mut state, WRITER, &["FUNCTION", "LOAD", LIBRARY]);
    let (reply, waits_for) = asked(&mut state, "FUNCTION LOAD $mine");
    assert_eq!(reply, "-ERR Library 'mine' already exists\r\n");
    assert_eq!(waits_for, Some(Durability::Disk));
}

#[test]
fn a_refusal_for_the_size_of_a_reply_waits_for_what_made_it_so_long() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    state.options.reply_bytes_max = 100;
    say(&mut state, WRITER, "SET k short");
    sync(&mut state);
    assert_eq!(asked(&mut state, "MGET k k").1, None);
    ask(&mut state, WRITER, &["SET", "k", &"long".repeat(100)]);
    for request in ["MGET k k", "MULTI ; MGET k ; EXEC"] {
        let (reply, waits_for) = asked(&mut state, request);
        assert!(
            reply.starts_with("-ERR the reply is longer"),
            "{request}: {reply}"
        );
        assert_eq!(waits_for, Some(Durability::Disk), "{request}");
    }
}

#[test]
fn a_block_that_does_not_run_waits_for_the_change_of_its_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    let client = newcomer(&mut state);
    say(&mut state, client, "WATCH k");
    sync(&mut state);
    say(&mut state, WRITER, "SET k v");
    let (reply, waits_for) = say(&mut state, client, "MULTI ; PING ; EXEC");
    assert_eq!(
        (reply.as_str(), waits_for),
        ("*-1\r\n", Some(Durability::Disk))
    );
}

#[test]
fn a_monitor_sees_what_a_script_did_when_what_it_read_is_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    let monitor = newcomer(&mut state);
    say(&mut state, monitor, "MONITOR");
    sync(&mut state);
    say(&mut state, WRITER, "SET k v");
    let (line, waits_for) = owed(&mut state, monitor);
    assert!(line.contains("\"SET\""), "{line}");
    assert_eq!(
        waits_for, None,
        "a request shows only that a client has sent it"
    );
    say(&mut state, WRITER, "EVAL return(redis.call('GET','k')) 0");
    let (lines, waits_for) = owed(&mut state, monitor);
    assert!(lines.contains("\"GET\""), "{lines}");
    assert_eq!(waits_for, Some(Durability::Disk));
}
