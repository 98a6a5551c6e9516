//! Tests of the anchor: its sections are read as they were written, and others are named.

use perdura_base::{CkptEpoch, Epoch, Gsn, Incarnation, LifeId, Pos, Uuid};
use perdura_device::{Access, MemDisk};
use perdura_wal::anchor::COPY_BYTES;

use super::*;
use crate::anchor_cell::AnchorCell;
use crate::cover::Cover;
use crate::families::Family;
use crate::images::Completion;
use crate::restored::RestoredRows;

/// Returns the bytes of the example record in docs/formats/anchor.md.
fn bytes_on_page() -> Vec<u8> {
    let page = include_str!("../../../../docs/formats/anchor.md");
    let hex = page.split("```text hex").nth(1).unwrap();
    let hex = hex.split("```").next().unwrap();
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn example() -> Anchor {
    let disk = MemDisk::new();
    let file = disk.create(ANCHOR_PATH, Access::Buffered).unwrap();
    file.write_at(0, &bytes_on_page()).unwrap();
    read_anchor(&disk).unwrap().unwrap()
}

#[test]
fn the_example_on_the_format_page_is_what_the_components_write() {
    let geometry = Geometry {
        partitions: 256,
        chunk_pages: 128,
        hash_seed: 42,
    };
    let written = Anchor::new(example().history, geometry, 1);
    assert_eq!(written.images, example().images);
    let disk = MemDisk::new();
    AnchorFile::create(&disk, &written.to_record()).unwrap();
    let mut bytes = vec![0; bytes_on_page().len()];
    let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
    raw.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, bytes_on_page());
}

#[test]
fn a_section_that_this_build_does_not_know_survives_updates_restarts_and_repair() {
    let strange = Tag(*b"MORE");
    let disk = MemDisk::new();
    let mut record = example().to_record();
    // The unknown section is put between known ones, to show that it keeps its place.
    let known = std::mem::take(&mut record.sections);
    let mut known = known.iter();
    let first = known.next().unwrap();
    record.sections.set(first.tag, true, first.bytes.clone());
    record.sections.set(strange, false, vec![1, 2, 3, 250]);
    let second = known.next().unwrap();
    record.sections.set(second.tag, true, second.bytes.clone());
    AnchorFile::create(&disk, &record).unwrap();
    let expect = |what: &str| {
        let (_, found, _) = AnchorFile::open(&disk).unwrap().unwrap();
        let tags: Vec<Tag> = found.sections.iter().map(|section| section.tag).collect();
        assert_eq!(tags, [first.tag, strange, second.tag], "{what}");
        assert_eq!(
            found.sections.get(strange),
            record.sections.get(strange),
            "{what}"
        );
    };
    for life in 2..5 {
        let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
        let cell = AnchorCell::new(file, anchor);
        let update = |change: &dyn Fn(&mut Anchor)| {
            cell.update(|anchor| change(anchor))
                .map_err(Error::from)
                .unwrap();
        };
        update(&|anchor| anchor.incarnation = Incarnation(life));
        expect("a restart");
        update(&|anchor| {
            anchor
                .image_mut(ImageSlot::A)
                .mark_building(perdura_base::CkptEpoch(1))
        });
        expect("an update of an image");
        // Damages one copy of the anchor. The next life writes it again from the other copy.
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        let at = perdura_base::num::to_u64(COPY_BYTES) * u64::from(life % 2) + 20;
        raw.write_at(at, &[0xff]).unwrap();
        expect("damage of one copy");
    }
}

#[test]
fn a_loss_that_the_chain_leaves_no_room_for_is_refused_and_changes_nothing() {
    let mut anchor = example();
    let max = u32::try_from(anchor.chain_max()).unwrap();
    anchor.incarnation = Incarnation(max + 2);
    anchor.vouched.epoch = Epoch(7);
    let link = |life| ChainLink {
        incarnation: Incarnation(life),
        durable: Epoch(7),
        start: vec![Pos(0)],
        cut: vec![Pos(0)],
    };
    anchor.chain = (1..=max).map(link).collect();
    let loss = AcceptedLoss {
        incarnation: Incarnation(max + 1),
        durable: Epoch(7),
        acked: Epoch(9),
        wall_us: 1,
    };
    let full = anchor.clone();
    assert!(matches!(anchor.accept_loss(loss), Err(Error::LogFull(_))));
    assert_eq!(anchor, full);
    let room = anchor.chain.len() - 2;
    anchor.chain.truncate(room);
    anchor.accept_loss(loss).unwrap();
    assert!(anchor.chain.len() <= anchor.chain_max());
}

