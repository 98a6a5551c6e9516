//! Finds a command by its name, in upper or lower case, without allocating. The table is open-addressed and is
//! filled once at the start. Names are short, so hashing every byte is the fastest.

use super::Command;
use super::table::all;

/// The number of slots for commands. Most slots are free.
pub(crate) const SLOTS: usize = 1024;
const MASK: usize = SLOTS - 1;

/// A table from names to commands.
#[derive(Debug)]
pub(crate) struct Lookup {
    slots: Box<[Option<&'static Command>; SLOTS]>,
}

impl Lookup {
    /// Returns the table of all commands.
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

    /// Returns the command called `name`.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        self.find_slot(name).map(|(_, command)| command)
    }

    /// Returns the command in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<&'static Command> {
        *self.slots.get(slot)?
    }

    /// Returns the command called `name`, with its slot.
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
    fn no_name_is_in_the_tables_twice() {
        let mut names: Vec<_> = all().map(|command| command.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        assert!(names.len() < SLOTS / 2);
    }

    /// Returns the names of the commands that `docs/redis.md` describes.
    fn documented() -> Vec<String> {
        let page = include_str!("../../../../docs/redis.md");
        let rows = page.lines().filter(|line| line.starts_with("| "));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        cells
            .flat_map(|cell| cell.split(|c: char| !is_name(c)))
            .map(str::to_ascii_lowercase)
            .collect()
    }

    #[test]
    fn every_command_of_redis_is_known_and_every_known_one_is_in_the_document() {
        let redis = include_str!("../../tests/data/redis-7.0-commands.txt");
        let redis = redis.lines().filter(|line| !line.starts_with('#'));
        let (lookup, documented) = (Lookup::new(), documented());
        let unknown: Vec<_> = redis
            .filter(|name| lookup.find(name.as_bytes()).is_none())
            .collect();
        assert_eq!(unknown, Vec::<&str>::new(), "unknown");
        let silent: Vec<_> = all()
            .map(|command| command.name)
            .filter(|name| !documented.iter().any(|known| known == name))
            .collect();
        assert_eq!(silent, Vec::<&str>::new(), "not in docs/redis.md");
    }
}
