//! The definitions that all layers share: typed ids, checksums, one little-endian
//! cursor, the limits, and the four families of errors.
//!
//! This crate performs no I/O and reads no clock.

pub mod checksum;
pub mod cursor;
pub mod error;
pub mod fields;
pub mod flaw;
pub mod gf64;
pub mod ids;
pub mod limits;
pub mod moment;
pub mod num;
pub mod partset;

pub use error::{Corruption, Error, NotRegular, Result};
pub use ids::{
    CkptEpoch, Epoch, Gsn, ImageSlot, Incarnation, LifeId, PageId, PartitionId, Pid, Pos, SlotId,
    StreamId, TableId, TxnId, Useq, Uuid,
};
pub use partset::PartitionSet;
