//! A thousand scripts that try to take all resources, to run forever, or to break out. They are combinations of
//! fixed texts and parameters.
//!
//! Each script must end at most 100 ms after the time limit, and the next command must be served. The script may leave
//! at most a MiB of memory in use, and nothing in the log. A short sample always runs. `PERDURA_HOSTILE=all` runs all
//! scripts, which takes a quarter of an hour:
//!
//! ```text
//! PERDURA_HOSTILE=all cargo test --release -p perdura-server --test redis hostile -- --nocapture
//! ```

use super::client::{Client, local, start_with};
use super::scripts::loop_seconds;
use perdura_server::ServerOptions;
use perdura_server::settings::ClientShare;
use std::net::TcpStream;
use std::time::Duration;

/// The time limit of a run.
const LIMIT: Duration = Duration::from_secs(1);
/// The size of a beacon, in bytes. A beacon is a frame head that is appended to an idle log. A row in the log is
/// larger.
const BEACON_BYTES: u64 = 2;
/// The maximum time from the time limit of a script to the script's end.
const LATE: Duration = Duration::from_millis(100);
/// The value of [`LATE`] if only the sample of scripts runs. Other tests then run at the same time.
const LATE_BESIDE_OTHERS: Duration = Duration::from_secs(2);
/// The maximum amount of memory that a script may leave in use, in bytes.
const LEFT_BYTES: u64 = 1 << 20;
/// The minimum number of scripts.
const SCRIPTS_MIN: usize = 1000;
/// `SAMPLED` is the number of scripts in the sample. At most `SAMPLED_ENDLESS` of these scripts end only at the time
/// limit.
const SAMPLED: usize = 120;
const SAMPLED_ENDLESS: usize = 3;

/// The end of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The watchdog ends the script.
    Time,
    /// A limit ends the script, mostly the memory limit.
    Limit,
    /// An error or a limit ends the script.
    Error,
    /// The script ends by itself, with any reply.
    Reply,
}

/// The bodies of a loop.
const STEPS: [&str; 26] = [
    "",
    "local x = 1",
    "local x = tostring(12)",
    "pcall(error)",
    "pcall(error, {err = 'x'})",
    "local t = {} t[1] = 1",
    "local s = string.rep('x', 10)",
    "math.random()",
    "redis.call('SET', 'k', 1)",
    "redis.pcall('GET', 'k')",
    "redis.pcall('nope')",
    "redis.pcall()",
    "pcall(redis.call, 'LPUSH', 'k', 1)",
    "cjson.decode(cjson.encode({1, {a = 2}}))",
    "cmsgpack.unpack(cmsgpack.pack({1, 2}))",
    "struct.unpack('>I', struct.pack('>I', 1))",
    "string.format('%5.2f', 1)",
    "string.find('xxxxxxxx', 'x-y')",
    "bit.band(1, 2)",
    "redis.sha1hex('x')",
    "select('#', 1, 2)",
    "local s = table.concat({'a', 'b'})",
    "setmetatable({}, {})",
    "tonumber('12')",
    "unpack({1, 2, 3})",
    "table.sort({3, 2, 1})",
];

/// The code around a loop. The loop replaces `@`.
const PLACES: [&str; 14] = [
    "@",
    "pcall(function() @ end)",
    "while true do pcall(function() @ end) end",
    "xpcall(function() @ end, function(e) @ end)",
    "xpcall(error, function(e) @ end)",
    "local function f() @ end f()",
    "local function f() pcall(f) @ end f()",
    "table.sort({3, 1, 2}, function(a, b) @ end)",
    "string.gsub('abc', '.', function() @ end)",
    "for w in string.gmatch('abc', '.') do @ end",
    "local t = setmetatable({}, {__index = function() @ end}) return t.x",
    "local t = setmetatable({}, {__newindex = function() @ end}) t.x = 1",
    "local t = setmetatable({}, {__tostring = function() @ end}) tostring(t)",
    "local t = setmetatable({}, {__lt = function() @ end}) return t < t",
];

