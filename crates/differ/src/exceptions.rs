//! Differences that are meant, each with its sentence in `docs/redis.md`.

use crate::reply::Reply;
use crate::rules::name;

/// A difference that is meant.
struct Exception {
    /// The command.
    name: &'static str,
    /// Words of `docs/redis.md` that tell of it; a test looks for them.
    #[cfg_attr(not(test), expect(dead_code))]
    told: &'static str,
    /// Whether these replies differ only in that.
    is: fn(&[Vec<u8>], &Reply, &Reply) -> bool,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "INCRBYFLOAT",
        told: "sums are decimal and exact",
        is: nearly,
    },
    Exception {
        name: "HINCRBYFLOAT",
        told: "sums are decimal and exact",
        is: nearly,
    },
    Exception {
        name: "DBSIZE",
        told: "a key written with a deadline in the past never exists",
        is: |_, ours, theirs| ours.int().is_some() && theirs.int().is_some(),
    },
];

/// Whether the replies differ only as `docs/redis.md` says they do.
pub fn allowed(argv: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let name = name(argv);
    EXCEPTIONS
        .iter()
        .any(|exception| exception.name == name && (exception.is)(argv, ours, theirs))
}

/// Sums that differ in noise.
fn nearly(_: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let number = |reply: &Reply| -> Option<f64> {
        let text = reply.text().filter(|_| reply.kind == b'$')?;
        std::str::from_utf8(text).ok()?.parse().ok()
    };
    match (number(ours), number(theirs)) {
        (Some(a), Some(b)) => (a - b).abs() <= a.abs().max(b.abs()) * 1e-15,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exception_is_told_in_the_documents() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
        let text = std::fs::read_to_string(path).expect("docs/redis.md");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for exception in EXCEPTIONS {
            assert!(text.contains(exception.told), "{}", exception.name);
        }
    }
}
