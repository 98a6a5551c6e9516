//! The threads of the voucher and the housekeeper. The voucher writes the log's last durable epoch into the anchor.

use std::time::Duration;

use perdura_base::StreamId;
use perdura_heap::MemoryUse;
use perdura_wal::Rung;

use crate::delays::Work;
use crate::ground::Ground;

/// The pause of a background thread between two checks for work.
const TICK: Duration = Duration::from_millis(20);
/// The housekeeper's pause while elements of deleted collections wait to be removed.
const HURRY_TICK: Duration = Duration::from_millis(1);
/// The housekeeper looks for expired rows once in this many ticks.
const PURGE_TICKS: u64 = 5;
/// A new segment is zeroed in parts, with this pause between two parts.
const ZEROING_PAUSE: Duration = Duration::from_millis(1);

/// The approximate time, in nanoseconds, between two updates of the anchor's vouched epoch. The voucher updates it only
/// while the log is written.
const VOUCH_NS: u64 = 1_000_000_000;

/// Runs a thread that loads the partitions that the restart has left absent.
pub(crate) fn loader(ground: &Ground) {
    while !ground.is_stopping() {
        match ground.core.load_next() {
            Ok(false) => return,
            Ok(true) => {}
            // The disk may answer again later. A damaged partition is not tried again.
            Err(_) => std::thread::sleep(TICK),
        }
        ground.announce();
    }
}

/// Runs the housekeeper's thread.
pub(crate) fn housekeeper(ground: &Ground) {
    let mut log_bytes = 0;
    let mut tick = 0u64;
    let pause = || std::thread::sleep(ZEROING_PAUSE);
    let mut much_to_purge = false;
    while !ground.is_stopping() {
        std::thread::park_timeout(if much_to_purge { HURRY_TICK } else { TICK });
        if ground.core.wal().failure().is_some() {
            continue;
        }
        for stream in (0..ground.core.wal().streams()).map(StreamId) {
            let work = Work::Segment(stream);
            while ground.delays.is_due(work, ground.now_ns()) && !ground.is_stopping() {
                let prepared = ground.core.wal().prepare_segment(stream, &pause);
                if matches!(prepared, Ok(false)) {
                    ground.note_log(work, Ok(()));
                    break;
                }
                let failed = prepared.is_err();
                ground.note_log(work, prepared.map(drop));
                // Writers may have waited for this segment. Wake them before the next one is prepared.
                ground.announce();
                if failed {
                    break;
                }
            }
        }
        if ground.delays.is_due(Work::Removal, ground.now_ns()) {
            match ground.core.clear_away() {
                Ok(()) => ground.delays.done(Work::Removal),
                Err(error) => {
                    let now = ground.now_ns();
                    ground.delays.failed(Work::Removal, &error, now);
                }
            }
        }
        tick += 1;
        if much_to_purge || tick.is_multiple_of(PURGE_TICKS) {
            much_to_purge = purge(ground);
        }
        let queued = ground.core.wal().stats().queued_bytes;
        ground
            .core
            .heap()
            .memory()
            .change(MemoryUse::Log, log_bytes, queued);
        log_bytes = queued;
    }
}

/// Updates the anchor's vouched epoch about once a second. The voucher has its own thread because the housekeeper may
/// spend more than a second on zeroing one segment.
pub(crate) fn voucher(ground: &Ground) {
    let mut not_before_ns = 0;
    let mut checked_ns = 0;
    while !ground.is_stopping() {
        std::thread::park_timeout(TICK);
        let now_ns = ground.now_ns();
        let due = now_ns >= not_before_ns && ground.delays.is_due(Work::Vouch, now_ns);
        if !due || ground.core.wal().failure().is_some() {
            continue;
        }
        // Without this check, a database that gets no writes would look healthy even if its files
        // are gone.
        if now_ns >= checked_ns + VOUCH_NS {
            checked_ns = now_ns;
            if ground.core.check_files().is_err() {
                ground.announce();
                continue;
            }
        }
        let durable = ground.core.wal().durable(Rung::Disk);
        match ground.core.vouch() {
            Ok(written) => {
                let vouched = ground.core.anchor().get().vouched.epoch;
                assert!(
                    durable <= vouched,
                    "I13: the anchor vouches for what was durable before"
                );
                ground.delays.done(Work::Vouch);
                not_before_ns = now_ns + u64::from(written) * VOUCH_NS;
            }
            Err(error) if ground.core.wal().failure().is_none() => {
                ground.delays.failed(Work::Vouch, &error, now_ns);
            }
            Err(_) => ground.announce(),
        }
    }
}

/// Takes one purge step for each partition. Returns true if more work is likely, because a step reached the limit.
fn purge(ground: &Ground) -> bool {
    let mut much = false;
    for _ in 0..ground.core.heap().geometry().partitions {
        // An error means that the log is full or the database has stopped. Expired rows are hidden already, so their
        // removal can wait.
        match ground.core.purge_step() {
            Ok(done) => {
                much |= done >= ground.core.options().orphans.step_rows;
                if done > 0 && ground.core.tells_of_expired() {
                    ground.wishes.nudge();
                }
            }
            Err(_) => return false,
        }
    }
    much
}