/// Expressions that must fail, because the sandbox lacks a function or protects a value.
const FORBIDDEN: [&str; 66] = [
    "os.exit()",
    "os.execute('id')",
    "os.getenv('HOME')",
    "os.remove('/tmp/x')",
    "os.time()",
    "io.open('/etc/passwd')",
    "io.popen('id')",
    "io.write('x')",
    "io.lines('/etc/passwd')()",
    "io.stdout:write('x')",
    "debug.getregistry()",
    "debug.sethook()",
    "debug.getinfo(1)",
    "debug.info(1, 'f')",
    "debug.getupvalue(print, 1)",
    "require('os')",
    "package.loadlib('libc.so.6', '*')",
    "package.path",
    "module('x')",
    "load('return 1')()",
    "loadstring('return 1')()",
    "loadfile('/etc/passwd')",
    "dofile('/etc/passwd')",
    "string.dump(function() end)",
    "collectgarbage()",
    "collectgarbage('stop')",
    "gcinfo()",
    "getfenv(0)",
    "setfenv(1, {})",
    "newproxy(true)",
    "coroutine.create(function() end)",
    "coroutine.wrap(function() end)()",
    "coroutine.yield()",
    "coroutine.running()",
    "print('x')",
    "warn('x')",
    "buffer.create(2^30)",
    "buffer.fromstring('x')",
    "bit32.band(1, 2)",
    "utf8.char(1)",
    "vector.create(1, 2, 3)",
    "table.freeze({})",
    "table.create(2^30)",
    "table.move({}, 1, 2, 3)",
    "typeof(1)",
    "rawlen({})",
    "math.sign(-1)",
    "math.clamp(1, 2, 3)",
    "math.round(1.5)",
    "table.unpack({1})",
    "shared.x.y",
    "script.Parent",
    "game.Workspace",
    "_ENV.x.y",
    "rawset(_G, 'x', 1)",
    "rawset(redis, 'call', 1)",
    "rawset(string, 'rep', 1)",
    "rawset(math, 'random', 1)",
    "setmetatable(_G, nil)",
    "setmetatable(_G, {})",
    "setmetatable(string, {})",
    "(function() redis.call = nil end)()",
    "(function() _G.x = 1 end)()",
    "(function() string.rep = nil end)()",
    "(function() getmetatable('').__index = {} end)()",
    "(function() cjson.decode = nil end)()",
];

/// Scripts that use a forbidden expression. The expression replaces `@`.
const WAYS: [&str; 5] = [
    "return @",
    "redis.call('PING') local x = @ return 1",
    "local ok, e = pcall(function() return @ end) error(e)",
    "local f = function() return (@) end return f()",
    "return table.concat({tostring(@), error('behind')})",
];

/// Scripts that fail by themselves.
const WRONG: [&str; 39] = [
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('SET', {}, 1)",
    "return redis.call(nil)",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SCRIPT', 'FLUSH')",
    "return redis.call('FCALL', 'f', 0)",
    "return redis.call('MULTI')",
    "return redis.call('SUBSCRIBE', 'c')",
    "return redis.call('BLPOP', 'k', 0)",
    "return redis.call('SHUTDOWN')",
    "return redis.call('DEBUG', 'SLEEP', 1)",
    "return redis.call('CONFIG', 'GET', '*')",
    "return redis.call('AUTH', 'x')",
    "return redis.call('QUIT')",
    "return redis.call('MONITOR')",
    "return redis.call('SELECT', 99)",
    "return redis.call('CLIENT', 'KILL', 'ID', 1)",
    "return redis.call('SAVE')",
    "return redis.call('WAIT', 1, 0)",
    "return redis.call('HELLO', 3)",
    "return redis.call('RESET')",
    "return redis.call('GET', unpack({}, 1, 1e8))",
    "return redis.call('SET', 'k', string.rep('x', 2^25))",
    "return string.char(256)",
    "return string.format('%999999d', 1)",
    "return string.format('%y', 1)",
    "return ('x'):find('[')",
    "return ('x'):find('%')",
    "return ('x'):rep(1e8):rep(1e8)",
    "return table.concat({{}})",
    "return table.insert({}, 1, 2, 3)",
    "return tonumber('z', 99)",
    "return setmetatable(1, {})",
    "return #nil",
    "return nil .. 'x'",
    "return {} + 1",
    "return 1 < 'x'",
    "for i = 1, 10, 0 do return x end error('step')",
];

