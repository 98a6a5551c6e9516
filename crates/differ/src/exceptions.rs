//! The intended differences from Redis. `docs/redis.md` has a sentence about each.

use crate::reply::{Body, Reply};
use crate::step::name;

/// An intended difference.
struct Exception {
    /// The name of the command. A name that ends with `*` means all commands whose names
    /// begin with the part before `*`.
    name: &'static str,
    /// Words of the sentence in `docs/redis.md` that describes the difference. A test checks that
    /// the page has them.
    #[cfg_attr(not(test), expect(dead_code))]
    told: &'static str,
    /// Returns whether our reply and Redis's reply to a command differ only as this exception allows.
    is: fn(&[Vec<u8>], &Reply, &Reply) -> bool,
}

const fn exception(
    name: &'static str,
    told: &'static str,
    is: fn(&[Vec<u8>], &Reply, &Reply) -> bool,
) -> Exception {
    Exception { name, told, is }
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "*",
        told: "An unknown command's name, second word and arguments are shown as UTF-8",
        is: |_, ours, theirs| match (ours.text(), theirs.text()) {
            (Some(ours_text), Some(text)) if ours.is_error() && theirs.is_error() => {
                String::from_utf8_lossy(text).as_bytes() == ours_text
            }
            _ => false,
        },
    },
    exception("EVAL*", "and those of the compiler", compilers),
    exception("FUNCTION", "and those of the compiler", compilers),
    exception("SCRIPT", "and those of the compiler", compilers),
    exception("INCRBYFLOAT", "sums are decimal and exact", nearly),
    exception("HINCRBYFLOAT", "sums are decimal and exact", nearly),
    Exception {
        name: "COMMAND",
        told: "several STORE and STOREDIST of GEORADIUS the last one counts",
        is: |argv, _, _| {
            let is_target = |word: &&Vec<u8>| is_word(word, "STORE") || is_word(word, "STOREDIST");
            asks_about(argv, "GEORADIUS") && argv.iter().filter(is_target).count() > 1
        },
    },
    Exception {
        name: "COMMAND",
        told: "In SORT, a target named STORE is not an option",
        is: |argv, _, _| {
            let twice = |pair: &[Vec<u8>]| pair.iter().all(|word| is_word(word, "STORE"));
            asks_about(argv, "SORT") && argv.windows(2).any(twice)
        },
    },
    Exception {
        name: "COMMAND",
        told: "In XREADGROUP, a group or consumer named STREAMS is not an option",
        is: |argv, _, _| {
            let early = argv.get(3..6).unwrap_or(&[]);
            asks_about(argv, "XREADGROUP") && early.iter().any(|word| is_word(word, "STREAMS"))
        },
    },
    Exception {
        name: "DBSIZE",
        told: "a key written with a deadline in the past never exists",
        is: |_, ours, theirs| ours.int().is_some() && theirs.int().is_some(),
    },
    Exception {
        name: "OBJECT",
        told: "OBJECT ENCODING names the form that Redis would have at these limits",
        is: |_, ours, theirs| {
            let forms = [["listpack", "hashtable"], ["listpack", "quicklist"]];
            let more = [["listpack", "skiplist"], ["intset", "hashtable"]];
            let both = [ours.text(), theirs.text()];
            let is = |pair: &[&str; 2]| {
                let pair = pair.map(|form| Some(form.as_bytes()));
                both == pair || both == [pair[1], pair[0]]
            };
            let strings = [["embstr", "raw"], ["int", "raw"]];
            forms.iter().chain(&more).chain(&strings).any(is)
        },
    },
    Exception {
        name: "ZSCAN",
        told: "ZSCAN writes a score as the other commands do",
        is: |_, ours, theirs| {
            let (ours, theirs) = (ours.leaves(), theirs.leaves());
            let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
            let alike = |(a, b): (&&[u8], &&[u8])| {
                a == b || (number(a).is_some() && number(a) == number(b))
            };
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(alike)
        },
    },
    exception("Z*", "A score of -0 is 0", zeros),
    exception("BZ*", "A score of -0 is 0", zeros),
];

/// Returns whether a subcommand of COMMAND names a command whose name begins with `start`.
fn asks_about(argv: &[Vec<u8>], start: &str) -> bool {
    let named = argv.get(2).and_then(|word| word.get(..start.len()));
    named.is_some_and(|word| is_word(word, start))
}

fn is_word(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

/// Returns whether the replies differ only as `docs/redis.md` describes.
pub fn allowed(argv: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let name = name(argv);
    EXCEPTIONS
        .iter()
        .filter(|exception| match exception.name.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => exception.name == name,
        })
        .any(|exception| (exception.is)(argv, ours, theirs))
}

/// Accepts different error texts of the two Lua compilers if both texts contain a line number. The line numbers are not
/// compared.
fn compilers(_: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let line = |reply: &Reply| {
        let text = String::from_utf8_lossy(reply.text()?).into_owned();
        let behind = text
            .strip_prefix("ERR Error compiling ")?
            .split_once(": user_")?
            .1;
        Some(behind.split(':').nth(1)?.to_owned())
    };
    ours.is_error() && theirs.is_error() && line(ours).is_some() && line(theirs).is_some()
}

/// Accepts sums that differ by rounding errors. Also accepts that our server refuses an addend that is hexadecimal or
/// too large for a `double`.
fn nearly(argv: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let addend = argv
        .last()
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
    let addend = addend.unwrap_or_default();
    let huge = addend.parse().is_ok_and(|n: f64| n.is_infinite()) && !addend.contains("inf");
    let refused = ours.text() == Some(b"ERR value is not a valid float");
    if refused && (huge || addend.contains("0x")) {
        return true;
    }
    let number = |reply: &Reply| -> Option<f64> {
        let text = reply.text().filter(|_| reply.kind == b'$')?;
        std::str::from_utf8(text).ok()?.parse().ok()
    };
    match (number(ours), number(theirs)) {
        (Some(a), Some(b)) => (a - b).abs() <= a.abs().max(b.abs()) * 1e-15 || a == b,
        _ => false,
    }
}

/// Accepts scores that differ in the sign of zero.
fn zeros(_: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    unsigned(ours) == unsigned(theirs)
}

fn unsigned(reply: &Reply) -> Reply {
    let body = match &reply.body {
        Body::Text(text) if text == b"-0" => Body::Text(b"0".to_vec()),
        Body::Items(items) => Body::Items(items.iter().map(unsigned).collect()),
        other => other.clone(),
    };
    Reply {
        kind: reply.kind,
        body,
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
