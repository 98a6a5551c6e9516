//! Scripts as real programs use them: locks, limiters, queues, leaderboards. Both servers get the same calls and must
//! give the same replies.

use perdura_differ::pair::{Pair, Side};
use perdura_differ::wire::Wire;

/// A script, its purpose, and the calls that test it. A call has its keys before the bar `|`, and its arguments after
/// the bar.
struct Known {
    what: &'static str,
    source: &'static str,
    calls: &'static [&'static str],
}

const KNOWN: [Known; 20] = [
    Known {
        what: "a lock is released by its owner",
        source: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        calls: &["free | me", "lock | me", "lock | other", "lock | me"],
    },
    Known {
        what: "a lock is extended by its owner",
        source: "local token = redis.call('get', KEYS[1])\nif not token or token ~= ARGV[1] then return 0 end\nlocal \
                 left = redis.call('pttl', KEYS[1])\nif left < 0 then return 0 end\nredis.call('pexpire', KEYS[1], \
                 left + ARGV[2])\nreturn 1",
        calls: &[
            "lock | me 1000",
            "timed | me 100000",
            "timed | other 1000",
            "none | me 1",
        ],
    },
    Known {
        what: "a lock that its owner may take again",
        source: "if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
                 redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
                 return redis.call('pttl', KEYS[1]) > 0 and 'taken'",
        calls: &[
            "relock | 100000 a",
            "relock | 100000 a",
            "relock | 100000 b",
        ],
    },
    Known {
        what: "and its release, which tells those who wait",
        source: "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil end local counter = \
                 redis.call('hincrby', KEYS[1], ARGV[3], -1) if (counter > 0) then redis.call('pexpire', KEYS[1], \
                 ARGV[2]) return 0 else redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1 end",
        calls: &[
            "relock chan | 0 100000 b",
            "relock chan | 0 100000 a",
            "relock chan | 0 100000 a",
            "relock chan | 0 1 a",
        ],
    },
    Known {
        what: "a limiter of a fixed window",
        source: "local current = redis.call('incr', KEYS[1])\nif tonumber(current) == 1 then redis.call('expire', \
                 KEYS[1], ARGV[1]) end\nif current > tonumber(ARGV[2]) then return 0 end\nreturn 1",
        calls: &["window | 1000 2", "window | 1000 2", "window | 1000 2"],
    },
    Known {
        what: "a limiter of a sliding window",
        source: "local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])\n\
                 redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)\nlocal count = redis.call('ZCARD', \
                 KEYS[1])\nif count < limit then redis.call('ZADD', KEYS[1], now, now .. '-' .. count) \
                 redis.call('PEXPIRE', KEYS[1], window) return {1, limit - count - 1} end\nlocal oldest = \
                 redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')\nreturn {0, tonumber(oldest[2]) + window - now}",
        calls: &[
            "slide | 1000 500000 2",
            "slide | 1100 500000 2",
            "slide | 1200 500000 2",
            "slide | 600000 500000 2",
        ],
    },
    Known {
        what: "a token bucket",
        source: "local rate, capacity, now, asked = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), \
                 tonumber(ARGV[4])\nlocal fill_time = capacity / rate\nlocal ttl = math.floor(fill_time * 2)\nlocal \
                 last = tonumber(redis.call('get', KEYS[1]))\nif last == nil then last = capacity end\nlocal at = \
                 tonumber(redis.call('get', KEYS[2]))\nif at == nil then at = 0 end\nlocal delta = math.max(0, now - \
                 at)\nlocal filled = math.min(capacity, last + (delta * rate))\nlocal allowed = filled >= asked\nlocal \
                 new_tokens = filled\nlocal n = 0\nif allowed then new_tokens = filled - asked n = 1 end\nif ttl > 0 \
                 then redis.call('setex', KEYS[1], ttl, new_tokens) redis.call('setex', KEYS[2], ttl, now) end\nreturn \
                 { n, new_tokens, tostring(new_tokens) }",
        calls: &[
            "tokens at | 3 5000 100 10",
            "tokens at | 3 5000 101 4999",
            "tokens at | 0.3 5000 102 0.25",
        ],
    },
    Known {
        what: "a leaky bucket with fractions",
        source: "local b = cjson.decode(redis.call('get', KEYS[1]) or '{\"level\":0,\"at\":0}')\nlocal now = \
                 tonumber(ARGV[1])\nb.level = math.max(0, b.level - (now - b.at) * tonumber(ARGV[2]))\nb.at = now\nlocal \
                 ok = b.level + 1 <= tonumber(ARGV[3])\nif ok then b.level = b.level + 1 end\nredis.call('set', \
                 KEYS[1], cjson.encode({level = b.level}))\nreturn {ok and 1 or 0, tostring(b.level)}",
        calls: &["leak | 10 0.3 2"],
    },
    Known {
        what: "a counter that stays in bounds",
        source: "local v = tonumber(redis.call('GET', KEYS[1]) or '0') + tonumber(ARGV[1])\nif v < tonumber(ARGV[2]) or v \
                 > tonumber(ARGV[3]) then return redis.error_reply('OUTOFBOUNDS ' .. v .. ' is not allowed') \
                 end\nredis.call('SET', KEYS[1], v)\nreturn v",
        calls: &["bounded | 5 0 10", "bounded | 6 0 10", "bounded | -9 0 10"],
    },
    Known {
        what: "a delayed queue takes what is due",
        source: "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])\nif #due > 0 then \
                 redis.call('ZREM', KEYS[1], unpack(due)) redis.call('RPUSH', KEYS[2], unpack(due)) end\nreturn due",
        calls: &[
            "delayed ready | 150 10",
            "delayed ready | 1000 1",
            "delayed ready | 1000 10",
        ],
    },
    Known {
        what: "a queue without double entries",
        source: "local n = 0\nfor i = 1, #ARGV do if redis.call('SADD', KEYS[2], ARGV[i]) == 1 then n = \
                 redis.call('LPUSH', KEYS[1], ARGV[i]) end end\nreturn n",
        calls: &["uq useen | a b a", "uq useen | b c"],
    },
    Known {
        what: "a job is reserved until a time",
        source: "local job = redis.call('lpop', KEYS[1])\nlocal reserved = false\nif job ~= false then reserved = \
                 cjson.decode(job)\nreserved['attempts'] = reserved['attempts'] + 1\nreserved = \
                 cjson.encode({reserved.id, reserved.attempts})\nredis.call('zadd', KEYS[2], ARGV[1], reserved) \
                 end\nreturn {job, reserved}",
        calls: &["jobs reserved | 99", "jobs reserved | 100"],
    },
    Known {
        what: "a leaderboard with the neighbours of a member",
        source: "redis.call('ZINCRBY', KEYS[1], ARGV[2], ARGV[1])\nlocal rank = redis.call('ZREVRANK', KEYS[1], \
                 ARGV[1])\nlocal from = math.max(0, rank - 1)\nreturn {rank, redis.call('ZREVRANGE', KEYS[1], from, rank \
                 + 1, 'WITHSCORES')}",
        calls: &[
            "board | ann 5",
            "board | bob 7.5",
            "board | eve 6",
            "board | ann 2",
        ],
    },
    Known {
        what: "compare and set",
        source: "local now = redis.call('GET', KEYS[1])\nif (now == false and ARGV[1] == '') or now == ARGV[1] then \
                 redis.call('SET', KEYS[1], ARGV[2]) return redis.status_reply('SWAPPED') end\nreturn now",
        calls: &["cas |  one", "cas | two three", "cas | one two"],
    },
    Known {
        what: "hashes to a list of texts",
        source: "local out = {}\nfor i, key in ipairs(KEYS) do out[i] = cjson.encode(redis.call('HMGET', key, 'name', \
                 'age')) end\nreturn out",
        calls: &["user nobody |"],
    },
    Known {
        what: "packed state",
        source: "local s = redis.call('GET', KEYS[1])\nlocal t = s and cmsgpack.unpack(s) or {0, {}}\nt[1] = t[1] + \
                 1\nt[2][#t[2] + 1] = ARGV[1]\nredis.call('SET', KEYS[1], cmsgpack.pack(t))\nreturn {t[1], t[2], \
                 redis.call('GET', KEYS[1])}",
        calls: &["packed | a", "packed | b", "packed | 300"],
    },
    Known {
        what: "a bit field in a struct",
        source: "local raw = redis.call('GET', KEYS[1]) or struct.pack('>I2I4', 0, 0)\nlocal flags, hits = \
                 struct.unpack('>I2I4', raw)\nflags = bit.bor(flags, bit.lshift(1, tonumber(ARGV[1])))\nredis.call('SET', \
                 KEYS[1], struct.pack('>I2I4', flags, hits + 1))\nreturn {flags, hits + 1, bit.tohex(flags, 4)}",
        calls: &["bits | 0", "bits | 9", "bits | 9"],
    },
    Known {
        what: "tags of cache entries are dropped together",
        source: "local dropped = 0\nfor _, tag in ipairs(KEYS) do local members = redis.call('SMEMBERS', tag) if #members \
                 > 0 then dropped = dropped + redis.call('DEL', unpack(members)) end redis.call('DEL', tag) end\nreturn \
                 dropped",
        calls: &["tag:a tag:b |", "tag:a tag:b |"],
    },
    Known {
        what: "a sequence that is remembered by name",
        source: "local id = redis.call('HGET', KEYS[1], ARGV[1])\nif not id then id = redis.call('INCR', KEYS[2]) \
                 redis.call('HSET', KEYS[1], ARGV[1], id) end\nreturn tonumber(id)",
        calls: &["ids seq | x", "ids seq | y", "ids seq | x"],
    },
    Known {
        what: "a stock that is sold once, with an error that is caught",
        source: "local ok, err = pcall(function() local left = redis.call('DECRBY', KEYS[1], ARGV[1]) if left < 0 then \
                 redis.call('INCRBY', KEYS[1], ARGV[1]) error({err = 'SOLDOUT only ' .. (left + ARGV[1])}) end return \
                 left end)\nif not ok then return {err = err} end\nreturn err",
        calls: &["stock | 2", "stock | 2", "stock | 2", "relist | 1"],
    },
];

