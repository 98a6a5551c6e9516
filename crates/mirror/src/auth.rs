//! Proofs of a shared key between a client and a node. The key is not sent.

use hmac::{Hmac, Mac};
use perdura_base::{Error, Result, Uuid};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::ids::NodeInc;

/// The size of a nonce, bytes.
pub const NONCE_BYTES: usize = 32;
/// The size of a proof, bytes.
pub const PROOF_BYTES: usize = 32;
/// The shortest key, bytes.
const KEY_BYTES_MIN: usize = 16;
/// The longest key, bytes.
const KEY_BYTES_MAX: usize = 4096;

/// A random number for one use.
pub type Nonce = [u8; NONCE_BYTES];

/// The side that makes a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The node.
    Node,
    /// The client of the node: a writer or a takeover.
    Client,
}

/// The key that client and node share. `None`: no key is set.
#[derive(Clone, Default)]
pub struct Key(Option<Vec<u8>>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_set() {
            "Key(..)"
        } else {
            "Key(none)"
        })
    }
}

/// The facts that a proof covers, all from one greeting between a client and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The client's nonce.
    pub client: Nonce,
    /// The node's nonce.
    pub node: Nonce,
    /// The database.
    pub uuid: Uuid,
    /// The node's incarnation.
    pub inc: NodeInc,
}

impl Key {
    /// Returns a key that is not set. Any client that reaches a node without a key may use the node.
    #[must_use]
    pub fn none() -> Key {
        Key(None)
    }

    /// Returns the key in a key file's bytes, without the white space at the end.
    ///
    /// # Errors
    /// [`Error::Usage`] if the key is shorter than 16 bytes or longer than 4,096.
    pub fn from_file(name: &str, bytes: &[u8]) -> Result<Key> {
        let key = bytes.trim_ascii_end();
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(Error::Usage(format!(
                "the key in {name} has {} bytes, and a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX}",
                key.len()
            )));
        }
        Ok(Key(Some(key.to_vec())))
    }

    /// Returns whether a key is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the proof that a side sends. If no key is set, the proof is all zeros. See docs/formats/logd.md.
    #[must_use]
    pub fn prove(&self, side: Side, terms: &Terms) -> [u8; PROOF_BYTES] {
        let Some(key) = &self.0 else {
            return [0; PROOF_BYTES];
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(match side {
            Side::Node => b"perdura logd node",
            Side::Client => b"perdura logd client",
        });
        mac.update(&terms.client);
        mac.update(&terms.node);
        mac.update(&terms.uuid.0);
        mac.update(&terms.inc.0.to_le_bytes());
        mac.finalize().into_bytes().into()
    }

    /// Returns whether `proof` is the proof that this side makes with this key.
    #[must_use]
    pub fn accepts(&self, side: Side, terms: &Terms, proof: &[u8; PROOF_BYTES]) -> bool {
        self.prove(side, terms).ct_eq(proof).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_side_key_nonces_database_and_node_only() {
        let key = Key::from_file("k", b"0123456789abcdef\n").unwrap();
        let terms = Terms {
            client: [1; 32],
            node: [2; 32],
            uuid: Uuid([3; 16]),
            inc: NodeInc(4),
        };
        let proof = key.prove(Side::Node, &terms);
        assert!(key.accepts(Side::Node, &terms, &proof));
        let other = Key::from_file("k", b"0123456789abcdeg").unwrap();
        assert!(!other.accepts(Side::Node, &terms, &proof));
        assert!(!Key::none().accepts(Side::Node, &terms, &proof));
        assert!(!key.accepts(Side::Client, &terms, &proof));
        let others = [
            Terms {
                client: terms.node,
                node: terms.client,
                ..terms
            },
            Terms {
                uuid: Uuid([0; 16]),
                ..terms
            },
            Terms {
                inc: NodeInc(5),
                ..terms
            },
        ];
        assert!(
            others
                .iter()
                .all(|other| !key.accepts(Side::Node, other, &proof))
        );
        assert!(!key.accepts(Side::Node, &terms, &[0; 32]));
    }

    #[test]
    fn a_key_has_enough_bytes_and_is_never_printed() {
        for bytes in [&b""[..], b"short", b"fifteen bytes.. \n"] {
            assert!(Key::from_file("the file", bytes).is_err());
        }
        assert!(Key::from_file("the file", &[b'x'; 5000]).is_err());
        let key = Key::from_file("k", b"0123456789abcdef").unwrap();
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
