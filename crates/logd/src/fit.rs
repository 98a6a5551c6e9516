//! The number of clients for which the process has descriptors.

use perdura_base::num::to_u64;

use crate::serve::LogdOptions;

/// The descriptors that are not for clients and rings: those of listeners, the hard copy, and the peer.
const RESERVED: u64 = 48;
/// The descriptors that each client needs: its socket, a copy of it, and the memory of its ring.
const CLIENT_DESCRIPTORS: u64 = 3;

/// Lowers the most clients to the number for which there are descriptors. If it has lowered them, returns a message
/// about it.
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
