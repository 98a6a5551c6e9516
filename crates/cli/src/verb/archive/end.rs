//! `perdura archive end`

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura::{Db, Options};
use perdura_archive::backlog::FOLDER;
use perdura_recovery::TimelineName;

use crate::exit::Usage;
use crate::offline::{Directories, look};
use crate::output;

/// End the archiving of a stopped database.
///
/// The database then keeps only the log that its images need. The runs that wait for the archive on the log's disk are
/// removed. The archive stays as it is. The next server with the setting `archive` begins a new archive: in another
/// directory, or in the same one on a new timeline.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  perdura archive end --data perdura-data\n  \
    perdura archive end --data perdura-data --new-timeline after-monday"
)]
pub struct End {
    #[command(flatten)]
    directories: Directories,
    /// The name of the timeline on which the database continues: lower-case letters, digits, `-` and `_`. Its archive
    /// has a folder in the directory of the archive.
    #[arg(long, value_name = "NAME")]
    new_timeline: Option<TimelineName>,
}

/// Ends the archiving, and prints up to which epoch the archive has the log.
pub fn run(args: &End) -> Result<()> {
    let dir = args.directories.data.display().to_string();
    let paths = args.directories.paths();
    let Some(anchor) = look(&paths)? else {
        bail!(Usage(format!("there is no database in {dir}")));
    };
    let log_dir = paths.logs.first().unwrap_or(&paths.data);
    let backlog = log_dir.join(FOLDER);
    if anchor.archived.is_none() && !backlog.is_dir() && args.new_timeline.is_none() {
        bail!(Usage(format!("the database in {dir} is not archived")));
    }
    let options = Options {
        streams: anchor.streams,
        log_dirs: paths.logs.clone(),
        image_dirs: paths.images.clone(),
        ..Options::new(paths.data.clone())
    };
    let db = Db::open(options).with_context(|| dir.clone())?;
    let ended = db.end_archive(args.new_timeline.as_ref());
    let closed = db.close();
    ended.and(closed).with_context(|| dir.clone())?;
    if backlog.is_dir() {
        std::fs::remove_dir_all(&backlog).with_context(|| backlog.display().to_string())?;
    }
    let epoch = anchor.archived.map_or(0, |archived| archived.epoch.0);
    let mut text = format!(
        "ended     the archiving of {dir}; its archive has the log up to epoch {epoch} at least\n"
    );
    if let Some(name) = &args.new_timeline {
        text += &format!("continues on timeline {name}\n");
    }
    output::text(&text)
}
