//! Workloads that measure the engine and its peers.
