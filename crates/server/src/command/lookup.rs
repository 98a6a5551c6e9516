//! Finds a command by its name, whatever the case, without allocating: an open-addressed table
//! of indices that is filled once at the start. Names are short, so folding every byte into the
//! hash costs less than being clever.

use super::Command;
use super::table::all;

/// Places for commands, most of them free.
pub(crate) const SLOTS: usize = 1024;
const MASK: usize = SLOTS - 1;

/// Names to commands.
#[derive(Debug)]
pub(crate) struct Lookup {
    slots: Box<[Option<&'static Command>; SLOTS]>,
}

impl Lookup {
    /// The lookup of all commands.
    pub(crate) fn new() -> Self {
        let mut slots = Box::new([None; SLOTS]);
        for command in all() {
            let mut at = home(command.name.as_bytes());
            while slots[at].is_some() {
                at = (at + 1) & MASK;
            }
            slots[at] = Some(command);
        }
        Lookup { slots }
    }

    /// The command called `name`.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        self.find_slot(name).map(|(_, command)| command)
    }

    /// The command in a place.
    pub(crate) fn at(&self, slot: usize) -> Option<&'static Command> {
        *self.slots.get(slot)?
    }

    /// The command called `name`, with its place.
    #[inline]
    pub(crate) fn find_slot(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        let mut at = home(name);
        loop {
            let command = self.slots[at]?;
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some((at, command));
            }
            at = (at + 1) & MASK;
        }
    }
}

fn home(name: &[u8]) -> usize {
    let mut hash = name.len();
    for byte in name.iter().take(16) {
        hash = hash.wrapping_mul(31).wrapping_add(usize::from(byte | 0x20));
    }
    (hash ^ (hash >> 9)) & MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else() {
        let lookup = Lookup::new();
        for command in all() {
            let upper = command.name.to_ascii_uppercase();
            for name in [command.name, upper.as_str()] {
                let found = lookup.find(name.as_bytes()).map(|c| c.name);
                assert_eq!(found, Some(command.name));
            }
        }
        for name in [
            &b""[..],
            b"ge",
            b"gett",
            b"se\x74\x00",
            b"\xff\xfe",
            &[b'a'; 300],
        ] {
            assert!(lookup.find(name).is_none());
        }
    }

    #[test]
    fn no_name_is_in_the_tables_twice_and_every_command_says_what_it_does() {
        let mut names: Vec<_> = all().map(|command| command.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        assert!(names.len() < SLOTS / 2);
        for command in all() {
            assert!(command.summary.ends_with('.'), "{}", command.name);
        }
    }
}
