//! What rules can be about: every command and subcommand with its categories, and what it does
//! to its keys.
//!
//! The facts are Redis's own (`facts.txt`), so that a rule such as `+@read -@dangerous` means here
//! what it means there. Commands that Redis does not have get the categories of their flags.
//!
//! Each command and subcommand has a number: a command, and behind it its subcommands. Numbers
//! are made at the start and are never written anywhere.

use crate::command::{Command, Keys, flag, table};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The categories in the order in which Redis names them.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// What a command does to a key: both, one or nothing of it shows in its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    /// It answers what the key holds, or copies it elsewhere.
    pub read: bool,
    /// It changes what the key holds.
    pub write: bool,
}

/// A command or a subcommand.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `get`, or `config|get`.
    pub name: String,
    /// Its command.
    pub command: &'static Command,
    /// The number of the command that it is a subcommand of.
    pub parent: Option<usize>,
    /// One bit for each of [`CATEGORIES`].
    categories: u32,
    /// What happens to its first key.
    pub first: Access,
    /// What happens to the others.
    pub others: Access,
}

impl Entry {
    /// Whether it is in a category.
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories & (1 << category) != 0
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Catalog {
    entries: Vec<Entry>,
    /// The numbers of commands and subcommands, by their names in lower case.
    numbers: HashMap<String, usize>,
}

/// The catalog of this program.
pub(crate) static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::new);

#[derive(Default)]
struct Facts {
    categories: HashMap<&'static str, u32>,
    access: HashMap<&'static str, (Access, Access)>,
}

impl Facts {
    fn read() -> Self {
        let mut facts = Facts::default();
        let (mut bit, mut access) = (0, None);
        let body = include_str!("facts.txt").lines();
        for line in body.skip_while(|line| !line.starts_with('@')) {
            let mut words = line.split_whitespace();
            if let Some(category) = line.strip_prefix('@') {
                let name = category.split(' ').next().unwrap_or_default();
                bit = category_number(name.as_bytes()).map_or(0, |number| 1 << number);
                access = None;
                words.next();
            } else if let Some(keys) = line.strip_prefix('%') {
                let mut each = keys.split([' ', ',']);
                let first = access_of(each.next().unwrap_or_default());
                let others = keys.split(' ').next().and_then(|all| all.split_once(','));
                access = Some((first, others.map_or(first, |(_, word)| access_of(word))));
                words.next();
            }
            for name in words {
                match access {
                    Some(access) => {
                        facts.access.insert(name, access);
                    }
                    None => *facts.categories.entry(name).or_default() |= bit,
                }
            }
        }
        facts
    }
}

fn access_of(word: &str) -> Access {
    Access {
        read: word.contains('R'),
        write: word.contains('W'),
    }
}