/// Returns all scripts, in the order of their families.
fn all() -> Vec<(String, End)> {
    let mut scripts = Vec::new();
    let mut add = |end, source: String| scripts.push((source, end));
    for (nth, step) in STEPS.iter().enumerate() {
        for (place, around) in PLACES.iter().enumerate() {
            let bound = match (nth + place) % 3 {
                0 => format!("while true do {step} end"),
                1 => format!("repeat {step} until false"),
                _ => format!("for i = 1, 1e18 do {step} end"),
            };
            // If the stack is full, a step that needs more of the stack ends the run before the limit of time.
            let end = if around.contains("pcall(f)") {
                End::Limit
            } else {
                End::Time
            };
            add(end, around.replace('@', &bound));
        }
    }
    for what in FORBIDDEN {
        for way in WAYS {
            add(End::Error, way.replace('@', what));
        }
    }
    for what in WRONG {
        add(End::Error, String::from(what));
        let caught = what.replacen("return ", "", 1);
        if !what.starts_with("for") {
            add(
                End::Error,
                format!("local ok, e = pcall(function() return {caught} end) error(e)"),
            );
        }
    }
    for (first, more) in [
        ("'x'", 27),
        ("string.rep('ab', 1000)", 20),
        ("'\\0'", 31),
        ("('x'):rep(7)", 29),
    ] {
        for power in more..more + 8 {
            // From 2^31 on a count is negative or 0, as in Lua 5.1.
            let end = if power < 31 { End::Error } else { End::Reply };
            add(end, format!("return string.rep({first}, 2^{power})"));
            add(
                End::Limit,
                format!("while true do pcall(string.rep, {first}, 2^{power}) end"),
            );
        }
    }
    for size in [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000] {
        for grown in [
            format!("local t = {{}} while true do t[#t + 1] = string.rep('x', {size}) .. #t end"),
            format!(
                "local t = {{}} while true do pcall(function() while true do t[#t + 1] = string.rep('y', {size}) .. #t end end) end"
            ),
            format!("local t = {{}} for i = 1, 1e9 do t[string.rep('k', {size}) .. i] = i end"),
            format!("local s = string.rep('x', {size}) while true do s = s .. s end"),
            format!(
                "local t = {{}} while true do t = {{t, string.rep('z', {size}) .. '!', {{}}}} end"
            ),
            format!(
                "redis.call('SET', 'k', 1) local s, t = string.rep('x', {size}), {{}} for i = 1, 1e9 do t[i] = s .. i end"
            ),
        ] {
            add(End::Limit, grown);
        }
    }
    for power in 20..26 {
        let s = format!("local s = string.rep('x', 2^{power})");
        let count = 1 << (27 - power);
        for used in [
            format!("{s} local t = {{}} for i = 1, {count} do t[i] = s end return table.concat(t)"),
            format!("{s} local t = {{}} for i = 1, {count} do t[i] = s end return cjson.encode(t)"),
            format!(
                "{s} local t = {{}} for i = 1, {count} do t[i] = s end return cmsgpack.pack(t)"
            ),
            format!(
                "{s} local t = {{}} for i = 1, {count} do t[i] = s end return string.format(string.rep('%s', {count}), unpack(t))"
            ),
            format!(
                "{s} local t = {{}} for i = 1, {count} do t[i] = s end return redis.call('ECHO', unpack(t))"
            ),
            format!("{s} local t = {{}} for i = 1, {count} do t[i] = s end return t"),
            format!("{s} return string.gsub(s, '.', s)"),
            format!("{s} return string.gsub(s, '.', function() return s end)"),
            format!("{s} local t = {{s}} for i = 1, 40 do t = {{t, t}} end return cjson.encode(t)"),
            format!("{s} local t = {{s}} for i = 1, 40 do t = {{t, t}} end return t"),
            format!("{s} redis.call('SET', 'k', s:sub(1, 1000)) while true do s = s .. s end"),
        ] {
            add(End::Limit, used);
        }
        // Tables that are nested more deeply become nil in MessagePack.
        add(
            End::Reply,
            format!(
                "{s} local t = {{s}} for i = 1, 40 do t = {{t, t}} end return cmsgpack.pack(t)"
            ),
        );
        add(End::Error, format!("{s} error(s)"));
        add(End::Error, format!("{s} error({{err = s}})"));
        add(End::Error, format!("{s} return {{err = s}}"));
        add(End::Error, format!("{s} return redis.error_reply(s)"));
        add(
            End::Error,
            format!("{s} return string.find(s, string.rep('[ab]*', 2^10))"),
        );
        add(
            End::Error,
            format!(
                "{s} return string.match(s, string.rep('x?', 1000) .. string.rep('x', 1000) .. 'y')"
            ),
        );
        add(
            End::Error,
            format!("{s} return struct.unpack(string.rep('c1', 2^20), s), error('behind')"),
        );
        add(End::Error, format!("{s} return cjson.decode('[' .. s)"));
    }
    for count in [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000] {
        for deep in [
            format!("return cjson.decode(string.rep('[', {count}))"),
            format!("return cjson.decode(string.rep('{{\"a\":', {count}))"),
            format!("return cmsgpack.unpack(string.rep('\\145', {count}))"),
            format!("local t = {{}} for i = 1, {count} do t = {{t}} end return cjson.encode(t)"),
            format!("return struct.pack('c{count}', 'x'), error('behind')"),
            format!("return redis.call('GET', unpack({{}}, 1, {count}))"),
            format!("return unpack({{}}, 1, {count}), error('behind')"),
            format!(
                "local function f(n) if n == 0 then error('end') end return 1 + f(n - 1) end return f({count})"
            ),
            format!(
                "local function f(n) if n == 0 then error('end') end pcall(f, n - 1) error('on') end return f({count})"
            ),
            format!(
                "local t = {{}} for i = 1, {count} do t[i] = {count} - i end table.sort(t, function() return true end) error('sorted')"
            ),
            format!(
                "local t = {{}} for i = 1, {count} do t[i] = i % 7 end table.sort(t, function(a, b) return a <= b end) error('sorted')"
            ),
            format!("local f f = function(...) return f(1, ...) end return f({count})"),
        ] {
            add(End::Error, deep);
        }
        add(
            End::Reply,
            format!("local t = {{}} for i = 1, {count} do t = {{t}} end return t"),
        );
        add(
            End::Reply,
            format!("return cmsgpack.pack(string.rep('x', {count} / 10))"),
        );
        add(
            End::Reply,
            format!("local t = {{}} for i = 1, {count} / 10 do t[i] = i end return t"),
        );
    }
    for depth in 1..12 {
        let inner = "(".repeat(depth * depth * depth * 60);
        add(
            End::Error,
            format!("return {inner}1{}", ")".repeat(inner.len() + 1)),
        );
        add(End::Error, format!("return {}", "{".repeat(inner.len())));
        add(
            End::Error,
            format!("return '{}", "x".repeat(inner.len() * 20)),
        );
        add(
            End::Error,
            format!("local a = {}nil return a.b", "nil or ".repeat(inner.len())),
        );
    }
    scripts
}

