//! Log volume: the number of bytes that each scheme writes for the same history (section 5.2 of the
//! paper).

use anyhow::{Result, ensure};
use perdura_base::PartitionId;
use perdura_steal::{Records, Steal};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{Crash, Plant, Speeds, crash};
use super::plot::{Bar, Chart, Panel, Plot, Series};
use super::{Lab, scheme_label};
use crate::num::{f64_of, ratio};
use crate::sms::{Driver, SmsOptions};

/// The abort ratios of the second part.
const ABORTS: [f64; 5] = [0.0, 0.05, 0.1, 0.15, 0.2];
/// The paper's abort ratio.
const PAPER_ABORTS: f64 = 0.02;
/// The number of updates from which the size of a record is computed.
const UPDATES: usize = 2_000;

struct Volume {
    scheme: Scheme,
    aborts: f64,
    crash: Crash,
}

impl Volume {
    /// Returns the log bytes for each transaction that ended.
    fn per_txn(&self) -> f64 {
        ratio(
            f64_of(self.crash.log_bytes),
            f64_of(self.crash.counts.ended()),
        )
    }

    /// Returns the log bytes for each transaction that ended, without compensation records.
    fn per_txn_plain(&self) -> f64 {
        let plain = self.crash.log_bytes - self.crash.compensation_bytes;
        ratio(f64_of(plain), f64_of(self.crash.counts.ended()))
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let mut volumes = Vec::new();
    for scheme in [Scheme::Pl2p, Scheme::Dl2p, Scheme::Dl1p] {
        lab.say(&format!("volume of {}", scheme_label(scheme)));
        volumes.push(measure(lab, scheme, PAPER_ABORTS, false)?);
    }
    let mut by_aborts = Vec::new();
    for scheme in [Scheme::Dl2p, Scheme::Dl1p] {
        for aborts in ABORTS {
            lab.say(&format!(
                "volume of {} at {:.0} % aborts",
                scheme_label(scheme),
                aborts * 100.0
            ));
            by_aborts.push(measure(lab, scheme, aborts, true)?);
        }
    }
    let sizes = RecordSizes::measure(lab)?;
    let mut claims = claims(&volumes, &by_aborts);
    claims.extend(sizes.claims());
    Ok(Figure {
        name: "000-volume",
        title: "log volume".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} rows of 256 bytes, {} transactions, half insert two, half remove two",
                lab.scale.rows, lab.scale.txns
            ),
            "bytes are of records with their frame heads, without block padding and initial load"
                .into(),
        ],
        columns: "scheme,records,abort_ratio,txns,log_bytes,compensation_bytes,bytes_per_txn,\
            share_of_time_in_window",
        rows: volumes
            .iter()
            .chain(&by_aborts)
            .map(row)
            .chain(sizes.rows())
            .collect(),
        claims,
        plot: plot(lab, &volumes, &by_aborts),
    })
}

fn measure(lab: &Lab<'_>, scheme: Scheme, aborts: f64, window: bool) -> Result<Volume> {
    let mut sms = lab.sms(scheme);
    sms.abort_ratio = aborts;
    if window {
        sms.checkpoints = vec![0.3];
        sms.txns_per_visit = (lab.scale.txns / 1_400).clamp(1, 45);
    }
    Ok(Volume {
        scheme,
        aborts,
        crash: crash(&sms, 2, 1, lab.scale.txns)?,
    })
}

fn row(volume: &Volume) -> Vec<Value> {
    vec![
        scheme_label(volume.scheme).into(),
        "full".into(),
        cell(volume.aborts),
        volume.crash.counts.ended().into(),
        volume.crash.log_bytes.into(),
        volume.crash.compensation_bytes.into(),
        cell(volume.per_txn()),
        cell(volume.crash.in_window),
    ]
}

fn claims(volumes: &[Volume], by_aborts: &[Volume]) -> Vec<Claim> {
    let [physical, two_pass, one_pass] = volumes else {
        return Vec::new();
    };
    let (two, one) = by_aborts.split_at(ABORTS.len());
    let megabytes = |volume: &Volume| volume.per_txn() * 600_000.0 / 1e6;
    let reported = |what: &str, paper: &str, volume: &Volume, why: &str| {
        Claim::reported(what, paper, megabytes(volume), why).in_unit(" MB")
    };
    let flat = {
        let plain: Vec<f64> = one.iter().map(Volume::per_txn_plain).collect();
        let least = plain.iter().copied().fold(f64::MAX, f64::min);
        ratio(plain.iter().copied().fold(0.0, f64::max), least) - 1.0
    };
    let most_aborts = &one[ABORTS.len() - 1].crash;
    let compensation = ratio(
        f64_of(most_aborts.compensation_bytes),
        f64_of(most_aborts.log_bytes - most_aborts.compensation_bytes),
    );
    let aborted = ratio(
        f64_of(most_aborts.counts.aborted),
        f64_of(most_aborts.counts.ended()),
    );
    vec![
        Claim::measured(
            "DL1P / PL2P volume, whole slots, 2 % aborts",
            "370/721 MB = 0.51",
            Target::AtMost(0.53),
            ratio(one_pass.per_txn(), physical.per_txn()),
            "one difference instead of two images; what is above a half is heads",
        ),
        Claim::reported(
            "DL2P / PL2P volume",
            "377/721 MB = 0.52",
            ratio(two_pass.per_txn(), physical.per_txn()),
            "as DL1P, and a compensation record for each change rolled back",
        ),
        reported("PL2P at 600 K transactions", "721 MB", physical, ""),
        reported("DL2P at 600 K transactions", "377 MB", two_pass, ""),
        reported(
            "DL1P at 600 K transactions",
            "370 MB",
            one_pass,
            "of this code's own record heads, so the total may differ, the ratio may not",
        ),
        Claim::measured(
            "DL1P volume, spread over 0-20 % aborts",
            "constant",
            Target::AtMost(0.01),
            flat,
            "a rollback outside a checkpoint window logs its abort record only",
        ),
        Claim::measured(
            "compensation / other volume of DL1P at 20 % aborts",
            "none (the printed algorithm is wrong without it)",
            Target::AtMost(aborted * most_aborts.in_window),
            compensation,
            "asked: abort ratio x share of time in a window",
        ),
        Claim::measured(
            "DL2P volume, 20 % aborts over none",
            "grows",
            Target::AtLeast(1.1),
            ratio(two[ABORTS.len() - 1].per_txn(), two[0].per_txn()),
            "every change rolled back is logged twice",
        ),
    ]
}