#[test]
fn an_accepted_loss_is_kept_by_every_later_update() {
    let disk = MemDisk::new();
    AnchorFile::create(&disk, &example().to_record()).unwrap();
    let loss = AcceptedLoss {
        incarnation: Incarnation(1),
        durable: Epoch(7),
        acked: Epoch(9),
        wall_us: 1,
    };
    let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
    let cell = AnchorCell::new(file, anchor);
    let close = |anchor: &mut Anchor| {
        anchor.incarnation = Incarnation(2);
        anchor.accept_loss(loss).unwrap();
    };
    cell.update(close).map_err(Error::from).unwrap();
    for life in 3..6 {
        let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
        assert_eq!(anchor.losses.of(Incarnation(1)), Some(&loss), "{life}");
        assert_eq!(anchor.chain, [], "its link is gone");
        let cell = AnchorCell::new(file, anchor);
        let next = |anchor: &mut Anchor| anchor.incarnation = Incarnation(life);
        cell.update(next).map_err(Error::from).unwrap();
    }
}

#[test]
fn a_required_section_that_this_build_does_not_know_is_refused_by_name_and_place() {
    let mut record = example().to_record();
    record.sections.set(Tag(*b"MORE"), true, vec![1]);
    let disk = MemDisk::new();
    AnchorFile::create(&disk, &record).unwrap();
    let error = open_anchor(&disk).map(drop).unwrap_err();
    let at = record.offset_of(Tag(*b"MORE"));
    assert!(
        matches!(&error, Error::Corrupt(why) if why.offset == at),
        "{error}"
    );
    assert!(
        error.to_string().contains("the required section MORE"),
        "{error}"
    );
    assert_eq!(error.family(), perdura_base::error::Family::Corruption);
}

#[test]
fn a_section_that_is_missing_or_out_of_range_is_named_with_its_offset() {
    for tag in KNOWN {
        let mut whole = example();
        whole.families = Families::default().with(Family::Commands);
        whole.archived = Some(EpochEnds {
            epoch: Epoch(1),
            ends: vec![Pos(4096)],
        });
        whole.parent = Some(Parent {
            uuid: Uuid([1; 16]),
            epoch: Epoch(1),
        });
        whole.incarnation = Incarnation(2);
        whole
            .accept_loss(AcceptedLoss {
                incarnation: Incarnation(1),
                durable: Epoch(1),
                acked: Epoch(3),
                wall_us: 1,
            })
            .unwrap();
        whole.tree = Some(TreeAnchor {
            scheme: Scheme::Logical,
            page_bytes: 8192,
            rssp: Gsn(1),
            k: CkptEpoch(1),
        });
        whole.mirrored = Some(Mirrored { generation: 1 });
        whole.lineage.id = LifeId(1);
        whole.timeline = Some("branch".parse().unwrap());
        let image = whole.image_mut(ImageSlot::A);
        image.mark_building(CkptEpoch(1));
        let completion = Completion {
            cover: Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(3)),
            begin_epoch: Some(Epoch(2)),
            ..Completion::default()
        };
        image.mark_complete(CkptEpoch(1), completion);
        whole.restored = Some(RestoredRows {
            image: CkptEpoch(1),
            backup: CkptEpoch(0),
        });
        let whole = whole.to_record();
        let mut odd = whole.clone();
        let payload = whole.sections.get(tag).unwrap().bytes.clone();
        odd.sections
            .set(tag, true, [payload.as_slice(), &[0]].concat());
        let mut without = whole.clone();
        without.sections = Sections::default();
        for section in whole.sections.iter().filter(|section| section.tag != tag) {
            without
                .sections
                .set(section.tag, true, section.bytes.clone());
        }
        let may_miss = tag != Tag(Geometry::SECTION) && tag != Tag(Images::SECTION);
        assert_eq!(Anchor::of(without.clone()).is_ok(), may_miss);
        for record in [odd, without].into_iter().take(2 - usize::from(may_miss)) {
            let at = record.offset_of(tag);
            let error = Anchor::of(record).unwrap_err();
            assert!(
                matches!(&error, Error::Corrupt(why) if why.offset == at),
                "{error}"
            );
            assert!(
                error.to_string().contains(&format!("section {tag}")),
                "{error}"
            );
        }
    }
}