/// The observations of all scripts.
#[derive(Default)]
struct Seen {
    /// The longest overrun of the time limit, and the script that caused it.
    late: (Duration, String),
    /// The largest amount of memory that a script left in use, in bytes, and that script.
    left: (u64, String),
    /// The violations.
    wrong: Vec<String>,
}

impl Seen {
    /// Runs one script and checks its effects.
    fn suffer(
        &mut self,
        client: &mut Client<TcpStream>,
        (source, end): &(String, End),
        late: Duration,
    ) {
        let shown: String = source.chars().take(160).collect();
        let log = client.figure("log_log_bytes");
        let before = loop_seconds(client);
        let reply = client.call(&[b"EVAL", source.as_bytes(), b"0"]);
        let took = Duration::from_secs_f64((loop_seconds(client) - before).max(0.0));
        let text: String = reply.chars().take(200).collect();
        assert_eq!(client.send("PING"), "+PONG", "after {shown}");
        let ended = text.starts_with("-ERR the script was ended: ");
        let as_told = match end {
            End::Time => text.contains("1000 ms allowed"),
            End::Limit => ended,
            End::Error => text.starts_with('-'),
            End::Reply => true,
        };
        let mut check = |holds: bool, what: &dyn Fn() -> String| {
            if !holds {
                self.wrong.push(format!("{shown}: {}", what()));
            }
        };
        check(as_told, &|| format!("{end:?} was awaited, not {text}"));
        check(took < LIMIT + late, &|| format!("it took {took:?}"));
        if ended {
            let (kept, logged) = (
                client.send("EXISTS k"),
                client.figure("log_log_bytes") - log,
            );
            check(kept == ":0", &|| String::from("it has left a key"));
            // An idle log gets a beacon, which is the head of a frame.
            check(logged == 0 || logged == BEACON_BYTES, &|| {
                format!("{logged} bytes were logged")
            });
        }
        client.send("DEL k");
        let left = client.figure("used_memory_vm_eval");
        let behind = took.saturating_sub(LIMIT);
        if behind > self.late.0 {
            self.late = (behind, shown.clone());
        }
        if left > self.left.0 {
            self.left = (left, shown);
        }
    }
}

