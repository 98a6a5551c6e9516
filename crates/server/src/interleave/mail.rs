//! A loop that sleeps between letters and advances of the durable epoch.

use super::{gate, must_fail, search, sleep};
use crate::engine::Epoch;
use crate::mailbox::{Letter, Mailbox, Post};
use crate::pubsub::Seat;
use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use shuttle::thread;
use std::sync::Arc;

const SENDERS: u64 = 2;
const LETTERS: u64 = 2;

/// A mistake of the loop before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The loop looks at mailbox and durable epoch before it announces its sleep.
    LooksFirst,
    /// The loop does not announce that letters wait for the log.
    HidesItsWait,
    /// The loop does not look at its mailbox after the announcement.
    SkipsTheMailbox,
}

fn letter(sender: u64, number: u64) -> Letter {
    let to = Seat {
        id: sender,
        ..Seat::NOBODY
    };
    Letter {
        to,
        post: Arc::new(Post::Line(String::new())),
        epoch: Epoch(number),
    }
}

/// A loop with its mailbox, and the log that its letters wait for.
struct Desk {
    mailbox: Mailbox,
    durable: AtomicU64,
    /// The number of threads that may still wake the loop.
    running: AtomicUsize,
}

impl Desk {
    /// Delivers the letters whose epoch is durable. Returns that epoch.
    fn deliver(&self, waiting: &mut Vec<Letter>, delivered: &mut [u64]) -> u64 {
        let mut new = Vec::new();
        self.mailbox.take(&mut new);
        waiting.append(&mut new);
        let reached = self.durable.load(Ordering::SeqCst);
        waiting.retain(|letter| {
            let before = &mut delivered[letter.to.id as usize];
            let leaves = letter.epoch.0 <= reached;
            if leaves {
                assert_eq!(letter.epoch.0, *before + 1, "a sender's letters keep order");
                *before = letter.epoch.0;
            }
            !leaves
        });
        reached
    }

    /// Sleeps until a thread wakes the loop, unless there is something to do.
    fn sleep(&self, poll: &mut mio::Poll, waits: bool, reached: u64, mistake: Mistake) {
        let looks = || {
            let mail = !self.mailbox.is_empty() && mistake != Mistake::SkipsTheMailbox;
            mail || waits && self.durable.load(Ordering::SeqCst) != reached
        };
        let early = looks();
        let gate = &self.mailbox.gate;
        gate.lie_down(waits && mistake != Mistake::HidesItsWait);
        let busy = match mistake {
            Mistake::LooksFirst => early,
            _ => looks(),
        };
        if !busy {
            sleep(poll, || self.running.load(Ordering::SeqCst) == 0);
        }
        gate.get_up();
    }
}

/// Two senders post letters of the epochs 1 and 2, and a flusher makes the epochs durable. The loop must deliver all
/// letters, those of each sender in order, and none before its epoch is durable.
fn letters(mistake: Mistake) {
    let (gate, mut poll) = gate();
    let desk = Arc::new(Desk {
        mailbox: Mailbox::new(gate),
        durable: AtomicU64::new(0),
        running: AtomicUsize::new(0),
    });
    let spawn = |work: Box<dyn FnOnce(&Desk) + Send>| {
        desk.running.fetch_add(1, Ordering::SeqCst);
        let desk = Arc::clone(&desk);
        thread::spawn(move || {
            work(&desk);
            desk.running.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let mut threads = Vec::new();
    for sender in 0..SENDERS {
        threads.push(spawn(Box::new(move |desk| {
            (1..=LETTERS).for_each(|number| desk.mailbox.put(letter(sender, number)));
        })));
    }
    threads.push(spawn(Box::new(|desk| {
        for epoch in 1..=LETTERS {
            desk.durable.store(epoch, Ordering::SeqCst);
            desk.mailbox.gate.advanced();
        }
    })));
    let mut waiting: Vec<Letter> = Vec::new();
    let mut delivered = vec![0; SENDERS as usize];
    loop {
        let reached = desk.deliver(&mut waiting, &mut delivered);
        if delivered.iter().all(|count| *count == LETTERS) {
            break;
        }
        desk.sleep(&mut poll, !waiting.is_empty(), reached, mistake);
    }
    for thread in threads {
        thread.join().expect("a sender");
    }
    assert!(desk.mailbox.is_empty(), "each letter comes once");
}

#[test]
fn each_letter_comes_once_in_its_senders_order_and_wakes_the_loop() {
    search(|| letters(Mistake::None));
}

#[test]
fn mistakes_before_a_sleep_lose_a_wake_up() {
    must_fail(|| letters(Mistake::LooksFirst));
    must_fail(|| letters(Mistake::HidesItsWait));
    must_fail(|| letters(Mistake::SkipsTheMailbox));
}
