//! Patterns with `*`, `?`, `[a-z]`, `[^a]` and `\`, with Redis's rules for special cases. An unclosed class ends with
//! the pattern. A reversed range such as `[z-a]` means `[a-z]`. A class may contain escapes.

/// Returns whether `pattern` matches all of `text`. After a mismatch only the latest `*` is extended, by one
/// byte. So the time is at most the product of the lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // Even `*` does not match an empty text. KEYS and SCAN treat a single `*` as no pattern.
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if let Some(len) = one(&pattern[p..], text[t]) {
            p += len;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// Returns the length of the pattern's first element if that element matches `byte`. `None`: it does not match.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', ..] => class(pattern, byte),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let inverted = pattern.get(1) == Some(&b'^');
    let mut at = if inverted { 2 } else { 1 };
    let mut found = false;
    loop {
        match &pattern[at..] {
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [first, b'-', last, ..] => {
                let (low, high) = (first.min(last), first.max(last));
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != inverted).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: [(&str, &str, bool); 25] = [
            ("*", "", false),
            ("", "", true),
            ("*", "save", true),
            ("s*e", "save", true),
            ("s?ve", "save", true),
            ("[a-t]ave", "save", true),
            ("[t-a]ave", "save", true),
            ("s*x", "save", false),
            ("[^s]ave", "save", false),
            ("sav", "save", false),
            ("", "a", false),
            ("[", "a", false),
            ("[a", "a", true),
            ("[^", "a", true),
            ("[]", "a", false),
            ("[]a]", "]", false),
            ("[\\]]", "]", true),
            ("[a-]", "b", false),
            ("[a-]", "^", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("a\\", "a\\", true),
            ("h[^e]llo", "hallo", true),
            ("**a**", "bab", true),
        ];
        for (pattern, text, wanted) in cases {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_the_lengths() {
        let stars = b"*a".repeat(1000);
        assert!(!matches(&stars, &b"a".repeat(900)));
    }
}
