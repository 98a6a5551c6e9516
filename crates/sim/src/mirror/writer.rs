//! A process that serves or has served the database. It has an engine, the pending replies of its clients, and the
//! newest acknowledged epochs.

use perdura::mirror::Generation;
use perdura::{Core, Rung};

use super::past::Past;

/// A reply that waits until its epoch is durable. It waits on each rung separately.
pub(super) struct Promise {
    /// The reply may be given once this epoch is durable.
    pub ticket: u64,
    /// The newest epoch that the reply depends on.
    pub needs: u64,
    /// By rung, true if the reply still waits there.
    pub waits: [bool; 2],
}

/// The rungs. Every array with one element for each rung has this order.
pub(super) const RUNGS: [Rung; 2] = [Rung::Mirror, Rung::Disk];

/// The part of a replaced writer's log that the next life kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Superseded {
    /// The newest epoch that the next life kept.
    pub kept: u64,
    /// True if the open accepted a loss: it gave up later epochs, which nodes had held.
    pub by_loss: bool,
}

/// A process with the database open.
pub(super) struct Writer {
    /// The engine. `None` once the process has crashed.
    pub core: Option<Core>,
    /// The process's id in the network.
    pub client: u32,
    pub generation: Generation,
    pub life: u32,
    pub past: Past,
    pub promises: Vec<Promise>,
    /// By rung, the newest epoch that a sent reply depends on.
    pub acked: [u64; 2],
    /// True if the next process has taken the disks. This process sleeps, or has woken up too late.
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

    /// Gives each reply to its client on every rung on which the epoch is durable. Returns how many replies have now
    /// been given on all rungs.
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
