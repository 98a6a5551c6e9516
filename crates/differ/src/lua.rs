//! Random scripts for EVAL, and random libraries.
//!
//! The scripts use only features that `docs/redis.md` documents as equal to Redis. They do not use the order of
//! `pairs`, the texts of the language's own errors, or fractions converted to strings by `..`. If Redis defines no
//! order for a reply, the script sorts the reply.

use crate::words::choose;
use fastrand::Rng;

/// Commands that scripts call. A word after `'` is literal. Every other word is the name of a class, from which a word
/// is chosen.
const COMMANDS: [&str; 44] = [
    "'SET skey val",
    "'GET skey",
    "'GET key",
    "'INCRBY nkey small",
    "'INCR nkey",
    "'APPEND skey val",
    "'STRLEN skey",
    "'GETRANGE skey idx idx",
    "'SETNX skey val",
    "'DEL key key",
    "'EXISTS key key",
    "'TYPE key",
    "'EXPIRE key sec",
    "'PERSIST key",
    "'RENAME key key",
    "'COPY key key",
    "'HSET hkey field val",
    "'HGET hkey field",
    "'HINCRBY hkey field small",
    "'HMGET hkey field field",
    "'HDEL hkey field",
    "'HLEN hkey",
    "'LPUSH lkey val val",
    "'RPUSH lkey val",
    "'LPOP lkey",
    "'LRANGE lkey idx idx",
    "'LLEN lkey",
    "'LTRIM lkey idx idx",
    "'SADD tkey member member",
    "'SREM tkey member",
    "'SCARD tkey",
    "'SISMEMBER tkey member",
    "'ZADD zkey quarter member",
    "'ZSCORE zkey member",
    "'ZRANGE zkey idx idx",
    "'ZRANGE zkey idx idx 'WITHSCORES",
    "'ZREM zkey member",
    "'ZCARD zkey",
    "'ZINCRBY zkey small member",
    "'SELECT gooddb",
    "'PUBLISH chan val",
    "'PING",
    "'ECHO val",
    "'NOPE val",
];

/// Returns a string literal of Lua for these bytes.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'.' | b'-' | b'*' => {
                text.push(char::from(*byte))
            }
            _ => text += &format!("\\{byte:03}"),
        }
    }
    text.push('\'');
    text
}

fn word(class: &str, rng: &mut Rng) -> String {
    match class.strip_prefix('\'') {
        Some(word) => quoted(word.as_bytes()),
        None if class.ends_with("key") && rng.u8(..) < 100 => format!("KEYS[{}]", rng.u8(1..3)),
        None if matches!(class, "val" | "member" | "field") && rng.u8(..) < 60 => {
            format!("ARGV[{}]", rng.u8(1..3))
        }
        None if class == "small" => rng.i32(-3..12).to_string(),
        None => quoted(&choose(class, rng)),
    }
}

/// Returns an expression that calls a random command.
fn call(rng: &mut Rng) -> String {
    let command = COMMANDS[rng.usize(..COMMANDS.len())];
    let words: Vec<String> = command.split(' ').map(|class| word(class, rng)).collect();
    let how = ["call", "call", "pcall"][rng.usize(..3)];
    format!("redis.{how}({})", words.join(", "))
}

/// Returns an expression that uses the language and its libraries, but calls no command.
fn pure(rng: &mut Rng) -> String {
    let (n, m) = (rng.i32(-9..99), rng.i32(1..9));
    match rng.u8(..14) {
        0 => format!("cjson.encode({{{n}, {m}.5, 'x', {{a = {m}}}}})"),
        1 => format!("cjson.decode('[{n}, {{\"a\":[{m}]}}, null]')[2].a[1]"),
        2 => format!("cmsgpack.pack({n}, 'abc', {{{m}, {{{n}}}}}, {m}.25)"),
        3 => format!("cmsgpack.unpack(cmsgpack.pack({{{n}, {m}}}))"),
        4 => format!("struct.pack('>i4Bs', {n}, {m}, 'abc')"),
        5 => format!("bit.bxor(bit.lshift({n}, {m}), {m})"),
        6 => format!("string.rep('ab', {m}):upper()"),
        7 => format!("{n} % {m}"),
        8 => format!("math.floor({n} / {m})"),
        9 => format!("tostring({n} / {m})"),
        10 => format!("redis.sha1hex('{n}')"),
        11 => format!("string.format('%05d|%s|%x', {n}, '{m}', {m})"),
        12 => format!("(string.gsub('hello {n}', '%d', '<%0>'))"),
        _ => format!("{{{n}, 'two', {{ok = 'fine'}}, {m} > 4, {m}.75}}"),
    }
}

/// Returns a random statement.
fn statement(rng: &mut Rng, at: usize) -> String {
    match rng.u8(..20) {
        0..9 => format!("r[#r + 1] = {}", call(rng)),
        9..12 => format!("r[#r + 1] = {}", pure(rng)),
        12 => format!(
            "for i = 1, {} do r[#r + 1] = {} end",
            rng.u8(1..5),
            call(rng)
        ),
        13 => format!(
            "local v{at} = {} if v{at} then r[#r + 1] = {} end",
            call(rng),
            call(rng)
        ),
        14 => format!(
            "local ok{at}, e{at} = pcall(function() return {} end) r[#r + 1] = ok{at} and 1 or 0 r[#r + 1] = e{at}",
            call(rng)
        ),
        15 => format!("redis.setresp({})", rng.u8(2..4)),
        16 => format!(
            "if #ARGV > {} then r[#r + 1] = {} end",
            rng.u8(..3),
            call(rng)
        ),
        17 => format!("r[#r + 1] = tonumber({}) or 'none'", pure_number(rng)),
        18 if rng.u8(..) < 60 => String::from("error('stop')"),
        19 if rng.u8(..) < 60 => String::from("error({err = 'MYCODE stop'})"),
        _ => format!("r[#r + 1] = {}", call(rng)),
    }
}

fn pure_number(rng: &mut Rng) -> String {
    ["'12'", "'0x1f'", "'abc'", "' 7 '", "'1e3'", "''"][rng.usize(..6)].to_string()
}

/// Returns a script that uses up to two keys and two arguments.
pub fn script(rng: &mut Rng) -> Vec<u8> {
    let mut text = String::from("local r = {} ");
    for at in 0..rng.usize(1..6) {
        // Each statement has a separate line, because error texts contain the number of the line.
        text += &statement(rng, at);
        text.push('\n');
    }
    text += "return r";
    text.into_bytes()
}

/// Returns a library with one function. There are few different names, so libraries often collide.
pub fn library(rng: &mut Rng) -> Vec<u8> {
    let n = rng.u8(1..4);
    let flags = if rng.u8(..) < 80 {
        ", flags = {'no-writes'}"
    } else {
        ""
    };
    let body = script(rng);
    let body = String::from_utf8_lossy(&body)
        .replace("KEYS", "keys")
        .replace("ARGV", "args");
    let text = match rng.u8(..) {
        0..12 => String::from("#!lua\nreturn 1"),
        12..24 => format!("#!lua name=l{n}\nlocal a = 1"),
        24..36 => format!("#!lua name=l{n} flags=no-writes\nlocal a = 1"),
        _ => format!(
            "#!lua name=l{n}\nredis.register_function{{function_name = 'f{}', callback = function(keys, args) {body} \
             end{flags}}}",
            if rng.u8(..) < 40 { rng.u8(1..4) } else { n }
        ),
    };
    text.into_bytes()
}
