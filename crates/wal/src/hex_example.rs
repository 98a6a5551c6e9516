//! The worked examples of the format pages, for the tests that compare the codecs with them.

/// Returns the bytes in a page's block of hex, as digits.
pub fn digits_on(page: &str) -> String {
    let block = page.split("```text hex").nth(1);
    let hex = block.and_then(|rest| rest.split("```").next());
    let hex = hex.expect("the page has an example");
    hex.chars().filter(char::is_ascii_hexdigit).collect()
}

/// Returns bytes as digits.
pub fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
