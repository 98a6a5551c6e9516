//! The order in which a sweep visits the partitions of several image disks.
//!
//! Each image disk has a *lane*: the disk's partitions in ascending order. The sweep takes the next batch from the lane
//! whose disk has the least to write. So no disk waits while another has work. The directory's sections are in the
//! order of the partitions, so the section of a partition may have to wait for earlier ones. No lane gets far ahead,
//! which bounds the memory for these sections.

use std::collections::BTreeMap;

use perdura_base::PartitionId;

use crate::image::disk_of;

/// A lane may be ahead of the first missing section by this many partitions of each disk.
const AHEAD_MAX: usize = 2;

/// The end of a swept partition: its section of the directory, and its digest.
pub(super) struct Swept {
    pub section: Vec<u8>,
    pub digest: u64,
}

/// The position in a lane: a partition and a local page number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    partition: u16,
    local: u32,
}

/// The lanes of a sweep.
pub(super) struct Lanes {
    partitions: u16,
    /// The next page of each lane. `None`: the lane has ended.
    next: Vec<Option<At>>,
    /// The lane of the last batch.
    last: usize,
    /// The partitions whose sections are in the directory: all below this number.
    sections: u16,
    /// The sections that wait for earlier partitions.
    waiting: BTreeMap<u16, Swept>,
}

impl Lanes {
    /// Returns the lanes of `disks` image disks at their begin.
    pub fn new(partitions: u16, disks: usize) -> Lanes {
        assert!(partitions > 0 && disks > 0, "there is something to sweep");
        let first = |disk: usize| {
            let partition = u16::try_from(disk).ok().filter(|p| *p < partitions)?;
            Some(At {
                partition,
                local: 0,
            })
        };
        Lanes {
            partitions,
            next: (0..disks).map(first).collect(),
            last: disks - 1,
            sections: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Picks the lane with the least load, of lanes with the same load the one that follows the last. Returns the next
    /// partition and local page number. `load` returns the bytes that wait for a disk.
    ///
    /// # Panics
    /// If all lanes have ended.
    pub fn pick(&mut self, mut load: impl FnMut(usize) -> usize) -> (PartitionId, u32) {
        let disks = self.next.len();
        let bound = usize::from(self.sections) + AHEAD_MAX * disks;
        let open = (1..=disks)
            .map(|step| (self.last + step) % disks)
            .filter(|lane| self.next[*lane].is_some_and(|at| usize::from(at.partition) < bound));
        let lane = open.min_by_key(|lane| load(*lane));
        self.last = lane.expect("the lane of the first missing section is open");
        let at = self.next[self.last].expect("an open lane has a next page");
        assert_eq!(
            disk_of(PartitionId(at.partition), disks),
            self.last,
            "a lane has the partitions of its disk"
        );
        (PartitionId(at.partition), at.local)
    }

    /// Moves the picked lane to the local page `next` of its partition. `None`: moves it to the next partition.
    pub fn advance(&mut self, next: Option<u32>) {
        let disks = self.next.len();
        let at = self.next[self.last]
            .as_mut()
            .expect("a picked lane is open");
        match next {
            Some(local) => {
                assert!(local > at.local, "a sweep goes forward");
                at.local = local;
            }
            None => {
                let partition = usize::from(at.partition) + disks;
                let partition = u16::try_from(partition).ok();
                let partition = partition.filter(|p| *p < self.partitions);
                self.next[self.last] = partition.map(|partition| At {
                    partition,
                    local: 0,
                });
            }
        }
    }

    /// Adds the end of a partition. Returns, in the order of the partitions, all ends that no earlier one is missing
    /// for.
    pub fn add(&mut self, partition: PartitionId, swept: Swept) -> Vec<Swept> {
        assert!(partition.0 >= self.sections, "a partition ends once");
        let before = self.waiting.insert(partition.0, swept);
        assert!(before.is_none(), "a partition ends once");
        let mut ready = Vec::new();
        while let Some(swept) = self.waiting.remove(&self.sections) {
            ready.push(swept);
            self.sections += 1;
        }
        assert!(
            self.waiting.len() < AHEAD_MAX * self.next.len(),
            "no lane gets far ahead"
        );
        ready
    }

    /// Returns whether all partitions are swept and have their sections.
    pub fn has_ended(&self) -> bool {
        self.sections == self.partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(number: u16) -> Swept {
        Swept {
            section: number.to_le_bytes().to_vec(),
            digest: u64::from(number),
        }
    }

    /// Sweeps partitions of `pages` pages each, and returns the partitions in the order of the batches.
    fn sweep(partitions: u16, disks: usize, pages: u32, load: impl Fn(usize) -> usize) -> Vec<u16> {
        let mut lanes = Lanes::new(partitions, disks);
        let (mut visited, mut digests) = (Vec::new(), Vec::new());
        while !lanes.has_ended() {
            let (partition, local) = lanes.pick(&load);
            visited.push(partition.0);
            let next = Some(local + 1).filter(|next| *next < pages);
            lanes.advance(next);
            if next.is_none() {
                let ready = lanes.add(partition, swept(partition.0));
                digests.extend(ready.iter().map(|swept| swept.digest));
            }
        }
        let all: Vec<u64> = (0..partitions).map(u64::from).collect();
        assert_eq!(digests, all, "the sections are in order, each once");
        visited
    }

    #[test]
    fn one_disk_is_swept_partition_by_partition() {
        assert_eq!(sweep(3, 1, 2, |_| 0), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn disks_of_equal_load_take_turns() {
        assert_eq!(sweep(4, 2, 2, |_| 0), [0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(sweep(2, 4, 1, |_| 0), [0, 1], "two disks have no partition");
    }

    #[test]
    fn an_idle_disk_goes_ahead_but_not_far() {
        let visited = sweep(16, 2, 1, |disk| 1 - disk);
        assert_eq!(visited[..4], [1, 3, 0, 5], "disk 1 is idle");
        assert_eq!(visited.len(), 16);
    }
}
