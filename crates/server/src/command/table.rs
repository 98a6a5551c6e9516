//! All commands: the tables of every family, joined.

use super::spec::Command;

/// The families.
static FAMILIES: &[&[Command]] = &[
    super::absent::COMMANDS,
    super::acl::COMMANDS,
    super::bitfield::COMMANDS,
    super::bits::COMMANDS,
    super::block::COMMANDS,
    super::client::COMMANDS,
    super::config::COMMANDS,
    super::counters::COMMANDS,
    super::debug::COMMANDS,
    super::describe::COMMANDS,
    super::dump::COMMANDS,
    super::expiry::COMMANDS,
    super::generic::COMMANDS,
    super::hashes::COMMANDS,
    super::hello::COMMANDS,
    super::info::COMMANDS,
    super::keys::COMMANDS,
    super::lcs::COMMANDS,
    super::list_moves::COMMANDS,
    super::lists::COMMANDS,
    super::memory::COMMANDS,
    super::monitor::COMMANDS,
    super::pubsub::COMMANDS,
    super::ranges::COMMANDS,
    super::replication::COMMANDS,
    super::refused::COMMANDS,
    super::scan::COMMANDS,
    super::server::COMMANDS,
    super::set_joins::COMMANDS,
    super::sets::COMMANDS,
    super::slowlog::COMMANDS,
    super::sort::COMMANDS,
    super::strings::COMMANDS,
    super::waits::COMMANDS,
    super::watch::COMMANDS,
    super::zset_pops::COMMANDS,
    super::zset_ranges::COMMANDS,
    super::zset_sums::COMMANDS,
    super::zsets::COMMANDS,
];

/// Every command, in no order that means anything.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
