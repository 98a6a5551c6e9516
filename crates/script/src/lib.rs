//! Scripts: Luau in a sandbox, with the surface that Redis's scripts expect.
//!
//! A [`Runtime`] runs the code of EVAL and of FCALL, and loads libraries of functions. It knows no command, no socket and
//! no database: whatever a script asks of the server goes through one call of a [`Host`], words in and a reply in RESP
//! out. The same host may be asked again: a transaction that must latch more partitions stops the script
//! ([`Halt`]) and runs it from its start, with the same seed.
//!
//! # The sandbox
//! A script sees Lua 5.1 without what reaches outside or stays behind (os, io, debug, coroutine, load, getfenv, newproxy,
//! collectgarbage), and nothing that Luau adds. All tables that it finds are frozen, and its environment is empty in front
//! of them: a global name can be neither made nor read undefined, so that no run leaves anything to the next. A
//! library's own locals do stay, as in Redis, until the virtual machine is made anew.
//!
//! # Limits
//! Memory is limited by the allocator. The time is that of the processor. A watchdog thread asks for it every few
//! milliseconds by a flag, which the interrupt reads at each call and each loop's end. Loops of the libraries that the interrupt does not reach
//! are bounded by what they may be given (`prelude.luau`). No `pcall` catches a limit. After a limit the virtual
//! machine is dropped, and with it all of its memory; the next script gets a new one.
//!
//! # Why Luau
//! A script may not be able to break the server: Luau is written to run code of strangers, its iteration order is the same
//! in every process, and its interrupt reaches pattern matching and sorting. What differs from Lua 5.1 as Redis has it is
//! listed in `docs/redis.md`.

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

/// The SHA-1 of a text as 40 lower-case hexadecimal digits: the name of a script.
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
