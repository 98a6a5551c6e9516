//! The source of keys in a Redis dump file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};
use perdura_rdb::{Entry, Item, What};

use super::progress::Line;
use super::report::Read;
use super::{Databases, Part, Sink, now_ms};

/// The number of keys between two updates of the progress line.
const KEYS_A_LOOK: u64 = 256;

/// Reads a whole dump file and passes its keys to a sink. The path `-` means stdin.
pub fn read(
    path: &Path,
    databases: &Databases,
    sink: &mut dyn Sink,
    read: &mut Read,
) -> Result<()> {
    let name = path.display().to_string();
    let (input, size): (Box<dyn std::io::Read>, _) = if name == "-" {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = File::open(path).with_context(|| name.clone())?;
        let size = file.metadata().with_context(|| name.clone())?.len();
        (Box::new(file.take(u64::MAX)), Some(size))
    };
    let line = Line::new(size);
    let mut file = perdura_rdb::File::open(input).with_context(|| name.clone())?;
    let mut looks = 0;
    while let Some(item) = file.next_item().with_context(|| name.clone())? {
        match item {
            Item::Key(entry) => key(&entry, databases, sink, read)?,
            Item::Library(code) => {
                read.libraries += 1;
                sink.library(&code)?;
            }
            Item::Skipped { what, db, key } => {
                let why = match what {
                    What::Module => "a value of a module",
                    What::ModuleAux => "data of a module",
                };
                if databases.target(db).is_some() {
                    read.unsupported.add(db, &key, why);
                }
            }
            Item::Size { .. } | Item::Remark { .. } => {}
        }
        looks += 1;
        if looks % KEYS_A_LOOK == 0 {
            line.show(file.position(), read);
        }
    }
    line.end();
    Ok(())
}

fn key(entry: &Entry, databases: &Databases, sink: &mut dyn Sink, read: &mut Read) -> Result<()> {
    let Some(db) = databases.target(entry.db) else {
        return Ok(());
    };
    if entry.expires_at_ms.is_some_and(|at| at <= now_ms()) {
        read.expired += 1;
        return Ok(());
    }
    if entry.value.is_empty() {
        read.unsupported
            .add(entry.db, &entry.key, "a collection without elements");
        return Ok(());
    }
    read.key(entry.value.type_name(), entry.expires_at_ms.is_some());
    read.elements(&entry.value);
    read.fields_with_deadline += entry.fields_with_deadline;
    sink.part(&Part {
        db,
        key: &entry.key,
        value: &entry.value,
        first: true,
        last: true,
        expires_at_ms: entry.expires_at_ms,
    })
}
