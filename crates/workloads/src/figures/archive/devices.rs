//! Figure 1: the time of replaying an unsorted and a sorted log on a modelled hard disk.

use anyhow::{Result, ensure};

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Bar, Chart, Panel, Plot};
use super::stand::{ArchiveStand, Shape};
use super::{HARD_DISK, HARD_DISK_IN_ORDER};
use crate::num::{f64_of, ratio};

/// The size of the database, divided by that of the buffer pool.
const POOL: u64 = 100;
/// The number of bytes that an update changes.
const CHANGED_BYTES: usize = 100;

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let scale = &lab.scale.archive;
    let shape = Shape {
        image_mb: scale.device_image_mb,
        updates: scale.device_updates,
        changed_bytes: CHANGED_BYTES,
    };
    lab.say(&format!(
        "an image of {} MB and a log of {} updates",
        shape.image_mb, shape.updates
    ));
    let stand = ArchiveStand::new(&shape, lab.seed)?;
    // Only one thread, because the model serves the accesses of several threads at the same time,
    // which no hard disk does.
    let restoring = stand.restoring(HARD_DISK, HARD_DISK, 1);
    let inputs = restoring.inputs()?;
    lab.say("the single pass");
    let (single_seconds, single) = restoring.restore()?;
    let pool = usize::try_from(single.pages / POOL)?.max(1);
    lab.say(&format!("the replay through a pool of {pool} pages"));
    let replay = stand
        .restoring(HARD_DISK_IN_ORDER, HARD_DISK, 1)
        .replay(pool)?;
    ensure!(
        replay.restored.applied == single.applied,
        "both apply the same records"
    );
    let replay_seconds = f64_of(replay.replay_ns) / 1e9;
    let faster = ratio(replay_seconds, single_seconds);
    let bar = |label: &str, seconds: f64| Bar {
        label: label.into(),
        parts: vec![("Log replay".into(), seconds)],
    };
    Ok(Figure {
        name: "004-fig1",
        title: "time to replay a traditional and a sorted log".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} updates of {CHANGED_BYTES} bytes, uniform; backup {:.1} MB, log {:.1} MB; pool of {pool} of {} pages",
                shape.updates,
                f64_of(inputs.backup_bytes) / 1e6,
                f64_of(inputs.log_bytes) / 1e6,
                single.pages
            ),
            format!(
                "modelled disks of {} MB/s, {} us a read; the traditional replay is onto a standing copy of the backup and \
                 reads its log without that, the single pass reads the backup and writes the database as well; one thread",
                HARD_DISK.mbps, HARD_DISK.latency_us
            ),
        ],
        columns: "way,seconds,page_reads,page_writes",
        rows: vec![
            vec![
                "traditional".into(),
                cell(replay_seconds),
                replay.page_reads.into(),
                replay.page_writes.into(),
            ],
            vec![
                "single pass".into(),
                cell(single_seconds),
                single.page_reads.into(),
                single.page_writes.into(),
            ],
        ],
        claims: vec![
            Claim::measured(
                "traditional / single pass, seconds",
                "34 (4 hours, 7 minutes)",
                Target::AtLeast(20.0),
                faster,
                "grows with the log: each update costs an access, and the single pass its bytes",
            ),
            Claim::reported(
                "single pass",
                "7 minutes",
                single_seconds,
                "with the copying of the backup, which the paper leaves out",
            )
            .in_unit(" s"),
            Claim::reported(
                "accesses of the traditional replay for each update",
                "0.25 (the introduction's example)",
                ratio(f64_of(replay.page_reads), f64_of(shape.updates)),
                "a pool of a hundredth helps uniform updates little",
            ),
        ],
        plot: Plot {
            title: "Figure 1: time to replay the log".into(),
            subtitle: format!("modelled disk, pool of 1 % of the database: {faster:.0} times"),
            panels: vec![Panel::new(
                "",
                "Time (sec)",
                Chart::Bars(vec![
                    bar("Traditional", replay_seconds),
                    bar("Single pass", single_seconds),
                ]),
            )],
        },
    })
}
