//! Pins of read-ahead pages return the right bytes, whatever happens between read and pin. Read-ahead pages occupy at
//! most the window's share of the pool.

use crate::counted;

use crate::counted::{DIR, SHAPE, add, count, files, files_on, flush, page, pool};
use fastrand::Rng;
use perdura_base::flaw::{Flaw, arm};
use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Pid};
use perdura_device::{Access, Clock, Disk, FaultPlan, MemDisk, ModelDisk, SimDisk, SystemClock};
use perdura_formats::tree_record::Delta;
use perdura_page::tree_page::{Kind, Node};
use perdura_tree::analysis::{Detail, LogicalAnalysis};
use perdura_tree::file::PageFile;
use perdura_tree::pool::{Counts, Pinned, Pool};
use perdura_tree::read_ahead::{ReadAhead, Step};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

fn pids(pids: impl IntoIterator<Item = u32>) -> Vec<Pid> {
    pids.into_iter().map(Pid).collect()
}

/// Takes steps until a step reads no page. Returns the number of steps that read pages.
fn read_all(ahead: &ReadAhead<'_>) -> u64 {
    let steps = std::iter::from_fn(|| (ahead.step() == Step::Read).then_some(1));
    steps.sum()
}

fn pinned(pool: &Pool, pid: u32) -> Pinned<'_> {
    pool.pin(Pid(pid)).expect("a page").expect("a frame")
}

#[test]
fn pages_side_by_side_are_one_read_and_the_window_is_a_quarter_of_the_pool() {
    let (_disk, file) = files(100);
    let pool = pool(file, 80);
    let ahead = ReadAhead::new(&pool, pids((0..40).chain([60, 50, 62, 61])));
    assert_eq!((read_all(&ahead), pool.unused_ahead()), (3, 20));
    for pid in 0..20 {
        assert_eq!(ahead.step(), Step::Later, "the window is full");
        drop(pinned(&pool, pid));
        drop(pinned(&pool, pid));
        assert_eq!(pool.unused_ahead(), 19);
        assert_eq!(ahead.step(), Step::Read);
    }
    (20..40).for_each(|pid| drop(pinned(&pool, pid)));
    assert_eq!((read_all(&ahead), pool.unused_ahead()), (2, 4));
    let counts = pool.counts();
    assert_eq!((counts.ahead_pages, counts.ahead_reads), (44, 25));
    assert_eq!((counts.index_fetches, counts.data_fetches), (1, 43));
    assert_eq!((counts.index_stalls, counts.data_stalls), (0, 0));
    drop(pinned(&pool, 70));
    assert_eq!(pool.counts().data_stalls, 1);
    ahead.close();
    assert_eq!(ahead.step(), Step::Done);
}

#[test]
fn a_page_that_is_in_memory_or_was_read_a_moment_ago_is_not_read() {
    let (_disk, file) = files(100);
    let pool = pool(file, 40);
    drop(pinned(&pool, 7));
    let ahead = ReadAhead::new(&pool, pids([7, 9, 9]));
    assert!(ahead.offer(Pid(9)) && ahead.offer(Pid(11)) && ahead.offer(Pid(11)));
    assert_eq!(read_all(&ahead), 2);
    drop((pinned(&pool, 9), pinned(&pool, 11)));
    // Pages 9 and 11 are evicted, but count as recently read.
    (20..100).for_each(|pid| drop(pinned(&pool, pid)));
    assert!(ahead.offer(Pid(9)) && ahead.offer(Pid(11)));
    assert_eq!(ahead.step(), Step::Later);
    let more = pids((1..9).chain(80..82));
    let others = ReadAhead::new(&pool, more);
    assert!(read_all(&others) > 0, "another list knows nothing of it");
}

