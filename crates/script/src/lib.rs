//! Scripts: Luau in a sandbox, with the interface that Redis's scripts expect.
//!
//! A [`Runtime`] runs the code of EVAL and of FCALL, and loads libraries of functions. It has no knowledge of
//! commands, sockets or databases. A script makes all its requests to the server through one method of a [`Host`],
//! which takes words and returns a reply in RESP. The host may run a script again. If a transaction must latch more
//! partitions, the host stops the script ([`Halt`]) and runs it again from its start, with the same seed.
//!
//! # The sandbox
//! A script has Lua 5.1 without the functions that reach outside or leave state behind (os, io, debug, coroutine,
//! load, getfenv, newproxy, collectgarbage). It has none of Luau's additions. All tables that it finds are frozen,
//! and its own environment, which is empty, is searched before them. A script cannot make a global name, and reading
//! an undefined one is an error. So a run leaves nothing to the next run. Only the local variables of a library stay,
//! as in Redis, until the virtual machine is replaced.
//!
//! # Limits
//! The allocator limits the memory. The time limit counts processor time. Every few milliseconds, a watchdog thread
//! sets a flag, and the script's thread reads the flag at each call and each loop's end, in the interrupt. Some loops
//! of the libraries do not call the interrupt, so their arguments are bounded instead (`prelude.luau`). No `pcall`
//! catches a limit. After a limit the virtual machine is dropped with all of its memory, and the next script gets a
//! new one.
//!
//! # Why Luau
//! A script must not be able to break the server, and Luau is written to run the code of strangers. Luau iterates
//! over tables in the same order in every process. Its interrupt is also called in pattern matching and sorting.
//! `docs/redis.md` lists the differences from the Lua 5.1 of Redis.

mod bridge;
mod from_lua;
mod host;
mod libraries;
mod limits;
mod random;
mod run;
mod shebang;
mod stack;
mod to_lua;
#[cfg(test)]
mod twin;
mod vm;
mod watchdog;

pub use host::{Ask, Halt, Host, Words};
pub use limits::{Failure, Limits};
pub use run::{Code, Input, Registered, Runtime};
pub use shebang::{Flags, Header, HeaderError};
pub use watchdog::Alarm;

/// Returns the SHA-1 of a text as 40 lower-case hexadecimal digits. Scripts are named by it.
pub fn sha1_hex(text: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    let mut name = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        for digit in [byte >> 4, byte & 15] {
            name.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    name
}
