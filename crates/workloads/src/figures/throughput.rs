//! Figure 9: transactions a second by the number of log disks and by the size of a slot.

use std::sync::Arc;

use anyhow::Result;
use perdura_steal::{Route, Steal};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{Plant, Speeds};
use super::plot::{Chart, Panel, Plot, Series};
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};
use crate::num::{count_f64, ratio};
use crate::sms::{Driver, Pace, RunLimit, Speed, run_for};

/// The time of a sync in addition to the transfer, microseconds: half a turn of the paper's disks.
const SYNC_US: u64 = 4_170;
/// The size of a segment. It is large, because every segment costs additional syncs.
const SEGMENT_BYTES: u64 = 64 << 20;
/// The slot size of the first panel.
const PAPER_SLOT: usize = 256;
/// The number of log disks in the second panel.
const SLOT_DISKS: usize = 4;

struct Point {
    scheme: Scheme,
    disks: usize,
    slot_bytes: usize,
    speed: Speed,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let mut by_disks = Vec::new();
    let mut by_slot = Vec::new();
    for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
        for disks in lab.scale.disks {
            by_disks.push(measure(lab, scheme, *disks, PAPER_SLOT)?);
        }
        for slot_bytes in lab.scale.slots {
            by_slot.push(measure(lab, scheme, SLOT_DISKS, *slot_bytes)?);
        }
    }
    for slot_bytes in lab.scale.slots {
        by_slot.push(measure(lab, Scheme::Pl2p, 1, *slot_bytes)?);
    }
    Ok(Figure {
        name: "000-fig9",
        title: "throughput by log disks and by slot size".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![format!(
            "{} rows of 256 bytes, as many bytes of longer ones; 2 % aborts; log disks at \
             {PAPER_DISK_MBPS} MB/s, {SYNC_US} us a sync; {:.1} s each after {:.1} s of filling the \
             queues; transactions counted when durable",
            rows(lab),
            lab.scale.measured.as_secs_f64(),
            lab.scale.warm_up.as_secs_f64()
        )],
        columns: "scheme,log_disks,slot_bytes,txns,seconds,tps,latency_p50_us,latency_p99_us",
        rows: by_disks.iter().chain(&by_slot).map(row).collect(),
        claims: claims(lab, &by_disks, &by_slot),
        plot: plot(&by_disks, &by_slot),
    })
}

fn measure(lab: &Lab<'_>, scheme: Scheme, disks: usize, slot_bytes: usize) -> Result<Point> {
    lab.say(&format!(
        "{}({disks}), slots of {slot_bytes} bytes",
        scheme_label(scheme)
    ));
    let mut sms = lab.sms(scheme);
    sms.slot_bytes = slot_bytes;
    sms.route = Route::Idlest;
    sms.segment_bytes = SEGMENT_BYTES;
    sms.rows = rows(lab) * 256 / u64::try_from(slot_bytes.max(256))?;
    let plant = Plant::new(disks, 1);
    let speeds = Speeds {
        log: PAPER_DISK_MBPS,
        image: 0,
    };
    let env = plant.env(speeds, SYNC_US, lab.seed);
    let steal = Arc::new(Steal::create(env, sms.store())?);
    let mut driver = Driver::fill(&steal, &sms)?;
    let limit = RunLimit::Time {
        warm_up: lab.scale.warm_up,
        measured: lab.scale.measured,
    };
    let mut pace = Pace::new(&sms, 0);
    let speed = run_for(&mut driver, &steal, &mut pace, limit)?;
    Ok(Point {
        scheme,
        disks,
        slot_bytes,
        speed,
    })
}

/// Returns the number of rows. There are fewer than in other experiments, because no restart reads them here.
fn rows(lab: &Lab<'_>) -> u64 {
    (lab.scale.rows / 4).max(1_000)
}

fn row(point: &Point) -> Vec<Value> {
    vec![
        scheme_label(point.scheme).into(),
        point.disks.into(),
        point.slot_bytes.into(),
        point.speed.txns.into(),
        cell(point.speed.seconds),
        cell(point.speed.tps()),
        point.speed.latency_us.p50.into(),
        point.speed.latency_us.p99.into(),
    ]
}

fn tps(points: &[Point], scheme: Scheme, disks: usize, slot_bytes: usize) -> f64 {
    let found = points.iter().find(|point| {
        point.scheme == scheme && point.disks == disks && point.slot_bytes == slot_bytes
    });
    found.map_or(0.0, |point| point.speed.tps())
}

