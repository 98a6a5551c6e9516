//! The skipping of modules' values. An import can therefore read the keys after a module's value, and name the skipped
//! keys.

use std::io::Read;

use crate::error::Result;
use crate::source::Source;

fn lengths<R: Read>(source: &mut Source<R>, count: usize) -> Result<()> {
    for _ in 0..count {
        source.length()?;
    }
    Ok(())
}

/// Steps over a module's value: the module's id and self-describing parts.
pub fn module<R: Read>(source: &mut Source<R>) -> Result<()> {
    source.length()?;
    parts(source)
}

/// Steps over the data that a module keeps beside the keys: the module's id, the time of loading, and self-describing
/// parts.
pub fn module_aux<R: Read>(source: &mut Source<R>) -> Result<()> {
    lengths(source, 3)?;
    parts(source)
}

fn parts<R: Read>(source: &mut Source<R>) -> Result<()> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => lengths(source, 1)?,
            3 => source.skip(4)?,
            4 => source.skip(8)?,
            5 => source.skip_string()?,
            _ => return Err(source.corrupt("no such part of a module's value")),
        }
    }
}
