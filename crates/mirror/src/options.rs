//! The options of a mirror.

use perdura_base::{Error, Result};

use crate::auth::Key;

/// The options of a mirror.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// The addresses of the nodes, two for each group.
    pub groups: Vec<[String; 2]>,
    /// The key that the nodes must have. It may be unset.
    pub key: Key,
    /// The maximum number of bytes, for each stream, that are shipped to nodes and not yet synced to the writer's disk.
    pub tail_bytes_max: u64,
    /// True if two nodes on one machine count as a mirror, although they fail together.
    pub one_machine: bool,
    /// The time for which a node may leave a request unanswered before the node is suspected, nanoseconds.
    pub suspect_ns: u64,
    /// The idle time before a ping to a node, nanoseconds. A ping asks whether the node is running.
    pub ping_ns: u64,
    /// The time between two attempts to connect to a node, nanoseconds.
    pub retry_ns: u64,
    /// The length of the lease, nanoseconds. A lease begins when the writer asks the arbiter whether its view is in
    /// force. During the lease the writer may acknowledge bytes because its disk has them. 0: the lease never ends.
    /// Choose 0 if every process that can reach the disk also sees the lock of the data directory.
    pub lease_ns: u64,
}

impl MirrorOptions {
    /// Returns the options for these groups of nodes, with the usual times.
    #[must_use]
    pub fn new(groups: Vec<[String; 2]>, key: Key) -> MirrorOptions {
        MirrorOptions {
            groups,
            key,
            tail_bytes_max: 32 << 20,
            one_machine: false,
            suspect_ns: 150_000_000,
            ping_ns: 50_000_000,
            retry_ns: 100_000_000,
            lease_ns: 0,
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Usage`] if a mirror cannot have these nodes.
    pub fn check(&self) -> Result<()> {
        let usage = |why: String| Err(Error::Usage(why));
        if self.groups.is_empty() || self.groups.len() > usize::from(crate::view::GROUPS_MAX) {
            return usage(format!(
                "a mirror needs 1 to {} groups of two nodes, not {}",
                crate::view::GROUPS_MAX,
                self.groups.len()
            ));
        }
        let mut all: Vec<&String> = self.groups.iter().flatten().collect();
        all.sort_unstable();
        if let Some(same) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            return usage(format!(
                "the node {} is given twice. A mirror needs two nodes on two machines",
                same[0]
            ));
        }
        let address =
            |address: &&String| !(1..=crate::view::ADDRESS_BYTES_MAX).contains(&address.len());
        if let Some(wrong) = all.into_iter().find(address) {
            return usage(format!("`{wrong}` is not an address of a node"));
        }
        Ok(())
    }
}
