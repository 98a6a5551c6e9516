//! Fuzzing: random bytes as input of scripts, and random values as replies.
//!
//! An input is random text, a reply of the host, or a value in MessagePack. Some inputs are then damaged. A script
//! reads the input and returns it. The test checks that nothing panics. Every run must end with a reply or an error. A
//! reply must be one whole value of RESP. The virtual machine's memory must not grow.
//!
//! A failure prints the seed and the input's sequence number. `PERDURA_FUZZ_INPUTS` sets how many inputs are tried, and
//! `PERDURA_FUZZ_SEED` the seed:
//!
//! ```text
//! PERDURA_FUZZ_INPUTS=10000000 cargo test --release -p perdura-script --test it fuzz -- --nocapture
//! ```

use crate::Bench;
use fastrand::Rng;
use perdura_script::{Code, Failure, Input, Limits, sha1_hex};
use std::time::{Duration, Instant};

/// The memory, in bytes, that the virtual machine must not exceed after an input.
const LEFT_BYTES: usize = 2 << 20;

/// The scripts that read an input. ARGV[1] is the input, and ARGV[2] is a format of `struct`.
const READERS: [&str; 12] = [
    "return cmsgpack.unpack(ARGV[1])",
    "return {cmsgpack.unpack(ARGV[1])}",
    "redis.setresp(3) return {map = {a = cmsgpack.unpack(ARGV[1])}}",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "return cjson.encode(cmsgpack.unpack(ARGV[1]))",
    "return cjson.decode(ARGV[1])",
    "return {cmsgpack.unpack_one(ARGV[1], #ARGV[2])}",
    "return {cmsgpack.unpack_limit(ARGV[1], 3, 1)}",
    "return {struct.unpack(ARGV[2], ARGV[1])}",
    "return struct.size(ARGV[2])",
    "return redis.call('RAW', ARGV[1])",
    "redis.setresp(3) return redis.pcall('RAW', ARGV[1])",
];

/// Field names that give a table a special reply.
const FIELDS: [&str; 9] = [
    "err",
    "ok",
    "double",
    "map",
    "set",
    "big_number",
    "verbatim_string",
    "format",
    "string",
];

struct Source {
    rng: Rng,
    bytes: Vec<u8>,
}

impl Source {
    fn text(&mut self) -> Vec<u8> {
        match self.rng.u8(..4) {
            0 => FIELDS[self.rng.usize(..FIELDS.len())].as_bytes().to_vec(),
            1 => (0..self.rng.usize(..40)).map(|_| self.rng.u8(..)).collect(),
            2 => self.rng.i64(..).to_string().into_bytes(),
            _ => b"a\r\nb".to_vec(),
        }
    }

    /// Appends a value in MessagePack.
    fn pack(&mut self, depth: u32) {
        let kinds = if depth == 0 { 7 } else { 10 };
        match self.rng.u8(..kinds) {
            0 => self.bytes.push([0xc0, 0xc2, 0xc3][self.rng.usize(..3)]),
            1 => self.bytes.push(self.rng.u8(..)),
            2 => {
                self.bytes.push(0xcb);
                let n = [
                    0.0,
                    -0.0,
                    1.5,
                    1e300,
                    f64::NAN,
                    f64::INFINITY,
                    f64::from(self.rng.i32(..)),
                ][self.rng.usize(..7)];
                self.bytes.extend_from_slice(&n.to_be_bytes());
            }
            3 => {
                self.bytes.push([0xcf, 0xd3][self.rng.usize(..2)]);
                let n = self.rng.u64(..) >> self.rng.u32(..64);
                self.bytes.extend_from_slice(&n.to_be_bytes());
            }
            4..7 => {
                let text = self.text();
                self.bytes
                    .extend_from_slice(&[0xd9, u8::try_from(text.len()).expect("short")]);
                self.bytes.extend_from_slice(&text);
            }
            kind => {
                let len = self.rng.u8(..5);
                self.bytes
                    .push(if kind == 7 { 0x90 | len } else { 0x80 | len });
                for _ in 0..len {
                    if kind != 7 {
                        let text = self.text();
                        self.bytes
                            .extend_from_slice(&[0xd9, u8::try_from(text.len()).expect("short")]);
                        self.bytes.extend_from_slice(&text);
                    }
                    self.pack(depth - 1);
                }
            }
        }
    }

