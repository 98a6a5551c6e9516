//! A process that serves the database, or did: its engine, what its clients wait for and what they were told.

use perdura::mirror::Generation;
use perdura::{Core, Rung};

use super::past::Past;

/// An answer that waits for its epoch on each rung.
pub(super) struct Promise {
    /// From when on the client may be told.
    pub ticket: u64,
    /// The newest epoch that the answer depends on.
    pub needs: u64,
    /// The rungs on which it waits.
    pub waits: [bool; 2],
}

/// The rungs, in the order of what is kept of each.
pub(super) const RUNGS: [Rung; 2] = [Rung::Mirror, Rung::Disk];

/// What the next life has of a writer's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Superseded {
    /// The newest epoch.
    pub kept: u64,
    /// What was behind it on nodes was given up.
    pub by_loss: bool,
}

/// A process with the database open.
pub(super) struct Writer {
    /// `None` once it has crashed.
    pub core: Option<Core>,
    /// Its name in the network.
    pub client: u32,
    pub generation: Generation,
    pub life: u32,
    pub past: Past,
    pub promises: Vec<Promise>,
    /// By rung, the newest epoch that an answer depends on.
    pub acked: [u64; 2],
    /// The disks are another's: it sleeps, or wakes up too late.
    pub is_fenced_off: bool,
    pub superseded: Option<Superseded>,
    /// Its log has failed, or the power is gone.
    pub stopped: bool,
    /// Its view and its anchor say that all is on disk, and it serves no more.
    pub ended: bool,
}

impl Writer {
    /// What was there before the first open.
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

    /// The clients look which of their answers may be given now, by rung. Returns how many are.
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
