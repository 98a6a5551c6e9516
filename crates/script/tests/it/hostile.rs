//! Scripts that try to break out, to run forever, or to take all resources. Each must end with an error in time and
//! free its memory. The next script must then run.

use crate::{Bench, limits};
use perdura_script::{Code, Failure, Input, Limits, sha1_hex};
use std::time::{Duration, Instant};

/// The maximum excess over a run's time limit.
const LATE: Duration = Duration::from_millis(100);

/// The maximum number of tries of a run. One try that ends in time suffices, because other tests may slow the computer
/// down.
const TRIES: usize = 3;

/// Returns the processor time of this thread. The time limit of scripts counts this time.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time")
}

/// Runs a script that must fail in time, by its own error or by a limit. Returns the failure.
fn ends(bench: &mut Bench, source: &str) -> Failure {
    let most = bench.runtime.limits().time + LATE;
    let mut tries = (1..=TRIES).map(|nth| {
        let begin = thread_time();
        let ran = bench.run(source);
        (nth, thread_time() - begin, ran)
    });
    let in_time = tries.find(|(nth, took, _)| *took < most || *nth == TRIES);
    let (_, took, ran) = in_time.expect("there is a last try");
    assert!(took < most, "{source} took {took:?}");
    let failure = ran.expect_err(source);
    assert_eq!(bench.run("return 1"), Ok(":1\r\n".into()), "after {source}");
    let left = bench.runtime.memory_bytes();
    assert!(left < 2 << 20, "{source} leaves {left} bytes");
    failure
}

/// Runs a script that must exceed a limit. The text of the error must contain `limit`.
fn is_ended(bench: &mut Bench, source: &str, limit: &str) {
    match ends(bench, source) {
        Failure::Limit(text) => assert!(text.contains(limit), "{source}: {text}"),
        other => panic!("{source} ends with {other:?}"),
    }
}

#[test]
fn loops_end_in_time() {
    let mut bench = Bench::new();
    for source in [
        "while true do end",
        "repeat until false",
        "for i = 1, 1e18 do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) pcall(f) return f() end f()",
        "while true do pcall(error, 'x') end",
        "while true do xpcall(function() error('x') end, function() while true do end end) end",
        "while true do redis.pcall('nope') end",
        "while true do pcall(redis.call, 'nope') end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
        "table.sort({1,2,3,4,5}, function() while true do end end)",
        "string.gsub('x', '.', function() while true do end end)",
        "for w in string.gmatch(string.rep('a', 100), '.') do while true do end end",
        "string.find(string.rep('a', 5000), '.-.-.-.-.-.-b')",
        "string.match(string.rep('a', 30000), '(.-)(.-)(.-)(.-)b')",
        "string.find(string.rep('a', 1e5), string.rep('a?', 30) .. string.rep('a', 30) .. 'b')",
        "local t = {} for i = 1, 2000000 do t[i] = (i * 7919) % 1000003 end table.sort(t) while true do end",
        "local s = string.rep('a', 2^22) while true do s:lower() end",
        "while true do cjson.decode(cjson.encode({1, {a = 2}})) end",
        "local f f = function() return pcall(f) end while true do f() end",
        "while true do string.format('%s', {}) end",
        "while true do tostring(setmetatable({}, {__tostring = function() while true do end end})) end",
        "return setmetatable({}, {__index = function() while true do end end}).x",
        "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 0) end",
    ] {
        is_ended(&mut bench, source, "150 ms allowed");
    }
}

#[test]
fn time_in_which_a_script_does_not_run_does_not_count() {
    let mut bench = Bench::new();
    let source = "redis.call('REST') for i = 1, 1000 do end return 1";
    assert_eq!(bench.run(source), Ok(":1\r\n".into()));
    assert!(bench.runtime.spent() < limits().time);
    let source = "redis.call('REST') while true do end";
    let ended = bench.run(source);
    // `spent` returns the time of the newest run, so it is called before the next run.
    let spent = bench.runtime.spent();
    assert!(spent >= limits().time, "{spent:?}");
    assert!(ended.is_err(), "{ended:?}");
    is_ended(&mut bench, source, "150 ms allowed");
}

#[test]
fn memory_ends() {
    // Debug builds take long to fill the memory.
    let time = Duration::from_secs(10);
    let mut bench = Bench::with(Limits { time, ..limits() });
    for source in [
        "return string.rep('x', 2^30)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do pcall(function() for i = 1, 1e9 do t[#t + 1] = string.rep('x', 1000) .. i end end) end",
        "while true do pcall(string.rep, 'x', 2^30) end",
        "local s = string.rep('x', 2^20) local t = {} for i = 1, 1000 do t[i] = s end return table.concat(t)",
        "local t = {string.rep('x', 2^16)} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
        "local t = {string.rep('x', 2^20)} for i = 1, 14 do t = {t, t} end return cmsgpack.pack(t)",
        "return struct.pack('c1000000000', 'x')",
        "local s = string.rep('x', 2^23) redis.call('ECHO', s, s, s, s, s, s, s, s, s, s)",
        "local s = string.rep('x', 2^23) return string.gsub(s, '.', s)",
        "return string.format(string.rep('%s', 100), unpack((function() local t, s = {}, string.rep('x', 2^22) for i = 1, 100 do t[i] = s end return t end)()))",
        "xpcall(function() return string.rep('x', 2^30) end, function() return 1 end) return 1",
    ] {
        is_ended(&mut bench, source, "memory");
    }
    let long = "local s = string.rep('x', 2^24) return {s, s, s, s, s}";
    is_ended(&mut bench, long, "its reply is longer");
}

