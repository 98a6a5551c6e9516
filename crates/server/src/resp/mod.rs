//! RESP, the protocol of Redis: requests are read in place, replies are appended in place.

pub(crate) mod foreign;
pub(crate) mod frames;
pub(crate) mod inline;
pub(crate) mod parse;
pub(crate) mod reply;
