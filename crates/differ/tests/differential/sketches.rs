//! Compares HyperLogLogs while the size limit of their sparse form changes. The random scripts never change this limit,
//! because a restart resets it.

use perdura_differ::pair::{Pair, Side};

/// ```sh
/// PERDURA_DIFF_SKETCHES=20000 cargo test --release -p perdura-differ sketches
/// ```
#[test]
fn sketches_become_dense_where_those_of_redis_do() {
    let steps =
        std::env::var("PERDURA_DIFF_SKETCHES").map_or(1500, |n| n.parse().expect("a number"));
    let pair = Pair::start().expect("both servers");
    let mut wires =
        [Side::Ours, Side::Theirs].map(|side| pair.connect(side).expect("a connection"));
    let at_once = wires[0].call(&["CLIENT", "DURABILITY", "mem"]);
    assert_eq!(at_once.expect("ours").kind, b'+');
    let mut both = |words: &[&str]| {
        let [ours, theirs] = &mut wires;
        let replies = (
            ours.call(words).expect("ours"),
            theirs.call(words).expect("Redis"),
        );
        assert_eq!(replies.0, replies.1, "{words:?}");
        replies.0
    };
    let mut rng = fastrand::Rng::with_seed(17);
    let mut dense = [0; 2];
    for step in 0..steps {
        if step % 20 == 0 {
            let limit = ["0", "18", "30", "100", "3000", "20000"][rng.usize(..6)];
            both(&["CONFIG", "SET", "hll-sparse-max-bytes", limit]);
            both(&["CONFIG", "GET", "hll-sparse-max-bytes"]);
        }
        let key = ["a", "b", "c"][rng.usize(..3)];
        let other = ["a", "b", "c"][rng.usize(..3)];
        match rng.u8(..20) {
            0..10 => {
                let elements: Vec<String> = (0..10usize.pow(rng.u32(..4)))
                    .map(|_| rng.u32(..).to_string())
                    .collect();
                let elements = elements.iter().map(String::as_str);
                both(
                    &["PFADD", key]
                        .into_iter()
                        .chain(elements)
                        .collect::<Vec<_>>(),
                );
            }
            10..15 => drop(both(&["PFMERGE", key, other])),
            15..17 => drop(both(&["PFCOUNT", key])),
            17 => drop(both(&["PFCOUNT", key, other])),
            18 => drop(both(&["PFDEBUG", "TODENSE", key])),
            _ => drop(both(&["DEL", key])),
        }
        both(&["GET", key]);
        let form = both(&["PFDEBUG", "ENCODING", key]);
        dense[usize::from(form.text() == Some(b"dense"))] += 1;
    }
    assert!(dense.iter().all(|count| *count > steps / 10), "{dense:?}");
}
