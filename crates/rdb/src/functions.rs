//! The payloads of FUNCTION DUMP and FUNCTION RESTORE: the source texts of libraries. Each text is preceded by the
//! opcode that a library has in dump files. The version and the checksum follow the last text.

use crate::Result;
use crate::payload::{body_of, put_string, sealed};
use crate::source::Source;

/// The opcode before a library.
const FUNCTION: u8 = 245;

/// Returns the payload for libraries with these texts.
pub fn dump_functions<'a>(libraries: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    for text in libraries {
        body.push(FUNCTION);
        put_string(&mut body, text);
    }
    sealed(body)
}

/// Returns the texts of the libraries in a payload.
///
/// # Errors
/// Returns [`Error::Version`](crate::Error::Version) or [`Error::Checksum`](crate::Error::Checksum) if the version or
/// the checksum is wrong. Returns [`Error::Corrupt`](crate::Error::Corrupt) or
/// [`Error::Truncated`](crate::Error::Truncated) if a library is wrong or the payload too short.
pub fn parse_functions(payload: &[u8]) -> Result<Vec<Vec<u8>>> {
    let body = body_of(payload)?;
    let len = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let mut source = Source::new(body, body.len());
    let mut libraries = Vec::new();
    while source.position() < len {
        if source.byte()? != FUNCTION {
            return Err(source.corrupt("no library of functions"));
        }
        libraries.push(source.string()?);
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// The opcode, length and bytes of the text `#!lua na`, as FUNCTION DUMP of Redis 7.0.15 writes them without
    /// compression.
    const DUMPED: &[u8] = b"\xf5\x08#!lua na";

    #[test]
    fn what_is_dumped_is_read() {
        let texts = [&b"#!lua na"[..], b"x"];
        let payload = dump_functions(texts.into_iter());
        assert!(payload.starts_with(DUMPED));
        assert_eq!(parse_functions(&payload).expect("libraries"), texts);
        let none = parse_functions(&dump_functions(std::iter::empty()));
        assert!(none.expect("a payload").is_empty());
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            assert!(parse_functions(&damaged).is_err(), "byte {at}");
            assert!(parse_functions(&payload[..at]).is_err(), "cut at {at}");
        }
        assert!(matches!(
            parse_functions(&sealed(vec![FUNCTION])),
            Err(Error::Truncated { .. })
        ));
        assert!(matches!(
            parse_functions(&sealed(vec![0])),
            Err(Error::Corrupt { .. })
        ));
    }
}
