//! Encoders of values as the commands that create them.

use perdura_rdb::Value;

use super::Part;
use super::streams::{commands_of_end, put_end, put_entries};

/// The maximum number of elements in one command.
const ELEMENTS_MAX: usize = 512;
/// The number of bytes at which a command is full. A full command gets no further elements.
const BYTES_ENOUGH: usize = 1 << 18;

/// Appends a request.
pub fn put(out: &mut Vec<u8>, words: &[&[u8]]) {
    debug_assert!(!words.is_empty(), "a request begins with a name");
    put_head(out, b'*', words.len());
    for word in words {
        put_word(out, word);
    }
}

fn put_word(out: &mut Vec<u8>, word: &[u8]) {
    put_head(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn put_head(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    put_decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal. Most numbers in a request have one or two digits, so the recursion is shallow.
fn put_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        put_decimal(out, number / 10);
    }
    let digit = u8::try_from(number % 10).unwrap_or_default();
    out.push(b'0' + digit);
}

/// Appends a command that sets a string.
pub fn put_string(
    out: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    expires_at_ms: Option<i64>,
    only_new: bool,
) {
    let at = expires_at_ms.map(|at| at.to_string());
    let mut words: Vec<&[u8]> = vec![b"SET", key, value];
    if only_new {
        words.push(b"NX");
    }
    if let Some(at) = &at {
        words.extend([&b"PXAT"[..], at.as_bytes()]);
    }
    put(out, &words);
}

/// Appends a command that loads a library of functions.
pub fn put_library(out: &mut Vec<u8>, code: &[u8], replace: bool) {
    match replace {
        true => put(out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]),
        false => put(out, &[b"FUNCTION", b"LOAD", code]),
    }
}

/// Appends the commands that write a piece of a key. The key gets the name `name`. The last piece also sets the key's
/// expiry. Returns the number of commands.
pub fn put_part(out: &mut Vec<u8>, name: &[u8], part: &Part<'_>) -> usize {
    let mut commands = put_elements(out, name, part.value);
    if !part.last {
        return commands;
    }
    if let Value::Stream(stream) = part.value {
        let is_empty = part.first && stream.entries.is_empty();
        commands += put_end(out, name, stream, is_empty);
    }
    if let Some(at) = part.expires_at_ms {
        put(out, &[b"PEXPIREAT", name, at.to_string().as_bytes()]);
        commands += 1;
    }
    commands
}

/// Appends the commands that add a collection's elements to a key. Returns the number of commands. A large collection
/// takes several commands, so that no command exceeds a server's limit.
fn put_elements(out: &mut Vec<u8>, key: &[u8], value: &Value) -> usize {
    match value {
        Value::String(bytes) => {
            put_string(out, key, bytes, None, false);
            1
        }
        Value::List(items) => put_chunks(out, b"RPUSH", key, items, |words, item| {
            put_word(words, item);
            1
        }),
        Value::Set(members) => put_chunks(out, b"SADD", key, members, |words, member| {
            put_word(words, member);
            1
        }),
        Value::Zset(pairs) => put_chunks(out, b"ZADD", key, pairs, |words, (member, score)| {
            // `{:?}` gives the shortest decimal text that parses as the same number.
            put_word(words, format!("{score:?}").as_bytes());
            put_word(words, member);
            2
        }),
        Value::Hash(pairs) => put_chunks(out, b"HSET", key, pairs, |words, (field, value)| {
            put_word(words, field);
            put_word(words, value);
            2
        }),
        Value::Stream(stream) => put_entries(out, key, &stream.entries),
    }
}

fn put_chunks<T>(
    out: &mut Vec<u8>,
    name: &[u8],
    key: &[u8],
    elements: &[T],
    put_element: impl Fn(&mut Vec<u8>, &T) -> usize,
) -> usize {
    let mut commands = 0;
    let mut left = elements;
    let mut words = Vec::new();
    while !left.is_empty() {
        words.clear();
        let (mut count, mut taken) = (2, 0);
        while let Some(element) = left.get(taken)
            && taken < ELEMENTS_MAX
            && words.len() < BYTES_ENOUGH
        {
            count += put_element(&mut words, element);
            taken += 1;
        }
        debug_assert!(taken > 0, "each command takes an element");
        put_head(out, b'*', count);
        put_word(out, name);
        put_word(out, key);
        out.extend_from_slice(&words);
        left = &left[taken..];
        commands += 1;
    }
    commands
}

/// Returns the approximate size of a value, bytes.
pub fn bytes(value: &Value) -> usize {
    let sum = |strings: &[Vec<u8>]| strings.iter().map(Vec::len).sum::<usize>();
    match value {
        Value::String(bytes) => bytes.len(),
        Value::List(items) | Value::Set(items) => sum(items),
        Value::Zset(pairs) => pairs.iter().map(|(member, _)| member.len() + 8).sum(),
        Value::Hash(pairs) => pairs.iter().map(|(a, b)| a.len() + b.len()).sum(),
        Value::Stream(stream) => stream.entries.iter().map(|one| 16 + one.bytes()).sum(),
    }
}

/// Returns whether the value is small enough for one command. A stream must be small enough for one transaction.
pub fn is_single(value: &Value) -> bool {
    let commands = match value {
        Value::Stream(stream) => stream.entries.len() + commands_of_end(stream),
        _ => value.len(),
    };
    commands <= ELEMENTS_MAX && bytes(value) < BYTES_ENOUGH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &Value) -> (usize, String) {
        let mut out = Vec::new();
        let commands = put_elements(&mut out, b"k", value);
        (commands, String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_type_has_its_command() {
        let (commands, out) = text(&Value::Zset(vec![
            (b"a".to_vec(), f64::NEG_INFINITY),
            (b"b".to_vec(), 0.1),
            (b"c".to_vec(), 1e300),
        ]));
        assert_eq!(
            (commands, out.replace("\r\n", " ")),
            (
                1,
                "*8 $4 ZADD $1 k $4 -inf $1 a $3 0.1 $1 b $5 1e300 $1 c ".into()
            )
        );
        let mut out = Vec::new();
        put_string(&mut out, b"k", b"v", Some(12), true);
        let out = String::from_utf8(out).unwrap().replace("\r\n", " ");
        assert_eq!(out, "*6 $3 SET $1 k $1 v $2 NX $4 PXAT $2 12 ");
    }

    #[test]
    fn large_collections_take_several_commands() {
        let many = Value::Set((0..1025u32).map(|n| n.to_string().into_bytes()).collect());
        let (commands, out) = text(&many);
        assert_eq!((commands, out.matches("SADD").count()), (3, 3));
        assert!(!is_single(&many));
        let heavy = Value::List(vec![vec![b'x'; BYTES_ENOUGH]; 3]);
        assert_eq!(text(&heavy).0, 3);
        assert!(!is_single(&heavy));
        assert!(is_single(&Value::List(vec![b"a".to_vec()])));
    }
}
