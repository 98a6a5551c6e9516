//! The number of clients that the process has descriptors for.

use perdura_base::num::to_u64;

use crate::serve::LogdOptions;

/// The number of descriptors that are not for clients or rings: those of the listeners, the hard copy and the peer.
const RESERVED: u64 = 48;
/// The number of descriptors for one client: a socket, a copy of the socket, and the memory of a ring.
const CLIENT_DESCRIPTORS: u64 = 3;

/// Lowers the limit of clients to the number that the process has descriptors for. Returns a message about the change,
/// or `None` if the limit was low enough.
pub(crate) fn clients(options: &mut LogdOptions, limit: u64) -> Option<String> {
    let rings = 2 * to_u64(options.rings_max);
    let fits = limit.saturating_sub(RESERVED + rings) / CLIENT_DESCRIPTORS;
    let wanted = options.connections_max;
    let fits = usize::try_from(fits).unwrap_or(usize::MAX).max(1);
    if wanted <= fits {
        return None;
    }
    options.connections_max = fits;
    Some(format!(
        "Only {fits} clients can be served instead of {wanted}: the process may open {limit} \
         files. Raise the limit (ulimit -n, LimitNOFILE=)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_rings_and_files_do_not_need() {
        let mut options = LogdOptions::default();
        assert_eq!(clients(&mut options, 20_000), None);
        assert_eq!(options.connections_max, 256);
        let said = clients(&mut options, 512).unwrap();
        assert_eq!(options.connections_max, 112);
        assert!(said.contains("Only 112"), "{said}");
        let _few = clients(&mut options, 16);
        assert_eq!(options.connections_max, 1);
    }
}
