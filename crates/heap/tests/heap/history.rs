//! Random histories, compared with a map. Every group is also applied to replicas.

use perdura_base::{CkptEpoch, ImageSlot, TableId};
use perdura_heap::{GroupBuilder, Heap, MemoryUse, TableKey, Undo, decode_group};
use proptest::prelude::*;

use crate::harness::*;

#[derive(Debug, Clone)]
enum Step {
    Put {
        ordered: bool,
        key: usize,
        bytes: usize,
        expiry: Option<u64>,
        fill: u8,
    },
    Expire {
        ordered: bool,
        key: usize,
        expiry: Option<u64>,
    },
    Patch {
        ordered: bool,
        key: usize,
        at: usize,
        bytes: usize,
        fill: u8,
    },
    Delete {
        ordered: bool,
        key: usize,
    },
    Commit,
    Rollback,
}

const KEYS: usize = 9;

fn key(i: usize) -> Vec<u8> {
    match i {
        0 => Vec::new(),
        7 => vec![b'l'; 1500],
        8 => vec![b'x'; 40_000],
        _ => format!("key {i}").into_bytes(),
    }
}

fn table(ordered: bool) -> TableId {
    if ordered { ORDERED } else { PLAIN }
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        6 => 0usize..300,
        2 => 300usize..3000,
        2 => 7_000usize..8_300,
        2 => 16_250usize..16_350,
        1 => 30_000usize..120_000,
    ];
    let place = prop_oneof![0usize..300, 16_000usize..33_000, 0usize..120_000];
    let patch = prop_oneof![4 => 0usize..600, 1 => 0usize..40_000];
    let expiry = || proptest::option::weighted(0.3, 1u64..1000);
    prop_oneof![
        6 => (any::<bool>(), 0..KEYS, bytes, expiry(), any::<u8>()).prop_map(
            |(ordered, key, bytes, expiry, fill)| Step::Put { ordered, key, bytes, expiry, fill }
        ),
        2 => (any::<bool>(), 0..KEYS, expiry())
            .prop_map(|(ordered, key, expiry)| Step::Expire { ordered, key, expiry }),
        3 => (any::<bool>(), 0..KEYS, place, patch, any::<u8>()).prop_map(
            |(ordered, key, at, bytes, fill)| Step::Patch { ordered, key, at, bytes, fill }
        ),
        3 => (any::<bool>(), 0..KEYS).prop_map(|(ordered, key)| Step::Delete { ordered, key }),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
    ]
}

fn value(bytes: usize, fill: u8) -> Vec<u8> {
    (0..bytes)
        .map(|i| fill ^ i.to_le_bytes()[0].wrapping_mul(31))
        .collect()
}

fn apply_shuffled(heap: &Heap, groups: &[Vec<u8>], rng: &mut fastrand::Rng) {
    let decoded: Vec<_> = groups
        .iter()
        .map(|g| decode_group(g).expect("a group"))
        .collect();
    let mut records: Vec<_> = decoded.iter().flat_map(|g| g.records()).collect();
    rng.shuffle(&mut records);
    for record in &records {
        let p = heap.geometry().partition_of_page(record.page);
        heap.lock(p)
            .apply(record)
            .expect("a page of this partition");
    }
}

fn finish(heap: &Heap, sidecars: Option<&[Vec<u8>]>) {
    for p in ids(heap) {
        let sidecar = sidecars.map(|s| heap.read_sidecar(p, &s[usize::from(p.0)]));
        let mut part = heap.lock(p);
        assert_eq!(part.useq_gaps(), []);
        part.finish_restart(CkptEpoch(1), Some(ImageSlot::A));
        let stats = part.build_indexes(&ordered, sidecar).expect("sound pages");
        assert!(!stats.sidecar_refused);
        part.attach_table(PLAIN, false);
        part.attach_table(ORDERED, true);
    }
}

fn assert_same(heap: &Heap, replica: &Heap, model: &Contents) {
    assert_eq!(&contents(replica), model);
    assert!(logged_bytes(heap) == logged_bytes(replica), "pages differ");
    let pages = |h: &Heap| h.memory().get(MemoryUse::Pages);
    assert_eq!(pages(heap), pages(replica));
}

