//! Scripts: Luau in a sandbox, with the interface that Redis's scripts expect.
//!
//! A [`Runtime`] runs the code of EVAL and of FCALL, and loads libraries of functions. It has no knowledge of commands,
//! sockets or databases. A script makes all requests to the server through one method of a [`Host`]. The method takes
//! words and returns a reply in RESP. The host may run a script again. If a transaction must latch more partitions, the
//! host stops the script ([`Halt`]). Then it runs the script again from the start, with an unchanged seed.
//!
//! # The sandbox
//! A script can use Lua 5.1, except functions that affect anything outside the script or keep state after it (os, io,
//! debug, coroutine, load, getfenv, newproxy, collectgarbage). It cannot use Luau's additions. All tables that a script
//! finds are frozen. A name is first looked up in the script's own environment, which is empty. A script cannot define
//! a global name, and reading an undefined global name is an error. So a run leaves no state that the next run can see.
//! Only the local variables of a library stay, as in Redis, until the virtual machine is replaced.
//!
//! # Limits
//! The allocator limits the memory. The time limit counts processor time. Every few milliseconds, a watchdog thread
//! sets a flag. The script's thread reads the flag in Luau's *interrupt*, a function that Luau calls at each function
//! call and each loop iteration. Some loops of the libraries do not call the interrupt, so their arguments are bounded
//! instead (`prelude.luau`). A script that exceeds a limit ends, and its `pcall` cannot prevent that. The virtual
//! machine is dropped with all of its memory, and the next script gets a new one.
//!
//! # Why Luau
//! A script must not be able to break the server, and Luau is written to run untrusted code. Luau's order of iteration
//! over a table is equal in all processes. Luau also calls the interrupt in pattern matching and sorting.
//! `docs/redis.md` lists the differences from the Lua 5.1 of Redis.

mod bridge;
mod from_lua;
mod host;
mod libraries;
mod limits;
mod long;
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
pub use long::LONG_RUN;
pub use run::{Code, Input, Registered, Runtime};
pub use shebang::{Flags, Header, HeaderError};
pub use watchdog::Alarm;

/// Returns the SHA-1 of a text as 40 lower-case hexadecimal digits. A script's name is the SHA-1 of its text.
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
