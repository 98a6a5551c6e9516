//! The commands for access rules: all commands and subcommands, with categories and key uses.
//!
//! Facts about Redis's commands come from Redis (`facts.txt`), so rules such as `+@read -@dangerous` have Redis's
//! meaning. For a command that Redis lacks, the flags determine the categories.
//!
//! Each command and subcommand has a *number*: its index in the catalog. The numbers of a command's subcommands follow
//! the command's own number. Numbers are assigned when the process starts and are never stored.

use crate::command::{Command, Keys, flag, table};
use crate::resp::parse::Args;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The categories in Redis's order.
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

/// The access of a command to a key: reading, writing, both or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    /// True if the command returns the key's contents or copies them elsewhere.
    pub read: bool,
    /// True if the command changes the key's contents.
    pub write: bool,
}

/// The use of a key by a command, as flags of a Redis key specification: `RW`, `access` …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyUse(&'static str);

impl KeyUse {
    /// A key that is overwritten without being read.
    const OVERWRITE: KeyUse = KeyUse("OW.update");
    /// A key that is only read.
    const READ: KeyUse = KeyUse("RO.access");

    /// Returns the flags.
    pub(crate) fn flags(self) -> impl Iterator<Item = &'static str> + Clone {
        self.0.split('.').filter(|flag| !flag.is_empty())
    }

    /// Returns whether the command only reads the key. If this key is missing, Redis publishes `keymiss`.
    pub(crate) fn only_looks(self) -> bool {
        self.0.starts_with("RO")
    }

    /// Returns the access to the key that the user's rules must allow.
    pub(crate) fn access(self) -> Access {
        let changes = |flag| ["update", "insert", "delete"].contains(&flag);
        Access {
            read: self.flags().any(|flag| flag == "access"),
            write: self.flags().any(changes),
        }
    }
}

/// A command or a subcommand.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name: `get`, or `config|get`.
    pub name: String,
    /// The command itself. For a subcommand, the command that contains it.
    pub command: &'static Command,
    /// The number of the command that contains this subcommand; `None` for a command.
    pub parent: Option<usize>,
    /// The categories, one bit for each of [`CATEGORIES`].
    categories: u32,
    /// The access to every key except the first.
    pub others: Access,
    /// The use of the first key, and the use of all other keys.
    uses: (KeyUse, KeyUse),
}

impl Entry {
    /// Returns the use of a request's first key if `first` is true, otherwise the use of its other keys. For SET and
    /// BITFIELD the use depends on the arguments.
    pub(crate) fn key_use(&self, args: &Args<'_>, first: bool) -> KeyUse {
        let gets = || args.from(3).any(|arg| arg.eq_ignore_ascii_case(b"GET"));
        match self.name.as_str() {
            "set" if !gets() => KeyUse::OVERWRITE,
            "bitfield" if only_gets(args) => KeyUse::READ,
            _ => self.any_use(first),
        }
    }

    /// Returns whether the command uses no keys. Neither a container of subcommands nor a HELP subcommand uses keys.
    pub(crate) fn has_no_keys(&self) -> bool {
        self.uses.0 == KeyUse::default()
    }

    /// Returns the use of the first key if `first` is true, otherwise the use of the other keys. Ignores the arguments.
    pub(crate) fn any_use(&self, first: bool) -> KeyUse {
        if first { self.uses.0 } else { self.uses.1 }
    }

    /// Returns whether the command is in Redis's category `write`.
    pub(crate) fn is_write(&self) -> bool {
        self.categories & bit("write") != 0
    }

    /// Returns whether the command is in the category `CATEGORIES[category]`.
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories & (1 << category) != 0
    }
}

/// All commands and subcommands.
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
    uses: HashMap<&'static str, (KeyUse, KeyUse)>,
}

impl Facts {
    fn read() -> Self {
        let mut facts = Facts::default();
        let (mut bit, mut uses) = (0, None);
        let body = include_str!("facts.txt").lines();
        for line in body.skip_while(|line| !line.starts_with('@')) {
            let mut words = line.split_whitespace();
            if let Some(category) = line.strip_prefix('@') {
                let name = category.split(' ').next().unwrap_or_default();
                bit = category_number(name.as_bytes()).map_or(0, |number| 1 << number);
                uses = None;
                words.next();
            } else if let Some(keys) = line.strip_prefix('%') {
                let keys = keys.split(' ').next().unwrap_or_default();
                let (first, others) = keys.split_once(',').unwrap_or((keys, keys));
                uses = Some((KeyUse(first), KeyUse(others)));
                words.next();
            }
            for name in words {
                match uses {
                    Some(uses) => {
                        facts.uses.insert(name, uses);
                    }
                    None => *facts.categories.entry(name).or_default() |= bit,
                }
            }
        }
        facts
    }
}

