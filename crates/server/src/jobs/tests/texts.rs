//! Long strings, a page or a few at a time.

use super::{Bed, READER, WRITER};

/// A string of several pages.
const BYTES: usize = 100_000;

fn with_text() -> Bed {
    let mut bed = Bed::new();
    bed.ask(WRITER, &format!("SETRANGE text {} tail", BYTES - 4));
    bed.ask(WRITER, "SETRANGE text 40000 middle");
    bed
}

/// Sends a line that must go on in steps, and returns its reply.
fn in_steps(bed: &mut Bed, line: &str, between: impl FnMut(&mut Bed)) -> String {
    assert_eq!(bed.ask(READER, line), "", "{line} is not over at once");
    let steps = bed.finish(between);
    assert!(steps > 1, "{line} took {steps} steps");
    bed.replies(READER)
}

#[test]
fn a_long_string_is_read_in_steps_and_replied_as_it_is_at_once() {
    let mut bed = with_text();
    let all = [
        "GET text",
        "GETRANGE text 1 -2",
        "GETRANGE text 39999 99999",
        "BITCOUNT text",
        "BITCOUNT text 320003 -5 BIT",
        "BITPOS text 1 50000",
        "BITPOS text 1 0 -1 BIT",
        "BITPOS text 1 320420 -20 BIT",
    ];
    for line in all {
        let wanted = bed.at_once(line);
        let other = |bed: &mut Bed| assert_eq!(bed.ask(WRITER, "PING"), "+PONG\r\n");
        assert_eq!(in_steps(&mut bed, line, other), wanted);
    }
    assert_eq!(
        bed.at_once("GET text").len(),
        "$100000\r\n\r\n".len() + BYTES
    );
}

#[test]
fn a_long_string_that_is_changed_while_it_is_read_is_read_again() {
    let mut bed = with_text();
    let mut changed = false;
    let reply = in_steps(&mut bed, "BITCOUNT text", |bed| {
        if !std::mem::replace(&mut changed, true) {
            bed.ask(WRITER, "SETRANGE text 1 x");
        }
    });
    assert_eq!(reply, bed.at_once("BITCOUNT text"));
    let reply = in_steps(&mut bed, "GET text", |bed| {
        bed.ask(WRITER, "DEL text");
    });
    assert_eq!(reply, "$-1\r\n");
}

#[test]
fn a_lookup_of_a_string_read_in_steps_is_counted_once() {
    let mut bed = with_text();
    let before = bed.state.stats.hits;
    in_steps(&mut bed, "GET text", |_| {});
    assert_eq!(bed.state.stats.hits, before + 1);
    bed.ask(WRITER, "MULTI");
    bed.ask(WRITER, "GET text");
    bed.ask(WRITER, "EXEC");
    assert_eq!(bed.state.stats.hits, before + 2);
}
