//! The transaction of Voter.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V-A; the Voter application of VoltDB.

use perdura_table::procedure;

use super::inputs::NUMBERS_OF_AREA;
use super::schema::{AreaCodeState, Contestant, Vote, VotesByPhone};

/// The result if the vote was counted.
pub const COUNTED: u8 = 0;
/// The result if the contestant does not exist.
pub const NO_SUCH_CONTESTANT: u8 = 1;
/// The result if the phone number has no vote left.
pub const OVER_LIMIT: u8 = 2;
/// The code stored in place of a state's code if the area code of a phone number is unknown.
const UNKNOWN_STATE: [u8; 2] = *b"XX";

procedure! {
    /// Counts a vote if the contestant exists and the phone number has a vote left. Returns `COUNTED`,
    /// `NO_SUCH_CONTESTANT` or `OVER_LIMIT`.
    pub fn vote(cx, phone: u64, contestant: u8, votes_per_phone: u8) -> u8,
    on [VotesByPhone(phone)] {
        if !cx.contains::<Contestant>(contestant)? {
            return Ok(NO_SUCH_CONTESTANT);
        }
        let votes = cx.view::<VotesByPhone>(phone)?;
        let before = votes.map(|row| row.get(VotesByPhone::count)).transpose()?;
        if before.is_some_and(|before| before >= votes_per_phone) {
            return Ok(OVER_LIMIT);
        }
        let area_code = u16::try_from(phone / NUMBERS_OF_AREA).unwrap_or(0);
        let state = match cx.view::<AreaCodeState>(area_code)? {
            Some(row) => *row.get(AreaCodeState::state)?,
            None => UNKNOWN_STATE,
        };
        cx.insert(&Vote { phone, state, contestant })?;
        match before {
            None => cx.insert(&VotesByPhone { phone, count: 1 })?,
            Some(before) => cx.update(&VotesByPhone { phone, count: before + 1 })?,
        }
        Ok(COUNTED)
    }
}
