//! Tests which commands count as a use of a key, with OBJECT IDLETIME after each command.
//!
//! The tests do not wait. A key is restored with an idle time of 5000 s, and then a command runs. Afterwards the idle
//! time is still about 5000 s, or the command has reset the idle time.

use perdura_differ::pair::{Pair, Side};
use perdura_differ::wire::{Wire, encode};

const IDLE: i64 = 5000;

/// A value of each type. No value is an integer, because Redis shares integers between keys.
const VALUES: [&[&str]; 5] = [
    &["SET", "from", "text"],
    &["RPUSH", "from", "1", "2", "3"],
    &["HSET", "from", "a", "1", "b", "2"],
    &["SADD", "from", "1", "2", "x"],
    &["ZADD", "from", "1", "a", "2", "b"],
];

/// Commands on the key `k`. The test checks the idle time of `k` after each command. ` > ` and a name after a command
/// make the test check the key of that name instead. `k@1` is the key `k` in database 1. The set `set` and the list
/// `list` exist, too.
const COMMANDS: &str = "
OBJECT ENCODING k;OBJECT IDLETIME k;OBJECT REFCOUNT k;OBJECT FREQ k;TTL k;PTTL k;EXPIRETIME k
PEXPIRETIME k;TYPE k;EXISTS k;TOUCH k;DUMP k;MEMORY USAGE k;SCAN 0 COUNT 100;KEYS *;RANDOMKEY
SCAN 0 TYPE string COUNT 100;EXPIRE k 1000;EXPIRE k 100 XX;EXPIRE k 100 GT;PERSIST k;WATCH k
RENAME k k2 > k2;RENAME k k;RENAMENX k k3 > k3;RENAMENX set k;COPY k k4;COPY k k5 > k5;COPY set k
MOVE k 1 > k@1;SWAPDB 0 2 > k@2;DEL nothing;SORT k;SORT_RO k;SORT list BY k;SORT list GET k
GET k;STRLEN k;SUBSTR k 0 1;GETBIT k 1;BITCOUNT k;BITPOS k 1;BITFIELD k GET u8 0
BITFIELD_RO k GET u8 0;BITOP AND d k k;LCS k k;GETEX k;GETEX k PERSIST;GETSET k 1;SETNX k 1
SET k 1 NX;SET k 1 XX;SET k 1;SETEX k 100 1;MSET k v;MSETNX k 1 z 2;APPEND k x;INCR k
SETRANGE k 0 x;LLEN k;LPUSHX k 1;LPOP k 0;LPOS k 1;LREM k 0 9;LTRIM k 0 -1;LSET k 99 1;LRANGE k 0 -1
LINSERT k BEFORE 99 1;LMOVE k k LEFT RIGHT;BLPOP k 0.001;LMPOP 1 k LEFT;HLEN k;HGET k nothing
HEXISTS k a;HSETNX k a 9;HRANDFIELD k;HSCAN k 0;HGETALL k;SCARD k;SMEMBERS k;SREM k nothing
SMOVE set k 1;SMOVE k set 99;SUNION k set;SUNIONSTORE d k;SINTERCARD 1 k;SMISMEMBER k 1;SPOP k 0
SRANDMEMBER k;SSCAN k 0;ZCARD k;ZSCORE k a;ZMSCORE k a;ZADD k XX 1 nothing;ZPOPMIN k 0
ZREMRANGEBYSCORE k 90 91;ZUNION 1 k;ZUNIONSTORE d 1 k;ZINTERCARD 1 k;ZRANGESTORE d k 0 -1
ZRANDMEMBER k;ZSCAN k 0";

fn call(wire: &mut Wire, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    wire.call(&words).expect("a reply");
}

fn restored(wire: &mut Wire, value: &[&str]) {
    call(wire, "SELECT 0");
    call(wire, "FLUSHALL");
    wire.call(value).expect("a reply");
    let dump = wire.call(&["DUMP", "from"]).expect("a reply");
    let dump = dump.text().expect("a payload").to_vec();
    let idle = IDLE.to_string();
    let words: [&[u8]; 6] = [b"RESTORE", b"k", b"0", &dump, b"IDLETIME", idle.as_bytes()];
    wire.send(&encode(&words.map(<[u8]>::to_vec)))
        .expect("sent");
    assert_eq!(wire.read().expect("a reply").text(), Some(&b"OK"[..]));
    call(wire, "SADD set 1");
    call(wire, "RPUSH list 1");
}

