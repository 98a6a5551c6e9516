//! The oracle of slots.

use super::row::Row;
use crate::locked;

/// Where a row is: page and slot by number.
pub(crate) type Spot = (u32, u16);
/// Rows by spot.
pub(crate) type State = locked::State<Spot, Row>;
/// What a transaction left in a spot.
pub(crate) type Write = locked::Write<Spot, Row>;
/// The model of a database with slot locks.
pub(crate) type Oracle = locked::Oracle<Spot, Row>;