#[test]
fn a_full_queue_takes_no_page_until_it_has_read_one() {
    let (_disk, file) = files(100);
    let pool = pool(file, 16);
    let ahead = ReadAhead::new(&pool, Vec::new());
    assert_eq!(ahead.step(), Step::Later);
    for pid in [10, 20, 30, 40] {
        assert!(ahead.offer(Pid(pid)));
    }
    assert!(!ahead.offer(Pid(50)) && ahead.offer(Pid(20)));
    assert_eq!(ahead.step(), Step::Read);
    assert!(ahead.offer(Pid(50)));
}

#[test]
fn what_nobody_wants_makes_room_when_redo_reads_for_itself() {
    let (_disk, file) = files(200);
    let pool = pool(file, 16);
    let ahead = ReadAhead::new(&pool, pids([1, 11, 21, 31, 41, 51]));
    assert_eq!((read_all(&ahead), pool.unused_ahead()), (4, 4));
    // The pages that were read ahead stay in the pool, although all frames are taken.
    (100..112).for_each(|pid| drop(pinned(&pool, pid)));
    assert_eq!((pool.unused_ahead(), pool.counts().evictions), (3, 0));
    assert_eq!(ahead.step(), Step::Read);
    (112..200).for_each(|pid| drop(pinned(&pool, pid)));
    assert_eq!(pool.unused_ahead(), 3, "only a full window gives way");
    assert_eq!(ahead.step(), Step::Read);
    assert_eq!(ahead.step(), Step::Later);
}

#[test]
fn nothing_is_evicted_for_it_that_is_dirty_or_pinned_or_was_read_ahead() {
    let (_disk, file) = files(100);
    let pool = pool(file, 8);
    let numbers = AtomicU64::new(0);
    for pid in 1..8 {
        add(&pool, &pinned(&pool, pid), Pid(pid), &numbers);
    }
    let ahead = ReadAhead::new(&pool, pids([50, 60]));
    assert_eq!((ahead.step(), ahead.step()), (Step::Read, Step::Later));
    assert_eq!(pool.unused_ahead(), 1);
    // A pin may evict a page that was read ahead.
    let wanted = pinned(&pool, 70);
    assert_eq!((pool.unused_ahead(), ahead.step()), (0, Step::Later));
    drop(wanted);
    flush(&pool);
    assert_eq!(ahead.step(), Step::Read);
    assert_eq!(count(&pinned(&pool, 60)), 0);
    assert!((1..8).all(|pid| count(&pinned(&pool, pid)) == 1));
}