/// The commands that prepare the data.
const BEFORE: &str = "SET lock me;SET timed me PX 900000;SET stock 5;RPUSH relist a;ZADD delayed 100 a 200 b 300 c;HSET \
                      user name ann age 5;SADD tag:a c1 c2;SADD tag:b c3;MSET c1 x c2 y;RPUSH jobs \
                      {\"id\":7,\"attempts\":0}";

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn request<'a>(call: &'a str, first: [&'a str; 2]) -> (Vec<&'a str>, String) {
    let (keys, args) = call.split_once('|').expect("a bar");
    let keys: Vec<&str> = keys.split_whitespace().collect();
    let args = args.strip_prefix(' ').map_or(Vec::new(), words);
    let mut all = first.to_vec();
    let count = keys.len().to_string();
    all.push("");
    all.extend(keys);
    all.extend(args);
    (all, count)
}

#[test]
fn scripts_that_programs_have_answer_as_with_redis() {
    let pair = Pair::start().expect("both servers");
    let mut wires = [Side::Theirs, Side::Ours].map(|side| pair.connect(side).expect("connected"));
    let mut both = |words: &[&str]| {
        let [theirs, ours] = &mut wires;
        let call = |wire: &mut Wire| wire.call(words).expect("a reply");
        (call(ours), call(theirs))
    };
    for line in BEFORE.split(';') {
        let (ours, theirs) = both(&words(line));
        assert_eq!(ours, theirs, "{line}");
    }
    for known in &KNOWN {
        let (sha, theirs) = both(&["SCRIPT", "LOAD", known.source]);
        assert_eq!(sha, theirs, "{}", known.what);
        let sha = String::from_utf8_lossy(sha.text().expect("a SHA-1")).into_owned();
        for call in known.calls {
            let (mut all, count) = request(call, ["EVALSHA", &sha]);
            all[2] = &count;
            let (ours, theirs) = both(&all);
            assert_eq!(ours, theirs, "{}: {call}", known.what);
            let text = String::from_utf8_lossy(ours.text().unwrap_or(b"")).into_owned();
            let meant = ["OUTOFBOUNDS ", "SOLDOUT ", "WRONGTYPE "];
            let meant = meant.iter().any(|code| text.starts_with(code));
            assert!(!ours.is_error() || meant, "{}: {call}: {text}", known.what);
        }
    }
    // The scripts must have left equal data, too.
    let (ours, theirs) = both(&["EVAL", SUM, "0"]);
    assert_eq!(ours, theirs);
}

/// A script that returns all keys, sorted, with their contents.
const SUM: &str = "local keys = redis.call('KEYS', '*') table.sort(keys) local out = {} for _, k in ipairs(keys) do local \
                   t = redis.call('TYPE', k).ok out[#out + 1] = k if t == 'string' then out[#out + 1] = \
                   redis.call('GET', k) elseif t == 'list' then out[#out + 1] = redis.call('LRANGE', k, 0, -1) elseif t \
                   == 'zset' then out[#out + 1] = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES') elseif t == 'hash' then \
                   local f = redis.call('HKEYS', k) table.sort(f) out[#out + 1] = f out[#out + 1] = redis.call('HMGET', \
                   k, unpack(f)) else out[#out + 1] = redis.call('SORT', k, 'ALPHA') end end return out";
