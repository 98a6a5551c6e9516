//! Figure 9: transactions a second by the number of log disks and by the size of a slot.

use std::sync::Arc;

use anyhow::Result;
use perdura_steal::{Route, Steal};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::Speeds;
use super::paper::Paper;
use super::plot::{Chart, Panel, Plot, Series};
use super::real::Backing;
use super::real::beside::{near, on_real};
use super::scale::{PAPER_DISK_MBPS, Scale};
use super::{Lab, scheme_label};
use crate::num::{count_f64, ratio};
use crate::sms::{Driver, Pace, RunLimit, Speed, run_for};

/// The microseconds that a sync takes in addition to the transfer. They are half a turn of the paper's disks.
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

/// The measurements on one site.
#[derive(Default)]
struct Panelled {
    /// The points of the first panel.
    by_disks: Vec<Point>,
    /// The points of the second panel. Empty: there are fewer than [`SLOT_DISKS`] disks.
    by_slot: Vec<Point>,
}

impl Panelled {
    /// Measures the points for which `site` has enough disks.
    fn on(lab: &Lab<'_>, site: Backing<'_>) -> Result<Panelled> {
        let mut measured = Panelled::default();
        let has_slots = !site.log_counts(&[SLOT_DISKS]).is_empty();
        let slots = if has_slots { lab.scale.slots } else { &[] };
        for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
            for disks in site.log_counts(lab.scale.disks) {
                let point = measure(lab, site, scheme, disks, PAPER_SLOT)?;
                measured.by_disks.push(point);
            }
            for slot_bytes in slots {
                let point = measure(lab, site, scheme, SLOT_DISKS, *slot_bytes)?;
                measured.by_slot.push(point);
            }
        }
        for slot_bytes in slots {
            let point = measure(lab, site, Scheme::Pl2p, 1, *slot_bytes)?;
            measured.by_slot.push(point);
        }
        Ok(measured)
    }

    fn all(&self) -> impl Iterator<Item = &Point> {
        self.by_disks.iter().chain(&self.by_slot)
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of real disks.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let modelled = Panelled::on(lab, Backing::Modelled)?;
    let mut setting = vec![format!(
        "{} rows of 256 bytes, as many bytes of longer ones; 2 % aborts; log disks at \
         {PAPER_DISK_MBPS} MB/s, {SYNC_US} us a sync; {:.1} s each after {:.1} s of filling the \
         queues; transactions counted when durable",
        rows(lab),
        lab.scale.measured.as_secs_f64(),
        lab.scale.warm_up.as_secs_f64()
    )];
    let mut claims = claims(&lab.scale, lab.scale.disks, &modelled);
    let mut rows: Vec<_> = modelled
        .all()
        .map(|point| row(point, Backing::Modelled))
        .collect();
    let mut panels = panels(&modelled, ['a', 'b'], "");
    if let Some(site) = lab.real()? {
        let real = Panelled::on(lab, site)?;
        setting.extend(site.setting(lab.scale.disks, &site.log_counts(lab.scale.disks)));
        setting.push(format!(
            "real disks: runs {} times as long, syncs at their own speed, and the space of the log allocated before",
            site.longer()
        ));
        claims.extend(real_claims(lab, site, &real, &modelled));
        rows.extend(real.all().map(|point| row(point, site)));
        panels.extend(self::panels(&real, ['c', 'd'], ", real disks"));
    }
    Ok(Figure {
        name: "000-fig9",
        title: "throughput by log disks and by slot size".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "scheme,log_disks,disk_mbps,slot_bytes,txns,seconds,tps,latency_p50_us,latency_p99_us",
        rows,
        claims,
        plot: Plot {
            title: "Figure 9: logging performance".into(),
            subtitle: format!("SMS, 2 % aborts, log disks at {PAPER_DISK_MBPS} MB/s"),
            panels,
        },
    })
}

