//! Log volume: the number of bytes that each scheme writes for the same history (section 5.2 of the
//! paper).
//!
//! # Deviations
//! DL1P logs compensation records while a checkpoint visits pages, and the paper's DL1P logs none. The paper measures
//! the log since the last checkpoint, in which no checkpoint runs. Here DL1P is measured without a checkpoint and with
//! one. The log with a checkpoint is larger. The difference is compared with the compensation that DL1P must log.

mod sizes;
#[cfg(test)]
mod tests;

use anyhow::Result;
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use self::sizes::RecordSizes;
use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{Crash, crash, crash_after};
use super::paper::Paper;
use super::plot::{Bar, Chart, Panel, Plot, Series};
use super::sample::Sample;
use super::{Lab, scheme_label};
use crate::num::{f64_of, ratio};
use crate::sms::SmsOptions;

/// The abort ratios at which DL2P and DL1P are compared.
const ABORTS: [f64; 5] = [0.0, 0.05, 0.1, 0.15, 0.2];
/// The paper's abort ratio.
const PAPER_ABORTS: f64 = 0.02;
/// The number of log streams.
const STREAMS: usize = 2;

/// The volume of one history.
#[derive(Debug, Clone)]
struct Volume {
    scheme: Scheme,
    aborts: f64,
    /// The number of ended transactions.
    ended: u64,
    /// The size of all records, bytes. It includes compensation.
    log_bytes: u64,
    /// The part of `log_bytes` that is compensation, bytes, as the store counts it.
    compensation_bytes: u64,
    /// The number of transactions that ended while a checkpoint ran.
    in_window: u64,
}

impl Volume {
    fn new(crash: &Crash, aborts: f64) -> Volume {
        Volume {
            scheme: crash.sms.scheme,
            aborts,
            ended: crash.counts.ended(),
            log_bytes: crash.log_bytes,
            compensation_bytes: crash.compensation_bytes,
            in_window: crash.in_window,
        }
    }

    /// Returns the share of transactions that ended while a checkpoint ran.
    fn window_share(&self) -> f64 {
        ratio(f64_of(self.in_window), f64_of(self.ended))
    }

    /// Returns the mean number of log bytes of an ended transaction.
    fn per_txn(&self) -> f64 {
        ratio(f64_of(self.log_bytes), f64_of(self.ended))
    }
}

/// All measured volumes.
struct Volumes {
    /// PL2P, DL2P and DL1P at the paper's abort ratio, without a checkpoint.
    by_scheme: [Volume; 3],
    /// DL2P at each of [`ABORTS`], with a checkpoint.
    two_pass: Vec<Volume>,
    /// DL1P at each of [`ABORTS`], with a checkpoint.
    one_pass: Vec<Volume>,
    /// DL1P at each of [`ABORTS`], without a checkpoint.
    one_pass_plain: Vec<Volume>,
    /// The share of the aborts that happen while the checkpoint runs, for each of [`ABORTS`].
    aborts_in_window: Vec<f64>,
}

