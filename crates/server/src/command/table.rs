//! All commands: the tables of every family, joined.

use super::spec::Command;
use super::{
    acl, bitfield, bits, block, client, config, counters, describe, expiry, hashes, hello, info,
    keys, lcs, list_moves, lists, ranges, server, set_joins, sets, strings, waits, watch,
    zset_pops, zset_ranges, zset_sums, zsets,
};

/// The families.
static FAMILIES: &[&[Command]] = &[
    bitfield::COMMANDS,
    bits::COMMANDS,
    acl::COMMANDS,
    block::COMMANDS,
    client::COMMANDS,
    config::COMMANDS,
    counters::COMMANDS,
    describe::COMMANDS,
    expiry::COMMANDS,
    hashes::COMMANDS,
    hello::COMMANDS,
    info::COMMANDS,
    keys::COMMANDS,
    lcs::COMMANDS,
    list_moves::COMMANDS,
    lists::COMMANDS,
    ranges::COMMANDS,
    server::COMMANDS,
    set_joins::COMMANDS,
    sets::COMMANDS,
    strings::COMMANDS,
    waits::COMMANDS,
    watch::COMMANDS,
    zset_pops::COMMANDS,
    zset_ranges::COMMANDS,
    zset_sums::COMMANDS,
    zsets::COMMANDS,
];

/// Every command, in no order that means anything.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