fn run(steps: &[Step], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let heap = new_heap(2);
    let follower = new_heap(2);
    let mut model = Contents::new();
    let mut pending = model.clone();
    let mut stable = logged_bytes(&heap);
    let (mut undo, mut builder) = (Undo::new(), GroupBuilder::new());
    let mut groups: Vec<Vec<u8>> = Vec::new();
    let image = new_heap(2);
    let image_after = rng.usize(0..6);
    let mut image_at = None;
    let mut sidecars = Vec::new();
    for step in steps.iter().chain([&Step::Commit]) {
        match *step {
            Step::Put {
                ordered,
                key: k,
                bytes,
                expiry,
                fill,
            } => {
                let (k, v) = (key(k), value(bytes, fill));
                let hash = heap.geometry().hash(&k);
                let mut part = heap.lock(heap.geometry().partition_of(hash));
                part.put(
                    &mut undo,
                    TableKey::new(table(ordered), &k, hash),
                    &v,
                    expiry,
                )
                .expect("room");
                pending.insert((table(ordered), k), (v, expiry));
            }
            Step::Expire {
                ordered,
                key: k,
                expiry,
            } => {
                let k = key(k);
                let hash = heap.geometry().hash(&k);
                let mut part = heap.lock(heap.geometry().partition_of(hash));
                let there =
                    part.set_expiry(&mut undo, TableKey::new(table(ordered), &k, hash), expiry);
                let row = pending.get_mut(&(table(ordered), k));
                assert_eq!(there.expect("room"), row.is_some());
                if let Some(row) = row {
                    row.1 = expiry;
                }
            }
            Step::Patch {
                ordered,
                key: k,
                at,
                bytes,
                fill,
            } => {
                let (k, piece) = (key(k), value(bytes, fill));
                let hash = heap.geometry().hash(&k);
                let mut part = heap.lock(heap.geometry().partition_of(hash));
                let len = part.write_at(
                    &mut undo,
                    TableKey::new(table(ordered), &k, hash),
                    at,
                    &piece,
                );
                let (whole, _) = pending.entry((table(ordered), k)).or_default();
                whole.resize(whole.len().max(at + bytes), 0);
                whole[at..at + bytes].copy_from_slice(&piece);
                assert_eq!(len.expect("room"), whole.len());
            }
            Step::Delete { ordered, key: k } => {
                let k = key(k);
                let hash = heap.geometry().hash(&k);
                let mut part = heap.lock(heap.geometry().partition_of(hash));
                let there = part.delete(&mut undo, table(ordered), &k, hash);
                assert_eq!(
                    there.is_some(),
                    pending.remove(&(table(ordered), k)).is_some()
                );
            }
            Step::Commit => {
                builder.clear();
                for p in ids(&heap) {
                    heap.lock(p).encode(&undo, &mut builder);
                }
                undo.clear();
                assert!(undo.is_empty());
                model = pending.clone();
                assert_eq!(contents(&heap), model);
                stable = logged_bytes(&heap);
                let group = builder.finish().to_vec();
                assert_eq!(group.is_empty(), builder.partitions().is_empty());
                if !group.is_empty() {
                    apply_shuffled(&follower, std::slice::from_ref(&group), &mut rng);
                    finish(&follower, None);
                    groups.push(group);
                }
                assert_same(&heap, &follower, &model);
                if groups.len() >= image_after && image_at.is_none() {
                    image_at = Some(groups.len());
                    load_pages(&heap, &image);
                    for p in ids(&heap) {
                        let mut sidecar = Vec::new();
                        heap.lock(p).sidecar(&mut sidecar);
                        sidecars.push(sidecar);
                    }
                }
            }
            Step::Rollback => {
                for p in ids(&heap) {
                    heap.lock(p).rollback(&undo);
                }
                undo.clear();
                pending = model.clone();
                assert_eq!(contents(&heap), model);
                assert!(
                    logged_bytes(&heap) == stable,
                    "rollback restores every byte"
                );
            }
        }
    }
    let scratch = bare_heap(2);
    apply_shuffled(&scratch, &groups, &mut rng);
    finish(&scratch, None);
    assert_same(&heap, &scratch, &model);
    if let Some(at) = image_at {
        apply_shuffled(&image, &groups[at..], &mut rng);
        finish(&image, Some(&sidecars));
        assert_same(&heap, &image, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]
    #[test]
    fn any_history_equals_the_map_and_its_groups_rebuild_it_in_any_order(
        steps in proptest::collection::vec(step(), 1..60),
        seed in any::<u64>(),
    ) {
        run(&steps, seed);
    }
}

#[test]
fn a_transaction_over_hundreds_of_rows_commits_and_rolls_back() {
    let heap = new_heap(4);
    let (mut undo, mut builder) = (Undo::new(), GroupBuilder::new());
    let write = |undo: &mut Undo, bytes: usize| {
        for i in 0..600 {
            let k = format!("row {i}").into_bytes();
            let hash = heap.geometry().hash(&k);
            let mut part = heap.lock(heap.geometry().partition_of(hash));
            let v = value(bytes + i % 90, 3);
            part.put(undo, TableKey::new(ORDERED, &k, hash), &v, None)
                .expect("room");
            part.put(undo, TableKey::new(ORDERED, &k, hash), &v, Some(9))
                .expect("room");
        }
    };
    write(&mut undo, 40);
    let follower = new_heap(4);
    for p in ids(&heap) {
        heap.lock(p).encode(&undo, &mut builder);
    }
    assert_eq!(builder.partitions(), undo.partitions());
    undo.clear();
    let group = builder.finish().to_vec();
    apply_shuffled(&follower, &[group], &mut fastrand::Rng::with_seed(1));
    finish(&follower, None);
    let model = contents(&heap);
    assert_eq!(model.len(), 600);
    assert_same(&heap, &follower, &model);
    let bytes = logged_bytes(&heap);
    write(&mut undo, 300);
    assert!(undo.bytes() > 600 * 300);
    for p in ids(&heap) {
        heap.lock(p).rollback(&undo);
    }
    assert_eq!(contents(&heap), model);
    assert!(logged_bytes(&heap) == bytes);
}
