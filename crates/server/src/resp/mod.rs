//! RESP, the protocol of Redis. Requests are parsed in the input buffer, without a copy. Replies are appended to the
//! connection's output buffer.

pub(crate) mod foreign;
pub(crate) mod frames;
pub(crate) mod inline;
pub(crate) mod parse;
pub(crate) mod reply;
