//! Safe versions of the functions that work on the virtual machine's stack. The tests below compare the results of the
//! safe functions and the stack functions. The safe versions convert values to replies and replies to values through
//! mlua's handles, which is slow.

use crate::bridge::Bridge;
use crate::host::{Ask, Halt, Host, Words};
use crate::libraries::number;
use crate::run::Input;
use crate::vm::Vm;
use crate::watchdog::Watchdog;
use fastrand::Rng;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::rc::Rc;
use std::time::Duration;

/// Appends a value as a reply. For this value, `from_lua` must append equal bytes.
fn encode(value: &Value, (client, script): (bool, bool), out: &mut Vec<u8>) {
    let nothing: &[u8] = if client { b"_\r\n" } else { b"$-1\r\n" };
    match value {
        Value::String(text) => bulk(&text.as_bytes(), out),
        Value::Integer(n) => out.extend_from_slice(format!(":{n}\r\n").as_bytes()),
        Value::Number(n) => {
            out.extend_from_slice(format!(":{}\r\n", number::truncate(*n)).as_bytes())
        }
        Value::Boolean(yes) => out.extend_from_slice(match (script, client, yes) {
            (true, true, true) => b"#t\r\n",
            (true, true, false) => b"#f\r\n",
            (_, _, true) => b":1\r\n",
            (true, false, false) => b":0\r\n",
            (false, _, false) => nothing,
        }),
        Value::Table(table) => encode_table(table, (client, script), out),
        _ => out.extend_from_slice(nothing),
    }
}

fn bulk(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    let blank = |b: &u8| if matches!(b, b'\r' | b'\n') { b' ' } else { *b };
    out.extend(text.iter().map(blank));
    out.extend_from_slice(b"\r\n");
}

fn encode_table(table: &Table, protocol: (bool, bool), out: &mut Vec<u8>) {
    let field = |name: &str| table.raw_get::<Value>(name).expect("a field");
    let resp3 = protocol.0;
    if let Value::String(text) = field("err") {
        return line(b'-', &text.as_bytes(), out);
    }
    if let Value::String(text) = field("ok") {
        return line(b'+', &text.as_bytes(), out);
    }
    let double = match field("double") {
        Value::Integer(n) => Some(crate::to_lua::as_double(n)),
        Value::Number(n) => Some(n),
        _ => None,
    };
    if let Some(n) = double {
        let mut text = Vec::new();
        number::push_general(&mut text, n, 17);
        return if resp3 {
            line(b',', &text, out)
        } else {
            bulk(&text, out)
        };
    }
    for (name, kind) in [("map", b'%'), ("set", b'~')] {
        if let Value::Table(inner) = field(name) {
            let pairs: Vec<(Value, Value)> =
                inner.pairs().map(|pair| pair.expect("a pair")).collect();
            let items = pairs.len() * if name == "map" && !resp3 { 2 } else { 1 };
            let kind = if resp3 { kind } else { b'*' };
            out.extend_from_slice(format!("{}{items}\r\n", char::from(kind)).as_bytes());
            for (key, value) in pairs {
                encode(&key, protocol, out);
                if name == "map" {
                    encode(&value, protocol, out);
                }
            }
            return;
        }
    }
    if let Value::String(text) = field("big_number") {
        return if resp3 {
            line(b'(', &text.as_bytes(), out)
        } else {
            bulk(&text.as_bytes(), out)
        };
    }
    if let Value::Table(verbatim) = field("verbatim_string") {
        let part = |name: &str| verbatim.raw_get::<Value>(name).expect("a field");
        if let (Value::String(format), Value::String(string)) = (part("format"), part("string")) {
            let (format, string) = (format.as_bytes().to_vec(), string.as_bytes().to_vec());
            if !resp3 {
                return bulk(&string, out);
            }
            let name: Vec<u8> = (0..3)
                .map(|at| *format.get(at).unwrap_or(&b"txt"[at]))
                .collect();
            out.extend_from_slice(format!("={}\r\n", string.len() + 4).as_bytes());
            out.extend_from_slice(&[&name[..], b":", &string[..], b"\r\n"].concat());
            return;
        }
    }
    let items: Vec<Value> = (1..)
        .map(|index| table.raw_get::<Value>(index).expect("an item"))
        .take_while(|item| !item.is_nil())
        .collect();
    out.extend_from_slice(format!("*{}\r\n", items.len()).as_bytes());
    items.iter().for_each(|item| encode(item, protocol, out));
}

