use super::array::heap_bytes;
use super::*;

/// Returns the member of an entry: the entry's number, written so that members and numbers sort differently.
fn member(entry: Entry) -> String {
    format!("{:x}", entry.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns the number of items before an item with this score and this entry's member.
fn rank(index: &OrderIndex, (score, entry): (f64, Entry)) -> u64 {
    let sought = member(entry);
    index
        .partition_point(|other, entry| other < score || (other == score && member(entry) < sought))
}

fn insert(index: &mut OrderIndex, item: (f64, Entry)) {
    index.insert_at(rank(index, item), item.0, item.1);
}

fn remove(index: &mut OrderIndex, item: (f64, Entry)) {
    assert_eq!(index.remove_at(rank(index, item)), item);
}

/// Checks one node and everything below it. Adds the node's items to `items` and the node's size to `bytes`. Returns
/// the node's depth.
fn walk(node: &Node, edges: Edges, root: bool, items: &mut Vec<Item>, bytes: &mut usize) -> usize {
    let width = match node {
        Node::Leaf(own) => {
            items.extend(own);
            *bytes += heap_bytes(own);
            own.len()
        }
        Node::Inner(children) => {
            *bytes += heap_bytes(children);
            let mut depths = Vec::new();
            for (at, child) in children.iter().enumerate() {
                let before = items.len();
                let below = edges.of_child(at, children.len());
                depths.push(walk(&child.node, below, false, items, bytes));
                assert_eq!(items[before], child.low);
                assert_eq!(
                    items.len() - before,
                    usize::try_from(child.count).expect("small")
                );
            }
            assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
            assert!(!root || children.len() > 1, "a root with one child");
            return check_width(node, children.len(), edges, depths[0] + 1);
        }
    };
    assert!(root || width > 0, "an empty leaf");
    check_width(node, width, edges, 0)
}

fn check_width(node: &Node, width: usize, edges: Edges, depth: usize) -> usize {
    assert!(width <= node.width_max());
    assert!(
        edges.left || edges.right || width * 4 >= node.width_max(),
        "a thin node of {width}"
    );
    depth
}

impl OrderIndex {
    fn check(&self) -> Vec<(f64, Entry)> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        walk(&self.root, Edges::BOTH, true, &mut items, &mut bytes);
        assert_eq!(bytes, self.bytes());
        assert_eq!(u64::try_from(items.len()).expect("small"), self.len());
        for pair in items.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            assert!((a.key, member(a.entry)) < (b.key, member(b.entry)));
        }
        items.into_iter().map(Item::open).collect()
    }

    fn fill_percent(&self) -> usize {
        usize::try_from(self.len()).expect("small") * 1600 / self.bytes()
    }
}

fn compare(index: &OrderIndex, model: &[(f64, Entry)], rng: &mut fastrand::Rng) {
    assert_eq!(index.check(), model);
    assert!(index.iter().eq(model.iter().copied()));
    assert!(index.iter().rev().eq(model.iter().rev().copied()));
    for _ in 0..20 {
        let (a, b) = (rng.usize(..=model.len()), rng.usize(..=model.len() + 2));
        let (from, to) = (
            u64::try_from(a).expect("small"),
            u64::try_from(b).expect("small"),
        );
        let wanted = &model[a.min(b.min(model.len()))..b.min(model.len())];
        assert!(index.range(from, to).eq(wanted.iter().copied()));
        assert!(index.range(from, to).rev().eq(wanted.iter().rev().copied()));
        assert_eq!(index.at(from), model.get(a).copied());
        assert_eq!(
            index.partition(|_, entry| index.rank_of(model, entry) < a),
            (from, model.get(a).copied())
        );
        let score = f64::from(rng.i8(..));
        let below = model.partition_point(|(other, _)| *other < score);
        assert_eq!(
            index.partition_point(|other, _| other < score),
            u64::try_from(below).expect("small")
        );
        if let Some(item) = model.get(a) {
            assert_eq!(rank(index, *item), from);
        }
    }
    // The items are read from both ends at once.
    let (mut range, mut left, mut right) = (index.iter(), Vec::new(), Vec::new());
    loop {
        let item = if rng.bool() {
            range.next().map(|i| left.push(i))
        } else {
            range.next_back().map(|i| right.push(i))
        };
        if item.is_none() {
            break;
        }
    }
    left.extend(right.into_iter().rev());
    assert_eq!(left, model);
}