/// Returns whether all operations of a BITFIELD only read. An operation that cannot be parsed
/// counts as a write.
fn only_gets(args: &Args<'_>) -> bool {
    let mut at = 2;
    while at < args.len() {
        at += match args.at(at).to_ascii_lowercase().as_slice() {
            b"get" => 3,
            b"overflow" => 2,
            _ => return false,
        };
    }
    at == args.len()
}

/// Returns the index in [`CATEGORIES`] of the category called `name`, in any case.
pub(crate) fn category_number(name: &[u8]) -> Option<usize> {
    CATEGORIES
        .iter()
        .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn bit(name: &str) -> u32 {
    category_number(name.as_bytes()).map_or(0, |number| 1 << number)
}

/// Returns the categories of a command that Redis does not have, by the command's flags.
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

    /// Returns the entry of a command, or of the subcommand that its arguments name.
    pub(crate) fn entry(&self, command: &Command, args: &Args<'_>) -> &Entry {
        let word = (args.len() > 1).then(|| args.at(1));
        self.at(self.number(command, word))
    }

    /// Returns the entry called `name`, which must be in lower case.
    pub(crate) fn named(&self, name: &str) -> Option<&Entry> {
        self.numbers.get(name).map(|number| &self.entries[*number])
    }

    fn add(
        &mut self,
        facts: &Facts,
        command: &'static Command,
        name: String,
        parent: Option<usize>,
    ) -> usize {
        let known = facts.categories.get(name.as_str()).copied();
        // The facts mark the fast commands. Every other entry counts as slow, including containers.
        let is_known = known.is_some() || facts.uses.contains_key(name.as_str());
        let mut categories = known.unwrap_or_else(|| {
            if is_known || (command.words.is_empty() && parent.is_none()) {
                categories_of_flags(command)
            } else {
                0
            }
        });
        if categories & bit("fast") == 0 {
            categories |= bit("slow");
        }
        // If Redis's facts do not list the command's keys, the command's flags determine their use.
        let by_flags = match (command.has(flag::WRITE), command.has(flag::READ)) {
            _ if command.keys == Keys::None || !command.words.is_empty() => KeyUse::default(),
            (true, _) => KeyUse("RW.access.update"),
            (false, true) => KeyUse::READ,
            (false, false) => KeyUse::default(),
        };
        let uses = facts.uses.get(name.as_str()).copied();
        let uses = uses.unwrap_or((by_flags, by_flags));
        let number = self.entries.len();
        self.numbers.insert(name.clone(), number);
        self.entries.push(Entry {
            name,
            command,
            parent,
            categories,
            others: uses.1.access(),
            uses,
        });
        number
    }

    /// Returns the categories of a command or a subcommand, by its name in lower case.
    pub(crate) fn categories(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let of = self
            .numbers
            .get(name)
            .map_or(0, |n| self.entries[*n].categories);
        let held = CATEGORIES.iter().enumerate();
        held.filter(move |(n, _)| of & (1 << n) != 0)
            .map(|(_, name)| *name)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry with the number `number`.
    pub(crate) fn at(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// Returns all entries with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate()
    }

    /// Returns the numbers of a command's subcommands.
    pub(crate) fn subcommands(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        let children = self.entries[number + 1..].iter();
        let count = children.take_while(|e| e.parent == Some(number)).count();
        number + 1..=number + count
    }

    /// Returns the number of the command or subcommand called `name` (`get`, `config|get`), in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.numbers.get(&name).copied()
    }

    /// Returns the number of a command, or of its subcommand called `word` if there is one.
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
            (entry.any_use(true).access(), entry.others)
        };
        let access = |name: &str| {
            let (first, others) = access(name);
            ((first.read, first.write), (others.read, others.write))
        };
        let (read, write, both) = ((true, false), (false, true), (true, true));
        assert_eq!(access("get"), (read, read));
        assert_eq!(access("set"), (both, both));
        assert_eq!(access("mset"), (write, write));
        assert_eq!(access("rename"), (both, write));
        assert_eq!(access("strlen"), ((false, false), (false, false)));
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