/// Converts a reply to a value. For this reply, `to_lua` must push an equal value. Also returns the bytes after the
/// reply.
fn decode<'r>(lua: &Lua, reply: &'r [u8], resp3: bool) -> (Value, &'r [u8]) {
    let end = reply
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .expect("a line");
    let (kind, head, rest) = (reply[0], &reply[1..end], &reply[end + 2..]);
    let text = |bytes: &[u8]| Value::String(lua.create_string(bytes).expect("a string"));
    let named = |name: &str, value: Value| {
        let table = lua.create_table().expect("a table");
        table.raw_set(name, value).expect("a field");
        Value::Table(table)
    };
    let number = || {
        std::str::from_utf8(head)
            .expect("digits")
            .parse::<i64>()
            .expect("a number")
    };
    let nothing = || {
        if resp3 {
            Value::Nil
        } else {
            Value::Boolean(false)
        }
    };
    let split = || {
        let (bytes, rest) = rest.split_at(usize::try_from(number()).expect("a length"));
        (bytes, &rest[2..])
    };
    match kind {
        b'+' => (named("ok", text(head)), rest),
        b'-' => (named("err", text(head)), rest),
        b':' => (Value::Number(crate::to_lua::as_double(number())), rest),
        b'#' => (Value::Boolean(head == b"t"), rest),
        b',' => {
            let n = std::str::from_utf8(head)
                .expect("ASCII")
                .parse()
                .unwrap_or(f64::NAN);
            (named("double", Value::Number(n)), rest)
        }
        b'(' => (named("big_number", text(head)), rest),
        b'_' => (nothing(), rest),
        b'$' | b'*' if head == b"-1" => (nothing(), rest),
        b'$' => {
            let (bytes, rest) = split();
            (text(bytes), rest)
        }
        b'=' => {
            let (bytes, rest) = split();
            let inner = lua.create_table().expect("a table");
            inner.raw_set("format", text(&bytes[..3])).expect("a field");
            inner.raw_set("string", text(&bytes[4..])).expect("a field");
            (named("verbatim_string", Value::Table(inner)), rest)
        }
        _ => {
            // The order of a table's pairs depends on its allocated room, so both versions must allocate the same room.
            let room = if matches!(kind, b'~' | b'%') {
                number()
            } else {
                0
            };
            let room = usize::try_from(room).expect("a length");
            let table = lua.create_table_with_capacity(0, room).expect("a table");
            let mut rest = rest;
            let mut next = || {
                let (value, behind) = decode(lua, rest, resp3);
                rest = behind;
                value
            };
            for index in 1..=number() {
                let first = next();
                match kind {
                    b'~' => table.raw_set(first, true).expect("a member"),
                    b'%' => table.raw_set(first, next()).expect("a pair"),
                    _ => table.raw_set(index, first).expect("an item"),
                }
            }
            let value = match kind {
                b'~' => named("set", Value::Table(table)),
                b'%' => named("map", Value::Table(table)),
                _ => Value::Table(table),
            };
            (value, rest)
        }
    }
}

/// Makes a random value of any type.
fn any(lua: &Lua, rng: &mut Rng, depth: u32) -> Value {
    let text = |rng: &mut Rng| {
        let bytes: Vec<u8> = (0..rng.usize(..30)).map(|_| rng.u8(..)).collect();
        Value::String(lua.create_string(bytes).expect("a string"))
    };
    match rng.u8(..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Nil,
        1 => Value::Boolean(rng.bool()),
        2 => Value::Number(f64::from(rng.i32(..)) / [1.0, 3.0][rng.usize(..2)]),
        3 => Value::Number([-0.0, 1e300, f64::NAN, f64::NEG_INFINITY][rng.usize(..4)]),
        4 | 5 => text(rng),
        _ => {
            let table = lua.create_table().expect("a table");
            for index in 1..=rng.i64(..5) {
                table
                    .raw_set(index, any(lua, rng, depth - 1))
                    .expect("an item");
            }
            let names = [
                "err",
                "ok",
                "double",
                "map",
                "set",
                "big_number",
                "verbatim_string",
                "format",
                "string",
                "x",
            ];
            for _ in 0..rng.usize(..3) {
                let name = names[rng.usize(..names.len())];
                table
                    .raw_set(name, any(lua, rng, depth - 1))
                    .expect("a field");
            }
            Value::Table(table)
        }
    }
}

