//! The settings of the archive.

use super::kind::{Kind, boolean, yes_no};
use super::row::{database, one, path, put_path, row};
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