/// The size of one record of an 8-byte change to a 256-byte row, bytes.
struct RecordSizes {
    physical_full: f64,
    physical_sparse: f64,
    differential_full: f64,
    differential_sparse: f64,
}

impl RecordSizes {
    fn measure(lab: &Lab<'_>) -> Result<RecordSizes> {
        let of = |scheme, records| record_bytes(lab, scheme, records);
        Ok(RecordSizes {
            physical_full: of(Scheme::Pl2p, Records::Full)?,
            physical_sparse: of(Scheme::Pl2p, Records::Sparse)?,
            differential_full: of(Scheme::Dl1p, Records::Full)?,
            differential_sparse: of(Scheme::Dl1p, Records::Sparse)?,
        })
    }

    fn all(&self) -> [(&'static str, &'static str, f64); 4] {
        [
            ("PL2P", "full, 8-byte change", self.physical_full),
            ("PL2P", "sparse, 8-byte change", self.physical_sparse),
            ("DL1P", "full, 8-byte change", self.differential_full),
            ("DL1P", "sparse, 8-byte change", self.differential_sparse),
        ]
    }

    fn rows(&self) -> impl Iterator<Item = Vec<Value>> {
        self.all().into_iter().map(|(scheme, records, bytes)| {
            let none = Value::from(0);
            vec![
                scheme.into(),
                records.into(),
                none.clone(),
                Value::from(UPDATES),
                cell(bytes * crate::num::count_f64(UPDATES)),
                none.clone(),
                cell(bytes),
                none,
            ]
        })
    }

    fn claims(&self) -> Vec<Claim> {
        vec![
            Claim::measured(
                "sparse differential / whole physical record, 8 of 256 bytes change",
                "-",
                Target::AtMost(0.15),
                ratio(self.differential_sparse, self.physical_full),
                "the product's records: differing bytes only",
            ),
            Claim::reported(
                "sparse physical / whole physical record",
                "-",
                ratio(self.physical_sparse, self.physical_full),
                "sparseness helps physical records as well; differences stay ahead of them",
            ),
        ]
    }
}

/// Returns the mean size of a record, from many updates by few transactions.
fn record_bytes(lab: &Lab<'_>, scheme: Scheme, records: Records) -> Result<f64> {
    let sms = SmsOptions {
        records,
        rows: 4_000,
        partitions: 4,
        ..lab.sms(scheme)
    };
    let plant = Plant::new(1, 1);
    let steal = Steal::create(plant.env(Speeds::FREE, 0, lab.seed), sms.store())?;
    drop(Driver::fill(&steal, &sms)?);
    let places: Vec<_> = (0..sms.partitions)
        .flat_map(|partition| steal.places(PartitionId(partition)))
        .collect();
    ensure!(places.len() >= UPDATES, "too few rows");
    let mut rng = fastrand::Rng::with_seed(lab.seed);
    let mut row = Vec::new();
    let mut txn = steal.begin();
    let mut before = 0;
    for (number, place) in places.iter().take(UPDATES + 1).enumerate() {
        if number == 1 {
            // The first update also logs the begin record, so counting starts after it.
            before = steal.wal().stats().log_bytes;
        }
        row.clear();
        ensure!(steal.read(*place, &mut row), "{place:?} is taken");
        let at = rng.usize(0..row.len() / 8) * 8;
        for byte in &mut row[at..at + 8] {
            *byte ^= rng.u8(1..=255);
        }
        ensure!(steal.update(&mut txn, *place, &row)?, "nobody else is here");
    }
    let bytes = steal.wal().stats().log_bytes - before;
    steal.abort(txn);
    Ok(f64_of(bytes) / crate::num::count_f64(UPDATES))
}

fn plot(lab: &Lab<'_>, volumes: &[Volume], by_aborts: &[Volume]) -> Plot {
    let bars = volumes
        .iter()
        .map(|volume| Bar {
            label: scheme_label(volume.scheme),
            parts: vec![("records".into(), f64_of(volume.crash.log_bytes) / 1e6)],
        })
        .collect();
    let series = [Scheme::Dl2p, Scheme::Dl1p].map(|scheme| {
        let of = by_aborts.iter().filter(|volume| volume.scheme == scheme);
        let points = of.map(|volume| (volume.aborts * 100.0, volume.per_txn()));
        Series::solid(scheme_label(scheme), points.collect())
    });
    Plot {
        title: "Log volume".into(),
        subtitle: format!("SMS, {} transactions, whole slots", lab.scale.txns),
        panels: vec![
            Panel::new("(a) 2 % aborts", "Log (MB)", Chart::Bars(bars)),
            Panel::new(
                "(b) By abort ratio, one checkpoint within",
                "Log bytes per transaction",
                Chart::lines("Abort ratio (%)", series.to_vec()),
            ),
        ],
    }
}
