//! Frames of page records as text.

use perdura_heap::{Group, PageRecord, decode_group};
use perdura_page::{Change, TxnRecord, Update, decode_txn_record};

use super::{DumpedRecord, FrameDump, MALFORMED};

/// Describes the records of a group.
pub(crate) fn group(payload: &[u8]) -> FrameDump {
    let group = decode_group(payload);
    FrameDump {
        records: group.iter().flat_map(Group::records).map(record).collect(),
        detail: group.is_none().then(|| MALFORMED.into()),
        ordered: None,
    }
}

fn record(record: PageRecord<'_>) -> DumpedRecord {
    DumpedRecord {
        page: record.page.0,
        useq: record.useq.0,
        tag: record.tag.0,
        fragments: record.fragments().count(),
        bytes: record.fragment_bytes(),
    }
}

/// Describes a record of an interleaved transaction in one line.
pub(crate) fn txn_record(payload: &[u8]) -> String {
    match decode_txn_record(payload) {
        None => MALFORMED.into(),
        Some(TxnRecord::Begin { txn }) => format!("transaction {txn} begins"),
        Some(TxnRecord::Commit { txn }) => format!("transaction {txn} commits"),
        Some(TxnRecord::Abort {
            txn,
            compensated,
            ckpt,
        }) => {
            let how = if compensated { "with" } else { "without" };
            format!("transaction {txn} aborted {how} compensation, checkpoint epoch {ckpt}")
        }
        Some(TxnRecord::Update(update)) => update_line(&update),
    }
}

fn update_line(update: &Update<'_>) -> String {
    let verb = if update.compensation {
        "compensates"
    } else {
        "changes"
    };
    let change = match &update.change {
        Change::Xor(delta) => {
            let bytes: usize = delta.fragments().map(|f| f.bytes.len()).sum();
            format!(
                "XOR of {bytes} bytes in {} fragment(s)",
                delta.fragments().count()
            )
        }
        Change::Assign(images) => {
            let bytes: usize = images.pieces().map(|p| p.after.len()).sum();
            format!(
                "slot {} bit {} to {}, images of {bytes} bytes, change {} of all",
                images.slot,
                u8::from(images.taken_before),
                u8::from(images.taken_after),
                images.gseq
            )
        }
    };
    format!(
        "transaction {} {verb} page {} tag {}: {change}",
        update.txn, update.page, update.tag
    )
}