#[test]
fn garbage_does_not_use_up_the_memory() {
    let mut bench = Bench::with(Limits {
        time: Duration::from_secs(10),
        ..limits()
    });
    let source =
        "local s = string.rep('a', 2^22) for i = 1, 100 do local t = {s .. i, {}} end return 1";
    assert_eq!(bench.run(source), Ok(":1\r\n".into()));
}

#[test]
fn what_fails_by_itself_fails_with_a_text() {
    let mut bench = Bench::new();
    for source in [
        "local function f() return 1 + f() end return f()",
        "local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() return true end) error('sorted')",
        "table.sort({3, 1, 'x'})",
        "return string.rep('x', -1):rep(1e9) .. nil",
        "return ('x'):rep(1e8, 'y'):nope()",
        "return loadstring('while true do end')()",
        "return coroutine.wrap(function() end)()",
        "return io.open('/etc/passwd')",
        "return require('os')",
        "return getfenv(0)",
        "setmetatable(_G, nil)",
        "return debug.getregistry()",
        "return string.dump(function() end)",
        "local t = setmetatable({}, {}) setmetatable(t, {__index = t}) return t.x.y",
        "return string.find(string.rep('a', 2^22), string.rep('[ab]*', 2^10))",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "return unpack({}, 1, 1e8)",
        "return string.char(256)",
        "return string.format('%999999d', 1)",
        "return (('('):rep(100000))()",
    ] {
        let failure = ends(&mut bench, source);
        assert!(!matches!(failure, Failure::Halted), "{source}");
    }
    let deep = format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    ends(&mut bench, &deep);
    let long = format!("return '{}'", "x".repeat(2 << 20));
    ends(&mut bench, &long);
    // A plain search of long strings is linear.
    let plain = "return string.find(string.rep('a', 2^22), string.rep('a', 2^20) .. 'b', 1, true)";
    assert_eq!(bench.run(plain), Ok("$-1\r\n".into()));
}

#[test]
fn a_host_that_halts_cannot_be_stopped_by_pcall() {
    let mut bench = Bench::new();
    for source in [
        "redis.call('HALT')",
        "redis.pcall('HALT') return 1",
        "pcall(redis.call, 'HALT') return 1",
        "pcall(function() redis.call('HALT') end) redis.call('ECHO', 'after') return 1",
        "xpcall(function() redis.call('HALT') end, function() redis.call('ECHO', 'after') end) return 1",
        "while true do pcall(redis.call, 'HALT') end",
    ] {
        assert_eq!(bench.run(source), Err(Failure::Halted), "{source}");
    }
    assert!(
        !bench.host.seen.iter().any(|seen| seen.contains("after")),
        "{:?}",
        bench.host.seen
    );
}

#[test]
fn the_text_of_an_error_is_cut_off() {
    let mut bench = Bench::new();
    let text = bench.error("error({err = string.rep('x', 2^22)})");
    assert!(text.len() < (64 << 10) + 100, "{}", text.len());
    assert!(
        text.ends_with("x script: SHA, on @user_script:1."),
        "{}",
        &text[text.len() - 100..]
    );
}

#[test]
fn a_panic_of_the_host_goes_on_behind_the_machine() {
    for source in ["redis.call('PANIC')", "pcall(redis.call, 'PANIC') return 1"] {
        let mut bench = Bench::new();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.run(source)));
        let panic = ran.expect_err("the panic");
        assert_eq!(panic.downcast_ref(), Some(&"the host has panicked"));
    }
}

#[test]
fn an_attempt_has_the_time_that_earlier_ones_left() {
    let time = Duration::from_secs(60);
    let mut bench = Bench::with(Limits { time, ..limits() });
    let text = b"while true do end";
    let code = Code {
        sha: &sha1_hex(text),
        text,
    };
    for spent in [time - Duration::from_millis(50), time, 2 * time] {
        let input = Input {
            keys: &[],
            args: &[],
            seed: 0,
            resp3: false,
            spent,
        };
        let begin = Instant::now();
        let ran = bench
            .runtime
            .run_script(&code, input, &mut bench.host, &mut Vec::new());
        let took = begin.elapsed();
        assert!(matches!(ran, Err(Failure::Limit(_))), "{ran:?}");
        assert!(took < time / 2, "{took:?} after {spent:?}");
    }
}
