//! Random elements as replies: HRANDFIELD, SRANDMEMBER, ZRANDMEMBER.

use crate::command::{Data, Done};
use crate::engine::Source;
use crate::engine::types::Entry;
use crate::resp::reply::Out;

/// A request for random elements.
#[derive(Clone, Copy)]
pub(crate) struct Draws {
    /// The number of wanted elements. If it is positive, no element repeats, so the reply may have fewer elements. If
    /// it is negative, its absolute value counts, and elements may repeat.
    pub count: i64,
    /// The number of parts that the reply has for each element.
    pub parts: usize,
}

/// Replies with random elements. `each` writes the parts of an element. In RESP3 an element of two
/// parts is a nested array.
pub(crate) fn reply(
    data: &Data<'_, '_>,
    source: &Source<'_>,
    draws: Draws,
    out: &mut Out<'_>,
    mut each: impl FnMut(&mut Out<'_>, &Entry<'_>),
) -> Done {
    let Draws { count, parts } = draws;
    let draws = count.unsigned_abs();
    data.heavy(if count >= 0 {
        draws.min(source.len())
    } else {
        draws
    })?;
    let start = out.buf.len();
    let nested = out.resp3 && parts > 1;
    let mut one = |out: &mut Out<'_>, entry: &Entry<'_>| {
        if nested {
            out.array(parts);
        }
        each(out, entry);
        data.check_reply(out.buf.len() - start)
    };
    let head = |out: &mut Out<'_>, len: usize| {
        out.array(if nested {
            len
        } else {
            len.saturating_mul(parts)
        });
    };
    if count >= 0 {
        let drawn = source.sample(count.unsigned_abs(), |below| fastrand::u64(..below));
        head(out, drawn.len());
        for entry in &drawn {
            one(out, entry)?;
        }
        return Ok(());
    }
    // If the reply would be too long, it is refused before the elements are drawn.
    let draws = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    data.check_reply(draws.saturating_mul(parts))?;
    head(out, draws);
    for _ in 0..draws {
        if let Some(entry) = source.random(fastrand::u64(..)) {
            one(out, &entry)?;
        }
    }
    Ok(())
}
