//! A loop that postpones a request because of another loop's long transaction.

use super::{gate, must_fail, search, sleep};
use crate::engine::{PartitionId, PartitionSet};
use crate::flights::{Flight, Flights};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::sync::Arc;

/// The number of long transactions, one after the other.
const SCRIPTS: usize = 3;
const PARTITION: PartitionId = PartitionId(7);

/// A mistake of one of the loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lapse {
    None,
    /// The loop reads the number of landings after it has found the partition held.
    CountsLate,
    /// After its script, a loop does not wake the other.
    WakesNobody,
    /// The loop does not end its wish.
    KeepsItsWish,
    /// The loop with the scripts ignores wishes.
    IgnoresWishes,
}

/// The tables and the gates of two loops. Loop 0 runs scripts, and loop 1 runs one request.
struct Loops {
    flights: Flights,
    gates: [Arc<crate::gate::Gate>; 2],
    /// True while the loop may still wake the other.
    running: [AtomicBool; 2],
    /// True while the latch is held.
    latched: AtomicBool,
}

impl Loops {
    /// Postpones the request of a loop until the number of landings differs from `landings`. The loop sleeps, and looks
    /// at the number when the other loop wakes it.
    fn postpone(&self, at: usize, poll: &mut mio::Poll, landings: u64) {
        while self.flights.landings() == landings {
            self.gates[at].lie_down(false);
            if self.flights.landings() == landings {
                sleep(poll, || !self.running[1 - at].load(Ordering::SeqCst));
            }
            self.gates[at].get_up();
        }
    }

    fn run_scripts(&self, poll: &mut mio::Poll, lapse: Lapse, asked: &AtomicBool) {
        let (mut ran, mut since_asked) = (0, 0);
        let partitions = PartitionSet::from_iter([PARTITION]);
        while ran < SCRIPTS {
            let landings = self.flights.landings();
            let is_wanted = self.flights.is_wanted(0, &partitions);
            if is_wanted && lapse != Lapse::IgnoresWishes {
                self.postpone(0, poll, landings);
                continue;
            }
            // The latch is free or held for a moment only, so this loop waits for it.
            while self.latched.swap(true, Ordering::SeqCst) {
                thread::yield_now();
            }
            self.flights.begin(Flight::Round(0), partitions);
            since_asked += usize::from(asked.load(Ordering::SeqCst));
            assert!(since_asked <= 1, "scripts overtake the request");
            self.latched.store(false, Ordering::SeqCst);
            self.flights.end(Flight::Round(0));
            if lapse != Lapse::WakesNobody {
                self.gates[1].wake();
            }
            ran += 1;
        }
    }

    fn run_request(&self, poll: &mut mio::Poll, lapse: Lapse, asked: &AtomicBool) {
        let partitions = PartitionSet::from_iter([PARTITION]);
        let mut wants = false;
        loop {
            let mut landings = self.flights.landings();
            // The loop looks at the flights when it does not get the latch.
            let is_free = !self.latched.swap(true, Ordering::SeqCst);
            if is_free {
                asked.store(false, Ordering::SeqCst);
                self.latched.store(false, Ordering::SeqCst);
                break;
            }
            if !self.flights.holds_for(1, PARTITION) {
                thread::yield_now();
                continue;
            }
            if lapse == Lapse::CountsLate {
                landings = self.flights.landings();
            }
            if self.flights.want(1, &partitions, false) {
                wants = true;
                asked.store(true, Ordering::SeqCst);
            }
            self.postpone(1, poll, landings);
        }
        if wants && lapse != Lapse::KeepsItsWish {
            self.flights.unwant(1);
            self.gates[0].wake();
        }
    }
}

/// Loop 0 runs scripts without a pause, and loop 1 has a request for their key. The request must run, and after it is
/// postponed at most one more script may begin before it.
fn request_beside_scripts(lapse: Lapse) {
    let ((gate_0, mut poll_0), (gate_1, mut poll_1)) = (gate(), gate());
    let loops = Arc::new(Loops {
        flights: Flights::default(),
        gates: [gate_0, gate_1],
        running: [AtomicBool::new(true), AtomicBool::new(true)],
        latched: AtomicBool::new(false),
    });
    let asked = Arc::new(AtomicBool::new(false));
    let (its_loops, its_asked) = (Arc::clone(&loops), Arc::clone(&asked));
    let scripts = thread::spawn(move || {
        its_loops.run_scripts(&mut poll_0, lapse, &its_asked);
        its_loops.running[0].store(false, Ordering::SeqCst);
    });
    loops.run_request(&mut poll_1, lapse, &asked);
    loops.running[1].store(false, Ordering::SeqCst);
    scripts.join().expect("the scripts");
    assert!(!loops.flights.any(), "no note stays");
}

#[test]
fn a_postponed_request_runs_before_a_second_script_begins() {
    search(|| request_beside_scripts(Lapse::None));
}

#[test]
fn mistakes_with_postponed_requests_are_noticed() {
    must_fail(|| request_beside_scripts(Lapse::CountsLate));
    must_fail(|| request_beside_scripts(Lapse::WakesNobody));
    must_fail(|| request_beside_scripts(Lapse::KeepsItsWish));
    must_fail(|| request_beside_scripts(Lapse::IgnoresWishes));
}
