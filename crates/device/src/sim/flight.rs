//! The simulated machine's treatment of durable writes in flight.

use std::io;
use std::sync::Arc;

use perdura_base::{Error, Result};

use super::SyncFailure;
use super::names::Ino;
use super::queue::Flying;
use super::state::{State, eio, is_nth};
use crate::path::bytes_u64;

/// The choices for the average number of operations until the next stray write *lands*. A stray write was left in
/// flight by a killed process. When it lands, its bytes go into the file. With 8, it lands soon. With 512, the file may
/// have a new use before it lands.
const STRAY_ODDS: [u16; 3] = [8, 64, 512];

impl State {
    /// Begins a durable write and returns its number. An error that a plain write would have is returned at once. An
    /// error that a plain sync would have is returned later, by [`complete`](Self::complete).
    pub(super) fn begin_durable(
        &mut self,
        path: &str,
        life: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<u64> {
        self.mutating("write", path, life)?;
        if is_nth(&mut self.since.writes, self.plan.fail_write_at) {
            self.meters.add("write_failed", 1);
            return Err(Error::io("write", path, eio()));
        }
        self.check_fence()?;
        let found = self.storage.names.live.get_key_value(path);
        let Some((path, &ino)) = found.map(|(path, ino)| (Arc::clone(path), ino)) else {
            return Err(Error::io("write", path, io::ErrorKind::NotFound.into()));
        };
        let refused = self.is_write_refused();
        let data = if refused {
            self.some_sectors(data)
        } else {
            data
        };
        self.admit(
            "write",
            ino,
            &path,
            offset.saturating_add(bytes_u64(data.len())),
        )?;
        self.storage.flights += 1;
        let number = self.storage.flights;
        assert!(
            self.storage.flying.iter().all(|one| one.number < number),
            "writes in flight are numbered in their order"
        );
        self.storage.flying.push(Flying {
            ino,
            offset,
            data: data.into(),
            number,
        });
        if refused {
            // The write ends now, and its bytes are not durable.
            self.land(number);
            self.meters.add("write_refused", 1);
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::io("write", &*path, full));
        }
        self.meters
            .add("in_flight", usize::from(self.storage.flying.len() > 1));
        Ok(number)
    }

    /// Completes a write in flight.
    pub(super) fn complete(&mut self, number: u64, path: &str, life: u64) -> Result<()> {
        self.mutating("sync", path, life)?;
        self.check_fence()?;
        self.since.syncs += 1;
        let failure = match self.plan.fail_sync_at {
            Some((nth, failure)) if nth == self.since.syncs => Some(failure),
            _ => None,
        };
        let late = self
            .storage
            .flying
            .iter()
            .any(|other| other.number < number);
        self.meters.add("out_of_order", usize::from(late));
        let Some(ino) = self.land(number) else {
            return Ok(());
        };
        let rng = &mut self.storage.rng;
        let inode = self.storage.inodes.get_mut(&ino);
        let inode = inode.expect("a file that is written has its inode");
        let Some(failure) = failure else {
            inode.sync_last();
            return Ok(());
        };
        self.meters.add("sync_failed", 1);
        let keeps = failure == SyncFailure::KeepsNew;
        inode.fail_last(keeps, rng, &mut self.meters);
        Err(Error::io("write", path, eio()))
    }

    /// Ends a write in flight: applies the bytes to the file as a change that is not durable. Returns the file. `None`:
    /// the write has already ended, it has no bytes, or its file is gone.
    fn land(&mut self, number: u64) -> Option<Ino> {
        let at = self
            .storage
            .flying
            .iter()
            .position(|one| one.number == number)?;
        let one = self.storage.flying.swap_remove(at);
        if one.data.is_empty() || !self.storage.inodes.contains_key(&one.ino) {
            return None;
        }
        let seq = self.next_seq();
        let offset = usize::try_from(one.offset).unwrap_or(usize::MAX);
        self.inode(one.ino).write(seq, offset, &one.data);
        Some(one.ino)
    }

    /// Ends all writes in flight, in the order of submission. Their bytes go into the files as changes that are not
    /// durable.
    pub(super) fn land_all(&mut self) {
        let mut numbers: Vec<u64> = self.storage.flying.iter().map(|one| one.number).collect();
        numbers.sort_unstable();
        self.meters.add("cut_in_flight", numbers.len());
        for number in numbers {
            self.land(number);
        }
        assert!(
            self.storage.flying.is_empty(),
            "all that was in flight has landed"
        );
        self.storage.strays.clear();
    }

    /// Ends all writes that killed processes have left in flight.
    pub(super) fn land_strays(&mut self) {
        for number in std::mem::take(&mut self.storage.strays) {
            self.land(number);
        }
    }

    /// Ends, with a low probability, one write that a killed process has left in flight.
    pub(super) fn land_late(&mut self) {
        let stray = self.storage.strays.last().copied();
        if let Some(number) = stray
            && self.storage.rng.u16(0..self.storage.stray_odds) == 0
        {
            self.storage.strays.pop();
            self.land(number);
            self.meters.add("landed_late", 1);
        }
    }

    /// Decides when the writes end that a killed process has left in flight. If the disk keeps the process's locks
    /// until these writes end, they all end now. Otherwise each of them ends at some later time.
    pub(super) fn abandon_flights(&mut self) {
        if self.keeps_locked {
            return self.land_all();
        }
        assert!(
            self.storage.strays.len() <= self.storage.flying.len(),
            "what is still to land is in flight"
        );
        self.storage.strays = self.storage.flying.iter().map(|one| one.number).collect();
        self.storage.stray_odds = STRAY_ODDS[self.storage.rng.usize(0..STRAY_ODDS.len())];
    }

    pub(super) fn is_write_refused(&self) -> bool {
        let nth = self.since.writes;
        self.plan
            .refuse_write_at
            .is_some_and(|(from, count)| nth >= from && nth - from < count)
    }
}
