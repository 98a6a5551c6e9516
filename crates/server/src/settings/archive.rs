//! The settings of the archive.

use perdura::Retention;
use perdura::retention::words::show_age;

use super::kind::{Kind, boolean, number, yes_no};
use super::row::{ANY_BYTES, database, one, path, put_path, row};
use super::{Group, Setting};

pub const DIRECTORY: Setting = row(
    "archive",
    Group::Database,
    Kind::Path,
    "Directory of the archive, on another disk than data and log: the log goes there sorted, and `perdura restore` makes \
     the database anew of it and a backup. The log is kept until the archive has it.",
    database!(|o| path(o.archive.as_ref()), |o, v| put_path(
        &mut o.archive,
        v
    )),
);

pub const BACKLOG: Setting = row(
    "archive-backlog",
    Group::Database,
    ANY_BYTES,
    "How much waits on the log's disk while the archive is away, as runs that it gets when it is back, and as log. Then writes are refused \
     until it is back. 0: no runs are made meanwhile, and the log waits up to the end of its disk.",
    database!(|o| one(o.archive_backlog.unwrap_or(0)), |o, v| {
        let mut bytes = 0;
        number(&mut bytes, &v[0])?;
        o.archive_backlog = Some(bytes).filter(|bytes| *bytes > 0);
        Ok(())
    }),
);

pub const MERGE: Setting = row(
    "archive-merge",
    Group::Database,
    Kind::Bool,
    "Whether the server merges the runs of its archive; no: an archive agent does it, in another process.",
    database!(|o| one(yes_no(o.archive_merge)), |o, v| {
        boolean(&mut o.archive_merge, &v[0]);
        Ok(())
    }),
);

pub const KEEP: Setting = row(
    "archive-keep",
    Group::Database,
    Kind::Text,
    "Moments of the archive older than this may go, as `30d`, with the backups and runs that only they need. A backup that serves \
     the oldest moment that is kept stays, and so does the newest one that is whole.",
    database!(
        |o| o.archive_retention.keep_us().map(show_age).into_iter().collect(),
        |o, v| {
            let grains = o.archive_retention.to_string();
            o.archive_retention = Retention::parse(some(&v[0]), &grains)?;
            Ok(())
        }
    ),
)
.default("none goes");

pub const MOMENTS: Setting = row(
    "archive-moments",
    Group::Database,
    Kind::Text,
    "Which moments of the archive are kept until then, by age: `all 1h, 1s 1d, 1min` is each one for an hour, one a second for a day, \
     and one a minute beyond. Merges combine the records between them.",
    database!(
        |o| {
            let grains = o.archive_retention.to_string();
            some(&grains).map(str::to_owned).into_iter().collect()
        },
        |o, v| {
            let keep = o.archive_retention.keep_us().map(show_age);
            o.archive_retention = Retention::parse(keep.as_deref(), &v[0])?;
            Ok(())
        }
    ),
)
.default("each");

/// Returns the text. `None`: it is blank.
fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.trim().is_empty())
}

const QUICK: &str = "quick";
const SELECTION: &str = "selection";

pub const GENERATION: Setting = row(
    "archive-generation",
    Group::Database,
    Kind::Choice(&[QUICK, SELECTION]),
    "How records of the log become runs: quick sorts a workspace at a time, selection keeps a tree that reads on while it writes.",
    database!(
        |o| one(if o.archive_selects { SELECTION } else { QUICK }),
        |o, v| {
            o.archive_selects = v[0] == SELECTION;
            Ok(())
        }
    ),
);