impl Volumes {
    fn measure(lab: &Lab<'_>) -> Result<Volumes> {
        let begin = lab.scale.txns * 3 / 10;
        let line = |scheme| {
            let of = ABORTS.iter();
            let of = of.map(|aborts| measure(lab, scheme, *aborts, Some(begin)));
            of.collect::<Result<Vec<Volume>>>()
        };
        let one = |scheme| measure(lab, scheme, PAPER_ABORTS, None);
        let by_scheme = [one(Scheme::Pl2p)?, one(Scheme::Dl2p)?, one(Scheme::Dl1p)?];
        let one_pass = line(Scheme::Dl1p)?;
        let plain = one_pass
            .iter()
            .map(|windowed| measure_plain(lab, windowed, begin));
        let plain = plain.collect::<Result<Vec<(Volume, f64)>>>()?;
        let (one_pass_plain, aborts_in_window) = plain.into_iter().unzip();
        Ok(Volumes {
            by_scheme,
            two_pass: line(Scheme::Dl2p)?,
            one_pass,
            one_pass_plain,
            aborts_in_window,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Volume> {
        let lines = self.two_pass.iter().chain(&self.one_pass);
        self.by_scheme
            .iter()
            .chain(lines)
            .chain(&self.one_pass_plain)
    }

    /// Returns the compensation that DL1P logs, divided by the compensation that it must log while the checkpoint runs.
    /// There is one ratio for each abort ratio above 0. All sizes are of whole logs of the same history.
    ///
    /// * Logged: the size of DL1P's log with the checkpoint, minus its size without.
    /// * Required: the compensation of all aborts, multiplied by the share of aborts during the checkpoint. The
    ///   compensation of all aborts is the size of DL2P's log, minus the size of DL1P's log without the checkpoint.
    fn compensated(&self) -> Sample {
        let bytes = |line: &[Volume], at: usize| f64_of(line[at].log_bytes);
        Sample::of((1..ABORTS.len()).map(|at| {
            let plain = bytes(&self.one_pass_plain, at);
            let all = bytes(&self.two_pass, at) - plain;
            ratio(
                bytes(&self.one_pass, at) - plain,
                all * self.aborts_in_window[at],
            )
        }))
    }
}

/// Returns the largest volume of a transaction over the abort ratios, divided by the smallest, minus 1.
fn spread(line: &[Volume]) -> f64 {
    let volumes = line.iter().map(Volume::per_txn);
    let least = volumes.clone().fold(f64::MAX, f64::min);
    ratio(volumes.fold(0.0, f64::max), least) - 1.0
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let volumes = Volumes::measure(lab)?;
    let sizes = RecordSizes::measure(lab)?;
    let mut claims = claims(&volumes);
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
        rows: volumes.all().map(row).chain(sizes.rows()).collect(),
        claims,
        plot: plot(lab, &volumes),
    })
}

/// Returns the workload of one history. A checkpoint begins in it after `checkpoint` transactions.
fn workload(lab: &Lab<'_>, scheme: Scheme, aborts: f64, checkpoint: Option<u64>) -> SmsOptions {
    let kind = if checkpoint.is_some() { "a" } else { "no" };
    lab.say(&format!(
        "volume of {} at {:.0} % aborts, {kind} checkpoint",
        scheme_label(scheme),
        aborts * 100.0
    ));
    let mut sms = lab.sms(scheme);
    sms.abort_ratio = aborts;
    if let Some(begin) = checkpoint {
        // The share is rounded down to a number of transactions. A half more makes it exact.
        sms.checkpoints = vec![(f64_of(begin) + 0.5) / f64_of(lab.scale.txns)];
        sms.txns_per_visit = (lab.scale.txns / 1_400).clamp(1, 45);
    }
    sms
}

fn measure(lab: &Lab<'_>, scheme: Scheme, aborts: f64, checkpoint: Option<u64>) -> Result<Volume> {
    let sms = workload(lab, scheme, aborts, checkpoint);
    let crash = crash(&sms, STREAMS, 1, lab.scale.txns)?;
    Ok(Volume::new(&crash, aborts))
}

/// Measures DL1P without a checkpoint, on the history of `windowed`. The checkpoint of `windowed` began after `begin`
/// transactions. Also returns the share of the aborts that happened while that checkpoint ran.
fn measure_plain(lab: &Lab<'_>, windowed: &Volume, begin: u64) -> Result<(Volume, f64)> {
    let sms = workload(lab, windowed.scheme, windowed.aborts, None);
    let parts = [begin, begin + windowed.in_window, lab.scale.txns];
    let (crash, counts) = crash_after(&sms, STREAMS, 1, &parts)?;
    let within = counts[1].aborted - counts[0].aborted;
    let share = ratio(f64_of(within), f64_of(crash.counts.aborted));
    Ok((Volume::new(&crash, windowed.aborts), share))
}

fn row(volume: &Volume) -> Vec<Value> {
    vec![
        scheme_label(volume.scheme).into(),
        "full".into(),
        cell(volume.aborts),
        volume.ended.into(),
        volume.log_bytes.into(),
        volume.compensation_bytes.into(),
        cell(volume.per_txn()),
        cell(volume.window_share()),
    ]
}

fn claims(volumes: &Volumes) -> Vec<Claim> {
    let mut claims = scheme_claims(&volumes.by_scheme);
    claims.extend(abort_claims(volumes));
    claims
}

/// Returns the claims about the schemes at the paper's abort ratio.
fn scheme_claims([physical, two_pass, one_pass]: &[Volume; 3]) -> Vec<Claim> {
    let half = Bounds(Better::Less, Finding::AtMost(0.75));
    let mut claims = vec![
        Claim::measured(
            "DL1P / PL2P volume, whole slots, 2 % aborts",
            Paper::of("370/721 MB = 0.51", 370.0 / 721.0),
            half,
            ratio(one_pass.per_txn(), physical.per_txn()),
            "one difference instead of two images; what is above a half is heads",
        ),
        Claim::measured(
            "DL2P / PL2P volume",
            Paper::of("377/721 MB = 0.52", 377.0 / 721.0),
            half,
            ratio(two_pass.per_txn(), physical.per_txn()),
            "as DL1P, and a compensation record for each change rolled back",
        ),
        Claim::measured(
            "what DL2P logs more than DL1P, as a part of DL1P, 2 % aborts",
            Paper::of("7/370 MB = 0.019", 7.0 / 370.0),
            Bounds(Better::More, Finding::AtLeast(0.001)),
            ratio(two_pass.per_txn(), one_pass.per_txn()) - 1.0,
            "the compensation of two changes in each aborted transaction",
        ),
    ];
    let totals = [
        ("PL2P", 721.0, physical),
        ("DL2P", 377.0, two_pass),
        ("DL1P", 370.0, one_pass),
    ];
    claims.extend(totals.map(|(name, paper, volume)| {
        Claim::measured(
            &format!("{name} at 600 K transactions"),
            Paper::of(&format!("{paper} MB"), paper),
            Bounds(Better::Neither, Finding::Any),
            volume.per_txn() * 600_000.0 / 1e6,
            "with this code's own heads of records",
        )
        .in_unit(" MB")
    }));
    claims
}

/// Returns the claims about the effect of aborts on the volume.
fn abort_claims(volumes: &Volumes) -> Vec<Claim> {
    let window = volumes.one_pass.last().map_or(0.0, Volume::window_share);
    let constant = || Paper::of("constant = 0", 0.0).within(0.01);
    let flat = Bounds(Better::Less, Finding::AtMost(0.01));
    vec![
        Claim::measured(
            "DL1P volume since the last checkpoint, spread over 0-20 % aborts",
            constant(),
            flat,
            spread(&volumes.one_pass_plain),
            "the paper's setting: no checkpoint runs in this log, so no rollback is compensated; \
             the paper states no interval of checkpoints",
        ),
        Claim::measured(
            "DL1P volume with a checkpoint, spread over 0-20 % aborts",
            constant(),
            flat,
            spread(&volumes.one_pass),
            &format!(
                "compensation included. The printed algorithm logs none and loses changes. \
                 Rollbacks in a checkpoint's window need it. {:.0} % of the time is in the \
                 window here, a share that this experiment chooses",
                window * 100.0
            ),
        ),
        Claim::own(
            "compensation that DL1P logs in the window / what it has to log",
            Finding::Within(1.0, 0.05),
            volumes.compensated(),
            "whole logs of the same history; expected: all compensation of DL2P x counted share of \
             the aborts in the window; median and range over the abort ratios",
        ),
        Claim::measured(
            "DL2P volume, spread over 0-20 % aborts",
            Paper::of("7/370 MB at 2 %, so 0.19 at 20 %", 70.0 / 370.0),
            Bounds(Better::More, Finding::AtLeast(0.02)),
            spread(&volumes.two_pass),
            "every change rolled back is logged twice",
        ),
    ]
}

fn plot(lab: &Lab<'_>, volumes: &Volumes) -> Plot {
    let bars = volumes.by_scheme.iter().map(|volume| Bar {
        label: scheme_label(volume.scheme),
        parts: vec![("records".into(), f64_of(volume.log_bytes) / 1e6)],
    });
    let lines = [
        ("DL2P, one checkpoint", &volumes.two_pass),
        ("DL1P, one checkpoint", &volumes.one_pass),
        ("DL1P, no checkpoint", &volumes.one_pass_plain),
    ];
    let series = lines.map(|(name, line)| {
        let points = line
            .iter()
            .map(|volume| (volume.aborts * 100.0, volume.per_txn()));
        Series::solid(name, points.collect())
    });
    Plot {
        title: "Log volume".into(),
        subtitle: format!("SMS, {} transactions, whole slots", lab.scale.txns),
        panels: vec![
            Panel::new("(a) 2 % aborts", "Log (MB)", Chart::Bars(bars.collect())),
            Panel::new(
                "(b) By abort ratio",
                "Log bytes per transaction",
                Chart::lines("Abort ratio (%)", series.to_vec()),
            ),
        ],
    }
}
