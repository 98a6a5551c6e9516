//! Figures of the nodes that hold the newest part of the log.

use std::collections::HashSet;

use perdura_mirror::{Mode, Status};
use serde::Serialize;

/// The nodes that hold the newest part of the log.
#[derive(Debug, Clone, Serialize)]
pub struct MirrorStats {
    /// The storage that acknowledgements rely on: `mirror`, `solo` or `disk`; `mixed` if the groups of nodes differ.
    pub mode: String,
    /// The number of the view in force. The view says which nodes acknowledge.
    pub view: u64,
    /// The writer's generation. Each takeover raises it.
    pub generation: u64,
    /// True if a change of view is under way.
    pub changing: bool,
    /// Count of machines with nodes of the view.
    pub domains: usize,
    /// Count of nodes that are ready for blocks.
    pub nodes_ready: usize,
    /// Bytes that the slowest of the ready nodes lacks.
    pub lag_bytes: u64,
    /// One entry for each node.
    pub nodes: Vec<MirrorNodeStats>,
}

/// A node, as the writer sees it.
#[derive(Debug, Clone, Serialize)]
pub struct MirrorNodeStats {
    /// Its address.
    pub address: String,
    /// True if the node is ready for blocks.
    pub ready: bool,
    /// True if the node runs on this machine and blocks are written directly into its memory.
    pub mapped: bool,
    /// Bytes that the node has not acknowledged.
    pub lag_bytes: u64,
    /// The waiting time for the node's outstanding answer, microseconds.
    pub silent_us: u64,
    /// The reason why there is no connection; empty while there is one.
    pub trouble: String,
}

impl MirrorStats {
    pub(crate) fn of(status: &Status) -> MirrorStats {
        let name = |mode: &Mode| match mode {
            Mode::Disk => "disk",
            Mode::Solo(_) => "solo",
            Mode::Mirror(_) => "mirror",
        };
        let groups = || status.groups.iter();
        let mut modes: Vec<&str> = groups().map(|group| name(&group.mode)).collect();
        modes.dedup();
        let mode = match modes[..] {
            [mode] => mode,
            _ => "mixed",
        };
        let members = groups().flat_map(|group| group.mode.members());
        let machines: HashSet<_> = members.map(|member| member.machine.0).collect();
        let nodes = groups().flat_map(|group| &group.nodes);
        let nodes: Vec<MirrorNodeStats> = nodes
            .map(|node| MirrorNodeStats {
                address: node.address.clone(),
                ready: node.is_ready,
                mapped: node.is_mapped,
                lag_bytes: node.lag_bytes,
                silent_us: node.silent_ns / 1000,
                trouble: node.trouble.clone().unwrap_or_default(),
            })
            .collect();
        let ready = || nodes.iter().filter(|node| node.ready);
        assert!(ready().count() <= nodes.len(), "a node is counted once");
        MirrorStats {
            mode: mode.to_owned(),
            view: status.v,
            generation: status.generation.0,
            changing: status.is_pending,
            domains: machines.len(),
            nodes_ready: ready().count(),
            lag_bytes: ready().map(|node| node.lag_bytes).max().unwrap_or(0),
            nodes,
        }
    }
}
