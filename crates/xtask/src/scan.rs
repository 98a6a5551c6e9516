//! Reads Rust source line by line, just far enough to distinguish code that ships from comments and tests.

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Code that ships, or an empty line outside of tests.
    Code,
    /// A comment or a doc comment.
    Comment,
    /// A line of a `#[cfg(test)]` item.
    Test,
}

/// Returns each line with its kind. Test code begins after `#[cfg(test)]` and ends where its braces close.
pub fn lines(source: &str) -> Vec<(Kind, &str)> {
    let mut out = Vec::new();
    let mut depth = 0usize;
    let mut in_test = false;
    let mut opened = false;
    for line in source.lines() {
        let trimmed = line.trim();
        if !in_test && trimmed.starts_with("#[cfg(") && trimmed.contains("test") {
            (in_test, opened, depth) = (true, false, 0);
        }
        let comment = trimmed.starts_with("//");
        out.push((
            match (in_test, comment) {
                (true, _) => Kind::Test,
                (false, true) => Kind::Comment,
                (false, false) => Kind::Code,
            },
            line,
        ));
        if in_test && !comment {
            let code = without_strings(trimmed);
            let opens = code.matches('{').count();
            depth = (depth + opens).saturating_sub(code.matches('}').count());
            opened |= opens > 0;
            let item_ends = (opened && depth == 0) || (!opened && code.ends_with(';'));
            in_test = !item_ends;
        }
    }
    out
}

/// Returns a line of code without the contents of its string and character literals.
pub fn without_strings(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => drop(chars.next()),
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\'' if !in_string => {
                let rest: Vec<char> = chars.clone().take(3).collect();
                let literal = match rest.as_slice() {
                    ['\\', _, '\'', ..] => 3,
                    [_, '\'', ..] => 2,
                    _ => 0,
                };
                for _ in 0..literal {
                    chars.next();
                }
            }
            _ if in_string => {}
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_modules_end_where_their_braces_do() {
        let source = "fn a() {}\n// note\n#[cfg(test)]\nmod tests {\n    fn b() { '{'; \"{\"; }\n}\n\
                      fn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}\n";
        let kinds: Vec<Kind> = lines(source).into_iter().map(|(kind, _)| kind).collect();
        use Kind::{Code, Comment, Test};
        assert_eq!(
            kinds,
            [
                Code, Comment, Test, Test, Test, Test, Code, Test, Test, Code
            ]
        );
    }

    #[test]
    fn literals_are_taken_out_and_lifetimes_stay() {
        assert_eq!(
            without_strings(r#"f("a{\"b", '}', &'a x)"#),
            r#"f("", , &a x)"#
        );
    }
}
