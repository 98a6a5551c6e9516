//! Finds a command by its name, in upper or lower case, without allocating. The table is open-addressed and is
//! filled once at the start. Names are short, so two words hold nearly every name. Two words are compared and hashed
//! faster than the bytes one by one.

use super::Command;
use super::table::all;

/// The number of slots for commands. Most slots are free.
pub(crate) const SLOTS: usize = 1024;
const MASK: usize = SLOTS - 1;
/// The bit in which a letter differs from its upper-case twin, in each byte of a word.
const CASE: u64 = 0x2020_2020_2020_2020;

/// A name of at most 16 letters in two words, without its case. The words may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FoldedName {
    first: u64,
    last: u64,
    len: usize,
}

impl FoldedName {
    /// Returns the words of a name. If the name has other bytes than letters or is longer, other names may have the
    /// same words.
    #[inline]
    fn of(name: &[u8]) -> FoldedName {
        let (first, last) = match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (name.first_chunk(), name.last_chunk()) {
                (Some(first), Some(last)) => (
                    u32::from_le_bytes(*first).into(),
                    u32::from_le_bytes(*last).into(),
                ),
                _ => (name.iter().fold(0, |word, b| word << 8 | u64::from(*b)), 0),
            },
        };
        FoldedName {
            first: first | CASE,
            last: last | CASE,
            len: name.len(),
        }
    }

    fn home(&self) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.first ^ self.last.rotate_left(29)).wrapping_mul(ODD);
        usize::try_from(mixed >> 54).unwrap_or(0) & MASK
    }
}

/// A command and its name.
#[derive(Debug, Clone, Copy)]
struct KnownCommand {
    command: &'static Command,
    folded: FoldedName,
    /// True if no other name has the same words.
    is_plain: bool,
}

/// A table from names to commands.
#[derive(Debug)]
pub(crate) struct Lookup {
    slots: Box<[Option<KnownCommand>; SLOTS]>,
}

impl Lookup {
    /// Returns the table of all commands.
    pub(crate) fn new() -> Self {
        let mut slots = Box::new([None; SLOTS]);
        for command in all() {
            let name = command.name.as_bytes();
            let folded = FoldedName::of(name);
            let mut at = folded.home();
            while slots[at].is_some() {
                at = (at + 1) & MASK;
            }
            slots[at] = Some(KnownCommand {
                command,
                folded,
                is_plain: name.len() <= 16 && name.iter().all(u8::is_ascii_alphabetic),
            });
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
        self.slots.get(slot)?.map(|named| named.command)
    }

    /// Returns the command called `name`, with its slot.
    #[inline]
    pub(crate) fn find_slot(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        let folded = FoldedName::of(name);
        let mut at = folded.home();
        loop {
            let named = self.slots[at].as_ref()?;
            if named.folded == folded
                && (named.is_plain || named.command.name.as_bytes().eq_ignore_ascii_case(name))
            {
                return Some((at, named.command));
            }
            at = (at + 1) & MASK;
        }
    }
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
            b"@et",
            b"psync ",
            b"restore\x0dasking",
            b"restore_asking",
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