#[test]
fn hostile_scripts_end_cleanly_and_leave_nothing() {
    // Clients get a large share of memory, because some replies are long.
    let running = start_with(ServerOptions {
        client_share: ClientShare::Percent(50),
        ..local()
    });
    let mut client = running.connect();
    assert_eq!(client.call(&[b"EVAL", b"return 1", b"0"]), ":1");
    let new = client.figure("used_memory_vm_eval");
    let mut scripts = all();
    assert!(scripts.len() >= SCRIPTS_MIN, "{}", scripts.len());
    let whole = std::env::var("PERDURA_HOSTILE").is_ok_and(|which| which == "all");
    let late = if whole { LATE } else { LATE_BESIDE_OTHERS };
    if !whole {
        fastrand::Rng::with_seed(3).shuffle(&mut scripts);
        let mut endless = 0;
        scripts.retain(|(_, end)| {
            endless += usize::from(*end == End::Time);
            *end == End::Error || (*end == End::Time && endless <= SAMPLED_ENDLESS)
        });
        scripts.truncate(SAMPLED);
    }
    let mut seen = Seen::default();
    for script in &scripts {
        seen.suffer(&mut client, script, late);
    }
    let (late, left) = (seen.late, seen.left);
    eprintln!(
        "{} scripts; the latest ended {:?} behind the limit ({}); the most memory left is {} KiB above the {} KiB of a new \
         machine ({})",
        scripts.len(),
        late.0,
        late.1,
        left.0.saturating_sub(new) >> 10,
        new >> 10,
        left.1
    );
    assert!(seen.wrong.is_empty(), "{}", seen.wrong.join("\n"));
    assert!(
        left.0 <= new + LEFT_BYTES,
        "{} bytes after {}",
        left.0,
        left.1
    );
}
