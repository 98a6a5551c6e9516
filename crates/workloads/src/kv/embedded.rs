//! Runs the workload on the engine in this process, with one thread for each client.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use perdura::{Db, Ticket};

use super::data::{fill_value, key_of, nth_key, random_bytes};
use super::report::KvReport;
use super::{Durability, KvOptions};
use crate::latency::{histogram, micros, record};
use crate::process;

/// The maximum time from the acknowledgement of a write until the write is on disk, microseconds. The bound is for
/// [`Durability::Mem`]. The server has the same bound.
const EXPOSURE_US_MAX: u64 = 10_000;

struct Outcome {
    latencies: Histogram<u64>,
    aborts: u64,
    first_error: Option<String>,
}

pub(super) fn run(options: &KvOptions, db_options: perdura::Options) -> Result<KvReport> {
    let db = Db::open(db_options).context("opening the database")?;
    let mut report = KvReport::of(options);
    report.target = "embedded".into();
    report.scheme = Some("differential");
    report.partitions = u64::try_from(db.all_partitions().len()).ok();

    let begin = Instant::now();
    fill(&db, options)?;
    report.filled = options.fill;
    report.fill_seconds = begin.elapsed().as_secs_f64();

    if !options.duration.is_zero() {
        measure(&db, options, &mut report)?;
    }
    report.checked = check(&db, options)?;
    report.streams = Some(u64::from(db.stats().log.streams));
    report.peak_rss_bytes = process::peak_rss_bytes(std::process::id());
    db.close().context("closing the database")?;
    Ok(report)
}

fn set(db: &Db, key: &[u8], value: &[u8]) -> perdura::Result<Ticket> {
    let parts = [db.partition_of(key)].into_iter().collect();
    let ((), ticket) = db.transact(&parts, |tx| tx.put(db.database(0), key, value, None))?;
    Ok(ticket)
}

fn get(db: &Db, key: &[u8], out: &mut Vec<u8>) -> perdura::Result<Ticket> {
    let parts = [db.partition_of(key)].into_iter().collect();
    let ((), ticket) = db.transact(&parts, |tx| {
        out.clear();
        if let Some(row) = tx.get(db.database(0), key)? {
            row.copy_value(out);
        }
        Ok::<_, perdura::Error>(())
    })?;
    Ok(ticket)
}

fn fill(db: &Db, options: &KvOptions) -> Result<()> {
    let mut value = vec![0; options.value_bytes];
    let mut last = None;
    for nth in 0..options.fill {
        let number = nth_key(nth, options.keys);
        fill_value(number, options.seed, &mut value);
        last = Some(set(db, &key_of(number), &value)?);
        if nth % 1024 == 0 {
            db.nudge();
        }
    }
    last.map_or(Ok(()), |ticket| db.wait(ticket))
        .context("filling")
}

fn measure(db: &Db, options: &KvOptions, report: &mut KvReport) -> Result<()> {
    let before = db.stats().log;
    let cpu_before = process::cpu_seconds(std::process::id());
    let begin = Instant::now();
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|client| scope.spawn(move || one_client(db, options, client, begin)))
            .collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, Result<Outcome>>| match client.join()
        {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        clients.into_iter().map(join).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let mut latencies = histogram();
    for outcome in outcomes {
        let outcome = outcome?;
        latencies.add(&outcome.latencies).expect("the same bounds");
        report.aborts += outcome.aborts;
        report.first_error = report.first_error.take().or(outcome.first_error);
    }
    let after = db.stats().log;
    report.syncs = Some(after.syncs - before.syncs);
    report.log_bytes = Some(after.log_bytes - before.log_bytes);
    report.log_device_bytes = Some(after.log_device_bytes - before.log_device_bytes);
    report.cpu_seconds = process::cpu_seconds(std::process::id())
        .zip(cpu_before)
        .map(|(after, before)| after - before);
    report.measured(&latencies, seconds);
    Ok(())
}

fn one_client(db: &Db, options: &KvOptions, client: usize, begin: Instant) -> Result<Outcome> {
    let client = u64::try_from(client).unwrap_or(u64::MAX);
    let mut rng = fastrand::Rng::with_seed(options.seed.wrapping_add(client + 1));
    let mut outcome = Outcome {
        latencies: histogram(),
        aborts: 0,
        first_error: None,
    };
    let mut value = vec![0; options.value_bytes];
    let mut read = Vec::new();
    let clients = u64::try_from(options.clients).unwrap_or(u64::MAX);
    let share = options.txns_max.map(|txns| txns.div_ceil(clients));
    let batch = u64::try_from(options.pipeline).unwrap_or(u64::MAX);
    while begin.elapsed() < options.duration
        && share.is_none_or(|share| outcome.latencies.len() < share)
    {
        let since = Instant::now();
        let mut done_count = 0;
        let mut last = None;
        for _ in 0..batch {
            let key = key_of(rng.u64(..options.keys));
            let done = if rng.u8(..100) < options.mix.set_percent() {
                random_bytes(&mut rng, &mut value);
                set(db, &key, &value)
            } else {
                get(db, &key, &mut read)
            };
            match done {
                Ok(ticket) => {
                    last = last.max(Some(ticket.epoch));
                    done_count += 1;
                }
                Err(error @ perdura::Error::Stopped(_)) => bail!(error),
                Err(error) => {
                    outcome.aborts += 1;
                    outcome.first_error.get_or_insert_with(|| error.to_string());
                }
            }
        }
        let exposed = || db.exposure().age_us > EXPOSURE_US_MAX;
        if let Some(epoch) = last.filter(|_| options.durability == Durability::Disk || exposed()) {
            db.wait(Ticket { epoch })?;
        }
        record(&mut outcome.latencies, micros(since.elapsed()), done_count);
    }
    Ok(outcome)
}

fn check(db: &Db, options: &KvOptions) -> Result<u64> {
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let mut expected = vec![0; options.value_bytes];
    let mut found = Vec::new();
    for _ in 0..options.check {
        let number = nth_key(rng.u64(..options.filled.max(1)), options.keys);
        fill_value(number, options.seed, &mut expected);
        let key = key_of(number);
        let read = get(db, &key, &mut found)?;
        db.wait(read)?;
        if found != expected {
            bail!(
                "{} does not hold the value it was filled with",
                key.escape_ascii()
            );
        }
    }
    Ok(options.check)
}
