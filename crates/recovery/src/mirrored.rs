//! Refuses to start from the disks alone while the memory of nodes may hold more of the log.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};
use perdura_device::Clock;
use perdura_wal::Cut;

use crate::anchor::Anchor;
use crate::losses::AcceptedLoss;
use crate::options::{RestartOptions, Tail};

/// Refuses a start from the disks alone if nodes may hold more of the log.
pub(crate) fn check_tail(options: &RestartOptions, anchor: &Anchor) -> Result<()> {
    assert!(
        !options.mode.changes_disks() || options.tail != Tail::LookedAt,
        "a restart for good knows what became of the log's end"
    );
    match options.tail {
        Tail::OnDisk => check_alone(anchor),
        Tail::LookedAt | Tail::Drained | Tail::GivenUp => Ok(()),
    }
}

/// Returns a notice for an operator who reads the disks alone: nodes may hold the end of the log. `cut` is where the
/// log on the disks is cut. Returns `None` if the anchor says that nodes hold nothing.
#[must_use]
pub fn undrained(anchor: &Anchor, cut: Option<&Cut>) -> Option<String> {
    let generation = anchor.mirrored?.generation;
    let reached = cut.map_or(String::new(), |cut| {
        let acked = cut.lost_to.map_or(String::new(), |epoch| {
            format!(", but writes up to epoch {epoch} at least were acknowledged")
        });
        format!(": the log's disks end with epoch {}{acked}", cut.durable)
    });
    Some(format!(
        "the newest part of the log may be only in the memory of the log's nodes, since \
         generation {generation}{reached}. This is not damage. Start with the nodes and the view \
         (--log-nodes, --log-view) to get it back"
    ))
}

/// Fails if nodes may hold more of the log than the disks. The disks alone then do not show where the log ends.
pub(crate) fn check_alone(anchor: &Anchor) -> Result<()> {
    match anchor.mirrored {
        None => Ok(()),
        Some(_) => Err(Error::Usage(
            "the newest transactions of this database may be only in the memory of its nodes. \
             Nothing was changed. Start it with its nodes and its view (--log-nodes, --log-view) \
             to get them back. Or start it with --accept-loss: it gives up what the log's disks \
             lack, and prints the loss"
                .into(),
        )),
    }
}

/// Adds an accepted loss to `record`, the anchor of the next life: the operator gives up the end of the last life's
/// log. Returns a text that describes the loss.
///
/// # Errors
/// [`Error::Usage`] if there is nothing to give up: neither the anchor nor the blocks say that nodes may hold more.
/// [`Error::LogFull`] if the anchor has no room for the loss.
pub(crate) fn give_up(
    record: &mut Anchor,
    before: &Anchor,
    cut: &Cut,
    clock: &dyn Clock,
) -> Result<Option<String>> {
    assert!(
        record.incarnation > before.incarnation,
        "what is given up is of a life that is closed"
    );
    if before.mirrored.is_none() && cut.lost_to.is_none() {
        return Err(Error::Usage(
            "nothing is lost: the log's disks have every acknowledged transaction. Nothing was \
             changed. Start without --accept-loss"
                .into(),
        ));
    }
    record.mirrored = None;
    let loss = AcceptedLoss {
        incarnation: before.incarnation,
        durable: cut.durable,
        acked: cut.lost_to.unwrap_or(Epoch(0)),
        wall_us: clock.wall_us(),
    };
    let text = loss.text();
    if !armed(Flaw::LossNotNoted) {
        record.accept_loss(loss)?;
    }
    Ok(Some(text))
}
