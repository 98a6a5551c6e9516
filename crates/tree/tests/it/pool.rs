//! Tests of the pool with few frames. With one thread and with several threads, a pin must return the newest content of
//! its page.

use crate::counted;

use crate::counted::{DIR, SHAPE, add, count, files, flush, page, pool};
use fastrand::Rng;
use perdura_base::{Gsn, Pid};
use perdura_device::Access;
use perdura_page::tree_page::Kind;
use perdura_tree::file::PageFile;
use perdura_tree::pool::Progress;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn what_is_read_is_what_was_last_written_however_few_frames_there_are() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let pages = rng.u32(2..80);
        let frames = rng.usize(2..30);
        let (disk, file) = files(pages);
        let pool = pool(file, frames);
        let numbers = AtomicU64::new(0);
        let mut counts = vec![0; pages as usize];
        let mut eosl = 0;
        for _ in 0..2000 {
            if rng.u8(..3) == 0 {
                eosl = rng.u64(eosl..=numbers.load(Ordering::SeqCst));
                pool.write_step(Gsn(eosl)).expect("a step");
            }
            let pid = rng.u32(1..pages);
            let pinned = loop {
                match pool.pin(Pid(pid)).expect("a page") {
                    Some(pinned) => break pinned,
                    // All frames hold dirty pages, so the log and the writer must advance.
                    None => {
                        eosl = numbers.load(Ordering::SeqCst);
                        pool.write_step(Gsn(eosl)).expect("a step");
                    }
                }
            };
            assert_eq!(count(&pinned), counts[pid as usize], "page {pid}");
            if rng.bool() {
                add(&pool, &pinned, Pid(pid), &numbers);
                counts[pid as usize] += 1;
            }
        }
        flush(&pool);
        assert_eq!(pool.monitor().lock().dirty_count(), 0);
        let again = counted::pool(
            PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).expect("files"),
            2,
        );
        for pid in 1..pages {
            let pinned = again.pin(Pid(pid)).expect("a page").expect("a frame");
            assert_eq!(count(&pinned), counts[pid as usize], "page {pid} on disk");
        }
    }
}

#[test]
fn a_page_that_leads_to_others_stays_while_leaves_can_go() {
    let (_disk, file) = files(50);
    let pool = pool(file, 4);
    drop(pool.pin(Pid(0)).expect("a page"));
    for pid in (1..50).cycle().take(500) {
        drop(pool.pin(Pid(pid)).expect("a page").expect("a frame"));
    }
    drop(pool.pin(Pid(0)).expect("a page"));
    let counts = pool.counts();
    assert_eq!((counts.index_fetches, counts.data_fetches), (1, 500));
    assert_eq!(counts.evictions, 497);
}

#[test]
fn a_page_that_leads_to_others_goes_when_nothing_else_can() {
    let (_disk, file) = files(8);
    let pool = pool(file, 1);
    for pid in [0, 1, 0, 2] {
        drop(pool.pin(Pid(pid)).expect("a page").expect("a frame"));
    }
    assert_eq!(pool.counts().evictions, 3);
}

#[test]
fn a_pinned_page_and_a_dirty_one_stay_and_a_new_one_finds_no_frame() {
    let (_disk, file) = files(8);
    let pool = pool(file, 2);
    let numbers = AtomicU64::new(0);
    let first = pool.pin(Pid(1)).expect("a page").expect("a frame");
    let second = pool.pin(Pid(2)).expect("a page").expect("a frame");
    add(&pool, &second, Pid(2), &numbers);
    assert!(pool.pin(Pid(3)).expect("no fault").is_none());
    drop(second);
    assert!(pool.pin(Pid(3)).expect("no fault").is_none(), "2 is dirty");
    assert!(pool.adopt(Pid(9), &page(Pid(9), Kind::Leaf)).is_none());
    assert_eq!(pool.write_step(Gsn(0)).expect("a step"), Progress::Idle);
    flush(&pool);
    assert!(pool.pin(Pid(3)).expect("no fault").is_some());
    drop(first);
    let new = pool.adopt(Pid(9), &page(Pid(9), Kind::Leaf));
    assert_eq!(count(&new.expect("a frame")), 0);
}

#[test]
fn a_damaged_page_is_an_error_and_its_frame_is_free_again() {
    let (disk, file) = files(8);
    let pages = disk.open("tree/pages", Access::Buffered);
    pages
        .expect("a file")
        .write_at(3 * 512 + 100, b"x")
        .expect("a write");
    let pool = pool(file, 1);
    for _ in 0..3 {
        let error = pool.pin(Pid(3)).expect_err("damage").to_string();
        assert!(error.contains("in page 3"), "{error}");
        assert!(pool.pin(Pid(4)).expect("a page").is_some());
    }
}

#[test]
fn threads_that_add_and_one_that_writes_lose_nothing() {
    const PAGES: u32 = 40;
    const ADDS: u64 = 20_000;
    let (disk, file) = files(PAGES);
    let pool = pool(file, 12);
    let (numbers, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let adders: Vec<_> = (0..3)
            .map(|seed| {
                let (pool, numbers) = (&pool, &numbers);
                threads.spawn(move || {
                    let mut rng = Rng::with_seed(seed);
                    let mut left = ADDS;
                    while left > 0 {
                        let pid = Pid(rng.u32(1..PAGES));
                        let Some(pinned) = pool.pin(pid).expect("a page") else {
                            std::thread::yield_now();
                            continue;
                        };
                        add(pool, &pinned, pid, numbers);
                        left -= 1;
                    }
                })
            })
            .collect();
        threads.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let eosl = Gsn(numbers.load(Ordering::SeqCst));
                pool.write_step(eosl).expect("a step");
            }
        });
        for adder in adders {
            adder.join().expect("a thread");
        }
        done.store(true, Ordering::SeqCst);
    });
    flush(&pool);
    let again = counted::pool(
        PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).expect("files"),
        4,
    );
    let total: u64 = (1..PAGES)
        .map(|pid| count(&again.pin(Pid(pid)).expect("a page").expect("a frame")))
        .sum();
    assert_eq!(total, 3 * ADDS);
    assert!(pool.counts().evictions > 0, "{:?}", pool.counts());
}
