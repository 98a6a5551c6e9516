//! Random histories: interleaved transactions, checkpoints in steps, flushes of single streams,
//! crashes, restarts. After each restart the database holds exactly what the transactions up to the
//! durable epoch wrote, and everything acknowledged is among them.

use perdura_base::{Epoch, PartitionId, StreamId};
use perdura_steal::{Records, Steal};
use perdura_wal::Scheme;

use crate::harness::{
    Disks, History, Open, STEAL_SCHEMES, begin, commit, insert, options, row, rows, update,
};

/// Runs one history; the first thing that is wrong.
pub fn run(seed: u64, scheme: Scheme, records: Records) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let streams = rng.usize(1..4);
    let disks = Disks::new(streams, rng.usize(1..3));
    let options = options(scheme, records);
    let mut history = History::default();
    let mut steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
    let mut number = 0;
    for life in 0..4 {
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..rng.usize(1..150) {
            let stream = StreamId(u8::try_from(rng.usize(..streams)).unwrap());
            match rng.u32(..60) {
                0..6 if open.len() < 4 => open.push(begin(&steal)),
                6..24 if !open.is_empty() => {
                    let at = rng.usize(..open.len());
                    let open = &mut open[at];
                    number += 1;
                    if open.txn.is_aborting() {
                        continue;
                    }
                    let places: Vec<_> = rows(&steal).into_keys().collect();
                    match rng.u32(..3) {
                        0 => drop(insert(&steal, open, row(number))),
                        1 if !places.is_empty() => {
                            let place = places[rng.usize(..places.len())];
                            update(&steal, open, place, row(number));
                        }
                        2 if !places.is_empty() => {
                            let place = places[rng.usize(..places.len())];
                            if steal.delete(&mut open.txn, place).unwrap() {
                                open.writes.push((place, None));
                            }
                        }
                        _ => {}
                    }
                }
                24..29 if !open.is_empty() => {
                    let at = rng.usize(..open.len());
                    if !open[at].txn.is_aborting() {
                        let ended = open.swap_remove(at);
                        let _acked_later = commit(&steal, &mut history, ended);
                    }
                }
                29..35 if !open.is_empty() => {
                    let at = rng.usize(..open.len());
                    if steal.abort_step(&mut open[at].txn) {
                        open.swap_remove(at);
                    }
                }
                35 => drop(steal.grow(PartitionId(rng.u16(..2)))),
                36 | 37 => drop(steal.close_begin()),
                38..41 => steal.close_visit(stream),
                41..46 => drop(steal.flush_step(stream).unwrap()),
                46 => steal.flush_all().unwrap(),
                47..60 => {
                    if !steal.checkpoint_is_running() {
                        steal.checkpoint_begin().unwrap();
                    } else if rng.u32(..40) == 0 {
                        steal.checkpoint_cancel();
                    } else {
                        steal.checkpoint_step().unwrap();
                    }
                }
                _ => {}
            }
        }
        let acked: Vec<_> = history.committed.iter().map(|(c, _)| *c).collect();
        let acked: Vec<_> = acked.into_iter().filter(|c| steal.is_acked(c)).collect();
        drop(open);
        drop(steal);
        steal = match Steal::open(disks.env.clone(), options.clone()) {
            Ok(back) => back.expect("there is a database"),
            Err(error) => return Err(format!("life {life}: {error}")),
        };
        let durable = Epoch(steal.report().durable_epoch);
        if let Some(lost) = acked.iter().find(|c| c.epoch > durable) {
            return Err(format!("life {life}: acknowledged and lost: {lost:?}"));
        }
        let expected = history.rows(durable);
        let found = rows(&steal);
        if found != expected {
            let wrong = expected.iter().find(|(p, row)| found.get(p) != Some(row));
            let extra = found.iter().find(|(p, _)| !expected.contains_key(p));
            return Err(format!("life {life}: wrong {wrong:?} extra {extra:?}"));
        }
        history.forget_after(durable);
    }
    Ok(())
}

#[test]
fn random_histories_end_in_what_was_committed() {
    let seeds = std::env::var("SEEDS").map_or(60, |n| n.parse().unwrap());
    for scheme in STEAL_SCHEMES {
        for records in [Records::Full, Records::Sparse] {
            for seed in 0..seeds {
                let end = run(seed, scheme, records);
                assert_eq!(end, Ok(()), "seed {seed} {scheme:?} {records:?}");
            }
        }
    }
}
