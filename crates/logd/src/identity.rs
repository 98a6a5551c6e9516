//! The parts of a node's identity: the node's machine, and random numbers.

use std::fs;
use std::io::{Error, ErrorKind};

use perdura_base::Result;
use perdura_mirror::{Machine, NodeInc, Nonce};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

const MACHINE_ID: &str = "/etc/machine-id";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The number of hexadecimal digits of a machine id. If the file has different content, such as `uninitialized`, the
/// machine id is unknown.
const MACHINE_ID_DIGITS: usize = 32;

/// Returns the identity of this process's machine, and the path of the file that the identity was read from. If no file
/// has an identity, returns `nothing` in place of the path.
///
/// All machines with an unknown identity count as one machine. So two nodes on unknown machines count as nodes that
/// fail together, which is safe.
#[must_use]
pub fn machine() -> (Machine, &'static str) {
    let read = |path: &str| fs::read(path).unwrap_or_default();
    let (host, boot) = (rustix::system::uname(), read(BOOT_ID));
    machine_of(&read(MACHINE_ID), &boot, host.nodename().to_bytes())
}

fn machine_of(machine_id: &[u8], boot_id: &[u8], host: &[u8]) -> (Machine, &'static str) {
    let id = machine_id.trim_ascii();
    if id.len() == MACHINE_ID_DIGITS && id.iter().all(u8::is_ascii_hexdigit) {
        return (digest(&[b"machine", id]), MACHINE_ID);
    }
    let boot = boot_id.trim_ascii();
    if boot.is_empty() {
        return (Machine::default(), "nothing");
    }
    (digest(&[b"boot", boot, host]), BOOT_ID)
}

/// Hashes the parts of an id. An id itself must not leave the machine (machine-id(5)), but a hash of the id may.
fn digest(parts: &[&[u8]]) -> Machine {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(b"perdura logd ");
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let (first, _) = hash.split_first_chunk().expect("a hash has 32 bytes");
    Machine(*first)
}

/// Returns a random incarnation for a node that starts now.
///
/// # Errors
/// Fails with the system's error if the system gives no random numbers.
pub fn draw_inc() -> Result<NodeInc> {
    Ok(NodeInc(u64::from_le_bytes(draw()?)))
}

/// Returns a random nonce.
///
/// # Errors
/// Fails with the system's error if the system gives no random numbers.
pub fn draw_nonce() -> Result<Nonce> {
    draw()
}

fn draw<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let got = getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(Error::from)
        .and_then(|got| match got == N {
            true => Ok(got),
            // The system never returns only part of a request of up to 256 bytes.
            false => Err(ErrorKind::UnexpectedEof.into()),
        });
    got.map_err(|e| perdura_base::Error::io("draw", "random numbers", e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_id_else_by_its_boot_and_name() {
        let id = b"0123456789abcdef0123456789abcdef\n";
        let (machine, from) = machine_of(id, b"boot\n", b"host");
        assert_eq!(from, MACHINE_ID);
        assert_eq!(machine_of(id, b"other", b"other"), (machine, MACHINE_ID));
        assert!(!machine.0.starts_with(b"0123"));
        for unknown in [&b""[..], b"uninitialized\n", b"0123"] {
            let (by_boot, from) = machine_of(unknown, b"boot\n", b"host");
            assert_eq!(from, BOOT_ID);
            assert_ne!(by_boot, machine);
            assert_ne!(machine_of(unknown, b"boot\n", b"other").0, by_boot);
            assert_ne!(machine_of(unknown, b"other", b"host").0, by_boot);
        }
        assert_eq!(machine_of(b"", b"", b"host").0, Machine::default());
    }

    #[test]
    fn what_is_drawn_differs() {
        assert_ne!(draw_inc().unwrap(), draw_inc().unwrap());
        assert_ne!(draw_nonce().unwrap(), draw_nonce().unwrap());
    }
}
