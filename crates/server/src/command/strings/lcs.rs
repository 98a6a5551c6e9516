//! The longest common subsequence of two strings, found with the textbook table of lengths. For each pair of a byte of
//! one string and a byte of the other, the table has a cell of four bytes. The maximum size of a value is also the
//! maximum size of the table.

use crate::command::flag::READ;
use crate::command::spec::{Command, TWO, data};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[data("lcs", -3, READ, TWO, lcs)];

/// The lengths of longest common subsequences, for all pairs of prefixes.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Lengths {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let at = (i + 1) * width + j + 1;
                cells[at] = if x == y {
                    cells[at - width - 1] + 1
                } else {
                    cells[at - 1].max(cells[at - width])
                };
            }
        }
        Lengths { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// Returns the common stretches of bytes, the last stretch first: (start in `a`, start in `b`, length in bytes).
    fn runs(&self, a: &[u8], b: &[u8]) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                match runs.last_mut() {
                    Some(run) if run.0 == i && run.1 == j => *run = (i - 1, j - 1, run.2 + 1),
                    _ => runs.push((i - 1, j - 1, 1)),
                }
                (i, j) = (i - 1, j - 1);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        runs
    }
}

#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    with_len: bool,
    len_min: i64,
}

/// Computing this many cells of the table takes as long as processing one element of a collection.
const CELLS: usize = 64;

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]`
fn lcs(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let mut values = [Vec::new(), Vec::new()];
    for (value, key) in values.iter_mut().zip(args.from(1)) {
        let row = data
            .string(key)
            .map_err(|_| "ERR The specified keys must contain string values")?;
        if let Some(row) = row {
            *value = row.value().into_owned();
        }
    }
    let [a, b] = values;
    let mut options = Options::default();
    let mut at = 3;
    while at < args.len() {
        let word = args.at(at);
        match () {
            () if word.eq_ignore_ascii_case(b"IDX") => options.idx = true,
            () if word.eq_ignore_ascii_case(b"LEN") => options.len = true,
            () if word.eq_ignore_ascii_case(b"WITHMATCHLEN") => options.with_len = true,
            () if word.eq_ignore_ascii_case(b"MINMATCHLEN") && at + 1 < args.len() => {
                at += 1;
                options.len_min = parse_i64(args.at(at)).ok_or(NOT_INTEGER)?;
            }
            () => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if options.len && options.idx {
        let text = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(text.into());
    }
    let cells = (a.len() + 1).checked_mul(b.len() + 1);
    let bytes = cells.and_then(|cells| cells.checked_mul(size_of::<u32>()));
    if bytes.is_none_or(|bytes| bytes > data.value_bytes_max) {
        let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(text.into());
    }
    data.heavy(to_u64(a.len().saturating_mul(b.len()) / CELLS))?;
    let lengths = Lengths::of(&a, &b);
    let total = u64::from(lengths.at(a.len(), b.len()));
    if options.len {
        out.count(total);
        return Ok(());
    }
    let runs = lengths.runs(&a, &b);
    if options.idx {
        reply_runs(&runs, total, &options, out);
    } else {
        let pieces = runs.iter().rev().map(|(at, _, len)| &a[*at..at + len]);
        out.bulk(&pieces.collect::<Vec<_>>().concat());
    }
    Ok(())
}

fn reply_runs(runs: &[(usize, usize, usize)], total: u64, options: &Options, out: &mut Out<'_>) {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let long = |len: usize| i64::try_from(len).is_ok_and(|len| len >= options.len_min);
    let shown = || runs.iter().filter(|(_, _, len)| long(*len));
    out.map(2);
    out.bulk(b"matches");
    out.array(shown().count());
    for (in_a, in_b, len) in shown() {
        out.array(if options.with_len { 3 } else { 2 });
        for start in [in_a, in_b] {
            out.array(2);
            out.count(count(*start));
            out.count(count(start + len - 1));
        }
        if options.with_len {
            out.count(count(*len));
        }
    }
    out.bulk(b"len");
    out.count(total);
}
