//! The queues of the partitions. They decide which frames may be played now.

use std::collections::VecDeque;

use perdura_base::PartitionId;
use perdura_base::flaw::{Flaw, armed};
use perdura_formats::ordered::Part;

use super::admit::Admitted;
use super::log::Entry;

/// A frame that waits or is being played.
struct Node {
    /// The frame. `None`: it is being played.
    entry: Option<Entry>,
    /// Count of the queues in which another frame is before this frame.
    waits: usize,
}

/// A queue of frames for each partition. A frame is ready when it is the first in the queues of all its partitions.
/// Queues refer to a frame by its index in `nodes`.
pub(super) struct Queues {
    nodes: Vec<Option<Node>>,
    /// The free indices of `nodes`.
    free: Vec<usize>,
    queues: Vec<VecDeque<usize>>,
    /// The ready frames, oldest first.
    ready: VecDeque<usize>,
    /// Count of frames in the queues, including frames that are being played.
    len: usize,
    weight: u64,
}

impl Queues {
    pub fn new(partitions: u16) -> Queues {
        Queues {
            nodes: Vec::new(),
            free: Vec::new(),
            queues: (0..partitions).map(|_| VecDeque::new()).collect(),
            ready: VecDeque::new(),
            len: 0,
            weight: 0,
        }
    }

    /// Returns whether no frame is waiting or being played.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of frames that are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns how many bytes of memory the frames keep.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns any waiting frame. The text of an error names this frame.
    pub fn waiting(&self) -> Option<&Entry> {
        let mut nodes = self.nodes.iter().flatten();
        nodes.find_map(|node| node.entry.as_ref())
    }

    /// Appends frames to the queues of their partitions.
    pub fn push(&mut self, admitted: Admitted) {
        let mut numbers = Vec::with_capacity(admitted.entries.len());
        for entry in admitted.entries {
            self.weight += entry.bytes.weight;
            let node = Node {
                entry: Some(entry),
                waits: 0,
            };
            let number = self.free.pop().unwrap_or_else(|| {
                self.nodes.push(None);
                self.nodes.len() - 1
            });
            let before = self.nodes[number].replace(node);
            assert!(before.is_none(), "number {number} was free");
            numbers.push(number);
        }
        self.len += numbers.len();
        for (partition, index) in admitted.places {
            let number = numbers[index];
            let node = self.nodes[number].as_mut().expect("it was just put there");
            let parts = node.entry.as_ref().map_or(&[][..], queues_of);
            if !parts.iter().any(|(p, _)| *p == partition) {
                continue;
            }
            let queue = &mut self.queues[usize::from(partition.0)];
            node.waits += usize::from(!queue.is_empty());
            queue.push_back(number);
        }
        for number in numbers {
            let node = self.nodes[number].as_ref();
            if node.is_some_and(|node| node.waits == 0) {
                self.ready.push_back(number);
            }
        }
    }

    /// Moves the ready frame at `index` into `run`. Returns false if no ready frame has this index.
    ///
    /// If the frame belongs to only one partition, also moves the next frames of that partition's queue. This ends at a
    /// frame of several partitions, or when `run` has `max` frames. One thread plays the frames of `run` in this order,
    /// with the partition's data in the processor's cache.
    pub fn take(&mut self, index: usize, max: usize, run: &mut Vec<(usize, Entry)>) -> bool {
        assert!(run.is_empty(), "the frames taken before were played");
        let Some(number) = self.ready.remove(index) else {
            return false;
        };
        let node = self.nodes[number].as_mut().expect("a ready frame waits");
        assert_eq!(node.waits, 0, "a ready frame is the first of its queues");
        let entry = node.entry.take().expect("a frame is taken once");
        let alone = alone_in(&entry);
        run.push((number, entry));
        let Some(partition) = alone else {
            return true;
        };
        let queue = &self.queues[usize::from(partition.0)];
        debug_assert_eq!(queue.front(), Some(&number), "it is the first");
        for next in queue.iter().skip(1).take(max.saturating_sub(1)) {
            let node = self.nodes[*next].as_mut().expect("a queue holds frames");
            let of_queue = |entry: &mut Entry| alone_in(entry).is_some();
            let Some(entry) = node.entry.take_if(of_queue) else {
                break;
            };
            assert_eq!(node.waits, 1, "it waits for the one before it alone");
            run.push((*next, entry));
        }
        true
    }

    /// Removes a played frame from all queues.
    pub fn done(&mut self, number: usize, entry: &Entry) {
        for (partition, _) in queues_of(entry) {
            self.leave(*partition, number);
        }
        let node = self.nodes[number].take();
        assert!(
            node.is_some_and(|node| node.entry.is_none()),
            "frame {number} was being played"
        );
        self.free.push(number);
        self.len -= 1;
        self.weight -= entry.bytes.weight;
    }

    fn leave(&mut self, partition: PartitionId, number: usize) {
        let queue = &mut self.queues[usize::from(partition.0)];
        let first = queue.pop_front();
        assert_eq!(
            first,
            Some(number),
            "what was played is the first of partition {partition}"
        );
        let Some(next) = queue.front().copied() else {
            return;
        };
        let node = self.nodes[next].as_mut().expect("a queue holds frames");
        node.waits -= 1;
        // A frame without an entry was taken into a run and is being played, so it does not become ready again.
        if node.waits == 0 && node.entry.is_some() {
            self.ready.push_back(next);
        }
    }
}

/// Returns the partition of a frame that is in one queue only. `None`: the frame is in several queues.
fn alone_in(entry: &Entry) -> Option<PartitionId> {
    match queues_of(entry) {
        [(partition, _)] => Some(*partition),
        _ => None,
    }
}

/// Returns the partitions in whose queues the frame is.
fn queues_of(entry: &Entry) -> &[Part] {
    if armed(Flaw::FenceAtOneQueue) {
        return &entry.parts()[..1];
    }
    entry.parts()
}