/// Appends a random reply of any type. Its sets and maps have neither equal keys nor null keys.
fn any_reply(rng: &mut Rng, depth: u32, out: &mut Vec<u8>) {
    let kind = rng.u8(..if depth == 0 { 10 } else { 14 });
    let simple: [&[u8]; 10] = [
        b"+OK\r\n",
        b"-ERR x y\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"$5\r\na\r\nb\0\r\n",
    ];
    match simple.get(usize::from(kind)) {
        Some(reply) => out.extend_from_slice(reply),
        None => {
            let (head, len) = (
                [b'*', b'~', b'%', b'*'][usize::from(kind) - 10],
                rng.usize(..5),
            );
            out.extend_from_slice(format!("{}{len}\r\n", char::from(head)).as_bytes());
            for at in 0..len {
                if head != b'*' {
                    out.extend_from_slice(format!("$2\r\nk{at}\r\n").as_bytes());
                }
                if head != b'~' {
                    any_reply(rng, depth - 1, out);
                }
            }
        }
    }
}

/// A host that always returns one fixed reply.
struct Says(Vec<u8>);

impl Host for Says {
    fn call(&mut self, _: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt> {
        assert_eq!(words.iter().collect::<Vec<_>>(), [&b"word"[..], b"-2.5"]);
        reply.extend_from_slice(&self.0);
        Ok(())
    }
}

struct Bench {
    vm: Vm,
    _watchdog: Watchdog,
}

impl Bench {
    fn new() -> Self {
        let mut watchdog = Watchdog::start();
        let vm = Vm::new(watchdog.flag(), 64 << 20).expect("a machine");
        let run = watchdog.begin(Duration::from_secs(600)).expect("a thread");
        vm.shared.begin(run, 1, 0, usize::MAX);
        Bench {
            vm,
            _watchdog: watchdog,
        }
    }

    /// Returns the native function called `name`.
    fn native(&self, name: &str) -> Function {
        self.vm.host.raw_get(name).expect("a function")
    }

    fn bridge(&self) -> &Rc<Bridge> {
        &self.vm.bridge
    }
}

const RUNS: u64 = 3000;

#[test]
fn values_become_the_replies_of_the_safe_twin() {
    let bench = Bench::new();
    let done = bench.native("done");
    for seed in 0..RUNS {
        let mut rng = Rng::with_seed(seed);
        let value = any(&bench.vm.lua, &mut rng, 5);
        let protocol = (rng.bool(), rng.bool());
        bench.vm.shared.resp3.set(protocol.1);
        let input = Input {
            keys: &[],
            args: &[],
            seed,
            resp3: protocol.0,
            spent: Duration::ZERO,
        };
        bench.bridge().give(&input, 1 << 20, b"before".to_vec());
        done.call::<()>(&value).expect("a reply");
        let (reply, unsent) = bench.bridge().take();
        assert!(unsent.is_none(), "seed {seed}");
        let mut expected = b"before".to_vec();
        encode(&value, protocol, &mut expected);
        assert_eq!(
            reply.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "seed {seed}"
        );
    }
}

#[test]
fn replies_become_the_values_of_the_safe_twin() {
    let bench = Bench::new();
    let pcall = bench.native("pcall");
    for seed in 0..RUNS {
        let mut rng = Rng::with_seed(seed);
        let (mut reply, resp3) = (Vec::new(), rng.bool());
        any_reply(&mut rng, 5, &mut reply);
        bench.vm.shared.resp3.set(resp3);
        let mut host = Says(reply.clone());
        let value: Value = bench
            .bridge()
            .with_host(&mut host, || pcall.call(("word", -2.5)).expect("a value"));
        let (expected, rest) = decode(&bench.vm.lua, &reply, resp3);
        assert!(rest.is_empty(), "seed {seed}");
        // Lua does not compare the contents of tables. So the values are converted to replies, and the replies are
        // compared.
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        encode(&value, (true, true), &mut ours);
        encode(&expected, (true, true), &mut theirs);
        assert_eq!(
            ours.escape_ascii().to_string(),
            theirs.escape_ascii().to_string(),
            "seed {seed}"
        );
    }
}

#[test]
fn keys_and_arguments_are_those_of_the_input() {
    let bench = Bench::new();
    let given = bench.native("given");
    for (keys, args) in [(0, 0), (1, 0), (0, 3), (500, 1000)] {
        let words: Vec<Vec<u8>> = (0..keys + args)
            .map(|n| format!("\u{ff}{n}\0").into_bytes())
            .collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let input = Input {
            keys: &words[..keys],
            args: &words[keys..],
            seed: 0,
            resp3: false,
            spent: Duration::ZERO,
        };
        bench.bridge().give(&input, 0, Vec::new());
        let tables: (Vec<LuaString>, Vec<LuaString>) = given.call(()).expect("two tables");
        bench.bridge().take();
        let all: Vec<Vec<u8>> = tables
            .0
            .iter()
            .chain(&tables.1)
            .map(|text| text.as_bytes().to_vec())
            .collect();
        assert_eq!(
            (tables.0.len(), all),
            (keys, words.iter().map(|word| word.to_vec()).collect())
        );
    }
}
