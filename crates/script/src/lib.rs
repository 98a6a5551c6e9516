//! Scripts: Luau in a sandbox, with the interface that Redis's scripts expect.
//!
//! A [`Runtime`] runs the code of EVAL and of FCALL, and loads libraries of functions. It knows no command, no socket
//! and no database. All requests of a script to the server pass through one call of a [`Host`], with words as input and
//! a reply in RESP as output. The host may run a script again. If a transaction must latch more partitions, it stops
//! the script ([`Halt`]) and runs it from its start, with the same seed.
//!
//! # The sandbox
//! A script sees Lua 5.1 without the functions that reach outside or leave state behind (os, io, debug, coroutine,
//! load, getfenv, newproxy, collectgarbage). It sees nothing that Luau adds. All tables that it finds are frozen, and
//! its environment is empty in front of them. A global name can be neither made nor read undefined, so no run leaves
//! anything to the next. A library's own locals do stay, as in Redis, until the virtual machine is made anew.
//!
//! # Limits
//! The allocator limits the memory. The time is that of the processor. A watchdog thread asks for it every few
//! milliseconds by a flag, which the interrupt reads at each call and each loop's end. The interrupt does not reach
//! some loops of the libraries. Their arguments are bounded instead (`prelude.luau`). No `pcall` catches a limit. After
//! a limit the virtual machine is dropped, and with it all of its memory. The next script gets a new one.
//!
//! # Why Luau
//! A script must not be able to break the server. Luau is written to run code of strangers. Its iteration order is the
//! same in every process, and its interrupt reaches pattern matching and sorting. `docs/redis.md` lists the differences
//! from Lua 5.1 as Redis has it.

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

/// Returns the SHA-1 of a text as 40 lower-case hexadecimal digits: the name of a script.
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
