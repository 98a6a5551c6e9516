//! Counts wrong passwords by address, so that guessing becomes slower.
//!
//! The answer to a wrong password is delayed: by 20 ms for the first, and twice as long for each further wrong
//! password, up to ten seconds. Wrong passwords are counted for each connection and for each address, and the higher
//! count determines the delay. A right password is answered at once, even if other clients have sent wrong passwords.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The delay of the answer to the first wrong password.
const DELAY_MIN: Duration = Duration::from_millis(20);
/// The maximum number of times that the delay doubles. The longest delay is 10.24 s.
const DOUBLINGS_MAX: u32 = 9;
/// The interval at which an address's count halves, while the address sends no wrong password.
const HALF_LIFE: Duration = Duration::from_secs(60);
const _: () = assert!(
    DOUBLINGS_MAX < u32::BITS,
    "a delay is a shift of the least one"
);
/// The maximum number of addresses that are remembered. If one more must be added, the server forgets the address that
/// has sent no wrong password for the longest time.
const ADDRESSES_MAX: usize = 4096;

/// The origin of a client, without the part that the client can choose freely. So an IPv6 network of 64 bits counts as
/// one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// The Unix socket.
    Unix,
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 network of 64 bits.
    V6([u8; 8]),
}

impl Address {
    /// Parses the address from `peer`, a session's description of its client.
    pub(crate) fn of(peer: &str) -> Address {
        match peer
            .parse::<SocketAddr>()
            .map(|peer| peer.ip().to_canonical())
        {
            Err(_) => Address::Unix,
            Ok(IpAddr::V4(ip)) => Address::V4(ip),
            Ok(IpAddr::V6(ip)) => {
                let mut network = [0; 8];
                network.copy_from_slice(&ip.octets()[..8]);
                Address::V6(network)
            }
        }
    }
}

/// Returns the delay of the answer to the `count`th wrong password.
pub(crate) fn delay(count: u32) -> Duration {
    DELAY_MIN * (1 << count.saturating_sub(1).min(DOUBLINGS_MAX))
}

/// The addresses that have sent wrong passwords.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    seen: HashMap<Address, (u32, Instant)>,
}

impl Throttle {
    /// Counts a wrong password from an address. Returns the address's new count.
    pub(crate) fn wrong(&mut self, address: Address, now: Instant) -> u32 {
        let count = self.count(address, now).saturating_add(1);
        if self.seen.len() >= ADDRESSES_MAX && !self.seen.contains_key(&address) {
            let oldest = self.seen.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.seen.remove(&oldest);
            }
        }
        self.seen.insert(address, (count, now));
        debug_assert!(
            self.seen.len() <= ADDRESSES_MAX,
            "an old address makes room for a new one"
        );
        debug_assert!(count > 0, "a wrong password counts");
        count
    }

    /// Returns the count of wrong passwords from an address. The count halves with time.
    pub(crate) fn count(&self, address: Address, now: Instant) -> u32 {
        let Some((count, at)) = self.seen.get(&address) else {
            return 0;
        };
        let halvings = now.saturating_duration_since(*at).as_secs() / HALF_LIFE.as_secs();
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        count.checked_shr(halvings).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_ten_seconds() {
        let ms = [1, 2, 3, 9, 10, 11, u32::MAX].map(|count| delay(count).as_millis());
        assert_eq!(ms, [20, 40, 80, 5120, 10_240, 10_240, 10_240]);
    }

    #[test]
    fn addresses_are_forgotten_by_time_and_the_table_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let address = Address::of("10.0.0.1:4000");
        for count in 1..=8 {
            assert_eq!(throttle.wrong(address, now), count);
        }
        assert_eq!(throttle.count(Address::of("10.0.0.1:1"), now), 8);
        assert_eq!(throttle.count(Address::of("10.0.0.2:1"), now), 0);
        assert_eq!(throttle.count(address, now + HALF_LIFE), 4);
        assert_eq!(throttle.count(address, now + HALF_LIFE * 40), 0);
        for n in 0..u32::try_from(ADDRESSES_MAX * 2).expect("small") {
            let at = now + Duration::from_millis(n.into());
            throttle.wrong(Address::V4(Ipv4Addr::from_bits(n)), at);
        }
        assert_eq!(throttle.seen.len(), ADDRESSES_MAX);
        assert_eq!(throttle.count(address, now), 0, "the oldest are gone");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [a, b, c] = [
            "[2001:db8::1]:1",
            "[2001:db8::ffff:2]:2",
            "[2001:db8:0:1::1]:1",
        ]
        .map(Address::of);
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert_eq!(
            Address::of("[::ffff:10.0.0.1]:1"),
            Address::of("10.0.0.1:2")
        );
        assert_eq!(Address::of("/run/perdura.sock:0"), Address::Unix);
    }
}
