//! The password. Its comparison takes the same time wherever the first difference lies, so that
//! a stranger learns nothing from the clock.

use std::hint::black_box;

/// Whether `offered` is `password`. The time depends on the length of `offered` alone.
pub(crate) fn matches(password: &[u8], offered: &[u8]) -> bool {
    let mut difference = u8::from(password.len() != offered.len());
    for (i, byte) in offered.iter().enumerate() {
        let expected = if password.is_empty() {
            0
        } else {
            password[i % password.len()]
        };
        difference |= black_box(byte ^ expected);
    }
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn only_the_whole_password_matches() {
        assert!(matches(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"secretsecret", b"Secret"] {
            assert!(!matches(b"secret", wrong));
        }
        assert!(matches(b"", b""));
        assert!(!matches(b"", b"\0"));
    }
}
