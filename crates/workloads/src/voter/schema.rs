//! The tables of Voter.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V-A.
//!
//! # Deviations
//! The id of a vote is its row id. The paper's procedure limits the votes of each phone number. VoltDB's application
//! counts these votes in a view, and here a table counts them.

use perdura_table::table;

table! {
    /// A contestant of the election.
    pub struct Contestant in "contestants", addressing = key, replicated {
        key(number: u8), name: String
    }
}

table! {
    /// The state of an area code.
    pub struct AreaCodeState in "area_code_state", addressing = key, replicated {
        key(area_code: u16), state: [u8; 2]
    }
}

table! {
    /// A vote.
    pub struct Vote in "votes", addressing = key {
        phone: u64, state: [u8; 2], contestant: u8
    }
}

table! {
    /// The number of votes from a phone number.
    pub struct VotesByPhone in "votes_by_phone_number", addressing = key {
        key(phone: u64), count: u8
    }
}
