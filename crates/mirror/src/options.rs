//! The setup of a mirror.

use perdura_base::{Error, Result};

use crate::auth::Key;

/// The options of a mirror.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// The addresses of the nodes, two for each group.
    pub groups: Vec<[String; 2]>,
    /// The key that the nodes must have. It may be unset.
    pub key: Key,
    /// The most bytes of a stream that are shipped and not synced.
    pub tail_bytes_max: u64,
    /// True if two nodes on one machine count as a mirror, although they fail together.
    pub one_machine: bool,
    /// The time after which a node that owes an answer is suspected, nanoseconds.
    pub suspect_ns: u64,
    /// The interval at which an idle node is asked whether it lives, nanoseconds.
    pub ping_ns: u64,
    /// The interval at which the writer tries to connect to a node, nanoseconds.
    pub retry_ns: u64,
    /// The time for which the writer may acknowledge by its disk after it has asked the arbiter, nanoseconds. 0: for
    /// ever, because a process that does not see the lock of the data directory cannot reach the disk.
    pub lease_ns: u64,
}

impl MirrorOptions {
    /// Returns the options with the usual times, for groups of nodes.
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
    /// [`Error::Usage`] if these cannot be the nodes of a mirror.
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