/// The number of a category.
pub(crate) fn category_number(name: &[u8]) -> Option<usize> {
    CATEGORIES
        .iter()
        .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn bit(name: &str) -> u32 {
    category_number(name.as_bytes()).map_or(0, |number| 1 << number)
}

/// The categories of a command that Redis does not have.
fn categories_of_flags(command: &Command) -> u32 {
    let of = [
        (flag::WRITE, "write"),
        (flag::READ, "read"),
        (flag::ADMIN, "admin"),
        (flag::ADMIN, "dangerous"),
        (flag::DANGEROUS, "dangerous"),
        (flag::PUBSUB, "pubsub"),
        (flag::BLOCKING, "blocking"),
        (flag::FAST, "fast"),
    ];
    of.iter()
        .filter(|(flag, _)| command.has(*flag))
        .map(|(_, name)| bit(name))
        .fold(0, |all, one| all | one)
}

impl Catalog {
    fn new() -> Self {
        let facts = Facts::read();
        let mut commands: Vec<&'static Command> = table::all().collect();
        commands.sort_unstable_by_key(|command| command.name);
        let mut catalog = Catalog {
            entries: Vec::new(),
            numbers: HashMap::new(),
        };
        for command in commands {
            let parent = catalog.add(&facts, command, command.name.to_owned(), None);
            let mut words: Vec<&str> = command.words.iter().map(|(word, _)| *word).collect();
            words.sort_unstable();
            for word in words {
                let name = format!("{}|{word}", command.name);
                catalog.add(&facts, command, name, Some(parent));
            }
        }
        catalog
    }

    /// What a command does to its first key, or to the others.
    pub(crate) fn access(&self, name: &str, first: bool) -> Access {
        let entry = self.numbers.get(name).map(|number| &self.entries[*number]);
        entry.map_or_else(Access::default, |e| if first { e.first } else { e.others })
    }

    fn add(
        &mut self,
        facts: &Facts,
        command: &'static Command,
        name: String,
        parent: Option<usize>,
    ) -> usize {
        let known = facts.categories.get(name.as_str()).copied();
        // Facts list what is fast; the rest of what Redis has is slow, its containers too.
        let is_known = known.is_some() || facts.access.contains_key(name.as_str());
        let mut categories = known.unwrap_or_else(|| {
            if is_known || command.words.is_empty() || parent.is_some() {
                categories_of_flags(command)
            } else {
                0
            }
        });
        if categories & bit("fast") == 0 {
            categories |= bit("slow");
        }
        let by_flags = Access {
            read: command.has(flag::READ),
            write: command.has(flag::WRITE),
        };
        let (first, others) = match facts.access.get(name.as_str()) {
            Some(access) => *access,
            None if command.keys == Keys::None => Default::default(),
            None => (by_flags, by_flags),
        };
        let number = self.entries.len();
        self.numbers.insert(name.clone(), number);
        self.entries.push(Entry {
            name,
            command,
            parent,
            categories,
            first,
            others,
        });
        number
    }

    /// The categories of a command or a subcommand, by its name in lower case.
    pub(crate) fn categories(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let of = self
            .numbers
            .get(name)
            .map_or(0, |n| self.entries[*n].categories);
        let held = CATEGORIES.iter().enumerate();
        held.filter(move |(n, _)| of & (1 << n) != 0)
            .map(|(_, name)| *name)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The one of a number.
    pub(crate) fn at(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// All of them by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate()
    }

    /// The numbers of a command's subcommands.
    pub(crate) fn subcommands(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        let children = self.entries[number + 1..].iter();
        let count = children.take_while(|e| e.parent == Some(number)).count();
        number + 1..=number + count
    }

    /// The number of `get` or `config|get`, in whatever case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.numbers.get(&name).copied()
    }

    /// The number of what a request asks for.
    pub(crate) fn number(&self, command: &Command, word: Option<&[u8]>) -> usize {
        let number = self.numbers.get(command.name).copied().unwrap_or_default();
        let Some(word) = word.filter(|_| !command.words.is_empty()) else {
            return number;
        };
        let named = |n: &usize| {
            let (_, name) = self.entries[*n].name.split_once('|').unwrap_or_default();
            word.eq_ignore_ascii_case(name.as_bytes())
        };
        self.subcommands(number).find(named).unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn categories(name: &str) -> Vec<&'static str> {
        CATALOG.categories(&name.to_ascii_lowercase()).collect()
    }

    #[test]
    fn commands_are_in_the_categories_of_redis() {
        assert_eq!(categories("get"), ["read", "string", "fast"]);
        assert_eq!(categories("SET"), ["write", "string", "slow"]);
        assert_eq!(categories("config|get"), ["admin", "slow", "dangerous"]);
        assert_eq!(categories("config"), ["slow"]);
        assert_eq!(categories("client|id"), ["slow", "connection"]);
        assert_eq!(categories("select"), ["fast", "connection"]);
        assert_eq!(
            categories("flushall"),
            ["keyspace", "write", "slow", "dangerous"]
        );
    }

    #[test]
    fn each_command_does_to_its_keys_what_redis_says() {
        let access = |name: &str| {
            let entry = CATALOG.at(CATALOG.find(name.as_bytes()).expect("a command"));
            (entry.first, entry.others)
        };
        let (read, write) = (access_of("R"), access_of("W"));
        assert_eq!(access("get"), (read, read));
        assert_eq!(access("set"), (access_of("RW"), access_of("RW")));
        assert_eq!(access("mset"), (write, write));
        assert_eq!(access("strlen"), (access_of("-"), access_of("-")));
    }

    #[test]
    fn requests_find_their_subcommand() {
        let config = CATALOG
            .at(CATALOG.find(b"config").expect("a command"))
            .command;
        let name = |word| &CATALOG.at(CATALOG.number(config, word)).name;
        assert_eq!(name(Some(b"GET")), "config|get");
        assert_eq!(name(Some(b"nosuch")), "config");
        assert_eq!(name(None), "config");
        assert_eq!(CATALOG.find(b"nosuch"), None);
        assert_eq!(CATALOG.find(b"\xff"), None);
    }
}
