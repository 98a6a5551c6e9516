//! Tests of the values passed to scripts, and of the replies made from results.

use crate::{Bench, bulk};
use perdura_script::{Code, Failure, Header, Input, sha1_hex};
use std::time::Duration;

#[test]
fn values_become_replies() {
    let mut bench = Bench::new();
    let cases = [
        ("return 1", ":1\r\n"),
        ("return 3.99", ":3\r\n"),
        ("return -1.7", ":-1\r\n"),
        ("return 'a'", "$1\r\na\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        ("return", "$-1\r\n"),
        ("return {1,2,nil,4}", "*2\r\n:1\r\n:2\r\n"),
        ("return {ok='fine'}", "+fine\r\n"),
        ("return {err='bad'}", "-bad\r\n"),
        ("return {ok=5}", "*0\r\n"),
        (
            "return {'a',1.5,{err='inner'}}",
            "*3\r\n$1\r\na\r\n:1\r\n-inner\r\n",
        ),
        ("return {double=3.5}", "$3\r\n3.5\r\n"),
        ("return {big_number='123'}", "$3\r\n123\r\n"),
        ("return {map={a=1}}", "*2\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "*1\r\n$1\r\na\r\n"),
        (
            "return {verbatim_string={string='x',format='txt'}}",
            "$1\r\nx\r\n",
        ),
        ("return function() end", "$-1\r\n"),
        ("return redis.error_reply('abc')", "-ERR abc\r\n"),
        ("return redis.error_reply('ERR abc')", "-ERR abc\r\n"),
        (
            "return redis.error_reply({})",
            "-ERR wrong number or type of arguments\r\n",
        ),
        ("return redis.status_reply('a\\nb')", "+a b\r\n"),
        ("redis.setresp(3) return false", ":0\r\n"),
        ("return #ARGV", ":0\r\n"),
        ("return 0/0", ":-9223372036854775808\r\n"),
    ];
    for (source, reply) in cases {
        assert_eq!(bench.run(source).as_deref(), Ok(reply), "{source}");
    }
}

#[test]
fn resp3_has_its_own_types() {
    let mut bench = Bench::new();
    let cases = [
        ("return true", ":1\r\n"),
        ("return false", "_\r\n"),
        ("redis.setresp(3) return true", "#t\r\n"),
        ("redis.setresp(3) return false", "#f\r\n"),
        ("return {double=3.5}", ",3.5\r\n"),
        ("return {double=-2}", ",-2\r\n"),
        ("return {big_number='12\\n3'}", "(12 3\r\n"),
        ("return {map={a=1}}", "%1\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "~1\r\n$1\r\na\r\n"),
        (
            "return {verbatim_string={string='x',format='markdown'}}",
            "=5\r\nmar:x\r\n",
        ),
        (
            "redis.setresp(3) return redis.call('RAW', '%1\\r\\n+a\\r\\n#t\\r\\n')",
            "%1\r\n+a\r\n#t\r\n",
        ),
        (
            "redis.setresp(3) return redis.call('RAW', '_\\r\\n')",
            "_\r\n",
        ),
        (
            "redis.setresp(3) return redis.call('RAW', ',1.5\\r\\n').double * 2",
            ":3\r\n",
        ),
        (
            "redis.setresp(3) return redis.call('RAW', '=5\\r\\ntxt:x\\r\\n').verbatim_string.format",
            "$3\r\ntxt\r\n",
        ),
    ];
    for (source, reply) in cases {
        assert_eq!(
            bench.run_with(source, &[], &[], true).as_deref(),
            Ok(reply),
            "{source}"
        );
    }
}

#[test]
fn commands_get_their_words_and_scripts_the_replies() {
    let mut bench = Bench::new();
    let source = "return {redis.call('ECHO', KEYS[1]), redis.call('ECHO', ARGV[2]), redis.call('ECHO', 0.1)}";
    let reply = bench.run_with(source, &["k"], &["a", "b"], false);
    let wanted = format!(
        "*3\r\n{}{}{}",
        bulk("k"),
        bulk("b"),
        bulk("0.10000000000000001")
    );
    assert_eq!(reply, Ok(wanted));
    assert_eq!(bench.host.seen[0], "Command { resp3: false } ECHO k");
    assert_eq!(
        bench.run("return redis.call('RAW', '$-1\\r\\n') == false"),
        Ok(":1\r\n".into())
    );
    assert_eq!(
        bench.run("return redis.call('RAW', '*2\\r\\n:1\\r\\n+x\\r\\n')[2].ok"),
        Ok(bulk("x"))
    );
    assert_eq!(
        bench.run("return redis.pcall('nope').err"),
        Ok(bulk("ERR unknown"))
    );
    let caught = "local ok, e = pcall(redis.call, 'nope') return {tostring(ok), e}";
    assert_eq!(
        bench.run(caught),
        Ok(format!("*2\r\n{}{}", bulk("false"), bulk("ERR unknown")))
    );
}

#[test]
fn errors_have_the_texts_of_redis() {
    let mut bench = Bench::new();
    let cases = [
        (
            "return redis.call('nope')",
            "ERR unknown script: SHA, on @user_script:1.",
        ),
        (
            "error('boom')",
            "ERR user_script:1: boom script: SHA, on @user_script:1.",
        ),
        (
            "\n\nerror('boom', 0)",
            "ERR boom script: SHA, on @user_script:3.",
        ),
        (
            "error({err='My thing'})",
            "My thing script: SHA, on @user_script:1.",
        ),
        ("error()", "ERR nil script: SHA, on @user_script:1."),
        (
            "x = 1",
            "ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.",
        ),
        (
            "redis.x = 1",
            "ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.",
        ),
        (
            "return\nx",
            "ERR user_script:2: Script attempted to access nonexistent global variable 'x' script: SHA, on \
             @user_script:2.",
        ),
        (
            "return redis.call({})",
            "ERR Lua redis lib command arguments must be strings or integers script: SHA, on @user_script:1.",
        ),
        (
            "return redis.call()",
            "ERR Please specify at least one argument for this redis lib call script: SHA, on @user_script:1.",
        ),
        (
            "return redis.sha1hex()",
            "ERR wrong number of arguments script: SHA, on @user_script:1.",
        ),
        (
            "redis.log(1)",
            "ERR redis.log() requires two arguments or more. script: SHA, on @user_script:1.",
        ),
        (
            "redis.setresp(4)",
            "ERR RESP version must be 2 or 3. script: SHA, on @user_script:1.",
        ),
        (
            "local function f() return f()+1 end return f()",
            "ERR user_script:1: stack overflow script: SHA, on @user_script:1.",
        ),
        (
            "return cjson.decode('[1,2')",
            "ERR user_script:1: Expected comma or array end but found T_END at character 5 script: SHA, on \
             @user_script:1.",
        ),
    ];
    for (source, text) in cases {
        assert_eq!(bench.error(source), text, "{source}");
    }
    assert!(
        bench.error("-1").starts_with("ERR Error compiling script"),
        "it does not go on our line"
    );
    let compiled = bench.error("return 1 +");
    assert!(
        compiled.starts_with("ERR Error compiling script (new function): user_script:1:"),
        "{compiled}"
    );
}

#[test]
fn nothing_leaves_the_sandbox_or_stays_in_it() {
    let mut bench = Bench::new();
    for name in [
        "os",
        "io",
        "debug",
        "require",
        "loadstring",
        "load",
        "collectgarbage",
        "getfenv",
        "setfenv",
        "newproxy",
        "coroutine",
        "dofile",
        "print",
        "gcinfo",
        "bit32",
        "utf8",
        "buffer",
        "vector",
        "KEYS2",
        "typeof",
    ] {
        let text = bench.error(&format!("return {name}"));
        assert!(
            text.contains("nonexistent global variable"),
            "{name}: {text}"
        );
    }
    for source in [
        "return bit32.band(1, 1)",
        "return typeof(1)",
        "return rawlen({})",
        "return math.sign(1)",
        "return table.unpack({1})",
        "return vector.create(1, 2, 3)",
        "rawset(_G, 'x', 1)",
        "_G.x = 1",
        "string.x = 1",
        "rawset(string, 'rep', 1)",
        "getmetatable('').__index = nil",
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "table.insert(redis, 1)",
        "cjson.encode = nil",
        "getmetatable(_G).__index = nil",
    ] {
        bench.error(source);
    }
    let shown = "return tostring({}) .. tostring(print_me or print) .. string.format('%s', {})";
    bench.error(shown);
    let shown =
        "return tostring({}) .. ' ' .. tostring(pcall) .. ' ' .. string.format('%s|%d', {}, 3)";
    assert_eq!(bench.run(shown), Ok(bulk("table function table|3")));
    assert_eq!(bench.run("return rawget(_G, 'x')"), Ok("$-1\r\n".into()));
}

#[test]
fn random_numbers_follow_the_seed() {
    let mut bench = Bench::new();
    let source = "return {math.random(1, 1000000), math.random(1, 1000000)}";
    let first = bench.run(source).expect("a reply");
    assert_eq!(bench.run(source).as_ref(), Ok(&first), "the same seed");
    // These are the numbers that Redis 7.0.15 draws.
    let seeded = "math.randomseed(42) return {math.random(1, 1000000), math.random(100), tostring(math.random(5))}";
    let drawn = bench.run(seeded).expect("a reply");
    assert_eq!(bench.run(seeded), Ok(drawn));
    assert!(
        bench
            .error("return math.random(0)")
            .contains("interval is empty")
    );
}

#[test]
fn functions_are_loaded_and_called() {
    let mut bench = Bench::new();
    let source = "#!lua name=lib\nlocal calls = 0\nlocal function f(keys, args)\n  calls = calls + 1\n  return \
                  {redis.call('ECHO', keys[1]), args[1], calls}\nend\nredis.register_function('f', f)\n\
                  redis.register_function{function_name='g', callback=function() return nope end, \
                  flags={'no-writes'}, description='says nothing'}\nredis.register_function('late', function() local \
                  r = redis return r.call('ECHO', 'late') end)";
    let header = Header::of_library(source.as_bytes()).expect("a header");
    assert_eq!(header.name, Some(&b"lib"[..]));
    let sha = sha1_hex(source.as_bytes());
    let code = Code {
        sha: &sha,
        text: &source.as_bytes()[header.code..],
    };
    let loaded = bench
        .runtime
        .load_library(&code, &mut bench.host)
        .expect("functions");
    let names: Vec<_> = loaded
        .iter()
        .map(|f| (f.name.as_str(), f.flags.no_writes))
        .collect();
    assert_eq!(names, [("f", false), ("g", true), ("late", false)]);
    let mut call = |name: &str| {
        let input = Input {
            keys: &[b"k"],
            args: &[b"a"],
            seed: 0,
            resp3: false,
            spent: Duration::ZERO,
        };
        let mut out = Vec::new();
        let ran = bench
            .runtime
            .run_function(&code, name, input, &mut bench.host, &mut out);
        ran.map(|()| String::from_utf8_lossy(&out).into_owned())
    };
    assert_eq!(call("late"), Ok(bulk("late")));
    assert_eq!(
        call("f"),
        Ok(format!("*3\r\n{}{}:1\r\n", bulk("k"), bulk("a")))
    );
    assert_eq!(
        call("f"),
        Ok(format!("*3\r\n{}{}:2\r\n", bulk("k"), bulk("a")))
    );
    let text = "ERR user_function:8: Script attempted to access nonexistent global variable 'nope' script: g, on \
                @user_function:8.";
    assert_eq!(call("g"), Err(Failure::Script(text.into())));
    bench.runtime.forget();
    let input = Input {
        keys: &[b"k"],
        args: &[],
        seed: 0,
        resp3: false,
        spent: Duration::ZERO,
    };
    let mut out = Vec::new();
    let ran = bench
        .runtime
        .run_function(&code, "f", input, &mut bench.host, &mut out);
    assert_eq!(ran, Ok(()), "loaded again");
}

#[test]
fn libraries_that_register_nothing_or_wrongly_are_refused() {
    let mut bench = Bench::new();
    let cases = [
        ("local a = 1", "ERR No functions registered"),
        (
            "redis.call('get','x')",
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable 'call'",
        ),
        (
            "redis.register_function('f-', function() end)",
            "ERR Error registering functions: ERR Library names can only contain letters, numbers, or underscores(_) \
             and must be at least one character long",
        ),
        (
            "redis.register_function('f', print)",
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable 'print'",
        ),
        (
            "redis.register_function('h', function() end) redis.register_function('h', function() end)",
            "ERR Error registering functions: ERR Function already exists in the library",
        ),
        (
            "redis.register_function{function_name='g', callback=function() end, flags={'no'}}",
            "ERR Error registering functions: ERR unknown flag given",
        ),
    ];
    for (body, text) in cases {
        let body = format!("\n{body}");
        let sha = sha1_hex(body.as_bytes());
        let code = Code {
            sha: &sha,
            text: body.as_bytes(),
        };
        let loaded = bench.runtime.load_library(&code, &mut bench.host);
        assert_eq!(loaded, Err(Failure::Script(text.into())), "{body}");
    }
}

#[test]
fn headers_are_judged_as_redis_does() {
    let script = |text: &'static str| Header::of_script(text.as_bytes()).map_err(|error| error.0);
    assert_eq!(script("return 1"), Ok(None));
    let flags = script("#!lua flags=no-writes,allow-oom\nreturn").expect("flags");
    let flags = flags.and_then(|header| header.flags).expect("flags");
    assert_eq!(
        flags.names().collect::<Vec<_>>(),
        ["no-writes", "allow-oom"]
    );
    for (text, error) in [
        ("#!lua name=x\n", "Unknown lua shebang option: name=x"),
        ("#!lua foo\n", "Unknown lua shebang option: foo"),
        (
            "#!lua flags=bad\n",
            "Unexpected flag in script shebang: bad",
        ),
        ("#!js\n", "Unexpected engine in script shebang: #!js"),
        ("#!lua", "Invalid script shebang"),
    ] {
        assert_eq!(script(text), Err(String::from(error)), "{text}");
    }
    let library = |text: &'static str| Header::of_library(text.as_bytes()).map_err(|error| error.0);
    for (text, error) in [
        ("x", "Missing library metadata"),
        ("#!lua name=a", "Invalid library metadata"),
        ("#!lua\nx", "Library name was not given"),
        ("#!js name=a\nx", "Engine 'js' not found"),
        (
            "#!lua name=a flags=no-writes\nx",
            "Invalid metadata value given: flags=no-writes",
        ),
    ] {
        assert_eq!(library(text), Err(String::from(error)), "{text}");
    }
}

#[test]
fn the_host_learns_once_that_a_run_is_long() {
    let mut bench = Bench::new();
    bench.run("return 1").expect("it runs");
    assert_eq!(bench.host.long, 0, "a short run");
    let spins = "for at = 1, 3000000 do end return 1";
    let asks = "for at = 1, 100000 do redis.call('ECHO', 'a') end return 1";
    for (nth, source) in [spins, asks, spins].into_iter().enumerate() {
        bench.run(source).expect("it runs");
        assert_eq!(bench.host.long, nth + 1, "{source}");
    }
    // A halted run leaves nothing behind.
    bench.run("redis.call('HALT')").expect_err("the host halts");
    bench.run("return 1").expect("it runs");
    assert_eq!(bench.host.long, 3);
}
