//! Tests of the cut. For every combination of facts, the tests build scans and an anchor that show these facts.

use std::collections::BTreeMap;

use perdura_base::{Incarnation, PartitionSet, StreamId, Uuid};

use super::verdict::tests::all;
use super::verdict::{Facts, Log, Vouch};
use super::*;
use crate::anchor::{ChainLink, Vouched};
use crate::block::Holds;
use crate::evidence::Evidence;
use crate::scan::BlockRef;
use crate::scheme::Scheme;
use crate::sizes::SegmentSizes;

const BEFORE: (Epoch, [Pos; 2]) = (Epoch(10), [Pos(4096), Pos(4096)]);
const HELD: (Epoch, [Pos; 2]) = (Epoch(12), [Pos(8192), Pos(8192)]);
const VOUCHED: (Epoch, [Pos; 2]) = (Epoch(13), [Pos(6144), Pos(8192)]);
const BEYOND: [Pos; 2] = [Pos(8192), Pos(12288)];

fn anchor_of(facts: Facts) -> History {
    let sizes = SegmentSizes::fixed(64 * 1024);
    let mut anchor = History::begin(Uuid([1; 16]), 0, Scheme::Differential, 2, sizes);
    anchor.chain.push(ChainLink {
        incarnation: Incarnation(1),
        durable: BEFORE.0,
        start: vec![Pos(0); 2],
        cut: BEFORE.1.to_vec(),
    });
    let (epoch, ends) = match facts.vouch {
        Vouch::Reached => BEFORE,
        Vouch::Held => VOUCHED,
        Vouch::Short => (VOUCHED.0, BEYOND),
    };
    anchor.vouched = Vouched {
        epoch,
        wall_us: 0,
        ends: ends.to_vec(),
    };
    anchor
}

fn block(pos: Pos, epoch: u64) -> BlockRef {
    BlockRef {
        pos,
        body_len: 100,
        first_frame: 0,
        epoch: Epoch(epoch),
        ckpt_epoch: CkptEpoch(0),
        wall_us: 0,
        partitions: PartitionSet::empty(),
        holds: Holds::default(),
        eosl: Gsn(0),
        incarnation: Incarnation(1),
        segment: 0,
    }
}

/// Returns the scans of two streams. Both streams are valid up to the end of `HELD`. Only the scan of the second stream
/// contains evidence.
fn scans_of(facts: Facts) -> [StreamScan; 2] {
    let scan = |number: u8| StreamScan {
        stream: StreamId(number),
        blocks: vec![block(Pos(2048), 9), block(BEYOND[1], 99)],
        valid_end: HELD.1[1],
        evidence: Evidence::default(),
        torn: None,
        notes: Vec::new(),
        bytes_read: 0,
        unit_reads: crate::reads::CountedReads::default(),
        segments: Vec::new(),
    };
    let mut scans = [scan(0), scan(1)];
    let ends = match facts.log {
        Log::LifeBefore => BEYOND,
        Log::Ends => HELD.1,
    };
    let proven = if facts.proven_beyond { 14 } else { 10 };
    scans[1].evidence = Evidence {
        durable: Some((Epoch(proven), Pos(7168))),
        ends: BTreeMap::from([(HELD.0, ends.to_vec())]),
        epoch_max: Epoch(99),
        acked: Some((Epoch(if facts.acked_beyond { 15 } else { 10 }), Pos(5120))),
        out_of_reach: facts.out_of_reach.then_some(Pos(1 << 20)),
        ..Evidence::default()
    };
    if facts.stray {
        scans[1].blocks[0].epoch = Epoch(98);
    }
    scans
}

#[test]
fn every_combination_is_gathered_from_scans_and_cut_or_refused_as_the_table_says() {
    for (facts, cell) in all() {
        let (anchor, scans) = (anchor_of(facts), scans_of(facts));
        assert_eq!(Known::gather(&anchor, &scans, false).facts(), facts);
        let kept = match cell {
            'b' => Ok(BEFORE),
            'e' => Ok(HELD),
            'v' => Ok(VOUCHED),
            'V' => Err(
                "stream 1 at byte 8192: expected a valid block: the anchor says that this log \
                 was durable up to position 12288, epoch 13",
            ),
            'P' => Err("stream 1 proves at position 7168 that epoch 14 was durable"),
            'S' => Err("was synced before the block at position 1048576 was written"),
            'A' => Err("the block at position 5120 says that epoch 15 was acknowledged"),
            'C' => Err("epoch 98"),
            other => panic!("{other} is no letter of the table"),
        };
        match (decide_cut(&anchor, &scans, None, false), kept) {
            (Ok(cut), Ok((durable, ends))) => {
                assert_eq!(
                    (cut.durable, &cut.cut[..]),
                    (durable, &ends[..]),
                    "{facts:?}"
                );
                assert_eq!((cut.epoch_max, cut.lost_to), (Epoch(99), None));
            }
            (Err(error), Err(text)) => {
                let message = error.to_string();
                assert!(message.contains(text), "{facts:?}: {message}");
            }
            (decided, kept) => panic!("{facts:?}: {decided:?}, not {kept:?}"),
        }
    }
}

#[test]
fn a_loss_that_is_accepted_is_named_and_nothing_else_is_overlooked() {
    let decided: BTreeMap<_, _> = all()
        .map(|(facts, cell)| (format!("{facts:?}"), cell))
        .collect();
    for (facts, _) in all().filter(|(facts, _)| facts.acked_beyond) {
        let (anchor, scans) = (anchor_of(facts), scans_of(facts));
        let without = Facts {
            acked_beyond: false,
            ..facts
        };
        let is_kept = matches!(decided[&format!("{without:?}")], 'b' | 'e' | 'v');
        match decide_cut(&anchor, &scans, None, true) {
            Ok(cut) => assert!(is_kept && cut.lost_to == Some(Epoch(15)), "{facts:?}"),
            Err(error) => assert!(!is_kept, "{facts:?}: {error}"),
        }
    }
}

#[test]
fn the_ends_of_a_block_of_another_number_of_streams_prove_nothing() {
    let facts = all().map(|(facts, _)| facts);
    for facts in facts.filter(|facts| facts.log == Log::Ends) {
        let (anchor, mut scans) = (anchor_of(facts), scans_of(facts));
        let short = BTreeMap::from([(HELD.0, vec![HELD.1[0]]), (Epoch(14), Vec::new())]);
        scans[1].evidence.ends = short;
        let known = Known::gather(&anchor, &scans, false).facts();
        assert_eq!(known.log, Log::LifeBefore);
        drop(decide_cut(&anchor, &scans, None, false));
    }
}
