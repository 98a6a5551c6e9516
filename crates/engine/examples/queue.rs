//! A queue of jobs. Producers add jobs and workers take them. Each job is done exactly once,
//! even if the process ends in the middle of a job.
//!
//! A worker moves a job to the list `running`, in one transaction. When the job is done, the worker removes the job
//! from `running` and records the result, in a second transaction. Jobs that a crash leaves in `running` go back to the
//! queue.
//!
//! ```sh
//! cargo run --release -p perdura --example queue
//! ```

use std::error::Error as StdError;

use perdura::types::{Fault, hash, list};
use perdura::{Db, End, Error, Options};

const JOBS: u64 = 400;
const PRODUCERS: u64 = 2;
const WORKERS: u64 = 3;

/// Adds a job, durably.
fn push(db: &Db, job: u64) -> Result<(), Fault> {
    let job = job.to_string();
    db.write(|tx| {
        let items = [job.as_bytes()];
        list::push(tx, db.database(0), b"jobs", End::Back, items, false)?;
        Ok(())
    })
}

/// Takes the next job. `None`: the queue is empty.
fn take(db: &Db) -> Result<Option<Vec<u8>>, Fault> {
    db.write(|tx| {
        let (from, to) = ((&b"jobs"[..], End::Front), (&b"running"[..], End::Back));
        let moved = list::shift(tx, db.database(0), from, to)?;
        Ok::<_, Fault>(moved.map(|(job, _)| job))
    })
}

/// Removes a job from `running` and records its result.
fn finish(db: &Db, job: &[u8]) -> Result<(), Fault> {
    db.write(|tx| {
        let table = db.database(0);
        let (removed, _) = list::remove(tx, table, b"running", 1, job)?;
        if removed == 1 {
            let new = hash::set(tx, table, b"results", [(job, &b"done"[..])])?;
            assert_eq!(new, 1, "a job is done once");
        }
        Ok(())
    })
}

/// Puts jobs from `running` back into the queue. Returns the number of jobs.
fn recover(db: &Db) -> Result<u64, Fault> {
    db.write(|tx| {
        let mut count = 0;
        let (from, to) = ((&b"running"[..], End::Back), (&b"jobs"[..], End::Front));
        while list::shift(tx, db.database(0), from, to)?.is_some() {
            count += 1;
        }
        Ok::<_, Fault>(count)
    })
}

/// Does jobs until the queue is empty or `max` jobs were taken. If `dies` is true, the last of the `max` jobs is taken
/// but not done.
fn work(db: &Db, max: u64, dies: bool) -> Result<(), Fault> {
    for nth in 1..=max {
        let Some(job) = take(db)? else {
            return Ok(());
        };
        if dies && nth == max {
            return Ok(());
        }
        finish(db, &job)?;
    }
    Ok(())
}

fn workers(db: &Db, max: u64, die: bool) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|_| scope.spawn(|| work(db, max, die)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a worker's thread"))
    })
}

fn main() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let options = Options::new(dir.path().join("queue"));
    let db = Db::open(options.clone())?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let db = &db;
                let mut jobs = (producer..JOBS).step_by(2);
                scope.spawn(move || jobs.try_for_each(|job| push(db, job)))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a producer's thread"))
    })?;
    workers(&db, 50, true)?;
    db.abandon(); // the process ends with jobs half done

    let db = Db::open(options)?;
    let left = recover(&db)?;
    println!("{left} jobs were running when the process ended; they go back");
    assert_eq!(left, WORKERS);
    workers(&db, JOBS, false)?;
    let (done, waiting) = db.read(|tx| {
        let table = db.database(0);
        let done = hash::source(tx, table, b"results")?.map_or(0, |results| results.len());
        let waiting = list::source(tx, table, b"jobs")?.map_or(0, |jobs| jobs.len());
        Ok::<_, Fault>((done, waiting))
    })?;
    println!("{done} jobs done, {waiting} waiting");
    assert_eq!((done, waiting), (JOBS, 0));
    db.close().map_err(Error::into)
}
