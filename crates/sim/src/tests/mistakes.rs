//! Seeded mistakes of archive mode that the simulator makes in place of the product: each is a line of the product that
//! is missing.

use perdura::Core;
use perdura_archive::{Edit, Store};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error};

/// Returns the number of a process. All processes have the same one if lives have no numbers.
pub fn process(nth: u64) -> u64 {
    match armed(Flaw::LivesAlike) {
        true => 0,
        false => nth,
    }
}

/// Returns the time for which the archive keeps moments. It is short if a jump of the clock counts as age.
pub fn keep_us(us: u64) -> u64 {
    match armed(Flaw::JumpCountsAsAge) {
        true => 3_600_000_000,
        false => us,
    }
}

/// Moves the end of the last life up to `end`, if ends are not compared.
pub fn forget_end(core: &Core, end: Epoch) -> Result<(), Error> {
    if armed(Flaw::LifeEndNotCompared) {
        core.anchor().update(|anchor| {
            if let Some(life) = anchor.lineage.past.last_mut() {
                life.end = life.end.max(end);
            }
        })?;
    }
    Ok(())
}

/// Notes that the archive has everything, whether that is so or not.
pub fn vouch(store: &std::sync::Arc<Store>, wall_us: u64) -> Result<(), Error> {
    if armed(Flaw::IdleHourVouchedEarly) {
        let epoch = store.refresh()?.held().0;
        store.publish(Edit::CaughtUp { epoch, wall_us }).run()?;
    }
    Ok(())
}
