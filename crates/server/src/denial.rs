//! A denial of access control.

/// The part of a request that is denied. If several selectors deny different parts of a request, the error is the part
/// whose variant comes last in this enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// The user's name or the password of a login.
    Auth,
}

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denied {
    /// The reason.
    pub reason: Reason,
    /// The index of the key or channel among the request's keys or channels.
    pub at: usize,
    /// The command's name, the key or the channel.
    pub object: Vec<u8>,
}
