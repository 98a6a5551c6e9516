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
    "Directory of the archive, on another disk than data and log. The log is sorted and copied \
     there. `perdura restore` makes a new database from a backup and the archive. The log is \
     kept until the archive has it.",
    database!(|o| path(o.archive.as_ref()), |o, v| put_path(
        &mut o.archive,
        v
    )),
);

pub const BACKLOG: Setting = row(
    "archive-backlog",
    Group::Database,
    ANY_BYTES,
    "The maximum size of runs and log that wait on the log's disk while the archive cannot be \
     reached. Beyond it writes are refused until the archive is back. 0: only the log waits, \
     until its disk is full.",
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
    "Whether the server merges the runs of its archive. no: an archive agent merges them in \
     another process.",
    database!(|o| one(yes_no(o.archive_merge)), |o, v| {
        boolean(&mut o.archive_merge, &v[0]);
        Ok(())
    }),
);

pub const KEEP: Setting = row(
    "archive-keep",
    Group::Database,
    Kind::Text,
    "Moments older than this may be removed from the archive, for example `30d`, with the \
     backups and runs that only they need. A backup for the oldest kept moment stays, and so \
     does the newest intact backup.",
    database!(
        |o| o
            .archive_retention
            .keep_us()
            .map(show_age)
            .into_iter()
            .collect(),
        |o, v| {
            let grains = o.archive_retention.to_string();
            o.archive_retention = Retention::parse(some(&v[0]), &grains)?;
            Ok(())
        }
    ),
)
.default("no limit");

pub const MOMENTS: Setting = row(
    "archive-moments",
    Group::Database,
    Kind::Text,
    "Which moments of the archive can be restored, by age. `all 1h, 1s 1d, 1min`: every moment \
     for an hour, one a second for a day, and one a minute beyond. Merges combine the records \
     between them.",
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

/// Returns the text, or `None` if it is blank.
fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.trim().is_empty())
}

const QUICK: &str = "quick";
const SELECTION: &str = "selection";

pub const GENERATION: Setting = row(
    "archive-generation",
    Group::Database,
    Kind::Choice(&[QUICK, SELECTION]),
    "How the log is sorted into runs. quick: sorts one workspace after the other. selection: \
     sorts in a tree, and reads while it writes.",
    database!(
        |o| one(if o.archive_selects { SELECTION } else { QUICK }),
        |o, v| {
            o.archive_selects = v[0] == SELECTION;
            Ok(())
        }
    ),
);
