//! The log: epoch-pure blocks, N streams, group commit, segments, scans and the anchor.
