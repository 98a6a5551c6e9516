//! Tests that run scripts without a server. Their host has a few commands.

mod fuzz;
mod hostile;
mod libraries;
mod runs;

use perdura_script::{
    Ask, Code, Failure, Halt, Header, Host, Input, Limits, Runtime, Words, sha1_hex,
};
use std::time::Duration;

/// A host with commands that return the arguments, fail, or halt the script.
#[derive(Default)]
struct Echo {
    /// The requests that the host has received.
    seen: Vec<String>,
    /// The number of notes that a run takes long.
    long: usize,
}

impl Host for Echo {
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt> {
        let text: Vec<_> = words.iter().map(String::from_utf8_lossy).collect();
        self.seen.push(format!("{ask:?} {}", text.join(" ")));
        match words.get(0).unwrap_or(b"") {
            b"ECHO" => {
                let word = words.get(1).unwrap_or(b"");
                reply.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                reply.extend_from_slice(word);
                reply.extend_from_slice(b"\r\n");
            }
            b"RAW" => reply.extend_from_slice(words.get(1).unwrap_or(b"")),
            b"HALT" => return Err(Halt),
            b"REST" => {
                std::thread::sleep(2 * limits().time);
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"PANIC" => panic!("the host has panicked"),
            _ => reply.extend_from_slice(b"-ERR unknown\r\n"),
        }
        Ok(())
    }

    fn note_long(&mut self) {
        self.long += 1;
    }
}

/// Returns small limits, so that tests take little time.
fn limits() -> Limits {
    Limits {
        time: Duration::from_millis(150),
        ..Limits::default()
    }
}

/// A runtime with its host.
struct Bench {
    runtime: Runtime,
    host: Echo,
}

impl Bench {
    fn new() -> Self {
        Bench::with(limits())
    }

    fn with(limits: Limits) -> Self {
        Bench {
            runtime: Runtime::new(limits),
            host: Echo::default(),
        }
    }

    fn run_with(
        &mut self,
        source: &str,
        keys: &[&str],
        args: &[&str],
        resp3: bool,
    ) -> Result<String, Failure> {
        let sha = sha1_hex(source.as_bytes());
        let header = Header::of_script(source.as_bytes()).expect("a header");
        let text = &source.as_bytes()[header.map_or(0, |header| header.code)..];
        let input = Input {
            keys: &keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(),
            args: &args.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>(),
            seed: 7,
            resp3,
            spent: Duration::ZERO,
        };
        let mut out = Vec::new();
        self.runtime
            .run_script(&Code { sha: &sha, text }, input, &mut self.host, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn run(&mut self, source: &str) -> Result<String, Failure> {
        self.run_with(source, &[], &[], false)
    }

    /// Returns the text of the script's error, with `SHA` in place of the script's name.
    fn error(&mut self, source: &str) -> String {
        match self.run(source) {
            Err(Failure::Script(text)) => text.replace(&sha1_hex(source.as_bytes()), "SHA"),
            other => panic!("{source} ends with {other:?}"),
        }
    }
}

/// Returns `text` as a bulk string of RESP.
fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
