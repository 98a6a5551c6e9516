//! Compares random operations on lists and sorted sets with sequences of the standard library.

use std::collections::VecDeque;

use perdura::types::{Left, Texts, list, zset};
use perdura::{Db, End};

use super::{Bytes, name, open, run, value};

fn reopen(db: Db, dir: &std::path::Path) -> Db {
    let seen = db.transact(&db.all_partitions(), |_| Ok::<_, perdura::Error>(()));
    db.wait(seen.expect("read").1).expect("durable");
    drop(db);
    open(dir)
}

fn len_of<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).expect("few")
}

fn left<T>(items: &[T]) -> Left {
    if items.is_empty() {
        Left::Nothing
    } else {
        Left::Some
    }
}

fn items(db: &Db) -> Vec<Bytes> {
    run(db, |tx, table| {
        let Some(list) = list::source(tx, table, b"l")? else {
            return Ok(Vec::new());
        };
        let forward: Vec<Bytes> = list::items(&list, 0, list.len())
            .map(|item| item.to_vec())
            .collect();
        let mut back: Vec<Bytes> = list::items(&list, 0, list.len())
            .rev()
            .map(|item| item.to_vec())
            .collect();
        back.reverse();
        assert_eq!(forward, back);
        Ok(forward)
    })
    .expect("read")
}

#[test]
fn lists_agree_with_a_sequence_across_restarts() {
    for (seed, most) in [(1, 30), (2, 200), (3, 600)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let mut db = open(dir.path());
        let mut model = VecDeque::<Bytes>::new();
        for step in 0..1500 {
            let item = if rng.u32(0..8) == 0 {
                value(&mut rng)
            } else {
                name(&mut rng, 30)
            };
            let front = rng.bool();
            let end = if front { End::Front } else { End::Back };
            let at = rng.usize(0..=model.len());
            let index = i64::try_from(at).expect("few");
            match rng.u32(0..100) {
                0..45 if model.len() < most => {
                    let copies = rng.usize(1..=3);
                    let got = run(&db, |tx, table| {
                        let items = std::iter::repeat_n(&item[..], copies);
                        list::push(tx, table, b"l", end, items, false)
                    });
                    for _ in 0..copies {
                        if front {
                            model.push_front(item.clone());
                        } else {
                            model.push_back(item.clone());
                        }
                    }
                    assert_eq!(got, Some(len_of(model.make_contiguous())), "step {step}");
                }
                0..60 => {
                    let got = run(&db, |tx, table| {
                        if at.is_multiple_of(2) {
                            let mut item = Vec::new();
                            let read = |popped: &[u8]| item.push(popped.to_vec());
                            let left = list::pop_one(tx, table, b"l", end, read)?;
                            return Ok(left.map(|left| (item, left)));
                        }
                        let popped = list::pop(tx, table, b"l", end, 1)?;
                        let texts = |popped: Texts| popped.iter().map(<[u8]>::to_vec).collect();
                        Ok(popped.map(|(popped, left)| (texts(popped), left)))
                    });
                    let popped = if front {
                        model.pop_front()
                    } else {
                        model.pop_back()
                    };
                    let wanted = popped.map(|item| (vec![item], left(model.make_contiguous())));
                    assert_eq!(got, Some(wanted), "step {step}");
                }
                60..68 => {
                    let got = run(&db, |tx, table| list::set(tx, table, b"l", index, &item));
                    let there = (!model.is_empty()).then_some(at < model.len());
                    assert_eq!(got, Some(there), "step {step}");
                    if let Some(place) = model.get_mut(at) {
                        *place = item;
                    }
                }
                68..78 => {
                    let pivot = name(&mut rng, 30);
                    let got = run(&db, |tx, table| {
                        list::insert(tx, table, b"l", (&pivot, front), &item)
                    });
                    let found = model.iter().position(|other| *other == pivot);
                    if let Some(found) = found {
                        model.insert(found + usize::from(!front), item);
                    }
                    let len = found.map(|_| len_of(model.make_contiguous()));
                    let wanted = (!model.is_empty()).then_some(len);
                    assert_eq!(got, Some(wanted), "step {step}");
                }
                78..88 => {
                    let count = rng.i64(-2..3);
                    let got = run(&db, |tx, table| list::remove(tx, table, b"l", count, &item));
                    let mut matches: Vec<usize> =
                        (0..model.len()).filter(|at| model[*at] == item).collect();
                    if count < 0 {
                        matches.reverse();
                    }
                    if count != 0 {
                        matches.truncate(usize::try_from(count.abs()).expect("few"));
                    }
                    matches.sort_unstable();
                    for at in matches.iter().rev() {
                        model.remove(*at);
                    }
                    let wanted = (len_of(&matches), left(model.make_contiguous()));
                    assert_eq!(got, Some(wanted), "step {step}");
                }
                88..90 => {
                    let to = index + rng.i64(-2..100);
                    run(&db, |tx, table| list::trim(tx, table, b"l", index, to)).expect("done");
                    let keep = usize::try_from(to + 1).unwrap_or(0).min(model.len());
                    model.truncate(keep);
                    model.drain(..at.min(model.len()));
                }
                90..94 => {
                    let got = run(&db, |tx, table| {
                        list::shift(tx, table, (b"l", End::Front), (b"l", End::Back))
                    });
                    assert_eq!(got.flatten().map(|got| got.0), model.front().cloned());
                    if !model.is_empty() {
                        model.rotate_left(1);
                    }
                }
                94..96 => db = reopen(db, dir.path()),
                _ => assert_eq!(items(&db), *model.make_contiguous(), "step {step}"),
            }
        }
        assert_eq!(items(&db), *model.make_contiguous());
    }
}

