//! CLIENT RECEIPT: the receipt for a client's newest write.
//!
//! A receipt states the higher of two durabilities: the write's durability when the command runs, and the
//! durability that the reply waits for. So the receipt is true when it arrives.

use crate::command::Cx;
use crate::engine::{Durability, Epoch};
use perdura_base::flaw::{Flaw, armed};

/// `CLIENT RECEIPT`
pub(super) fn receipt(cx: &mut Cx<'_>) {
    let Some(db) = cx.state.db() else {
        return cx.out.error("ERR the database is not open");
    };
    let epoch = cx.session.written;
    if epoch == Epoch(0) {
        return cx.out.null();
    }
    // The durability is read here, because a later command of a MULTI block may change it before the block's
    // reply is sealed.
    let waits_for = cx.session.durability;
    let mut durability = Durability::highest(epoch, db.reached()).max(waits_for);
    if armed(Flaw::ReceiptRoundedUp) {
        durability = Durability::Disk;
    }
    let receipt = db.receipt(epoch, durability);
    cx.effects.epoch = cx.effects.epoch.max(epoch);
    cx.effects.least = cx.effects.least.max(waits_for);
    cx.out.map(4);
    cx.out.bulk(b"incarnation");
    cx.out.count(u64::from(receipt.incarnation.0));
    cx.out.bulk(b"epoch");
    cx.out.count(epoch.0);
    cx.out.bulk(b"rung");
    cx.out.bulk(durability.name().as_bytes());
    cx.out.bulk(b"receipt");
    cx.out.bulk(receipt.to_string().as_bytes());
}