impl OrderIndex {
    fn rank_of(&self, model: &[(f64, Entry)], entry: Entry) -> usize {
        model
            .iter()
            .position(|(_, other)| *other == entry)
            .expect("asked about its own")
    }
}

#[test]
fn it_is_a_sorted_list_under_random_inserts_and_removes_with_few_scores() {
    for (seed, scores, most) in [
        (1, 1, 200),
        (2, 3, 400),
        (3, 50, 3000),
        (4, 1 << 30, 3000),
        (5, 7, 2500),
    ] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut index, mut model) = (OrderIndex::new(), Vec::<(f64, Entry)>::new());
        let mut growing = true;
        for step in 0..12_000_u64 {
            growing = if growing {
                model.len() < most
            } else {
                model.is_empty()
            };
            let adding = rng.u8(..10) < if growing { 8 } else { 2 };
            let place = |model: &[(f64, Entry)], item: (f64, Entry)| {
                model.binary_search_by(|other| {
                    other
                        .0
                        .total_cmp(&item.0)
                        .then_with(|| member(other.1).cmp(&member(item.1)))
                })
            };
            if adding {
                let item = (f64::from(rng.i32(-scores..scores)), Entry(step));
                insert(&mut index, item);
                let at = place(&model, item).expect_err("new");
                model.insert(at, item);
            } else if !model.is_empty() {
                let item = model.remove(rng.usize(..model.len()));
                remove(&mut index, item);
            }
            if step % 997 == 0 {
                compare(&index, &model, &mut rng);
            }
        }
        compare(&index, &model, &mut rng);
        compare(&OrderIndex::from_sorted(model.clone()), &model, &mut rng);
        while let Some(item) = model.pop() {
            remove(&mut index, item);
            index.check();
        }
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}

#[test]
fn random_scores_fill_two_thirds_of_the_nodes_and_ascending_ones_nearly_all() {
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut random, mut ascending, mut descending) =
        (OrderIndex::new(), OrderIndex::new(), OrderIndex::new());
    for i in 0..20_000_u32 {
        let entry = Entry(u64::from(i));
        insert(&mut random, (rng.f64(), entry));
        insert(&mut ascending, (f64::from(i), entry));
        insert(&mut descending, (-f64::from(i), entry));
    }
    let built = OrderIndex::from_sorted(random.check());
    assert_eq!(built.check(), random.check());
    for (what, index, percent) in [
        ("random", random, 65),
        ("ascending", ascending, 90),
        ("descending", descending, 90),
        ("built", built, 85),
    ] {
        index.check();
        assert!(
            index.fill_percent() >= percent,
            "{what}: {} %",
            index.fill_percent()
        );
    }
}

#[test]
fn nodes_are_merged_when_most_items_are_gone_in_any_order() {
    for ends in ["first", "last", "any"] {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut model: Vec<_> = (0..5000_u32)
            .map(|i| (f64::from(i), Entry(u64::from(i))))
            .collect();
        let mut index = OrderIndex::from_sorted(model.clone());
        while !model.is_empty() {
            let at = match ends {
                "first" => 0,
                "last" => model.len() - 1,
                _ => rng.usize(..model.len()),
            };
            let item = model.remove(at);
            remove(&mut index, item);
            if model.len() % 100 == 0 {
                assert_eq!(index.check(), model);
            }
            if model.len() == 500 {
                assert!(index.fill_percent() >= 30, "{} %", index.fill_percent());
            }
        }
        assert_eq!(index.check(), []);
    }
}

#[test]
fn scores_sort_as_numbers_do_and_both_zeros_are_one() {
    let scores = [
        f64::NEG_INFINITY,
        -1e300,
        -1.0,
        -5e-324,
        0.0,
        5e-324,
        1.0,
        1e300,
        f64::INFINITY,
    ];
    for pair in scores.windows(2) {
        assert!(key_of(pair[0]) < key_of(pair[1]), "{pair:?}");
    }
    for score in scores {
        assert_eq!(score_of(key_of(score)), score);
    }
    assert_eq!(key_of(-0.0), key_of(0.0));
}