#[test]
fn a_page_that_cannot_be_read_is_the_error_of_whoever_pins_it() {
    let (disk, file) = files(30);
    let pages = disk.open("tree/pages", Access::Buffered).expect("a file");
    pages.write_at(3 * 512 + 100, b"x").expect("a write");
    let pool = pool(file, 80);
    let ahead = ReadAhead::new(&pool, pids([2, 3, 4, 28, 29, 30, 31, 1000, u32::MAX]));
    assert_eq!(read_all(&ahead), 4);
    let counts = pool.counts();
    assert_eq!((counts.ahead_pages, pool.unused_ahead()), (4, 4));
    for pid in [3, 30, 1000, u32::MAX] {
        let error = pool.pin(Pid(pid)).expect_err("damage");
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    for pid in [2, 4, 28, 29] {
        assert_eq!(count(&pinned(&pool, pid)), 0);
    }
    assert_eq!(pool.counts().data_stalls, 0);
}

#[test]
fn a_page_that_becomes_a_new_one_is_not_what_was_read_ahead() {
    let (_disk, file) = files(30);
    let pool = pool(file, 40);
    let ahead = ReadAhead::new(&pool, pids([5, 6]));
    assert_eq!(ahead.step(), Step::Read);
    let mut new = page(Pid(5), Kind::Inner);
    new[500] = 7;
    let adopted = pool.adopt(Pid(5), &new).expect("a frame");
    assert_eq!(adopted.read().bytes(), &*new);
    assert_eq!(pool.unused_ahead(), 1);
    drop(adopted);
    pool.forget(Pid(5));
    assert_eq!(count(&pinned(&pool, 5)), 0, "it was taken back");
}

#[test]
fn a_list_names_each_page_once_where_it_became_dirty_for_good() {
    let delta = |first_note, dirty: &[u32], written: &[u32]| Delta {
        first_note,
        tc_lsn: Gsn(first_note + 10),
        fw_lsn: Gsn(first_note + 10),
        first_dirty: dirty.len(),
        dirty: pids(dirty.iter().copied()),
        written: pids(written.iter().copied()),
        lsns: None,
    };
    let mut analysis = LogicalAnalysis::new(Detail::Standard, Gsn(0));
    analysis.delta(&delta(0, &[1, 2, 3], &[1, 3]));
    analysis.delta(&delta(3, &[4, 1, 2], &[]));
    let table = analysis.finish();
    assert_eq!(table.prefetch(), pids([1, 2, 3, 4, 1]));
    assert_eq!(table.read_ahead(), pids([2, 4, 1]));
}

/// Runs one random interleaving of read-ahead, pins, changes, writes, evictions and replacements of pages.
fn run(seed: u64, met: &mut Counts) {
    const PAGES: u32 = 60;
    let mut rng = Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let pool = pool(files_on(&*disk, PAGES), rng.usize(4..60));
    let damaged = (rng.u8(..3) == 0).then(|| rng.u32(1..PAGES));
    if let Some(pid) = damaged {
        assert!(disk.flip("tree/pages", u64::from(pid) * 512 + 100, 1));
    }
    let (numbers, mut counts) = (AtomicU64::new(0), vec![0; PAGES as usize]);
    let list = (0..rng.usize(..80)).map(|_| Pid(rng.u32(..PAGES + 5)));
    let ahead = ReadAhead::new(&pool, list.collect());
    for _ in 0..1500 {
        let pid = rng.u32(1..PAGES);
        match rng.u8(..10) {
            0 | 1 => drop(
                pool.write_step(Gsn(numbers.load(Ordering::SeqCst)))
                    .expect("a step"),
            ),
            2 | 3 => {
                for beside in 0..rng.u32(1..6) {
                    let _ = ahead.offer(Pid(pid + beside));
                }
            }
            4 | 5 => {
                if rng.u8(..20) == 0 {
                    let fail_read_at = Some(1);
                    disk.set_plan(FaultPlan {
                        fail_read_at,
                        ..FaultPlan::default()
                    });
                }
                let step = ahead.step();
                assert_ne!(step, Step::Done);
                disk.set_plan(FaultPlan::default());
            }
            _ => match pool.pin(Pid(pid)) {
                Ok(Some(pinned)) => {
                    assert_ne!(Some(pid), damaged);
                    assert_eq!(
                        count(&pinned),
                        counts[pid as usize],
                        "page {pid}, seed {seed}"
                    );
                    if rng.u8(..3) > 0 {
                        add(&pool, &pinned, Pid(pid), &numbers);
                        counts[pid as usize] += 1;
                    }
                }
                Ok(None) => {}
                Err(error) => assert_eq!(Some(pid), damaged, "{error}"),
            },
        }
        assert!(pool.unused_ahead() <= pool.window(), "seed {seed}");
    }
    flush(&pool);
    let again = counted::pool(
        PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).expect("files"),
        2,
    );
    for pid in (1..PAGES).filter(|pid| Some(*pid) != damaged) {
        assert_eq!(
            count(&pinned(&again, pid)),
            counts[pid as usize],
            "page {pid} on disk, seed {seed}"
        );
    }
    let counts = pool.counts();
    met.ahead_pages += counts.ahead_pages;
    met.ahead_reads += counts.ahead_reads;
    met.data_fetches += counts.data_fetches;
    met.index_fetches += counts.index_fetches;
    met.data_stalls += counts.data_stalls;
    met.evictions += counts.evictions;
}

