//! A process that serves the database or has served it: its engine, and its clients' replies, both pending
//! and given.

use perdura::mirror::Generation;
use perdura::{Core, Rung};

use super::past::Past;

/// A reply that waits for its epoch, separately on each rung.
pub(super) struct Promise {
    /// The epoch from which on the reply may be given.
    pub ticket: u64,
    /// The newest epoch that the reply depends on.
    pub needs: u64,
    /// By rung, true if the reply still waits there.
    pub waits: [bool; 2],
}

/// The rungs, in the order that all arrays by rung have.
pub(super) const RUNGS: [Rung; 2] = [Rung::Mirror, Rung::Disk];

/// The part of a replaced writer's log that the next life has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Superseded {
    /// The newest epoch that the next life kept.
    pub kept: u64,
    /// True if the open accepted a loss: it gave up later epochs that nodes had.
    pub by_loss: bool,
}

/// A process with the database open.
pub(super) struct Writer {
    /// `None` once it has crashed.
    pub core: Option<Core>,
    /// The process's name in the network.
    pub client: u32,
    pub generation: Generation,
    pub life: u32,
    pub past: Past,
    pub promises: Vec<Promise>,
    /// By rung, the newest epoch that a given reply depends on.
    pub acked: [u64; 2],
    /// True if the next process has taken the disks: this process sleeps, or wakes up too late.
    pub is_fenced_off: bool,
    pub superseded: Option<Superseded>,
    /// True if the process's log has failed or its power is gone.
    pub stopped: bool,
    /// True if the process has ended cleanly: the view and the anchor say that everything is on
    /// disk.
    pub ended: bool,
}

impl Writer {
    /// Returns the writer before the first open, without an engine.
    pub fn nothing() -> Writer {
        Writer {
            core: None,
            client: 0,
            generation: Generation(0),
            life: 0,
            past: Past::default(),
            promises: Vec::new(),
            acked: [0; 2],
            is_fenced_off: false,
            superseded: None,
            stopped: true,
            ended: false,
        }
    }

    pub fn core(&self) -> &Core {
        self.core.as_ref().expect("a step is taken by a process")
    }

    /// Gives the clients all replies that may be given now, on each rung. Returns the number of given replies.
    pub fn observe(&mut self) -> u64 {
        let Some(core) = &self.core else { return 0 };
        let reached = RUNGS.map(|rung| core.wal().durable(rung).0);
        assert!(
            self.promises
                .iter()
                .all(|promise| promise.waits.contains(&true)),
            "an answer that was given waits no more"
        );
        let (acked, mut answered) = (&mut self.acked, 0);
        self.promises.retain_mut(|promise| {
            for (at, waits) in promise.waits.iter_mut().enumerate() {
                if *waits && promise.ticket <= reached[at] {
                    *waits = false;
                    acked[at] = acked[at].max(promise.needs);
                }
            }
            let waits = promise.waits.contains(&true);
            answered += u64::from(!waits);
            waits
        });
        answered
    }
}
