//! Splits a line into words as `sdssplitargs` of Redis does. Blanks separate words. Text in double quotes may hold
//! escapes (`\n \r \t \b \a \xHH`). Text in single quotes may hold only the escape `\'`.

/// Appends each word to `words` and calls `found(start, end)` with the word's place in `words`. Returns `None` if
/// quotes do not balance or no blank follows a closing quote.
pub(crate) fn split_words(
    line: &[u8],
    words: &mut Vec<u8>,
    mut found: impl FnMut(usize, usize),
) -> Option<()> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|b| is_blank(*b)) {
            at += 1;
        }
        if at == line.len() {
            return Some(());
        }
        let start = words.len();
        while let Some(byte) = line.get(at) {
            match byte {
                b if is_blank(*b) => break,
                b'"' => {
                    at = double_quoted(line, at + 1, words)?;
                    break;
                }
                b'\'' => {
                    at = single_quoted(line, at + 1, words)?;
                    break;
                }
                b => {
                    words.push(*b);
                    at += 1;
                }
            }
        }
        found(start, words.len());
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0 | 0x0b | 0x0c)
}

/// Checks that a blank or the end of the line follows a closing quote. `at` is the index after the quote. Returns `at`
/// if so, and `None` if not.
fn closed(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(|b| is_blank(*b)).then_some(at)
}

fn double_quoted(line: &[u8], mut at: usize, words: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'"' => return closed(line, at + 1),
            b'\\' => {
                let escaped = *line.get(at + 1)?;
                if escaped == b'x' {
                    let high = line.get(at + 2).and_then(|b| hex(*b));
                    let low = line.get(at + 3).and_then(|b| hex(*b));
                    if let (Some(high), Some(low)) = (high, low) {
                        words.push(high << 4 | low);
                        at += 4;
                        continue;
                    }
                }
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            byte => {
                words.push(byte);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, words: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'\'' => return closed(line, at + 1),
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                words.push(b'\'');
                at += 2;
            }
            byte => {
                words.push(byte);
                at += 1;
            }
        }
    }
}

fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
