//! Events that the commands do not report themselves: `new` (a key has appeared) and `keymiss` (a
//! key was looked up and not found).
//!
//! The server can report these events only if it knows which keys existed before the request. So it looks up each key
//! of the request beforehand, but only if a client listens to the classes of these events.

use super::event::{Class, Event};
use super::{Command, Data};
use crate::acl::catalog::CATALOG;
use crate::engine::Error;
use crate::notify::class;
use crate::resp::parse::Args;
use std::collections::HashSet;

/// Commands with lookups that Redis does not report.
const SILENT: [&str; 3] = ["object", "memory", "watch"];
/// Commands that write, but report a missing key like a reading command.
const READ_FIRST: [&str; 5] = ["getdel", "getex", "getset", "pfcount", "pfmerge"];

/// Keys of a request that did not exist before the request ran.
pub(crate) struct Absent {
    classes: u16,
    keys: Vec<Box<[u8]>>,
    /// The absent keys that the command only looks up.
    missed: Vec<Box<[u8]>>,
}

/// Finds the keys of a request that do not exist.
pub(crate) fn before(
    data: &Data<'_, '_>,
    classes: u16,
    command: &Command,
    args: &Args<'_>,
) -> Result<Absent, Error> {
    let entry = CATALOG.entry(command, args);
    let gets = command.name == "set" && args.from(3).any(|word| word.eq_ignore_ascii_case(b"GET"));
    let reads = gets || READ_FIRST.contains(&command.name);
    let silent = SILENT.contains(&command.name);
    let (mut keys, mut missed) = (Vec::new(), Vec::new());
    for (at, key) in command.key_args(args).enumerate() {
        if data.tx.peek(data.table, key)?.is_some() {
            continue;
        }
        keys.push(key.into());
        let looks = reads || entry.key_use(args, at == 0).only_looks();
        if classes & class::MISS != 0 && looks && !silent {
            missed.push(key.into());
        }
    }
    Ok(Absent {
        classes,
        keys,
        missed,
    })
}

/// Adds `new` and `keymiss` to the events of a command that has succeeded. The command's events
/// begin at `first`.
pub(crate) fn after(
    data: &Data<'_, '_>,
    events: &mut Vec<Event>,
    first: usize,
    absent: Absent,
) -> Result<(), Error> {
    let own = events.split_off(first);
    let event = |database, class, name, key: &[u8]| Event {
        database,
        class,
        name,
        key: key.into(),
    };
    let missed = absent.missed.iter();
    events.extend(missed.map(|key| event(data.database, Class::Miss, "keymiss", key)));
    if absent.classes & class::NEW == 0 {
        events.extend(own);
        return Ok(());
    }
    // Hash sets are used because one request may have half a million keys.
    let were_absent: HashSet<&[u8]> = absent.keys.iter().map(|key| &**key).collect();
    let mut told: HashSet<(u8, &[u8])> = HashSet::new();
    let mut appeared = Vec::new();
    for (at, change) in own.iter().enumerate() {
        let (database, key) = (change.database, &*change.key);
        // The commands with these events replace an existing key, so a key appears in any case.
        let moved = matches!(change.name, "rename_to" | "move_to" | "copy_to" | "restore");
        let was_there = database != data.database || !were_absent.contains(key);
        if (was_there && !moved) || told.contains(&(database, key)) {
            continue;
        }
        let is_there = data.tx.peek(data.table_of(database), key)?.is_some();
        let gone_at_once = || own[at..].iter().any(|later| later.class == Class::Expired);
        if is_there || gone_at_once() {
            told.insert((database, key));
            // On a rename or a move, `new` comes before the event of the old name.
            let place = match change.name {
                "rename_to" | "move_to" => at.saturating_sub(1),
                _ => at,
            };
            appeared.push((place, event(database, Class::New, "new", key)));
        }
    }
    let mut appeared = appeared.into_iter().peekable();
    for (at, change) in own.into_iter().enumerate() {
        while let Some((_, new)) = appeared.next_if(|(place, _)| *place == at) {
            events.push(new);
        }
        events.push(change);
    }
    Ok(())
}
