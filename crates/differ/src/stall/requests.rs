//! Requests as bytes that can be sent in one piece.

use crate::wire::encode;
use std::iter::Sum;
use std::ops::{Add, Range};

/// The number of elements in one request of [`fill`].
const BATCH: u64 = 500;

/// Requests, in the order of sending.
#[derive(Debug, Default)]
pub struct Requests {
    /// The bytes of the requests on the wire.
    pub bytes: Vec<u8>,
    /// The number of replies to expect.
    pub count: usize,
}

impl Requests {
    /// Adds a request.
    pub fn push(&mut self, argv: &[Vec<u8>]) {
        self.bytes.extend_from_slice(&encode(argv));
        self.count += 1;
    }

    /// Adds one request. Blanks separate the words of `line`.
    pub fn push_line(&mut self, line: &str) {
        let argv: Vec<Vec<u8>> = line.split(' ').map(|word| word.into()).collect();
        self.push(&argv);
    }
}

impl Add for Requests {
    type Output = Requests;

    fn add(mut self, more: Requests) -> Requests {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
        self
    }
}

impl Sum for Requests {
    fn sum<I: Iterator<Item = Requests>>(all: I) -> Requests {
        all.fold(Requests::default(), Add::add)
    }
}

impl<'a> FromIterator<&'a str> for Requests {
    fn from_iter<I: IntoIterator<Item = &'a str>>(lines: I) -> Requests {
        let mut all = Requests::default();
        for line in lines {
            all.push_line(line);
        }
        all
    }
}

/// Makes one request. Blanks separate the words of `line`.
pub fn line(line: &str) -> Requests {
    words(line, [])
}

/// Makes one request: the words of `line`, and then `more`.
pub fn words(line: &str, more: impl IntoIterator<Item = Vec<u8>>) -> Requests {
    let line = line.split(' ').map(|word| word.into());
    let argv: Vec<Vec<u8>> = line.chain(more).collect();
    let mut one = Requests::default();
    one.push(&argv);
    one
}

/// Makes requests that begin with `line`. `element` makes the words for one number of the range. Each request has the
/// words for up to 500 numbers.
pub fn fill<const W: usize>(
    line: &str,
    range: Range<u64>,
    element: impl Fn(u64) -> [Vec<u8>; W],
) -> Requests {
    let mut all = Requests::default();
    let mut from = range.start;
    while from < range.end {
        let to = (from + BATCH).min(range.end);
        all = all + words(line, (from..to).flat_map(&element));
        from = to;
    }
    all
}