type Scored = Vec<(Bytes, f64)>;

fn members(db: &Db) -> Scored {
    run(db, |tx, table| {
        let Some(set) = zset::source(tx, table, b"z")? else {
            return Ok(Vec::new());
        };
        let found: Scored = zset::members(&set, 0, set.len())
            .map(|(member, score)| (member.to_vec(), score))
            .collect();
        for (rank, (member, score)) in found.iter().enumerate() {
            let rank = u64::try_from(rank).expect("few");
            assert_eq!(zset::rank(&set, member), Some(rank));
            assert_eq!(set.find(member).map(|entry| entry.score()), Some(*score));
        }
        Ok(found)
    })
    .expect("read")
}

fn sort(model: &mut Scored) {
    model.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
}

#[test]
fn sorted_sets_agree_with_a_sorted_sequence_across_restarts() {
    for (seed, names, scores) in [(1, 20, 5), (2, 120, 3), (3, 600, 1000)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let mut db = open(dir.path());
        let mut model = Scored::new();
        for step in 0..1500 {
            let member = name(&mut rng, names);
            let score = f64::from(rng.i32(-scores..scores)) / 2.0;
            // The model sorts by `total_cmp`, which distinguishes -0 from 0. So -0 is made 0.
            let score = if score == 0.0 { 0.0 } else { score };
            let place = model.iter().position(|(other, _)| *other == member);
            match rng.u32(0..100) {
                0..60 => {
                    let added = run(&db, |tx, table| {
                        let one = [(&member[..], score)];
                        zset::add(tx, table, b"z", zset::Conditions::default(), one)
                    });
                    let added = added.expect("written");
                    assert_eq!(added.new, u64::from(place.is_none()), "step {step}");
                    match place {
                        Some(at) => model[at].1 = score,
                        None => model.push((member, score)),
                    }
                    sort(&mut model);
                }
                60..75 => {
                    let got = run(&db, |tx, table| {
                        zset::remove(tx, table, b"z", [&member[..]])
                    });
                    if let Some(at) = place {
                        model.remove(at);
                    }
                    let wanted = (u64::from(place.is_some()), left(&model));
                    assert_eq!(got, Some(wanted), "step {step}");
                }
                75..85 => {
                    let range = zset::ScoreRange {
                        min: score,
                        min_open: rng.bool(),
                        max: score + 1.0,
                        max_open: rng.bool(),
                    };
                    let got = run(&db, |tx, table| {
                        let set = zset::source(tx, table, b"z")?;
                        Ok(set.map_or((0, 0), |set| range.ranks(&set)))
                    });
                    let inside = model.iter().filter(|(_, score)| {
                        let above = *score > range.min || (*score == range.min && !range.min_open);
                        above && (*score < range.max || (*score == range.max && !range.max_open))
                    });
                    let (from, to) = got.expect("read");
                    let count = u64::try_from(inside.count()).expect("few");
                    assert_eq!(to - from, count, "step {step}");
                }
                85..90 => {
                    let max = rng.usize(0..4);
                    let front = rng.bool();
                    let end = if front { End::Front } else { End::Back };
                    let most = u64::try_from(max).expect("few");
                    let got = run(&db, |tx, table| zset::pop(tx, table, b"z", end, most));
                    let count = max.min(model.len());
                    let had = !model.is_empty();
                    let taken: Scored = if front {
                        model.drain(..count).collect()
                    } else {
                        let kept = model.len() - count;
                        model.drain(kept..).rev().collect()
                    };
                    let wanted = had.then(|| (taken, left(&model)));
                    assert_eq!(got, Some(wanted), "step {step}");
                }
                90..92 => {
                    let from = rng.usize(0..=model.len());
                    let to = rng.usize(from..=model.len()).min(from + 30);
                    let ranks = [from, to].map(|rank| u64::try_from(rank).expect("few"));
                    run(&db, |tx, table| {
                        zset::remove_ranks(tx, table, b"z", ranks[0], ranks[1])
                    });
                    model.drain(from..to);
                }
                92..94 => db = reopen(db, dir.path()),
                _ => assert_eq!(members(&db), model, "step {step}"),
            }
        }
        assert_eq!(members(&db), model);
    }
}
