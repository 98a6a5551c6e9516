//! All commands: the tables of every family, joined.

use super::spec::Command;

/// The tables of all families.
static FAMILIES: &[&[Command]] = &[
    super::absent::COMMANDS,
    super::server::acl::COMMANDS,
    super::server::backup::COMMANDS,
    super::strings::bitfield::COMMANDS,
    super::strings::bits::COMMANDS,
    super::connection::block::COMMANDS,
    super::connection::client::COMMANDS,
    super::server::config::COMMANDS,
    super::strings::counters::COMMANDS,
    super::server::debug::COMMANDS,
    super::describe::COMMANDS,
    super::keys::dump::COMMANDS,
    super::keys::expiry::COMMANDS,
    super::keys::generic::COMMANDS,
    super::geo::search::COMMANDS,
    super::geo::COMMANDS,
    super::hashes::COMMANDS,
    super::connection::hello::COMMANDS,
    super::hyperloglog::COMMANDS,
    super::server::info::COMMANDS,
    super::keys::COMMANDS,
    super::strings::lcs::COMMANDS,
    super::lists::moves::COMMANDS,
    super::lists::COMMANDS,
    super::server::memory::COMMANDS,
    super::server::monitor::COMMANDS,
    super::connection::pubsub::COMMANDS,
    super::strings::ranges::COMMANDS,
    super::server::replication::COMMANDS,
    super::refused::COMMANDS,
    super::keys::scan::COMMANDS,
    super::scripts::COMMANDS,
    super::server::COMMANDS,
    super::sets::joins::COMMANDS,
    super::sets::COMMANDS,
    super::server::slowlog::COMMANDS,
    super::server::waitdur::COMMANDS,
    super::keys::sort::COMMANDS,
    super::streams::add::COMMANDS,
    super::streams::claim::COMMANDS,
    super::streams::group::COMMANDS,
    super::streams::info::COMMANDS,
    super::streams::pending::COMMANDS,
    super::streams::range::COMMANDS,
    super::streams::read::COMMANDS,
    super::strings::COMMANDS,
    super::lists::waits::COMMANDS,
    super::connection::watch::COMMANDS,
    super::zsets::pops::COMMANDS,
    super::zsets::ranges::COMMANDS,
    super::zsets::sums::COMMANDS,
    super::zsets::COMMANDS,
];

/// Returns every command, in no particular order.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