#[test]
fn pages_that_were_read_ahead_are_what_was_last_written() {
    let mut met = Counts::default();
    (0..400).for_each(|seed| run(seed, &mut met));
    println!("{met:?}");
    assert!(
        met.ahead_pages > 10_000 && met.evictions > 10_000,
        "{met:?}"
    );
    assert!(met.ahead_reads < met.ahead_pages, "{met:?}");
    let fetches = met.data_fetches + met.index_fetches;
    assert_eq!(fetches, met.data_stalls + met.ahead_pages);
}

thread_local! {
    /// The gate of this thread. After reading the bytes, a read stops at the gate: it reports to the test and waits for
    /// the test's reply.
    static GATE: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) };
}

fn gate(_: Duration) {
    GATE.with_borrow(|gate| {
        if let Some((has_read, go_on)) = gate {
            has_read.send(()).expect("a test that waits");
            go_on.recv().expect("a test that goes on");
        }
    });
}

/// Makes a pool. If a thread has a gate, its reads of the pool's pages stop at this gate.
fn gated_pool() -> Pool {
    let clock = Arc::new(SystemClock::new());
    let disk = ModelDisk::new(Arc::new(MemDisk::new()), 0, 2000, clock, gate);
    pool(files_on(&disk, 60), 12)
}

/// Reads a page ahead. Between the read and the copy into the pool, another thread pins the page, changes it, and may
/// write and evict it. Returns whether the change is still there.
fn meanwhile(seed: u64, flaw: Option<Flaw>) -> bool {
    let mut rng = Rng::with_seed(seed);
    let (writes, evicts) = (rng.bool(), rng.bool());
    let pool = gated_pool();
    let numbers = AtomicU64::new(0);
    let (has_read, read) = channel();
    let (go, go_on) = channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            arm(flaw);
            GATE.set(Some((has_read, go_on)));
            let ahead = ReadAhead::new(&pool, pids([5, 6]));
            assert_eq!(ahead.step(), Step::Read);
        });
        read.recv().expect("a read");
        let (has_changed, changed) = channel();
        let (pool, numbers) = (&pool, &numbers);
        threads.spawn(move || {
            add(pool, &pinned(pool, 5), Pid(5), numbers);
            if writes {
                flush(pool);
            }
            if evicts {
                (20..50).for_each(|pid| drop(pool.pin(Pid(pid)).expect("a page")));
            }
            // The receiver may have timed out.
            let _ = has_changed.send(());
        });
        // The other thread's pin waits while the page is being read ahead, so its change may come only after this
        // timeout.
        let _ = changed.recv_timeout(Duration::from_millis(20));
        go.send(()).expect("a thread that waits");
    });
    flush(&pool);
    let in_memory = count(&pinned(&pool, 5));
    let file = pool.file();
    let mut buffer = file.buffer();
    file.read(Pid(5), &mut buffer).expect("a page");
    in_memory == 1 && *Node::over(&buffer).value(0) == 1u64.to_le_bytes()
}

#[test]
fn a_change_while_its_page_is_read_ahead_is_not_lost() {
    for seed in 0..12 {
        assert!(meanwhile(seed, None), "seed {seed}");
    }
}

#[test]
fn redo_that_has_caught_up_waits_once_for_all_that_is_being_read() {
    let pool = gated_pool();
    let ahead = ReadAhead::new(&pool, pids([5, 15, 25]));
    std::thread::scope(|threads| {
        let gates: Vec<_> = (0..3)
            .map(|_| {
                let (has_read, read) = channel();
                let (go, go_on) = channel();
                let ahead = &ahead;
                threads.spawn(move || {
                    GATE.set(Some((has_read, go_on)));
                    assert_eq!(ahead.step(), Step::Read);
                });
                read.recv().expect("a read");
                go
            })
            .collect();
        threads.spawn(|| [5, 15, 25].map(|pid| drop(pinned(&pool, pid))));
        for go in gates {
            std::thread::sleep(Duration::from_millis(20));
            go.send(()).expect("a thread that waits");
        }
    });
    assert_eq!(pool.counts().data_stalls, 1);
}