    /// Appends a random reply of a host. Some replies are invalid.
    fn reply(&mut self, depth: u32) {
        let kinds = if depth == 0 { 10 } else { 14 };
        let kind = self.rng.usize(..kinds);
        let mut put = |bytes: &[u8]| self.bytes.extend_from_slice(bytes);
        match kind {
            0 => put(b"+OK\r\n"),
            1 => put(b"-ERR x\r\n"),
            2 => put(format!(":{}\r\n", self.rng.i64(..)).as_bytes()),
            3 => put([&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"][self.rng.usize(..3)]),
            4 => put([&b"#t\r\n"[..], b"#f\r\n"][self.rng.usize(..2)]),
            5 => put([&b",1.5\r\n"[..], b",inf\r\n", b",-nan\r\n", b",x\r\n"][self.rng.usize(..4)]),
            6 => put(b"(12345678901234567890123\r\n"),
            7 => put(b"=7\r\ntxt:abc\r\n"),
            8 | 9 => {
                let text = (0..self.rng.usize(..300))
                    .map(|_| self.rng.u8(..))
                    .collect::<Vec<u8>>();
                put(format!("${}\r\n", text.len()).as_bytes());
                put(&text);
                put(b"\r\n");
            }
            kind => {
                let len = self.rng.usize(..5);
                let head = [b'*', b'~', b'%', b'>'][kind - 10];
                put(format!("{}{len}\r\n", char::from(head)).as_bytes());
                for _ in 0..if head == b'%' { len * 2 } else { len } {
                    self.reply(depth - 1);
                }
            }
        }
    }

    fn damage(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.bytes.len());
        match self.rng.u8(..4) {
            0 => self.bytes[at] = self.rng.u8(..),
            1 => self.bytes.truncate(at),
            2 => self.bytes[at] ^= 1 << self.rng.u8(..8),
            _ => {
                let piece = self.bytes[at..].to_vec();
                self.bytes.extend_from_slice(&piece);
            }
        }
    }

    /// Makes an input for a reader.
    fn make(&mut self, reader: &str) {
        self.bytes.clear();
        let is_reply = reader.contains("RAW");
        if is_reply {
            self.reply(5);
        } else if reader.contains("cjson.decode") {
            let words = [
                "[", "]", "{", "}", "\"", ":", ",", "1", "-", "e5", ".", "true", "null", "\\u12",
                "a", " ",
            ];
            for _ in 0..self.rng.usize(..20) {
                let word = words[self.rng.usize(..words.len())];
                self.bytes.extend_from_slice(word.as_bytes());
            }
        } else {
            self.pack(5);
        }
        // After an invalid reply of the host, the virtual machine is dropped. Making a new one takes as long as a
        // thousand inputs.
        if self.rng.u16(..if is_reply { 2000 } else { 4 }) == 0 {
            self.damage();
        }
    }
}

/// Returns the bytes after the first value of RESP in `reply`. Returns `None` if `reply` does not begin with a whole
/// value.
fn behind(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&reply[..end], &reply[end + 2..]);
    let (kind, number) = line.split_first()?;
    let number = || std::str::from_utf8(number).ok()?.parse::<i64>().ok();
    match kind {
        b'+' | b'-' | b',' | b'(' => Some(rest),
        b':' => number().map(|_| rest),
        b'_' => (line.len() == 1).then_some(rest),
        b'#' => (line == b"#t" || line == b"#f").then_some(rest),
        b'$' | b'=' => match number()? {
            -1 => Some(rest),
            len => {
                let (_, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                rest.strip_prefix(b"\r\n")
            }
        },
        b'*' | b'~' | b'%' => {
            let items = number()? * if *kind == b'%' { 2 } else { 1 };
            (0..items).try_fold(rest, |rest, _| behind(rest))
        }
        _ => None,
    }
}

fn run(seed: u64, inputs: u64) {
    // On a busy computer, a process may pause for longer than the time limit of the other tests.
    let mut bench = Bench::with(Limits {
        time: Duration::from_secs(60),
        ..Limits::default()
    });
    let mut source = Source {
        rng: Rng::with_seed(seed),
        bytes: Vec::new(),
    };
    let readers = READERS.map(|reader| (reader, sha1_hex(reader.as_bytes())));
    let formats = [
        "", "i", ">I4l", "s", "c0", "Bc0", "f", "d", "x", "!8bhil", "<H c3", "i99", "c-1", "zzz",
        "I8I8I8",
    ];
    let (began, mut failed, mut out) = (Instant::now(), 0_u64, Vec::new());
    for number in 0..inputs {
        let (reader, sha) = &readers[source.rng.usize(..readers.len())];
        source.make(reader);
        let format = formats[source.rng.usize(..formats.len())];
        let input = Input {
            keys: &[],
            args: &[&source.bytes, format.as_bytes()],
            seed: number,
            resp3: source.rng.bool(),
            spent: Duration::ZERO,
        };
        let code = Code {
            sha,
            text: reader.as_bytes(),
        };
        out.clear();
        bench.host.seen.clear();
        let shown = || {
            format!(
                "seed {seed}, input {number}: {reader} of {}",
                source.bytes.escape_ascii()
            )
        };
        match bench
            .runtime
            .run_script(&code, input, &mut bench.host, &mut out)
        {
            Ok(()) => assert_eq!(
                behind(&out),
                Some(&[][..]),
                "{} gives {}",
                shown(),
                out.escape_ascii()
            ),
            Err(Failure::Script(text)) => {
                assert!(!text.is_empty() && out.is_empty(), "{}", shown())
            }
            Err(Failure::Limit(text)) => assert!(reader.contains("RAW"), "{}: {text}", shown()),
            Err(Failure::Halted) => panic!("{} has halted", shown()),
        }
        failed += u64::from(out.is_empty());
        let left = bench.runtime.memory_bytes();
        assert!(left < LEFT_BYTES, "{}: {left} bytes are in use", shown());
    }
    let seconds = began.elapsed().as_secs_f64();
    eprintln!("{inputs} inputs of seed {seed} in {seconds:.1} s, {failed} ended with an error");
}

#[test]
fn no_input_makes_it_panic() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let inputs = number("PERDURA_FUZZ_INPUTS").unwrap_or(20_000);
    run(number("PERDURA_FUZZ_SEED").unwrap_or(1), inputs);
}
