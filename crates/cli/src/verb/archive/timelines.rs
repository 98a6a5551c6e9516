//! `perdura archive timelines`

use std::path::Path;

use anyhow::Result;
use clap::Parser;
use perdura_base::moment::moment;
use perdura_recovery::TIMELINES;
use perdura_restore::reachable::Reachable;
use serde::Serialize;

use super::{Which, open};
use crate::output;

/// Print the timelines of an archive.
///
/// The first timeline has no name. A copy of the database that was set back may continue on a named one (`archive end
/// --new-timeline`). `restore --timeline` and the other verbs of archives choose a timeline by its name. Changes nothing.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive timelines --archive /backup/perdura")]
pub struct Timelines {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ShownTimelines {
    timelines: Vec<ShownTimeline>,
}

/// A timeline.
#[derive(Serialize)]
struct ShownTimeline {
    /// The name. `None`: the first timeline.
    name: Option<String>,
    uuid: String,
    /// The first moment. `None`: nothing can be restored.
    from_epoch: Option<u64>,
    to_epoch: Option<u64>,
    from_us: u64,
    to_us: u64,
    backups: usize,
    /// The reason why the timeline cannot be read.
    problem: Option<String>,
}

/// Prints the first timeline and the named ones.
pub fn run(args: &Timelines) -> Result<()> {
    let archive = &args.which.archive;
    let uuid = args.which.uuid.as_deref();
    let mut timelines = Vec::new();
    if args.which.timeline.is_none() {
        timelines.push(line(None, archive, uuid));
    }
    for name in names(archive)? {
        let dir = archive.join(TIMELINES).join(&name);
        let is_chosen = args.which.timeline.as_ref();
        if is_chosen.is_none_or(|chosen| chosen.to_string() == name) {
            timelines.push(line(Some(name), &dir, uuid));
        }
    }
    let shown = ShownTimelines { timelines };
    if args.json {
        return output::json(&shown);
    }
    let lines: String = shown.timelines.iter().map(text).collect();
    output::text(&output::shown(&lines))
}

/// Returns the names of the timelines, in their order.
pub fn names(archive: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(archive.join(TIMELINES)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the description of the timeline in a directory.
fn line(name: Option<String>, dir: &Path, uuid: Option<&str>) -> ShownTimeline {
    let mut line = ShownTimeline {
        name,
        uuid: String::new(),
        from_epoch: None,
        to_epoch: None,
        from_us: 0,
        to_us: 0,
        backups: 0,
        problem: None,
    };
    let found = open(dir, uuid).and_then(|store| {
        let reachable = Reachable::of(&store)?;
        Ok((store, reachable))
    });
    match found {
        Ok((store, reachable)) => {
            line.uuid = store.uuid().to_string();
            line.backups = reachable.backups.len();
            if let (Some(first), Some(last)) = (reachable.ranges.first(), reachable.ranges.last()) {
                line.from_epoch = Some(first.first.0);
                line.to_epoch = Some(last.last.0);
                (line.from_us, line.to_us) = (first.wall_us.0, last.wall_us.1);
            }
        }
        Err(error) => line.problem = Some(format!("{error:#}")),
    }
    line
}

fn text(line: &ShownTimeline) -> String {
    let name = line.name.as_deref().unwrap_or("(first)");
    if let Some(problem) = &line.problem {
        return format!("{name:<16}{problem}\n");
    }
    let moments = match (line.from_epoch, line.to_epoch) {
        (Some(from), Some(to)) => format!(
            "epochs {from} to {to}, {} to {}",
            moment(line.from_us),
            moment(line.to_us)
        ),
        _ => "no moments".into(),
    };
    format!(
        "{name:<16}database {}, {moments}, {} backups\n",
        line.uuid, line.backups
    )
}