fn claims(lab: &Lab<'_>, by_disks: &[Point], by_slot: &[Point]) -> Vec<Claim> {
    let most = lab.scale.disks.last().copied().unwrap_or(1);
    let disks = |scheme, count| tps(by_disks, scheme, count, PAPER_SLOT);
    let slots = |scheme, count, bytes| tps(by_slot, scheme, count, bytes);
    let gains: Vec<f64> = lab
        .scale
        .disks
        .iter()
        .map(|count| ratio(disks(Scheme::Dl1p, *count), disks(Scheme::Pl2p, *count)))
        .collect();
    let large = lab.scale.slots.last().copied().unwrap_or(PAPER_SLOT);
    let small = lab.scale.slots.first().copied().unwrap_or(PAPER_SLOT);
    let gain = |bytes| {
        ratio(
            slots(Scheme::Dl1p, SLOT_DISKS, bytes),
            slots(Scheme::Pl2p, SLOT_DISKS, bytes),
        )
    };
    vec![
        Claim::measured(
            "least DL1P / PL2P throughput at equal disks",
            "above 1.8",
            Target::AtLeast(1.8),
            gains.into_iter().fold(f64::MAX, f64::min),
            "the disks are the wall: the volume decides",
        ),
        Claim::measured(
            &format!("DL1P throughput, {most} disks / 1"),
            "in proportion to the disks",
            Target::AtLeast(0.625 * count_f64(most)),
            ratio(disks(Scheme::Dl1p, most), disks(Scheme::Dl1p, 1)),
            "one client thread and all flushers share the cores",
        ),
        Claim::measured(
            &format!("DL1P({most}) / PL2P(1) throughput"),
            "9.6 on eight",
            Target::AtLeast(1.15 * count_f64(most)),
            ratio(disks(Scheme::Dl1p, most), disks(Scheme::Pl2p, 1)),
            "",
        ),
        Claim::measured(
            &format!("DL1P(4) / PL2P(4) throughput, {large}-byte slots"),
            "approaches 2",
            Target::AtLeast(1.9),
            gain(large),
            "",
        ),
        Claim::measured(
            &format!("the same gain at {large} bytes / at {small} bytes"),
            "grows with the slot",
            Target::AtLeast(1.05),
            ratio(gain(large), gain(small)),
            "the heads of records weigh less",
        ),
        Claim::measured(
            "DL1P(4) / PL2P(1) throughput, 256-byte slots",
            "about 6",
            Target::AtLeast(6.0),
            ratio(
                slots(Scheme::Dl1p, SLOT_DISKS, PAPER_SLOT),
                slots(Scheme::Pl2p, 1, PAPER_SLOT),
            ),
            "",
        ),
    ]
}

fn plot(by_disks: &[Point], by_slot: &[Point]) -> Plot {
    let line = |points: &[Point], scheme, disks: Option<usize>, x: fn(&Point) -> usize| {
        let of = points
            .iter()
            .filter(|point| point.scheme == scheme && disks.is_none_or(|d| point.disks == d));
        let line: Vec<(f64, f64)> = of
            .map(|point| (count_f64(x(point)), point.speed.tps()))
            .collect();
        line
    };
    let slot_line = |scheme, disks: usize| {
        Series::solid(
            format!("{}({disks})", scheme_label(scheme)),
            line(by_slot, scheme, Some(disks), |point| point.slot_bytes),
        )
    };
    Plot {
        title: "Figure 9: logging performance".into(),
        subtitle: format!("SMS, 2 % aborts, log disks at {PAPER_DISK_MBPS} MB/s"),
        panels: vec![
            Panel::new(
                "(a) With the number of log disks",
                "Throughput (TPS)",
                Chart::lines(
                    "#log disks",
                    [Scheme::Pl2p, Scheme::Dl1p]
                        .map(|scheme| {
                            Series::solid(
                                scheme_label(scheme),
                                line(by_disks, scheme, None, |point| point.disks),
                            )
                        })
                        .to_vec(),
                ),
            ),
            Panel::new(
                "(b) With the size of a slot",
                "Throughput (TPS)",
                Chart::lines(
                    "Slot size (bytes)",
                    vec![
                        slot_line(Scheme::Pl2p, 1),
                        slot_line(Scheme::Pl2p, SLOT_DISKS),
                        slot_line(Scheme::Dl1p, SLOT_DISKS),
                    ],
                ),
            ),
        ],
    }
}