/// Measures a scheme on a number of log disks.
fn measure(
    lab: &Lab<'_>,
    site: Backing<'_>,
    scheme: Scheme,
    disks: usize,
    slot_bytes: usize,
) -> Result<Point> {
    lab.say(&format!(
        "{}({disks}), slots of {slot_bytes} bytes, {}",
        scheme_label(scheme),
        site.name()
    ));
    let mut sms = lab.sms(scheme);
    sms.slot_bytes = slot_bytes;
    sms.route = Route::Idlest;
    sms.segment_bytes = SEGMENT_BYTES;
    sms.rows = rows(lab) * 256 / u64::try_from(slot_bytes.max(256))?;
    let plant = site.laid_out(disks, 1)?;
    let speeds = Speeds {
        log: PAPER_DISK_MBPS,
        image: 0,
    };
    let env = plant.env(speeds, SYNC_US, lab.seed);
    let steal = Arc::new(Steal::create(env, sms.store())?);
    let mut driver = Driver::fill(&steal, &sms)?;
    let longer = site.longer();
    let limit = RunLimit::Time {
        warm_up: lab.scale.warm_up * longer,
        measured: lab.scale.measured * longer,
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

fn row(point: &Point, site: Backing<'_>) -> Vec<Value> {
    vec![
        scheme_label(point.scheme).into(),
        point.disks.into(),
        site.rate_cell(PAPER_DISK_MBPS),
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

/// Returns the claims about the log disks `counts`. Without points for slot sizes, there are no claims about these.
fn claims(scale: &Scale, counts: &[usize], measured: &Panelled) -> Vec<Claim> {
    let mut claims = disk_claims(counts, &measured.by_disks);
    if !measured.by_slot.is_empty() {
        claims.extend(slot_claims(scale.slots, &measured.by_slot));
    }
    claims
}

/// Returns the claims about real disks: those of the paper, and how near the models are.
fn real_claims(
    lab: &Lab<'_>,
    site: Backing<'_>,
    real: &Panelled,
    modelled: &Panelled,
) -> Vec<Claim> {
    let counts = site.log_counts(lab.scale.disks);
    let mut claims = on_real(claims(&lab.scale, &counts, real));
    for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
        let of = |points, disks| tps(points, scheme, disks, PAPER_SLOT);
        let pairs = counts
            .iter()
            .map(|disks| (of(&real.by_disks, *disks), of(&modelled.by_disks, *disks)));
        let label = scheme_label(scheme);
        let what = format!("throughput of {label} on any number of disks");
        claims.push(near(site, &what, pairs));
    }
    let slots = real.by_slot.iter().map(|point| {
        let beside = tps(
            &modelled.by_slot,
            point.scheme,
            point.disks,
            point.slot_bytes,
        );
        (point.speed.tps(), beside)
    });
    let slots: Vec<(f64, f64)> = slots.collect();
    if !slots.is_empty() {
        claims.push(near(site, "throughput of both at any slot size", slots));
    }
    claims
}

/// Returns the claims about the log disks `counts`, in ascending order. Claims about more disks need more than one.
fn disk_claims(counts: &[usize], points: &[Point]) -> Vec<Claim> {
    let most = counts.last().copied().unwrap_or(1);
    let of = |scheme, count| tps(points, scheme, count, PAPER_SLOT);
    let gains = counts
        .iter()
        .map(|count| ratio(of(Scheme::Dl1p, *count), of(Scheme::Pl2p, *count)));
    let mut claims = vec![Claim::measured(
        "least DL1P / PL2P throughput at equal disks",
        Paper::above("over 1.8 times", 1.8),
        Bounds(Better::More, Finding::AtLeast(1.0)),
        gains.fold(f64::MAX, f64::min),
        "the disks are the wall: the volume decides",
    )];
    if most == 1 {
        return claims;
    }
    claims.push(Claim::measured(
        &format!("DL1P({most}) / PL2P(1) throughput"),
        Paper::of("9.6 times on eight", 9.6),
        Bounds(Better::More, Finding::AtLeast(1.0)),
        ratio(of(Scheme::Dl1p, most), of(Scheme::Pl2p, 1)),
        "",
    ));
    for scheme in [Scheme::Dl1p, Scheme::Pl2p] {
        let scaled = count_f64(most);
        claims.push(Claim::measured(
            &format!("{} throughput, {most} disks / 1", scheme_label(scheme)),
            Paper::of(&format!("in proportion to the disks = {most}"), scaled),
            Bounds(Better::More, Finding::AtLeast(0.5 * scaled)),
            ratio(of(scheme, most), of(scheme, 1)),
            "one client thread and all flushers share the cores",
        ));
    }
    claims
}

/// Returns the claims about the slot sizes `slots`, in ascending order.
fn slot_claims(slots: &[usize], points: &[Point]) -> Vec<Claim> {
    let of = |scheme, count, bytes| tps(points, scheme, count, bytes);
    let large = slots.last().copied().unwrap_or(PAPER_SLOT);
    let small = slots.first().copied().unwrap_or(PAPER_SLOT);
    let gain = |bytes| {
        ratio(
            of(Scheme::Dl1p, SLOT_DISKS, bytes),
            of(Scheme::Pl2p, SLOT_DISKS, bytes),
        )
    };
    vec![
        Claim::measured(
            &format!("DL1P(4) / PL2P(4) throughput, {large}-byte slots"),
            Paper::of("approaches two", 2.0),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            gain(large),
            "",
        ),
        Claim::measured(
            &format!("the same gain at {large} bytes / at {small} bytes"),
            Paper::above("grows with the slot", 1.0),
            Bounds(Better::More, Finding::AtLeast(1.05)),
            ratio(gain(large), gain(small)),
            "the heads of records weigh less; less than 1.05 may be noise",
        ),
        Claim::measured(
            "DL1P(4) / PL2P(1) throughput, 256-byte slots",
            Paper::of("about six", 6.0),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            ratio(
                of(Scheme::Dl1p, SLOT_DISKS, PAPER_SLOT),
                of(Scheme::Pl2p, 1, PAPER_SLOT),
            ),
            "",
        ),
    ]
}

/// Returns the panels of one site. `kind` describes the disks at the end of each title. Without points for slot sizes,
/// there is only the first panel.
fn panels(measured: &Panelled, letters: [char; 2], kind: &str) -> Vec<Panel> {
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
            line(&measured.by_slot, scheme, Some(disks), |point| {
                point.slot_bytes
            }),
        )
    };
    let disk_lines = [Scheme::Pl2p, Scheme::Dl1p].map(|scheme| {
        Series::solid(
            scheme_label(scheme),
            line(&measured.by_disks, scheme, None, |point| point.disks),
        )
    });
    let panel = |letter: char, title: &str, x: &str, lines: Vec<Series>| {
        Panel::new(
            format!("({letter}) With the {title}{kind}"),
            "Throughput (TPS)",
            Chart::lines(x, lines),
        )
    };
    let mut panels = vec![panel(
        letters[0],
        "number of log disks",
        "#log disks",
        disk_lines.to_vec(),
    )];
    if !measured.by_slot.is_empty() {
        let lines = vec![
            slot_line(Scheme::Pl2p, 1),
            slot_line(Scheme::Pl2p, SLOT_DISKS),
            slot_line(Scheme::Dl1p, SLOT_DISKS),
        ];
        panels.push(panel(
            letters[1],
            "size of a slot",
            "Slot size (bytes)",
            lines,
        ));
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::super::claim::Verdict;
    use super::super::lab::testing::verdict_on;
    use super::*;
    use crate::latency::{LatencyUs, histogram};
    use crate::sms::Counts;

    fn point(scheme: Scheme, disks: usize, slot_bytes: usize, txns: u64) -> Point {
        Point {
            scheme,
            disks,
            slot_bytes,
            speed: Speed {
                txns,
                seconds: 1.0,
                latency_us: LatencyUs::of(&histogram()),
                counts: Counts::default(),
            },
        }
    }

    /// Returns the claims for given rates, in transactions a second. `by_disks` has the rates of PL2P and of DL1P with
    /// one and with eight disks. `by_slot` has their rates with four disks, for slots of 64, 256 and 2048 bytes. `one`
    /// is the rate of PL2P with one disk, for slots of 256 bytes.
    fn of(by_disks: [[u64; 2]; 2], by_slot: [[u64; 3]; 2], one: u64) -> Vec<Claim> {
        let schemes = [Scheme::Pl2p, Scheme::Dl1p];
        let mut disks = Vec::new();
        let mut slots = vec![point(Scheme::Pl2p, 1, 256, one)];
        for (scheme, rates) in schemes.into_iter().zip(by_disks) {
            for (count, rate) in [1, 8].into_iter().zip(rates) {
                disks.push(point(scheme, count, PAPER_SLOT, rate));
            }
        }
        for (scheme, rates) in schemes.into_iter().zip(by_slot) {
            for (bytes, rate) in [64, 256, 2048].into_iter().zip(rates) {
                slots.push(point(scheme, SLOT_DISKS, bytes, rate));
            }
        }
        let mut claims = disk_claims(&[1, 8], &disks);
        claims.extend(slot_claims(&[64, 256, 2048], &slots));
        claims
    }

    const SLOTS: [[u64; 3]; 2] = [[2_000, 1_000, 200], [3_000, 1_850, 396]];

    #[test]
    fn the_papers_rates_are_as_the_paper() {
        for claim in of([[200, 1_400], [320, 2_200]], SLOTS, 300) {
            assert_eq!(claim.verdict, Verdict::AsPaper, "{}", claim.what);
        }
    }

    #[test]
    fn each_claim_can_fail() {
        let claims = of(
            [[300, 400], [200, 290]],
            [[500, 500, 500], [400, 400, 400]],
            500,
        );
        for claim in &claims {
            assert_eq!(claim.verdict, Verdict::Fails, "{}", claim.what);
        }
        assert_eq!(claims.len(), 7);
    }

    #[test]
    fn smaller_gains_are_weaker() {
        let claims = of(
            [[100, 500], [120, 560]],
            [[400, 400, 400], [420, 440, 480]],
            300,
        );
        for part in [
            "least DL1P",
            "DL1P(8) / PL2P(1)",
            "DL1P throughput,",
            "PL2P throughput,",
            "2048-byte slots",
            "256-byte slots",
        ] {
            assert_eq!(verdict_on(&claims, part), Verdict::Weaker, "{part}");
        }
    }
}
