//! The worked examples of a document in docs/formats.

/// Returns the bytes of each block of hex digits in the document `doc`.
pub fn examples(doc: &str) -> Vec<Vec<u8>> {
    doc.split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.trim_start_matches("text").split_whitespace())
        .filter_map(|words| words.map(|w| u8::from_str_radix(w, 16).ok()).collect())
        .collect()
}