fn was_used(wire: &mut Wire, key: &str) -> Option<bool> {
    let idle = wire.call(&["OBJECT", "IDLETIME", key]).expect("a reply");
    idle.int().map(|seconds| seconds < IDLE / 2)
}

#[test]
fn the_commands_that_count_as_a_use_of_a_key_are_those_of_redis() {
    let pair = Pair::start().expect("both servers");
    let mut wires = [Side::Theirs, Side::Ours].map(|side| pair.connect(side).expect("connected"));
    // Our server need not wait until changes are durable, because this Redis does not persist them either.
    call(&mut wires[1], "CLIENT DURABILITY mem");
    let (mut used, mut differ) = (0, Vec::new());
    for value in VALUES {
        for line in COMMANDS.split([';', '\n']).filter(|line| !line.is_empty()) {
            let (command, look) = line.split_once(" > ").unwrap_or((line, "k"));
            let (key, database) = look.split_once('@').unwrap_or((look, "0"));
            let [theirs, ours] = [0, 1].map(|side| {
                let wire = &mut wires[side];
                restored(wire, value);
                call(wire, command);
                call(wire, &format!("SELECT {database}"));
                was_used(wire, key)
            });
            used += usize::from(theirs == Some(true));
            if ours != theirs {
                differ.push(format!("{value:?}, {line}: {theirs:?} and {ours:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "Redis and we:\n{}", differ.join("\n"));
    assert!(used > 200, "only {used} are used: the commands are wrong");
}

#[test]
fn a_key_that_is_restored_in_steps_is_as_idle_as_it_was_said_to_be() {
    let pair = Pair::start().expect("both servers");
    let mut wire = pair.connect(Side::Ours).expect("connected");
    let members: Vec<String> = (0..20_000).map(|n| format!("member-number-{n}")).collect();
    let mut add = vec!["SADD", "from"];
    add.extend(members.iter().map(String::as_str));
    restored(&mut wire, &add);
    assert_eq!(was_used(&mut wire, "k"), Some(false));
    call(&mut wire, "SMEMBERS k");
    assert_eq!(was_used(&mut wire, "k"), Some(true));
}

#[test]
fn after_a_restart_every_key_is_as_old_as_the_restart() {
    let mut pair = Pair::start().expect("both servers");
    let mut wire = pair.connect(Side::Ours).expect("connected");
    restored(&mut wire, VALUES[0]);
    assert_eq!(was_used(&mut wire, "k"), Some(false));
    pair.restart().expect("restarted");
    let mut wire = pair.connect(Side::Ours).expect("connected");
    assert_eq!(was_used(&mut wire, "k"), Some(true));
}

#[test]
fn idle_times_that_are_not_kept_are_refused_and_begin_when_they_are_asked_for() {
    let pair = Pair::start().expect("both servers");
    let mut wire = pair.connect(Side::Ours).expect("connected");
    call(&mut wire, "CONFIG SET key-idle-times no");
    restored(&mut wire, VALUES[0]);
    let refused = wire.call(&["OBJECT", "IDLETIME", "k"]).expect("a reply");
    let text = refused.text().map(String::from_utf8_lossy);
    assert!(refused.is_error() && text.is_some_and(|text| text.contains("key-idle-times yes")));
    call(&mut wire, "CONFIG SET key-idle-times yes");
    assert_eq!(was_used(&mut wire, "k"), Some(true));
    restored(&mut wire, VALUES[0]);
    assert_eq!(was_used(&mut wire, "k"), Some(false));
    // Changing another setting must not make the keys look used.
    call(&mut wire, "CONFIG SET slowlog-max-len 10");
    assert_eq!(was_used(&mut wire, "k"), Some(false));
}