#[test]
fn every_mistake_shows() {
    for flaw in Flaw::TREE_AHEAD {
        let shown = (0..12).find(|seed| {
            let ran = std::panic::catch_unwind(|| meanwhile(*seed, Some(flaw)));
            !matches!(ran, Ok(true))
        });
        println!("{flaw:?}: {shown:?}");
        let seed = shown.unwrap_or_else(|| panic!("{flaw:?} does not show"));
        assert!(meanwhile(seed, None), "{flaw:?}");
    }
}

#[test]
fn threads_that_read_ahead_beside_those_that_change_and_write_lose_nothing() {
    const PAGES: u32 = 200;
    const ADDS: u64 = 4_000;
    let (disk, file) = files(PAGES);
    let pool = pool(file, 40);
    let numbers = AtomicU64::new(0);
    let ahead = ReadAhead::new(&pool, Vec::new());
    let adds = |seed: u64| {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..ADDS {
            let pid = rng.u32(1..PAGES);
            let _ = ahead.offer(Pid(rng.u32(1..PAGES)));
            let _ = ahead.offer(Pid(pid));
            let pinned = loop {
                match pool.pin(Pid(pid)).expect("a page") {
                    Some(pinned) => break pinned,
                    None => std::thread::yield_now(),
                }
            };
            add(&pool, &pinned, Pid(pid), &numbers);
        }
    };
    let left = AtomicU64::new(3);
    std::thread::scope(|threads| {
        for seed in 0..3 {
            let (adds, left, ahead) = (&adds, &left, &ahead);
            threads.spawn(move || {
                adds(seed);
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    ahead.close();
                }
            });
        }
        for _ in 0..4 {
            threads.spawn(|| ahead.work());
        }
        threads.spawn(|| {
            while left.load(Ordering::SeqCst) > 0 {
                pool.write_step(Gsn(numbers.load(Ordering::SeqCst)))
                    .expect("a step");
                assert!(pool.unused_ahead() <= pool.window());
            }
        });
    });
    flush(&pool);
    let file = PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).expect("files");
    let again = counted::pool(file, 4);
    let total: u64 = (1..PAGES).map(|pid| count(&pinned(&again, pid))).sum();
    assert_eq!(total, 3 * ADDS);
    assert!(pool.counts().ahead_pages > 0, "{:?}", pool.counts());
}

#[test]
#[ignore = "times, on a release build"]
fn thirty_two_threads_read_as_many_times_faster() {
    const PAGES: u32 = 20_000;
    const WANTED: usize = 2000;
    let inner: Arc<dyn Disk> = Arc::new(MemDisk::new());
    drop(files_on(&*inner, PAGES));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let disk = ModelDisk::new(inner, 0, 2000, Arc::clone(&clock), std::thread::sleep);
    let mut wanted: Vec<u32> = (1..PAGES).step_by(3).collect();
    Rng::with_seed(1).shuffle(&mut wanted);
    wanted.truncate(WANTED);
    let timed = |readers: usize| {
        let file = PageFile::open(&disk, DIR, SHAPE, Access::Buffered).expect("files");
        let pool = pool(file, 4000);
        let ahead = ReadAhead::new(&pool, pids(wanted.iter().copied()));
        let begin = clock.mono_ns();
        std::thread::scope(|threads| {
            for _ in 0..readers {
                threads.spawn(|| ahead.work());
            }
            wanted
                .iter()
                .for_each(|pid| assert_eq!(count(&pinned(&pool, *pid)), 0));
            ahead.close();
        });
        let ms = (clock.mono_ns() - begin) / 1_000_000;
        println!("{readers} readers: {ms} ms, {:?}", pool.counts());
        (ms, pool.counts().data_stalls)
    };
    let ((alone, _), (with, stalls)) = (timed(0), timed(32));
    assert!(with * 15 < alone, "{with} ms and {alone} ms");
    assert!(stalls * 20 < to_u64(WANTED), "{stalls} stalls");
}
