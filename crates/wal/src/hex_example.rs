//! The examples on the format pages, for tests that compare the codecs with them.

/// Returns the hexadecimal digits of the first `text hex` block of a page.
pub fn digits_on(page: &str) -> String {
    let block = page.split("```text hex").nth(1);
    let hex = block.and_then(|rest| rest.split("```").next());
    let hex = hex.expect("the page has an example");
    hex.chars().filter(char::is_ascii_hexdigit).collect()
}

/// Returns bytes as hexadecimal digits.
pub fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
